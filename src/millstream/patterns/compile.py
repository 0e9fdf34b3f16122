"""From a pattern to its automaton: its ways (see ways.py) become states and edges."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from millstream.errors import UnboundedState
from millstream.flow.schema import Schema
from millstream.patterns.automaton import END, Automaton, Edge, State
from millstream.patterns.blocks import all_blocks
from millstream.patterns.checks import check, check_reached, endless
from millstream.patterns.conditions import Owner
from millstream.patterns.merging import merged
from millstream.patterns.parts import Guard, Parts, micros
from millstream.patterns.pattern import Pattern
from millstream.patterns.preferred import PreferredWays
from millstream.patterns.states import minimal
from millstream.patterns.ways import Way, Ways

_LIMIT = 'say within("1 hour")'


def compile_pattern(
    pattern: Pattern,
    schema: Schema | None = None,
    *,
    strict: bool = False,
    compat: str | None = None,
    merges: bool = True,
) -> Automaton:
    """Return the automaton of a pattern, checked against its events' columns if they are known.

    Args:
        pattern: The pattern.
        schema: The columns of the events.
        strict: Refuse a pattern whose runs may live for ever, instead of warning.
        compat: "bobocep" for the rules of BoboCEP.
        merges: Let a run wait in several states at once, instead of forking.

    Raises:
        PatternError: The pattern can never match, or a condition cannot be tested.
        UnknownColumn: A condition reads a column that is not in `schema`.
    """
    if "bobocep" in (compat, pattern.rules):
        from millstream.patterns.bobocep import compile_bobocep

        return compile_bobocep(pattern, schema)
    check(pattern)
    build = Build(pattern, Parts.of(pattern, schema))
    automaton = build.automaton()
    check_reached(pattern, build.parts.blocks, build.taken, automaton)
    warnings = tuple(endless(pattern))
    if strict and warnings:
        raise UnboundedState(warnings[0], hint=_LIMIT, where=pattern.where)
    automaton = replace(automaton, warnings=warnings)
    return merged(automaton) if merges else automaton


class Build:
    """Builds the states of one pattern, each when it is first needed."""

    def __init__(self, pattern: Pattern, parts: Parts, *, prefers: bool = False) -> None:
        self.pattern, self.parts, self.prefers = pattern, parts, prefers
        self.finder = PreferredWays(pattern, parts) if prefers else Ways(pattern, parts)
        self.ways: dict[tuple[object, ...], list[Way]] = {}
        self.taken: set[int | None] = set()

    def automaton(self) -> Automaton:
        pattern, parts = self.pattern, self.parts
        for block in all_blocks(pattern.blocks):
            self.finder.guards_of(block)
        required = [parts.test((one,), self._owner("precondition")) for one in pattern.required]
        halting = [parts.test((one,), self._owner("halt condition")) for one in pattern.halting]
        begins = self.finder.at_start()
        self._complete(begins)
        states, start_edges = self._edges(begins, required, halting)
        return Automaton(
            name=pattern.name or "pattern",
            blocks=tuple(block.name for block in parts.blocks),
            names=tuple(sorted(parts.words.blocks.items())),
            tests=tuple(parts.tests),
            values=tuple(parts.words.values),
            registers=tuple(parts.words.registers),
            start=start_edges,
            states=states,
            within=micros(pattern.span),
            skip=pattern.skip,
            singleton=pattern.one_at_a_time,
            prefers=self.prefers,
            inclusive=self.prefers,
            keys=pattern.keys,
            hidden=frozenset(
                number for number, block in enumerate(parts.blocks) if not block.shown
            ),
            renumbered=self.finder.renumbered,
        )

    def _owner(self, what: str) -> Owner:
        called = f'pattern "{self.pattern.name}"' if self.pattern.name else "the pattern"
        return Owner(f"the {what} of {called}", self.pattern.where)

    def _complete(self, begins: list[Way]) -> None:
        """Find the ways of all states that can be reached."""
        waiting = deque(way.target for way in begins)
        while waiting:
            key = waiting.popleft()
            if key is None or key in self.ways:
                continue
            self.ways[key] = self._cut(self.finder.of_state(key))
            waiting.extend(way.target for way in self.ways[key])

    def _cut(self, ways: list[Way]) -> list[Way]:
        """Leave out, where preference counts, what comes behind the end of the pattern."""
        ends = [place for place, way in enumerate(ways) if way.accepts and not way.last]
        return ways[: ends[0] + 1] if self.prefers and ends else ways

    def _edges(
        self, begins: list[Way], required: list[Guard], halting: list[Guard]
    ) -> tuple[tuple[State, ...], tuple[Edge, ...]]:
        extra = Guard(
            frozenset().union(*(w.need for w in required)),
            frozenset().union(*(w.need for w in halting)),
        )
        ways = [way for some in (begins, *self.ways.values()) for way in some]
        self.taken = {way.take for way in ways if way.guard.also(extra).possible}
        numbers = {key: number for number, key in enumerate(self.ways)}
        states = [self._state(key, numbers, extra) for key in self.ways]
        start = list(self._as_edges(begins, numbers, extra))
        return minimal(states, start)

    def _state(
        self, key: tuple[object, ...], numbers: dict[tuple[object, ...], int], extra: Guard
    ) -> State:
        ways = self.ways[key]
        edges = tuple(self._as_edges(ways, numbers, extra))
        pending = key in self.finder.pending or any(
            way.target in self.finder.pending for way in ways
        )
        names = dict.fromkeys(
            self.parts.blocks[way.take].name for way in ways if way.take is not None
        )
        limits = [edge.before for edge in edges]
        if pending:
            patience = self.finder.patience_of(key, [way.target for way in ways])
        elif not limits or None in limits:
            patience = None
        else:
            patience = max(limit for limit in limits if limit is not None)
        return State(" or ".join(names), edges, pending, patience)

    def _as_edges(
        self, ways: Iterable[Way], numbers: dict[tuple[object, ...], int], extra: Guard
    ) -> Iterator[Edge]:
        for way in ways:
            guard = way.guard.also(extra)
            if way.accepts or not guard.possible:
                continue
            target, completes = END, way.completes
            if way.target is not None:
                after = self.ways[way.target]
                ends = [one for one in after if one.accepts and way.take is not None]
                completes = any(not one.last for one in ends)
                if ends and not completes:
                    last = guard.also(self.parts.anchor("$"))
                    yield Edge(tuple(sorted(last.need)), (), way.take, END, True)
                goes_on = way.target in self.finder.pending or any(not one.accepts for one in after)
                target = numbers[way.target] if goes_on else END
            if target == END and not completes:
                continue
            yield Edge(
                tuple(sorted(guard.need)),
                tuple(sorted(guard.forbid)),
                way.take,
                target,
                completes,
                way.before,
            )
