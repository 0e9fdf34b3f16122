"""A flow whose executors read and write through the driver's service, on this machine's Spark."""

from __future__ import annotations

import csv
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

COUNT = 600
START = datetime(2020, 1, 1, tzinfo=UTC)


def counted(state: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    if row["v"] == 7:
        raise ValueError("seven")
    return state + 1, {"k": row["k"], "at": row["at"], "n": state + 1}


def source_of(root: Path, flow: ms.Flow) -> Any:
    rows = [
        {"k": f"k{i % 5}", "v": i, "at": (START + timedelta(seconds=i)).isoformat()}
        for i in range(COUNT)
    ]
    rows.append({"k": "k0", "v": -1, "at": START.isoformat()})
    (root / "events.jsonl").write_text("\n".join(map(json.dumps, rows)))
    origin = ms.files("events.jsonl", "k string, v long, at timestamp")
    return flow.source("events", origin, time="at", key="k", lateness="1 minute")


def flow_of(root: Path) -> ms.Flow:
    (root / "names.csv").write_text("k,name\n" + "".join(f"k{i},name {i}\n" for i in range(4)))
    (root / "more.jsonl").write_text("".join(f'{{"k": "k{i}", "w": {i}}}\n' for i in range(4)))
    pq.write_table(pa.table({"k": [f"k{i}" for i in range(5)], "z": range(5)}), root / "z.parquet")
    flow = ms.Flow("served")
    events = source_of(root, flow)
    spans = events.window("spans", every="5 minutes", n="count(*)", total="sum(v)")
    spans.journal("kept", key="k", partitions=2).sink("out", ms.jsonl("out"))
    events.fold("counts", counted, initial=0, output="k string, at timestamp, n long").sink(
        "counts", ms.parquet("counts")
    )
    named = events.join("named", ms.table("names.csv"), on="k", how="left")
    named = named.join("more", ms.table("more.jsonl"), on="k", how="left")
    named.join("z", ms.table("z.parquet"), on="k").sink("named", ms.csv("named"))
    return flow


Results = dict[str, list[tuple[Any, ...]]]


def expected() -> Results:
    """Return what the sinks must hold, by plain Python."""
    groups: dict[tuple[str, datetime], list[int]] = {}
    steps: Counter[str] = Counter()
    counts, named = [], []
    for i in range(COUNT):
        k, at = f"k{i % 5}", START + timedelta(seconds=i)
        groups.setdefault((k, START + timedelta(minutes=i // 300 * 5)), []).append(i)
        if i != 7:
            steps[k] += 1
            counts.append((k, at, steps[k]))
        known = ("", "") if k == "k4" else (f"name {k[1]}", k[1])
        named.append((k, str(i), *known, k[1]))
    out = [(k, at, len(rows), sum(rows)) for (k, at), rows in groups.items()]
    return {"out": sorted(out), "counts": sorted(counts), "named": sorted(named)}


def found(root: Path) -> Results:
    """Return what the sinks hold."""
    lines = [
        json.loads(line)
        for file in (root / "out").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    out = [
        (row["k"], datetime.fromisoformat(row["window_start"]), row["n"], row["total"])
        for row in lines
    ]
    tables = [pq.read_table(file).to_pylist() for file in (root / "counts").glob("*.parquet")]
    counts = [(row["k"], row["at"], row["n"]) for rows in tables for row in rows]
    named = [
        tuple(row[name] for name in ("k", "v", "name", "w", "z"))
        for file in (root / "named").glob("*.csv")
        for row in csv.DictReader(file.read_text().splitlines())
    ]
    return {"out": sorted(out), "counts": sorted(counts), "named": sorted(named)}


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


@pytest.mark.slow
def test_what_executors_borrow_gives_the_results_that_they_would_have_alone(
    closing: SparkSession, tmp_path: Path, asked: Counter[str]
) -> None:
    options = Options(tmp_path / "data", tmp_path, 300, serve="always")
    running = FlowRun(closing, flow_of(tmp_path), options)
    running.start()
    try:
        assert running.wait(timeout=240)
        numbers = running.statistics()
    finally:
        running.stop()
    assert found(tmp_path) == expected()
    assert (numbers.late, numbers.dead) == (1, 1), "the late row, and one on which the fold fails"
    assert min(asked[one] for one in ("Read", "Put", "Finish")) > 0
    served = serving.serving(closing)
    assert served is not None
    kept = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert kept
    assert not [file for file in kept if served.place.secret in file.read_bytes()], "in no file"


def test_on_one_machine_there_is_no_service(spark: SparkSession, tmp_path: Path) -> None:
    serving.serve(spark, tmp_path, "auto")
    assert serving.serving(spark) is None


def test_state_that_executors_would_lose_is_refused(
    closing: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving.serve(closing, tmp_path, "always")
    started = serving.serving(closing)
    assert started is not None
    assert started.checkpoints, "on one machine all see them"
    monkeypatch.setitem(
        serving._servings,
        closing.sparkContext.applicationId,
        serving.Serving(started.service, started.file, checkpoints=False),
    )
    flow = ms.Flow("lost")
    spans = source_of(tmp_path, flow).window("spans", every="5 minutes", n="count(*)")
    spans.sink("out", ms.jsonl("out"))
    for data, storage in (("one", None), ("other", str(tmp_path / "storage"))):
        running = FlowRun(closing, flow, Options(tmp_path / data, tmp_path, storage=storage))
        with pytest.raises(RunError, match="which the executors do not see"):
            running.start()
    assert isinstance(running.queries, dict)
    assert all(isinstance(one, GroupQuery) for one in running.queries.values())


def test_an_unknown_mode_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(RunError, match='"sometimes" says nothing about serving'):
        serving.serve(spark, tmp_path, "sometimes")
