"""The same recorded input, with no switch and with one at some moment, gives the same results, each once."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.journal import Kind, Writer
from millstream.spark.run import FlowRun, Options

pytestmark = pytest.mark.spark

SECOND = 1_000_000
START = 1_577_872_800 * SECOND
DDL = "k string, v long, at timestamp"
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
WINDOWED = {"n": "count(*)", "total": "sum(v)"}


def flow_of(least: int) -> ms.Flow:
    """Return a version; `least` makes it another one with the same results, as all values are above it."""
    flow = ms.Flow("switched", window="10 s")
    events = flow.source("events", ms.inbox(DDL), time="at", lateness="3 s", key="k", partitions=3, idle="1 day")
    rows = events.sql("some", f"SELECT * FROM events WHERE v > {least}")
    rows.sink("rows", ms.jsonl("rows"))
    # Its start is lost: the cut goes by its end.
    sliding = rows.window("sliding", every="4 s", size="12 s", **WINDOWED)
    sliding.sql("late", "SELECT k, n, total, window_time FROM sliding WHERE n > 0").sink("sliding", ms.jsonl("sliding"))
    sliding.window("outer", every="10 s", by="k", n="sum(n)").sink("outer", ms.jsonl("outer"))
    rows.window("sessions", gap="2 s", longest="60 s", **WINDOWED).sink("sessions", ms.jsonl("sessions"))
    left = rows.sql("left", "SELECT k, v, at FROM some WHERE v % 2 = 0")
    right = rows.sql("right", "SELECT k, v AS other, at FROM some WHERE v % 2 = 1")
    left.join("joined", right, on="k", within="5 s", how="left").sink("joined", ms.jsonl("joined"))
    return flow


SINKS = ("rows", "sliding", "outer", "sessions", "joined")


def script() -> list[list[tuple[int, Any]]]:
    """Two minutes of events in pieces: two partitions with late rows, and one that only says that it is idle."""
    chance, now = random.Random(5), START
    pieces: list[list[tuple[int, Any]]] = []
    for _ in range(40):
        now += 3 * SECOND
        piece: list[tuple[int, Any]] = [(2, (Kind.IDLE, now - 3 * SECOND))]
        for partition in (0, 1):
            behind = [chance.choice([0, 0, 1, 2, 2.9, 3.5]) for _ in range(6)]
            rows = [(f"k{chance.randrange(4)}", chance.randrange(100), now - int(b * SECOND)) for b in behind]
            piece.append((partition, rows))
        pieces.append(piece)
    pieces.append([(partition, (Kind.END_OF_STREAM, None)) for partition in range(3)])
    return pieces


def perform(run: FlowRun, piece: list[tuple[int, Any]], numbers: Counter[int]) -> None:
    for partition, what in piece:
        with Writer.open(run.journal("events"), partition, wait_s=10) as writer:
            if isinstance(what, tuple):
                writer.instruct(what[0], what[1])
                continue
            columns = [
                pa.array(list(values), field.type)
                for values, field in zip(zip(*what, strict=True), SCHEMA, strict=True)
            ]
            writer.append("script", numbers[partition], pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
            numbers[partition] += len(what)


def outcome(root: Path) -> dict[str, Counter[str]]:
    return {
        sink: Counter(line for file in (root / sink).glob("*.jsonl") for line in file.read_text().splitlines())
        for sink in SINKS
    }


def played(spark: SparkSession, root: Path, *, switch_at: int | None = None) -> FlowRun:
    """Run the script, with a switch after one of its pieces."""
    run = FlowRun(spark, flow_of(-1), Options(root / "data", root, rows_per_batch=60, hosting=False))
    run.start()
    numbers: Counter[int] = Counter()
    try:
        for turn, piece in enumerate(script()):
            perform(run, piece, numbers)
            if turn == switch_at:
                run.switch(flow_of(-2), "2")
            pause(run, settle=turn < 2)
        assert run.wait(timeout=300), run.history()
    finally:
        run.stop()
    return run


def pause(run: FlowRun, *, settle: bool) -> None:
    until = time.monotonic() + 0.2
    while time.monotonic() < until or (settle and not run.caught_up()):
        run.poll()
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_switch_changes_no_result(spark: SparkSession, tmp_path: Path) -> None:
    played(spark, tmp_path / "alone")
    run = played(spark, tmp_path / "both", switch_at=4)
    assert run.version == "2"
    alone, both = outcome(tmp_path / "alone"), outcome(tmp_path / "both")
    for sink in SINKS:
        assert both[sink] == alone[sink], (sink, run.history())
        assert alone[sink].total() > 20
