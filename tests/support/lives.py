"""Lives of a flow that is switched while events come in, and whose driver dies: versions differ and give the same results.

python -m support.lives FOLDER SEED TURN...     lives until it has switched at these turns and ended
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.journal import Kind, Writer
from millstream.spark import failpoints
from millstream.spark.query import GroupQuery
from millstream.spark.reading import views
from millstream.spark.run import FlowRun
from support.switched import MOST_TURNS, SCHEMA, SECOND, START, Build, options, small

#: How many rows a partition gets in a turn.
ROWS = 6


# events

Row = tuple[str, int, int]
Recorded = list[tuple[int, Any]]


def piece(seed: int, turn: int) -> Recorded:
    """Return three seconds of events, by partition.

    Two partitions have late rows, some of keys that come and go, and at times nothing; one only says that it is idle.
    """
    chance, now = random.Random(seed * 100_003 + turn), START + (turn + 1) * 3 * SECOND
    silent = turn % 4 == 3
    idle = (Kind.IDLE, now - 3 * SECOND)
    found: Recorded = [(2, idle)]
    for partition in (0, 1):
        found.append((partition, idle if silent else [_event(chance, turn, now) for _ in range(ROWS)]))
    return found


def _event(chance: random.Random, turn: int, now: int) -> Row:
    key = chance.choice(["k0", "k1", "k2", "k3", f"t{turn // 3}"])
    return key, chance.randrange(100), now - int(chance.choice([0, 0, 1, 2, 2.9, 3.5]) * SECOND)


END: Recorded = [(partition, (Kind.END_OF_STREAM, None)) for partition in range(3)]


def perform(run: FlowRun, events: Recorded, turn: int) -> None:
    """Write the events of a turn; once more changes nothing."""
    for partition, what in events:
        with Writer.open(run.journal("events"), partition, wait_s=60) as writer:
            if isinstance(what, tuple):
                writer.instruct(what[0], what[1])
                continue
            values = zip(zip(*what, strict=True), SCHEMA, strict=True)
            columns = [pa.array(list(column), field.type) for column, field in values]
            writer.append("script", turn * ROWS, pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


# lives


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
