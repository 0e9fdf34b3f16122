"""A kind of stage of one's own runs on Spark, from Python and from YAML, and is switched."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.testing import flow_test
from support.lives import Life, Switches, written
from support.recording import Recording
from support.sample_stage import Sample
from support.switched import begun
from support.undisturbed import rows_of

pytestmark = pytest.mark.spark

WRITTEN = """\
name: sampled
sources:
  events:
    inbox: k string, v long, at timestamp
    time: at
    key: k
stages:
  some:
    from: events
    sample: 2
    by: k
sinks:
  out:
    from: some
    memory:
"""


def in_python() -> ms.Flow:
    flow = ms.Flow("sampled")
    events = flow.source("events", ms.inbox("k string, v long, at timestamp"), time="at", key="k")
    events.stage("some", Sample, every=2, by="k").sink("out", ms.memory())
    return flow


def passing(spark: SparkSession, keys: set[str], every: int) -> set[str]:
    """Return the keys that one of so many lets pass."""
    frame = spark.createDataFrame([(key,) for key in keys], "k string")
    return {row.k for row in frame.where(f"pmod(xxhash64(k), {every}) = 0").collect()}


@pytest.mark.parametrize("form", ["python", "yaml"])
def test_it_runs(spark: SparkSession, tmp_path: Path, form: str) -> None:
    (tmp_path / "flow.yaml").write_text(WRITTEN)
    rows = [{"k": f"k{n}", "v": n, "at": f"2026-01-01T00:00:{n:02}Z"} for n in range(20)]
    with flow_test(in_python() if form == "python" else tmp_path / "flow.yaml") as t:
        t.send("events", rows)
        t.end()
        found = set(t.results("out")["k"])
    assert found == passing(spark, {row["k"] for row in rows}, 2)
    assert 0 < len(found) < 20


def test_it_is_switched(spark: SparkSession, tmp_path: Path) -> None:
    def build(version: str) -> ms.Flow:
        flow, events = begun()
        events.stage("some", Sample, every=int(version), by="k").sink("rows", ms.jsonl("rows"))
        return flow

    life = Life(tmp_path / "life", build, Recording(5))
    run = life.lived(spark, Switches((1,)))
    cut = next(int(one.text.split()[2]) for one in run.history() if one.text.startswith("cut at"))
    rows = rows_of(life.recording, life.turns)
    let = passing(spark, {key for key, _, _ in rows}, 2)
    expected = Counter((key, value) for key, value, at in rows if at < cut or key in let)
    assert Counter((row["k"], row["v"]) for row in written(life.root, "rows")) == expected
    assert 0 < expected.total() < len(rows)
