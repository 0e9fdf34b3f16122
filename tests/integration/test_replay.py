"""The same journal gives the same results, whatever the batches, the speed and the restarts."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.journal import Kind
from millstream.journal.kinds.files.layout import dead_folder
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.writer import Writer
from millstream.spark.flow_run import FlowRun, Options

pytestmark = pytest.mark.spark

SECOND = 1_000_000
START = 1_577_872_800 * SECOND  # 2020-01-01 10:00
HOUR = 3600 * SECOND

Step = tuple[str, int, Any]
"""A journal, a partition, and rows (key, value, time) or an instruction."""


def counted(state: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return state + 1, {"k": row["k"], "at": row["at"], "v": row["v"], "n": state + 1}


def flow_of_many() -> ms.Flow:
    flow = ms.Flow("replayed")
    ddl = "k string, v long, at timestamp"
    # The script says itself when a partition is idle: a run must not add to the journal that is to
    # be the same.
    events = flow.source(
        "events",
        ms.inbox(ddl),
        time="at",
        lateness="5 minutes",
        key="k",
        partitions=3,
        idle="1 day",
    )
    other = flow.source("other", ms.inbox(ddl), time="at", lateness="1 minute", key="k")
    hours = flow.merge("both", events, other).window(
        "hours", every="1 hour", n="count(*)", total="sum(v)"
    )
    hours.journal("hourly", partitions=2, key="k").window(
        "days", every="1 day", by="k", n="sum(n)"
    ).sink("days", ms.jsonl("days"))
    hours.sink("hours", ms.jsonl("hours"))
    folded = events.fold(
        "counts", counted, initial=0, output="k string, at timestamp, v long, n long", by="k"
    )
    folded.sink("counts", ms.jsonl("counts"))
    return flow


def script(seed: int) -> list[Step]:
    """Two hours of events in three partitions with late rows, a quiet and an idle one, and a night's sleep."""
    chance = random.Random(seed)
    steps: list[Step] = []
    now = START
    for turn in range(40):
        now += chance.randrange(1, 6) * 60 * SECOND
        if turn == 25:
            now += 9 * HOUR  # the night: both wake up together
        for partition in (0, 1):
            rows = []
            for _ in range(chance.randrange(1, 8)):
                behind = chance.choice([0, 0, 60, 200, 299, 301, 900]) * SECOND
                rows.append(
                    (
                        f"k{chance.randrange(4)}",
                        chance.randrange(100),
                        now - behind + chance.randrange(SECOND),
                    )
                )
            steps.append(("events", partition, rows))
        if turn % 4 == 0:
            # Partition 2 says nothing all day but that it is idle, and once a row below its floor.
            steps.append(("events", 2, (Kind.IDLE, now - 400 * SECOND)))
        if turn == 30:
            steps.append(("events", 2, [("k9", 1, now - 3 * HOUR), ("k9", 2, now)]))
        if turn < 10:
            steps.append(("other", 0, [(f"k{chance.randrange(4)}", 1000, now)]))
        if turn == 10:
            steps.append(("other", 0, (Kind.END_OF_STREAM, None)))
    steps += [("events", partition, (Kind.END_OF_STREAM, None)) for partition in range(3)]
    return steps


def perform(run: FlowRun, steps: list[Step], numbers: Counter[tuple[str, int]]) -> None:
    for name, partition, what in steps:
        with Writer.open(run.journal(name), partition, timeout=120) as writer:
            if isinstance(what, tuple):
                writer.instruct(what[0], what[1])
                continue
            schema = pa.schema(
                [("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))]
            )
            columns = [
                pa.array(list(values), field.type)
                for values, field in zip(zip(*what, strict=True), schema, strict=True)
            ]
            writer.append(
                "script",
                numbers[name, partition],
                pa.RecordBatch.from_arrays(columns, schema=schema),
            )
            numbers[name, partition] += len(what)


def outcome(root: Path, run: FlowRun) -> dict[str, list[str]]:
    found = {
        name: sorted(
            line for file in (root / name).glob("*.jsonl") for line in file.read_text().splitlines()
        )
        for name in ("days", "hours", "counts")
    }
    dead = dead_folder(run.journal("events"))
    view = Reader(dead).partition(0)
    letters = [
        row
        for part in view.read(view.begin, view.end)
        if part.batch
        for row in part.batch.to_pylist()
    ]
    found["late"] = sorted(
        f"{row['partition']}/{row['position']} {row['record']}" for row in letters
    )
    return found


def play(
    spark: SparkSession,
    root: Path,
    seed: int,
    *,
    rows: Callable[[], int],
    pieces: int,
    restarts: int,
) -> dict[str, list[str]]:
    """Run the flow to its end, its journal written in `pieces` meanwhile, stopping it now and then."""
    chance = random.Random(seed)
    steps = script(7)
    cuts = sorted(chance.sample(range(1, len(steps)), pieces - 1)) if pieces > 1 else []
    slices: Iterator[list[Step]] = (
        steps[a:z] for a, z in zip([0, *cuts], [*cuts, len(steps)], strict=True)
    )
    stops = set(chance.sample(range(pieces), restarts))
    numbers: Counter[tuple[str, int]] = Counter()
    run = None
    for number, piece in enumerate(slices):
        if run is None:
            run = FlowRun(
                spark, flow_of_many(), Options(root / "data", root, rows(), hosting=False)
            )
            run.start()
        perform(run, piece, numbers)
        time.sleep(chance.random())
        if number in stops:
            run.stop()
            run = None
    if run is None:
        run = FlowRun(spark, flow_of_many(), Options(root / "data", root, rows(), hosting=False))
        run.start()
    try:
        assert run.wait(timeout=400)
    finally:
        run.stop()
    return outcome(root, run)


@pytest.mark.long
def test_a_replay_gives_the_same_results_and_the_same_late_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    sizes = iter([150, 40, 5000])
    once = played_once(spark, tmp_path)
    assert (
        play(spark, tmp_path / "broken", 3, rows=lambda: next(sizes), pieces=4, restarts=2) == once
    )


@pytest.mark.soak
def test_a_replay_in_tiny_batches_and_with_many_restarts_gives_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(11)
    once = played_once(spark, tmp_path)
    tiny = play(spark, tmp_path / "tiny", 2, rows=lambda: 40, pieces=3, restarts=0)
    assert tiny == once
    broken = play(
        spark,
        tmp_path / "broken",
        3,
        rows=lambda: chance.choice([30, 150, 5000]),
        pieces=6,
        restarts=4,
    )
    assert broken == once


def played_once(spark: SparkSession, tmp_path: Path) -> dict[str, list[str]]:
    """Return what the journal gives in one batch."""
    once = play(spark, tmp_path / "once", 1, rows=lambda: 100_000, pieces=1, restarts=0)
    assert all(once.values())
    assert any("/" in line and line.startswith("2/") for line in once["late"]), (
        "the row below the idle floor is late"
    )
    return once
