"""Flows that are switched while events come in: versions that differ and give the same results, and their lives.

python -m support.switched FOLDER SEED TURN...     lives until it has switched at these turns and ended
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.journal import Kind, Writer
from millstream.spark import failpoints
from millstream.spark.query import GroupQuery
from millstream.spark.reading import views
from millstream.spark.run import FlowRun, Options
from support.actions import PYTHON, SDK

SECOND = 1_000_000
START = 1_577_872_800 * SECOND
DDL = "k string, v long, at timestamp"
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
TIMELESS_DDL = "k string, v long"
TIMELESS = pa.schema([("k", pa.string()), ("v", pa.int64())])
WINDOWED = {"n": "count(*)", "total": "sum(v)"}
#: How many rows a partition gets in a turn.
ROWS = 6
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
        rows.window("sessions", gap="2 s", longest="12 s", **WINDOWED).sink("sessions", ms.jsonl("sessions"))
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
        # Nobody knows how long these last, and they do not change themselves.
        rows.window("endless", gap="2 s", **WINDOWED).sink("endless", ms.jsonl("endless"))
        timeless = flow.source("timeless", ms.inbox(TIMELESS_DDL))
        timeless.sql("few", f"SELECT * FROM timeless WHERE v > -{version}").sink("timeless", ms.jsonl("timeless"))
        # Its windows are of another size in each version.
        events.window("sized", every=SIZES[version], **WINDOWED).sink("sized", ms.jsonl("sized"))
        return flow

    return build


SIZES = {"1": "5 s", "2": "10 s"}
#: Those whose results are the same in all versions.
LARGE = ("acted", "kept", "outer", "sessions", "joined", "risen", "totals", "apart", "endless", "timeless")

# events

Row = tuple[str, int, int]
Recorded = list[tuple[str, int, Any]]


def piece(seed: int, turn: int) -> Recorded:
    """Return three seconds of events, by journal and partition.

    Two partitions have late rows, some of keys that come and go, and at times nothing; one only says that it is idle.
    """
    chance, now = random.Random(seed * 100_003 + turn), START + (turn + 1) * 3 * SECOND
    silent = turn % 4 == 3
    idle = (Kind.IDLE, now - 3 * SECOND)
    found: Recorded = [("events", 2, idle), ("timeless", 0, [(f"k{turn}", chance.randrange(100)) for _ in range(ROWS)])]
    for partition in (0, 1):
        found.append(("events", partition, idle if silent else [_event(chance, turn, now) for _ in range(ROWS)]))
    return found


def _event(chance: random.Random, turn: int, now: int) -> Row:
    key = chance.choice(["k0", "k1", "k2", "k3", f"t{turn // 3}"])
    return key, chance.randrange(100), now - int(chance.choice([0, 0, 1, 2, 2.9, 3.5]) * SECOND)


END: Recorded = [("events", partition, (Kind.END_OF_STREAM, None)) for partition in range(3)]
END.append(("timeless", 0, (Kind.END_OF_STREAM, None)))


def perform(run: FlowRun, events: Recorded, turn: int) -> None:
    """Write the events of a turn; once more changes nothing."""
    for journal, partition, what in events:
        if journal not in run.flow.stages:
            continue
        schema = SCHEMA if journal == "events" else TIMELESS
        with Writer.open(run.journal(journal), partition, wait_s=60) as writer:
            if isinstance(what, tuple):
                writer.instruct(what[0], what[1])
                continue
            values = zip(zip(*what, strict=True), schema, strict=True)
            columns = [pa.array(list(column), field.type) for column, field in values]
            writer.append("script", turn * ROWS, pa.RecordBatch.from_arrays(columns, schema=schema))


# lives


def options(root: Path, rows: int = 60) -> Options:
    return Options(root / "data", root, rows_per_batch=rows, hosting=False)


def lived(spark: Any, root: Path, build: Build, seed: int, wishes: Sequence[int]) -> FlowRun:
    """Let a flow live: from where it was, with switches at these turns, until it has done them and ended."""
    run = FlowRun(spark, build("1"), options(root), versions=build, version="1")
    run.start()
    try:
        last = str(len(wishes) + 1)
        while not (run.version == last and run.switching() is None and turns_of(root) > max(wishes, default=0)):
            _take_a_turn(run, root, build, seed, wishes)
        perform(run, END, turns_of(root))
        assert run.wait(timeout=900), run.history()
    finally:
        run.stop()
    return run


def turns_of(root: Path) -> int:
    """Return how many turns a life has had."""
    turns = root / "turns"
    return int(turns.read_text()) if turns.exists() else 0


def _take_a_turn(run: FlowRun, root: Path, build: Build, seed: int, wishes: Sequence[int]) -> None:
    turn = turns_of(root)
    assert turn < MOST_TURNS, run.history()
    status = run.switching()
    # Past the cut it is only a matter of time until the old version may go: several turns make one batch.
    many = 1 if status is None or status.cut is None else 4
    for one in range(turn, turn + many):
        perform(run, piece(seed, one), one)
    (root / "turns").write_text(str(turn + many))
    _wish(run, build, wishes, turn + many)
    _pause(run, settle=turn < 1)


def _wish(run: FlowRun, build: Build, wishes: Sequence[int], turn: int) -> None:
    """Ask for the next switch if it is time; one that was given up is asked for again."""
    done = int(run.version) - 1
    if done < len(wishes) and turn > wishes[done] and run.switching() is None:
        run.switch(build(str(done + 2)), str(done + 2))


def _pause(run: FlowRun, *, settle: bool) -> None:
    """Wait a moment, and longer while the groups are behind, or a switch is not cut: then time stands nearly still."""
    status = run.switching()
    until = time.monotonic() + (2.0 if status is not None and status.cut is None else 0.1)
    while time.monotonic() < until or (settle and not run.caught_up()) or _behind(run):
        run.poll()
        time.sleep(0.1)


def _behind(run: FlowRun) -> bool:
    return max(map(_lag, run.queries.values())) > 4 * 2 * ROWS


def _lag(query: GroupQuery) -> int:
    """Return how many rows a query still has to read; its statistics would ask Spark for much more."""
    committed = query.checkpoint.committed()
    written = sum(view.end for name in query.sink.inputs for view in views(query, name))
    return written - (sum(sum(one.positions) for one in committed.offsets.values()) if committed else 0)


# deaths


class Died(BaseException):
    """The driver is dead; its Spark is not, which saves its start."""


def lived_through(
    spark: Any, root: Path, build: Build, seed: int, wishes: Sequence[int], deaths: Iterable[str]
) -> FlowRun:
    """Let a flow live that dies at these points, one after the other, and goes on after each."""
    for point in deaths:
        with _dying(point):
            try:
                run = lived(spark, root, build, seed, wishes)
            except Died:
                continue
        pytest.fail(f"{point} was never passed: {run.history()}")
    return lived(spark, root, build, seed, wishes)


@contextmanager
def _dying(point: str) -> Iterator[None]:
    def die() -> None:
        raise Died(point)

    failpoints.forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILLSTREAM_FAIL_AT", point)
        patch.setattr(failpoints, "die", die)
        yield


# what came of it


def replayed(spark: Any, lived_in: Path, root: Path, build: Build) -> None:
    """Run the first version alone over the events of another life."""
    alone, other = options(root, 500_000), options(lived_in)
    flow = build("1")
    for name in ("events", "timeless"):
        if name in flow.stages:
            shutil.copytree(other.data / flow.name / "journals" / name, alone.data / flow.name / "journals" / name)
    run = FlowRun(spark, flow, alone)
    run.start()
    try:
        assert run.wait(timeout=900)
    finally:
        run.stop()


def outcome(root: Path, sinks: tuple[str, ...]) -> dict[str, Counter[str]]:
    """Return the results of a life by sink, as texts that are the same for the same values."""
    return {sink: Counter(json.dumps(one, sort_keys=True) for one in _written(root / sink)) for sink in sinks}


def _written(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]


def main() -> None:
    from millstream.spark.session import session

    root, seed, *wishes = sys.argv[1:]
    spark = session("switched", master="local[2]", log=Path(root) / "spark.log")
    lived(spark, Path(root), small, int(seed), [int(turn) for turn in wishes])
    spark.stop()


if __name__ == "__main__":
    main()
