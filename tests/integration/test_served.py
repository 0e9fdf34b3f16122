"""A flow whose executors read and write through the driver's service, on this machine's Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.errors import RunError
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.run.query import GroupQuery
from millstream.spark.served import messages, serving
from millstream.spark.served.service import Service

pytestmark = pytest.mark.spark

COUNT = 3000


def counted(state: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    if row["v"] == 7:
        raise ValueError("seven")
    return state + 1, {"k": row["k"], "at": row["at"], "n": state + 1}


def flow_of(root: Path) -> ms.Flow:
    start = datetime(2020, 1, 1, tzinfo=UTC)
    rows = [
        {"k": f"k{i % 5}", "v": i, "at": (start + timedelta(seconds=i)).isoformat()}
        for i in range(COUNT)
    ]
    rows.append({"k": "k0", "v": -1, "at": start.isoformat()})
    (root / "events.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (root / "names.csv").write_text("k,name\n" + "".join(f"k{i},name {i}\n" for i in range(4)))
    (root / "more.jsonl").write_text("".join(f'{{"k": "k{i}", "w": {i}}}\n' for i in range(4)))
    pq.write_table(pa.table({"k": [f"k{i}" for i in range(5)], "z": range(5)}), root / "z.parquet")
    flow = ms.Flow("served")
    origin = ms.files("events.jsonl", "k string, v long, at timestamp")
    events = flow.source("events", origin, time="at", key="k", lateness="10 minutes")
    hours = events.window("hours", every="10 minutes", n="count(*)", total="sum(v)")
    hours.journal("hourly", key="k", partitions=2).sink("out", ms.jsonl("out"))
    events.fold("counts", counted, initial=0, output="k string, at timestamp, n long").sink(
        "counts", ms.parquet("counts")
    )
    named = events.join("named", ms.table("names.csv"), on="k", how="left")
    named = named.join("more", ms.table("more.jsonl"), on="k", how="left")
    named.join("z", ms.table("z.parquet"), on="k").sink("named", ms.csv("named"))
    return flow


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What is asked of the service."""
    seen: Counter[str] = Counter()
    take = Service._take

    def counting(self: Service, frames: list[Any], *rest: Any) -> None:
        seen[type(messages.request(frames[0])).__name__] += 1
        take(self, frames, *rest)

    monkeypatch.setattr(Service, "_take", counting)
    return seen


@pytest.fixture
def closing(spark: SparkSession) -> Iterator[SparkSession]:
    yield spark
    serving.stop_serving(spark)


def results(root: Path) -> dict[str, list[str]]:
    """Return what the sinks hold, sorted, as text."""
    lines = {
        name: sorted(
            line
            for file in (root / name).glob(f"*.{kind}")
            for line in file.read_text().split("\n")
        )
        for name, kind in (("out", "jsonl"), ("named", "csv"))
    }
    tables = [pq.read_table(file) for file in (root / "counts").glob("*.parquet")]
    lines["counts"] = sorted(str(row) for table in tables for row in table.to_pylist())
    lines["named"] = [line for line in lines["named"] if line and not line.startswith("k,v")]
    return lines


def run(spark: SparkSession, root: Path, mode: str) -> tuple[dict[str, list[str]], int, int]:
    root.mkdir()
    flow = flow_of(root)
    running = FlowRun(spark, flow, Options(root / "data", root, 1000, serve=mode))
    running.start()
    try:
        assert running.wait(timeout=240)
        numbers = running.statistics()
    finally:
        running.stop()
    return results(root), numbers.late, numbers.dead


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_executors_borrow_gives_the_results_that_they_have_alone(
    closing: SparkSession, tmp_path: Path, asked: Counter[str]
) -> None:
    alone = run(closing, tmp_path / "alone", "auto")
    assert not asked, "on one machine there is no service"
    assert serving.serving(closing) is None
    served = run(closing, tmp_path / "served", "always")
    found = serving.serving(closing)
    assert found is not None
    kept = [file for file in (tmp_path / "served").rglob("*") if file.is_file()]
    assert kept
    assert not [file for file in kept if found.place.secret in file.read_bytes()], "in no file"
    assert served == alone
    assert (served[1], served[2]) == (1, 1), "the late row, and the one on which the fold fails"
    assert len(alone[0]["named"]) == COUNT
    assert asked["Read"] > 0
    assert asked["Put"] > 0
    assert asked["Finish"] > 0


def test_state_that_executors_would_lose_is_refused(
    closing: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving.serve(closing, tmp_path, "always")
    found = serving.serving(closing)
    assert found is not None
    assert found.checkpoints, "on one machine all see them"
    monkeypatch.setitem(
        serving._servings,
        closing.sparkContext.applicationId,
        serving.Serving(found.service, found.file, checkpoints=False),
    )
    root = tmp_path / "flow"
    root.mkdir()
    running = FlowRun(closing, flow_of(root), Options(root / "data", root))
    with pytest.raises(RunError, match="which the executors do not see"):
        running.start()
    assert isinstance(running.queries, dict)
    assert all(isinstance(one, GroupQuery) for one in running.queries.values())


def test_an_unknown_mode_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(RunError, match='"sometimes" says nothing about serving'):
        serving.serve(spark, tmp_path, "sometimes")
