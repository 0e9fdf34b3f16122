"""The bare automaton in one process, without Spark, beside BoboCEP in the same run: events per second by the number of live runs.

    python -m benchmarks.patterns_bare

The pattern is a, followed by b, followed by c. As many runs as wanted wait for c while events come
that meet b, so that none can be left out beforehand; a c at the end completes them all. (With
events that meet nothing, which are left out, it is ten times as many.) Both get the same events and
must find the same matches. Ours is given Arrow batches and evaluates the conditions itself; BoboCEP
is given one event object after the other, as it wants them. Beside it: the cost of an event as
keys, waiting runs (with their state handed over as bytes), the runs that an event really touches,
and those that it moves grow, and the row pattern A+ B over rows without a B.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks.common import Timing, save, show

from millstream.flow.schema import Schema
from millstream.patterns import events
from millstream.patterns.automaton import FOREVER
from millstream.patterns.batches import Batch
from millstream.patterns.compile import compile_pattern
from millstream.patterns.match_recognize import read
from millstream.patterns.matcher import Matcher, matcher
from millstream.patterns.pattern import Pattern

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.bobocep import builder, decider

PATTERN = Pattern().begin("a", "x = 1").followed_by("b", "x = 2").followed_by("c", "x = 3")
#: Every run takes every b.
LOOP = (
    Pattern()
    .begin("a", "x = 1")
    .followed_by("b", "x = 2")
    .one_or_more()
    .greedy()
    .followed_by("c", "x = 3")
)
BATCH = 50_000


def opened(runs: int) -> np.ndarray:
    """Return the events that open runs, which then wait for c."""
    return np.array([1] * runs + [2])


def stream(count: int, value: int = 2) -> np.ndarray:
    """Return events that no run waits for, and at the end what completes every run."""
    values = np.full(count, value)
    values[-1] = 3
    return values


def table(values: np.ndarray, keys: np.ndarray | None = None) -> pa.Table:
    at = np.arange(len(values), dtype=np.int64) * 1000
    key = np.zeros(len(values), np.int64) if keys is None else keys
    return pa.table(
        {"x": pa.array(values), "at": pa.array(at).cast(pa.timestamp("us")), "key": pa.array(key)}
    )


def ours(values: np.ndarray, runs: int) -> tuple[float, int]:
    """Return the seconds for `values` with `runs` live, and the number of matches."""
    automaton = compile_pattern(PATTERN)
    made = matcher(automaton, [])
    kept, _ = fed(
        made, automaton, made.empty(pa.int64(), table(values[:0]).schema), table(opened(runs))
    )
    rows = table(values)
    began = time.perf_counter()
    _, found = fed(made, automaton, kept, rows)
    return time.perf_counter() - began, found


def fed(made: Matcher, automaton: Any, kept: Any, rows: pa.Table) -> tuple[Any, int]:
    """Match rows in batches, with the conditions evaluated over Arrow columns."""
    found = 0
    for first in range(0, max(1, len(rows)), BATCH):
        part = rows.slice(first, BATCH)
        masks = events.met(automaton, part).astype(np.int64)
        wanted = np.flatnonzero(masks) if automaton.quiet else np.arange(len(masks))
        chosen = part.take(pa.array(wanted))
        times = events.micros(chosen.column("at"))
        batch = Batch(chosen.column("key").combine_chunks(), times, masks[wanted], [], chosen)
        kept, some = made.process(kept, batch, 0)
        found += len(some)
    return kept, found


def theirs(values: np.ndarray, runs: int) -> tuple[float, int]:
    """Do the same with BoboCEP."""
    from bobocep.cep.event import BoboEventSimple

    def meets(text: str, event: int, _history: object) -> bool:
        return event == int(text[4:])

    engine, heard = decider(builder(PATTERN, meets))

    def feed(some: list[int], first: int) -> None:
        for number, value in enumerate(some, first):
            engine.on_receiver_update(BoboEventSimple(str(number), number, value))
            engine.update()

    feed(opened(runs).tolist(), 0)
    few = values.tolist()
    began = time.perf_counter()
    feed(few, runs + 1)
    return time.perf_counter() - began, len(heard.completed)


def compared(runs: int, count: int, their_count: int, turns: int) -> dict[str, Any]:
    """Return events per second of both with `runs` live, in turn."""
    values, their_values = stream(count), stream(their_count)
    mine, other = [], []
    for _ in range(turns):
        seconds, found = ours(values, runs)
        their_seconds, their_found = theirs(their_values, runs)
        if not found == their_found == runs:
            raise SystemExit(
                f"error: {found} matches, BoboCEP {their_found}, and there should be {runs}"
            )
        mine.append(seconds)
        other.append(their_seconds)
    quiet, _ = ours(stream(count, 50), runs)
    rate, their_rate = count / Timing(tuple(mine)).median, their_count / Timing(tuple(other)).median
    return {
        "runs": runs,
        "events_per_s": round(rate),
        "bobocep_events_per_s": round(their_rate),
        "ratio": round(rate / their_rate, 1),
        "events_per_s_if_left_out": round(count / quiet),
        "matches": runs,
    }


def by_keys(keys: int, count: int) -> dict[str, Any]:
    """Return the cost per event with many keys, a run open for each now and then, within a time."""
    pattern = (
        Pattern()
        .begin("a", "x = 1")
        .followed_by("b", "x = 2")
        .followed_by("c", "x = 3")
        .within("300 seconds")
    )
    automaton = compile_pattern(pattern)
    made = matcher(automaton, [])
    random = np.random.default_rng(2)
    rows = table(random.integers(0, 8, count), random.integers(0, keys, count))
    kept: Any = made.empty(pa.int64(), rows.schema)
    began = time.perf_counter()
    kept, found = fed(made, automaton, kept, rows)
    seconds = time.perf_counter() - began
    size = len(made.dump(kept))
    return {
        "keys": keys,
        "events_per_s": round(count / seconds),
        "us_per_event": round(seconds / count * 1e6, 3),
        "matches": found,
        "live_runs": kept.live,
        "bytes_per_run": round(size / max(1, kept.live)),
    }


def by_runs(runs: int, *, touched: int) -> dict[str, Any]:
    """Return the cost per event with many runs of one key, of which each event touches some: those of another block.

    The runs wait for c; those that are touched wait for b, which asks each of them for its own
    event and is not met.
    """
    pattern = (
        Pattern()
        .begin("a", "x = 1")
        .followed_by("b", "x >= 2 and x < 10 * a.x")
        .followed_by("c", "x = 99")
    )
    automaton = compile_pattern(pattern)
    made = matcher(automaton, [pa.int64()] * len(automaton.values))
    values = np.concatenate(
        [opened(runs - touched), np.ones(touched, np.int64), np.full(50_000, 50)]
    )
    rows = table(values)
    opening = len(values) - 50_000
    kept: Any = made.empty(pa.int64(), rows.schema)
    kept, _ = with_values(made, automaton, kept, rows.slice(0, opening))
    count = max(200, min(50_000, 20_000_000 // max(1, touched)))
    began = time.perf_counter()
    kept, _ = with_values(made, automaton, kept, rows.slice(opening, count))
    seconds = time.perf_counter() - began
    return {
        "runs": runs,
        "touched": touched,
        "us_per_event": round(seconds / count * 1e6, 3),
        "live": kept.live,
    }


def by_moved(runs: int, count: int, turns: int, pattern: Pattern = LOOP) -> dict[str, Any]:
    """Return the cost per event with runs of one key that all take every event.

    The state that is handed from batch to batch is part of it; there are no matches.
    """
    automaton = compile_pattern(pattern)
    made = matcher(automaton, [])
    rows = table(np.concatenate([np.ones(runs, np.int64), np.full(count, 2)]))
    empty = made.empty(pa.int64(), rows.schema)
    opened_runs, _ = fed(made, automaton, empty, rows.slice(0, runs))
    spent = []
    for _ in range(turns):
        began = time.process_time()
        kept, _ = fed(made, automaton, opened_runs, rows.slice(runs))
        spent.append(time.process_time() - began)
    if kept.live != runs:
        raise SystemExit(f"error: {kept.live} runs are live, and there should be {runs}")
    return {"runs": runs, "us_per_event": round(min(spent) / count * 1e6, 3)}


def by_rows(count: int, turns: int, *, batch: bool) -> dict[str, Any]:
    """Return the time that the row pattern A+ B takes over rows without a B, all at once or as a stream.

    In a stream every start stays undecided, so that each batch begins with the rows of all before.
    """
    rows = table(np.ones(count, np.int64))
    query = "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at MEASURES LAST(x) AS x PATTERN (A+ B) DEFINE A AS x = 1, B AS x = 2)"
    automaton = read(query, Schema.of(("x", "bigint"), ("at", "timestamp")), batch=batch)[
        1
    ].automaton
    made = matcher(automaton, [])
    masks = events.met(automaton, rows).astype(np.int64)
    keys, times = rows.column("key").combine_chunks(), events.micros(rows.column("at"))
    size = count if batch else BATCH
    spent = []
    for _ in range(turns):
        kept: Any = made.empty(pa.int64(), rows.schema)
        began = time.process_time()
        for first in range(0, count, size):
            part = slice(first, first + size)
            some = Batch(
                keys.slice(first, size), times[part], masks[part], [], rows.slice(first, size)
            )
            kept, _ = made.process(kept, some, FOREVER if batch else 0)
        spent.append(time.process_time() - began)
    return {"rows": count, "batch": batch, "seconds": round(min(spent), 3)}


def flat(points: list[dict[str, Any]]) -> float:
    """Return how many times the dearest event of several points is the cheapest."""
    costs = [one.get("us", one.get("us_per_event")) for one in points]
    return round(max(costs) / min(costs), 2)


def with_values(made: Matcher, automaton: Any, kept: Any, rows: pa.Table) -> tuple[Any, int]:
    """Match rows in one batch."""
    masks = events.met(automaton, rows).astype(np.int64)
    times = events.micros(rows.column("at"))
    batch = Batch(
        rows.column("key").combine_chunks(), times, masks, events.values(automaton, rows), rows
    )
    kept, some = made.process(kept, batch, 0)
    return kept, len(some)


def main() -> None:
    from benchmarks.patterns_growth import by_state

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--events", type=int, default=2_000_000)
    given = parser.parse_args()
    ours(stream(1000), 1)  # numba loads the kernel, or compiles it
    compares = [
        compared(1, given.events, 20_000, given.turns),
        compared(100, given.events, 3_000, given.turns),
        compared(1000, given.events, 500, given.turns),
    ]
    keys = [by_keys(keys, given.events) for keys in (100, 10_000, 1_000_000)]
    touching = [
        (10_000, 0),
        (1, 1),
        (10, 10),
        (100, 100),
        (1000, 1000),
        (10_000, 100),
        (100_000, 100),
    ]
    runs = [by_runs(runs, touched=some) for runs, some in touching]
    by_moved(1, BATCH, 1)
    counts = (1, 100, 1000, 10_000, 100_000)
    moved = [by_moved(runs, 200_000, given.turns) for runs in counts]
    skipping = LOOP.skip_past_last()
    by_moved(1, BATCH, 1, skipping)
    skipped = [by_moved(runs, 200_000, given.turns, skipping) for runs in counts]
    waiting = [by_state(runs, BATCH) for runs in (1, 100, 10_000, 1_000_000)]
    whole = [by_rows(1_000_000, given.turns, batch=batch) for batch in (True, False)]
    results = {
        "beside_bobocep": compares,
        "by_keys": keys,
        "by_runs": runs,
        "by_moved": moved,
        "by_moved_with_a_skip": skipped,
        "by_waiting": waiting,
        "by_rows": whole,
        "moved_flat": flat(moved),
        "moved_with_a_skip_flat": flat(skipped),
        "waiting_flat": flat(waiting),
    }
    save("patterns_bare", {"turns": given.turns, "events": given.events, "batch": BATCH}, results)
    show(
        "a, followed by b, followed by c: events/s by live runs",
        ["live runs", "Millstream", "BoboCEP", "times"],
        [
            [
                one["runs"],
                f"{one['events_per_s']:,}",
                f"{one['bobocep_events_per_s']:,}",
                one["ratio"],
            ]
            for one in compares
        ],
    )
    show(
        "by keys, within 300 s",
        ["keys", "events/s", "matches", "live runs", "bytes per run"],
        [
            [
                one[name]
                for name in ("keys", "events_per_s", "matches", "live_runs", "bytes_per_run")
            ]
            for one in keys
        ],
    )
    shown = [[one["runs"], one["touched"], one["us_per_event"]] for one in runs]
    show(
        "by live runs of one key, and those that an event touches",
        ["runs", "touched", "µs per event"],
        shown,
    )
    show(
        f"by runs of one key that take every event, in seconds of the processor: {flat(moved)} times at most",
        ["runs", "µs per event", "with a skip"],
        [
            [one["runs"], one["us_per_event"], other["us_per_event"]]
            for one, other in zip(moved, skipped, strict=True)
        ],
    )
    show(
        f"by waiting runs, state handed over as bytes: {flat(waiting)} times at most",
        ["runs", "µs per event", "ms for a batch without events"],
        [[one["runs"], one["us"], one["ms_without_events"]] for one in waiting],
    )
    show(
        "A+ B over rows without a B, in seconds of the processor",
        ["rows", "at once", "seconds"],
        [[f"{one['rows']:,}", one["batch"], one["seconds"]] for one in whole],
    )


if __name__ == "__main__":
    main()
