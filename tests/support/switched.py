"""Flows that are switched while events come in: versions that differ and give the same results, and their lives.

python -m support.switched FOLDER SEED TURN...     lives until it has switched at these turns and ended
"""

from __future__ import annotations

import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import millstream as ms
from millstream.journal import Kind, Writer
from millstream.spark.run import FlowRun, Options
from support.actions import PYTHON, SDK

SECOND = 1_000_000
START = 1_577_872_800 * SECOND
DDL = "k string, v long, at timestamp"
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
WINDOWED = {"n": "count(*)", "total": "sum(v)"}
#: A life that has not done what it should in so many turns will not.
MOST_TURNS = 400
Build = Callable[[str], ms.Flow]


def small(version: str) -> ms.Flow:
    """Return a version of a flow; all give the same results.

    Two changed groups have a journal between them, one hands its state over, and one is kept.
    """
    flow = ms.Flow("switched", window="10 s")
    events = flow.source("events", ms.inbox(DDL), time="at", lateness="3 s", key="k", partitions=3, idle="1 day")
    # All values are above it.
    rows = events.sql("some", f"SELECT * FROM events WHERE v > -{version}")
    rows.sink("rows", ms.jsonl("rows"))
    windows = rows.window("windows", every="5 s", size="15 s", **WINDOWED).journal("noted", partitions=2, key="k")
    most = windows.sql("counted", f"SELECT k, n, total, window_time FROM noted WHERE n > -{version}")
    most.window("most", every="10 s", by="k", most="max(n)").sink("most", ms.jsonl("most"))
    totals = rows.fold("summed", adder(), initial=0, output="k string, at timestamp, total long", by="k")
    totals.sink("totals", ms.jsonl("totals"))
    events.window("kept", every="10 s", **WINDOWED).sink("kept", ms.jsonl("kept"))
    return flow


SMALL = ("rows", "most", "totals", "kept")


def adder() -> Callable[[int, dict[str, Any]], tuple[int, dict[str, Any]]]:
    """Return a function that is made here: Spark's workers cannot import this file."""

    def summed(total: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return total + row["v"], {"k": row["k"], "at": row["at"], "total": total + row["v"]}

    return summed


TWICE = f"""#!{PYTHON} -S
import json, sys
sys.path.insert(0, {str(SDK / "python")!r})
import millstream_action as action
while (m := action.read_message()) is not None:
    action.write_message(json.dumps({{"twice": json.loads(m)["v"] * 2}}).encode())
"""


def large(program: Path) -> Build:
    """Return what makes versions of a flow with all kinds of stages; their results are the same."""
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(TWICE)
    program.chmod(0o755)

    def build(version: str) -> ms.Flow:
        flow = ms.Flow("switched", window="10 s")
        events = flow.source("events", ms.inbox(DDL), time="at", lateness="3 s", key="k", partitions=3, idle="1 day")
        rows = events.sql("some", f"SELECT * FROM events WHERE v > -{version}")
        rows.action("doubled", [str(program)], output="twice long").sink("acted", ms.jsonl("acted"))
        noted = rows.window("tumbling", every="5 s", **WINDOWED).journal("noted", partitions=2, key="k")
        # It does not change, and reads what both versions write.
        noted.window("kept", every="10 s", by="k", n="sum(n)").sink("kept", ms.jsonl("kept"))
        sliding = rows.window("sliding", every="4 s", size="12 s", **WINDOWED)
        # The start is lost here: the cut goes by the end.
        thin = sliding.sql("thin", "SELECT k, n, total, window_time FROM sliding WHERE n > 0")
        thin.window("outer", every="10 s", by="k", n="sum(n)").sink("outer", ms.jsonl("outer"))
        rows.window("sessions", gap="2 s", longest="60 s", **WINDOWED).sink("sessions", ms.jsonl("sessions"))
        left = rows.sql("left", "SELECT k, v, at FROM some WHERE v % 2 = 0")
        right = rows.sql("right", "SELECT k, v AS other, at FROM some WHERE v % 2 = 1")
        left.join("joined", right, on="k", within="5 s", how="left").sink("joined", ms.jsonl("joined"))
        rise = ms.Pattern().begin("a", "v < 50").followed_by("b", "v > a.v + 20").within("6 s")
        rows.match("risen", rise, emit="k, a.v as low, b.v as high").sink("risen", ms.jsonl("risen"))
        # These keep what no time bounds: their state is handed over.
        once = rows.distinct("once", by=["k", "v"], within="30 s")
        totals = once.fold("summed", adder(), initial=0, output="k string, at timestamp, total long", by="k")
        totals.sink("totals", ms.jsonl("totals"))
        skipping = rise.skip_past_last()
        rows.match("apart", skipping, emit="k, a.v as low, b.v as high").sink("apart", ms.jsonl("apart"))
        return flow

    return build


LARGE = ("acted", "kept", "outer", "sessions", "joined", "risen", "totals", "apart")


def piece(seed: int, turn: int, keys: int = 4) -> list[tuple[int, Any]]:
    """Return three seconds of events: two partitions with late rows, and one that only says that it is idle."""
    chance, now = random.Random(seed * 100_003 + turn), START + (turn + 1) * 3 * SECOND
    found: list[tuple[int, Any]] = [(2, (Kind.IDLE, now - 3 * SECOND))]
    for partition in (0, 1):
        behind = [chance.choice([0, 0, 1, 2, 2.9, 3.5]) for _ in range(6)]
        found.append(
            (
                partition,
                [(f"k{chance.randrange(keys)}", chance.randrange(100), now - int(b * SECOND)) for b in behind],
            )
        )
    return found


END: list[tuple[int, Any]] = [(partition, (Kind.END_OF_STREAM, None)) for partition in range(3)]


def perform(run: FlowRun, events: list[tuple[int, Any]], turn: int) -> None:
    """Write the events of a turn; once more changes nothing."""
    for partition, what in events:
        with Writer.open(run.journal("events"), partition, wait_s=120) as writer:
            if isinstance(what, tuple):
                writer.instruct(what[0], what[1])
                continue
            columns = [
                pa.array(list(values), field.type)
                for values, field in zip(zip(*what, strict=True), SCHEMA, strict=True)
            ]
            writer.append("script", turn * len(what), pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


def options(root: Path, rows: int = 60) -> Options:
    return Options(root / "data", root, rows_per_batch=rows, hosting=False)


def lived(spark: Any, root: Path, build: Build, seed: int, wishes: list[int]) -> FlowRun:
    """Let a flow live: from where it was, with switches at these turns, until it has done them and ended."""
    run = FlowRun(spark, build("1"), options(root), versions=build, version="1")
    run.start()
    try:
        turns = root / "turns"
        turn, last = int(turns.read_text()) if turns.exists() else 0, str(len(wishes) + 1)
        while not (run.version == last and run.switching() is None and turn > max(wishes, default=0)):
            assert turn < MOST_TURNS, run.history()
            perform(run, piece(seed, turn), turn)
            turn += 1
            turns.write_text(str(turn))
            _wish(run, build, wishes, turn)
            pause(run, settle=turn < 2)
        perform(run, END, turn)
        assert run.wait(timeout=900), run.history()
    finally:
        run.stop()
    return run


def _wish(run: FlowRun, build: Build, wishes: list[int], turn: int) -> None:
    """Ask for the next switch if it is time; one that was given up is asked for again."""
    done = int(run.version) - 1
    if done < len(wishes) and turn > wishes[done] and run.switching() is None:
        run.switch(build(str(done + 2)), str(done + 2))


def pause(run: FlowRun, *, settle: bool) -> None:
    """Wait a moment, and longer while the groups are behind, or a switch is not cut: then time stands nearly still."""
    status = run.switching()
    until = time.monotonic() + (1.0 if status is not None and status.cut is None else 0.1)
    while time.monotonic() < until or (settle and not run.caught_up()) or _behind(run):
        run.poll()
        time.sleep(0.05)


def _behind(run: FlowRun) -> bool:
    return max(group.lag_rows for group in run.statistics().groups) > 4 * 12


def replayed(spark: Any, lived_in: Path, root: Path, build: Build) -> None:
    """Run the first version alone over the events of another life."""
    alone, other = options(root, 500_000), options(lived_in)
    flow = build("1")
    shutil.copytree(other.data / flow.name / "journals" / "events", alone.data / flow.name / "journals" / "events")
    run = FlowRun(spark, flow, alone)
    run.start()
    try:
        assert run.wait(timeout=900)
    finally:
        run.stop()


def outcome(root: Path, sinks: tuple[str, ...]) -> dict[str, Counter[str]]:
    return {
        sink: Counter(line for file in (root / sink).glob("*.jsonl") for line in file.read_text().splitlines())
        for sink in sinks
    }


def main() -> None:
    from millstream.spark.session import session

    root, seed, *wishes = sys.argv[1:]
    spark = session("switched", master="local[2]", log=Path(root) / "spark.log")
    lived(spark, Path(root), small, int(seed), [int(turn) for turn in wishes])
    spark.stop()


if __name__ == "__main__":
    main()
