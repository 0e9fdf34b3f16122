"""A flow whose versions change patterns that skip, or that nothing limits, and what comes of it in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

import millstream as ms
from millstream.patterns import events as arrow_events
from millstream.patterns.automaton import FOREVER, Automaton, Event, Key, Match, advance, step
from millstream.patterns.carrying import Carrying
from millstream.patterns.compile import compile_pattern
from millstream.patterns.match_recognize import read
from support.recording import Row
from support.switched import Build, begun
from support.undisturbed import Results, iso, line

SINKS: Final = ("tested", "endless", "left", "valleys")
#: What is kept of events: the columns of all outputs.
_KEPT: Final = ("k", "v")


def tested(number: int) -> ms.Pattern:
    """Return the cookbook's pattern of a card that is tested, with other limits in each version."""
    return (
        ms.Pattern()
        .begin("small", f"v < {30 + 5 * (number % 3)}")
        .times_or_more(2 + number % 2)
        .greedy()
        .followed_by("large", f"v > {70 - 5 * (number % 3)}")
        .within(f"{(12, 20, 9)[number % 3]} s")
        .skip_past_last()
    )


def endless(number: int) -> ms.Pattern:
    """Return a pattern that waits for ever, and gets another block in every other version."""
    pattern = ms.Pattern().begin("low", f"v < {10 + number}")
    if number % 2 == 0:
        pattern = pattern.followed_by("more", "v > low.v + 20")
    return pattern.followed_by("high", f"v > {90 - number}")


def left(number: int) -> ms.Pattern:
    """Return a pattern that matches when its time is up, perhaps long after the last row of its key."""
    pattern = ms.Pattern().begin("basket", f"v < {40 + number}").skip_to_next()
    return pattern.not_followed_by("pay", f"v >= {80 + number}").within(f"{10 + number % 3} s")


def valleys(number: int) -> str:
    """Return a query with MATCH_RECOGNIZE."""
    return f"""
        SELECT * FROM events MATCH_RECOGNIZE (
            PARTITION BY k ORDER BY at
            MEASURES FIRST(top.v) AS low, LAST(up.v) AS high, COUNT(*) AS n
            PATTERN (top down+ up)
            DEFINE down AS v < {60 - number}, up AS v > {50 + number}, top AS v > {40 + number}
        )
    """


_PATTERNS: Final = {
    "tested": (tested, "k, min(small.v) as low, large.v as high, count(small.*) as n"),
    "endless": (endless, "k, low.v as low, high.v as high, count(high.*) as n"),
    "left": (left, "k, basket.v as low, basket.v as high, count(basket.*) as n"),
}


def patterned(*names: str) -> Build:
    """Return what makes versions of a flow with some of the patterns."""

    def build(version: str) -> ms.Flow:
        flow, events = begun()
        number = int(version)
        for name in names:
            if name == "valleys":
                found = events.sql(name, valleys(number))
            else:
                pattern, emit = _PATTERNS[name]
                found = events.match(name, pattern(number), emit=emit)
            found.sink(name, ms.jsonl(name))
        return flow

    return build


def automaton(name: str, number: int) -> Automaton:
    """Return the automaton of a pattern in a version."""
    if name == "valleys":
        return read(valleys(number))[1].automaton
    return compile_pattern(_PATTERNS[name][0](number))


def begun_again(version: str) -> ms.Flow:
    """Return a version of a flow whose pattern waits for ever, and changes so that no run can go on."""
    flow, events = begun()
    name = f"low_{version}"
    pattern = ms.Pattern().begin(name, "v < 20").followed_by("high", "v > 80")
    found = events.match("endless", pattern, emit=f"k, {name}.v as low, high.v as high")
    found.sink("endless", ms.jsonl("endless"))
    return flow


def begun_again_results(rows: list[Row], cut: int) -> Results:
    """Return what it gives if runs are lost at the cut: a match is on one side of it."""
    found: Counter[str] = Counter()
    for place, (key, low, began) in enumerate(rows):
        rest = [row for row in rows[place + 1 :] if row[0] == key and row[1] > 80]
        if low < 20 and rest and (began >= cut or rest[0][2] < cut):
            _, high, at = rest[0]
            found[line({"k": key, "at": iso(at), "low": low, "high": high})] += 1
    return {"endless": found}


def patterned_results(names: Iterable[str], rows: list[Row], cuts: list[int]) -> Results:
    """Return what the versions give that have the rows between two cuts each."""
    return {name: Counter(_lines(name, rows, cuts)) for name in names}


def _lines(name: str, rows: list[Row], cuts: list[int]) -> Iterator[str]:
    for key in {row[0] for row in rows}:
        own = [row for row in rows if row[0] == key]
        for block_values, at in _matches(name, own, cuts):
            yield line({"k": key, "at": iso(at), **block_values})


def _matches(name: str, rows: list[Row], cuts: list[int]) -> Iterator[tuple[dict[str, Any], int]]:
    times = [datetime.fromtimestamp(at / 1e6, UTC) for _, _, at in rows]
    table = pa.table({"k": [row[0] for row in rows], "v": [row[1] for row in rows], "at": times})
    state, edges = Key(), [0, *cuts, FOREVER]
    for number, (begin, end) in enumerate(pairwise(edges), 1):
        made = automaton(name, number)
        seen = list(arrow_events.events(made, table, "at"))
        if number > 1:
            before = automaton(name, number - 1)
            carrying = Carrying(before, made, drops={"more"}, kept=_KEPT)

            def shown(event: Event, seen: list[Event] = seen) -> Event:
                return seen[event.number]

            state, _ = carrying.key(state, begin, shown)
        for event in (one for one in seen if begin <= one.at < end):
            state, found, _ = step(made, state, event)
            yield from (_values(made, match, rows) for match in found)
        state, found, _ = advance(made, state, end)
        yield from (_values(made, match, rows) for match in found)


def _values(made: Automaton, match: Match, rows: list[Row]) -> tuple[dict[str, Any], int]:
    taken: dict[str, list[int]] = {}
    for block, event in match.history:
        taken.setdefault(made.blocks[block], []).append(rows[event.number][1])
    every = [value for values in taken.values() for value in values]
    if "small" in taken:
        low, high, n = min(taken["small"]), taken["large"][-1], len(taken["small"])
    elif "low" in taken:
        low, high, n = taken["low"][-1], taken["high"][-1], 1
    elif "basket" in taken:
        low, high, n = taken["basket"][-1], taken["basket"][-1], 1
    else:
        low, high, n = taken["top"][0], taken["up"][-1], len(every)
    return {"low": low, "high": high, "n": n}, match.at
