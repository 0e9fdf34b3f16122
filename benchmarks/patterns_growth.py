"""How the cost of an event grows with keys, live runs and patterns: the matcher alone, in seconds of the processor, as pictures.

python -m benchmarks.patterns_growth
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks import patterns_events, pictures
from benchmarks.common import folder, save, show
from benchmarks.patterns_bare import BATCH, PATTERN, fed, opened, table, with_values
from benchmarks.patterns_cases import many
from benchmarks.pictures import counted

from millstream.patterns import events
from millstream.patterns.batches import Batch
from millstream.patterns.compile import compile_pattern
from millstream.patterns.matcher import Matcher, matcher
from millstream.patterns.pattern import Pattern
from millstream.spark.stages.match_pieces import Pieces
from millstream.state import ShardState, StateFiles
from millstream.state.manifest import load
from millstream.storage import Folder

TURNS = 3
EVENTS = 1_000_000
#: So many events of a batch are those of one shard.
SHARE = 1_562


def growth() -> None:
    """Measure, keep the figures and draw them."""
    found = {
        "keys": [by_keys(keys) for keys in (100, 1_000, 10_000, 100_000, 1_000_000)],
        "waiting": [by_runs(runs, touched=0) for runs in (1, 100, 10_000, 100_000)],
        "kept": [by_state(runs) for runs in (1, 100, 10_000, 100_000, 1_000_000)],
        "touched": [by_runs(runs, touched=runs) for runs in (1, 10, 100, 1_000, 10_000)],
        "patterns": [by_patterns(count) for count in (1, 5, 10, 20, 50)],
    }
    save("patterns_growth", {"events": EVENTS, "batch": BATCH, "turns": TURNS}, found)
    for name, points in found.items():
        columns = list(points[0])
        show(f"by {name}", columns, [[one[column] for column in columns] for one in points])
    draw(
        "keys",
        [
            (f"{one['keys']:,} keys", one["us"], f"µs, {one['bytes_per_run']} bytes a run")
            for one in found["keys"]
        ],
        1,
    )
    draw(
        "waiting",
        [(counted(one["runs"], "waiting run"), one["us"], "µs") for one in found["waiting"]],
        2,
    )
    draw(
        "touched",
        [
            (counted(one["runs"], "run") + " touched", one["ns_per_run"], "ns a run")
            for one in found["touched"]
        ],
        2,
    )
    draw(
        "patterns",
        [
            (
                counted(one["patterns"], "pattern"),
                one["us"],
                f"µs, {one['us_per_pattern']:.3f} each",
            )
            for one in found["patterns"]
        ],
        3,
    )


def draw(name: str, values: list[tuple[str, float, str]], colour: int) -> None:
    pictures.bars(f"patterns-{name}", values, colour, f"the cost of an event by {name}")


def quickest(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the least time of the processor that a run takes, and what it returns."""
    best, answer = float("inf"), None
    for _ in range(TURNS):
        began = time.process_time()
        answer = run()
        best = min(best, time.process_time() - began)
    return best, answer


def by_keys(keys: int) -> dict[str, Any]:
    """Three of eight kinds of events meet a condition; runs live for 300 s, at a thousand events a second."""
    automaton = compile_pattern(PATTERN.within("300 seconds"))
    made = matcher(automaton, [])
    random = np.random.default_rng(2)
    rows = table(random.integers(0, 8, EVENTS), random.integers(0, keys, EVENTS))
    seconds, (kept, found) = quickest(
        lambda: fed(made, automaton, made.empty(pa.int64(), rows.schema), rows)
    )
    size = len(made.dump(kept))
    return {
        "keys": keys,
        "us": round(seconds / EVENTS * 1e6, 2),
        "matches": found,
        "live_runs": kept.live,
        "state_mb": round(size / 2**20, 2),
        "bytes_per_run": round(size / max(1, kept.live)),
    }


def by_runs(runs: int, *, touched: int) -> dict[str, Any]:
    """Runs of one key wait for c; those that an event touches wait for b, which asks each for its own event and is not met."""
    pattern = (
        Pattern()
        .begin("a", "x = 1")
        .followed_by("b", "x >= 2 and x < 10 * a.x")
        .followed_by("c", "x = 99")
    )
    automaton = compile_pattern(pattern)
    made = matcher(automaton, [pa.int64()] * len(automaton.values))
    count = max(200, min(BATCH, 20_000_000 // max(1, touched)))
    values = np.concatenate(
        [opened(runs - touched), np.ones(touched, np.int64), np.full(count, 50)]
    )
    rows = table(values)
    opening = len(values) - count
    empty = made.empty(pa.int64(), rows.schema)
    kept, _ = with_values(made, automaton, empty, rows.slice(0, opening))
    rest = rows.slice(opening)
    without, _ = quickest(lambda: with_values(made, automaton, kept, rows.slice(0, 0)))
    seconds, _ = quickest(lambda: with_values(made, automaton, kept, rest))
    # What is kept is read and written once a batch, which is no cost of an event.
    spent = max(0.0, seconds - without)
    return {
        "runs": runs,
        "touched": touched,
        "us": round(spent / count * 1e6, 2),
        "ns_per_run": round(spent / count / max(1, touched) * 1e9, 1),
        "ms_per_batch": round(without * 1e3, 2),
    }


def by_state(runs: int, size: int = SHARE) -> dict[str, Any]:
    """Runs of as many keys wait, their state is handed over as bytes, and a batch touches 100 keys or none."""
    automaton = compile_pattern(PATTERN.within("300 seconds"))
    made = matcher(automaton, [])
    names = np.array([f"key-{number:09d}" for number in range(max(runs, 100))], object)
    with folder("growth") as place:
        state = Kept(made, StateFiles(Folder(place), "growth", retain=28))
        state.take(keyed(automaton, np.ones(runs, np.int64), names[:runs], 0))
        random = np.random.default_rng(3)
        few = random.choice(len(names), 100, replace=False)
        first = table(np.ones(0, np.int64))
        for turn in range(2 * TURNS + 1):  # the first one cuts what is kept
            values = random.integers(0, 8, size)
            some = keyed(automaton, values, names[random.choice(few, size)], 1 + turn)
            state.take(some)
            if turn == 0:
                state.spent.clear()
        touched = sorted(state.spent)[TURNS]
        state.spent.clear()
        for _ in range(TURNS):
            state.take(keyed(automaton, first.column("x").to_numpy(), names[:0], 1))
    return {
        "runs": runs,
        "us": round(touched / size * 1e6, 3),
        "ms_per_batch": round(touched * 1e3, 2),
        "ms_without_events": round(min(state.spent) * 1e3, 2),
    }


class Kept:
    """The state of a shard as bytes, as a batch finds it and leaves it."""

    def __init__(self, made: Matcher, files: StateFiles) -> None:
        self.made, self.files = made, files
        self.data = b""
        self.spent: list[float] = []

    def take(self, batch: Batch) -> None:
        began = time.process_time()
        room = ShardState(load(self.data), self.files)
        kept = Pieces(room, [self.made], [self.made.empty(pa.string(), batch.rows.schema)])
        (before,) = kept.load([batch.keys], 0)
        after, _ = self.made.process(before, batch, 0)
        data, changes = kept.commit([after])
        room.next_time(0, changes)
        self.data = self.data if data is None else data
        self.spent.append(time.process_time() - began)


def keyed(automaton: Any, values: np.ndarray, keys: np.ndarray, second: int) -> Batch:
    """Return events of keys that meet a condition."""
    at = np.arange(len(values), dtype=np.int64) + second * 1_000_000
    rows = pa.table({"x": values, "at": pa.array(at).cast(pa.timestamp("us"))})
    masks = events.met(automaton, rows).astype(np.int64)
    wanted = np.flatnonzero(masks)
    rows = rows.take(pa.array(wanted))
    names = pa.array(keys[wanted], pa.string())
    return Batch(names, events.micros(rows.column("at")), masks[wanted], [], rows)


def by_patterns(count: int) -> dict[str, Any]:
    """Patterns over one stream: each sees the events that meet one of its conditions."""
    rows = patterns_events.table(EVENTS // 4, 10_000)
    rows = rows.take(pa.compute.sort_indices(rows, [("at", "ascending")]))
    rows = rows.set_column(3, "at", rows.column("at").cast(pa.timestamp("us")))
    made = [
        (automaton, matcher(automaton, []))
        for automaton in (compile_pattern(one.pattern) for one in many(count))
    ]

    def run() -> int:
        return sum(
            fed(one, automaton, one.empty(pa.string(), rows.schema), rows)[1]
            for automaton, one in made
        )

    seconds, found = quickest(run)
    each = seconds / len(rows) * 1e6
    return {
        "patterns": count,
        "us": round(each, 2),
        "us_per_pattern": round(each / count, 3),
        "matches": found,
    }


if __name__ == "__main__":
    growth()
