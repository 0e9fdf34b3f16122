"""Try patterns on a few events, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from millstream.patterns.automaton import FOREVER, Automaton, Key, Match, advance, step
from millstream.patterns.compile import compile_pattern
from millstream.patterns.events import events
from millstream.patterns.pattern import Pattern

Events = Iterable[Mapping[str, Any]]


def matches(
    pattern: Pattern, rows: Events, *, time: str = "at", compat: str | None = None
) -> list[dict[str, Any]]:
    """Return the matches of a pattern in events of one key: the events of each block, by name.

    The events are dictionaries, in the order of their times, and there are no more after them.
    Conditions may use comparisons, arithmetic, AND, OR, NOT, IN, BETWEEN, IS NULL, and the history;
    other functions need Spark.

    Args:
        pattern: What to look for.
        rows: The events.
        time: Their time column.
        compat: "bobocep" for the rules of BoboCEP.
    """
    automaton = compile_pattern(pattern, compat=compat)
    return [
        _blocks(automaton, match)
        for match in _found(automaton, pa.Table.from_pylist(list(rows)), time)[0]
    ]


def timed_out(pattern: Pattern, rows: Events, *, time: str = "at") -> list[dict[str, Any]]:
    """Return the runs that timed out in events of one key: the events of each block, by name."""
    automaton = compile_pattern(pattern)
    return [
        _blocks(automaton, match)
        for match in _found(automaton, pa.Table.from_pylist(list(rows)), time)[1]
    ]


def _found(automaton: Automaton, rows: pa.Table, time: str) -> tuple[list[Match], list[Match]]:
    key, found, late = Key(), [], []
    for event in events(automaton, rows, time):
        key, some, ended = step(automaton, key, event)
        found += some
        late += ended
    _, some, ended = advance(automaton, key, FOREVER)
    return found + some, late + ended


def _blocks(automaton: Automaton, match: Match) -> dict[str, Any]:
    taken: dict[str, list[Any]] = {}
    for block, event in match.history:
        taken.setdefault(automaton.blocks[block], []).append(event.row)
    return taken
