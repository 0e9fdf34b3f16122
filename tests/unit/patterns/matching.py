"""Short ways to write events and matches: "abxc" is four events, whose column `e` is the letter and which are a second apart."""

from __future__ import annotations

import pyarrow as pa

from millstream.patterns.automaton import Automaton, Key, Match, advance, step
from millstream.patterns.compile import compile_pattern
from millstream.patterns.events import events
from millstream.patterns.pattern import Pattern


def rows(text: str) -> pa.Table:
    times = [second * 1_000_000 for second in range(len(text))]
    return pa.table({"e": pa.array(list(text)), "at": pa.array(times, pa.timestamp("us"))})


def numbers(*values: int) -> pa.Table:
    times = [second * 1_000_000 for second in range(len(values))]
    return pa.table({"x": pa.array(values, pa.int64()), "at": pa.array(times, pa.timestamp("us"))})


def run(
    automaton: Automaton, table: pa.Table, *, end: bool = True
) -> tuple[list[Match], list[Match]]:
    key, matches, late = Key(), [], []
    for event in events(automaton, table, "at"):
        key, some, timed_out = step(automaton, key, event)
        matches += some
        late += timed_out
    if end:
        _, some, timed_out = advance(automaton, key, 10**15)
        matches += some
        late += timed_out
    return matches, late


def places(match: Match) -> str:
    return " ".join(str(event.number) for _, event in match.history)


def found(pattern: Pattern, text: str, *, end: bool = True) -> list[str]:
    """Return the places of the events of each match in "abxc", as "0 1 3"."""
    return [places(match) for match in run(compile_pattern(pattern), rows(text), end=end)[0]]
