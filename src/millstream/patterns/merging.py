"""Fewer runs: those of one history become one run, which waits in several states at once.

A run that passes over an event in front of an optional block, or inside a relaxed loop, forks: one
run waits for the block, another for what follows it. Both have the same history, so here a set of
states is a state, as in the construction of a deterministic automaton: an event that meets nothing
leads back to it, and forks nothing. Runs still fork where two blocks can take an event, or where one
takes it and another waits, since their histories differ.

States keep their numbers, and sets come behind them, so runs that were kept before sets were there
go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby

from millstream.patterns.automaton import END, Automaton, Edge, State
from millstream.patterns.parts import Guard
from millstream.patterns.states import classes_of

#: Beyond so many edges for each edge that there was, runs fork as they did.
MOST_EDGES = 8


def merged(automaton: Automaton) -> Automaton:
    """Return an automaton that finds the same with fewer runs."""
    if automaton.prefers:
        return automaton  # it passes over nothing, and drops runs that are not preferred
    most = MOST_EDGES * (8 + sum(len(state.edges) for state in automaton.states))
    sets = _Sets(list(automaton.states))
    start, states = tuple(sets.joined(automaton.start)), sets.states
    at = 0
    while at < len(states):
        states[at] = replace(states[at], edges=tuple(sets.joined(states[at].edges)))
        at += 1
        most -= len(states[at - 1].edges)
        if most < 0:
            return automaton
    return _fewest(replace(automaton, start=start, states=tuple(states)), len(automaton.states))


@dataclass
class _Sets:
    """States, behind which the sets of them come that are met on the way."""

    states: list[State]
    count: int = 0
    numbers: dict[frozenset[int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.count = len(self.states)
        self.numbers = {frozenset([number]): number for number in range(self.count)}
        self.members = {number: one for one, number in self.numbers.items()}
        self.before = list(self.states)

    def joined(self, edges: Iterable[Edge]) -> Iterator[Edge]:
        """Yield edges of which an event opens one at most for each block, or to wait."""
        kept = list(edges)
        if not _overlap(kept):
            yield from kept
            return
        for _, some in groupby(sorted(kept, key=_order), key=_label):
            yield from self._apart(list(some))

    def _apart(self, edges: list[Edge]) -> Iterator[Edge]:
        """Yield edges with the same block that no event opens two of."""
        parts: list[tuple[Guard, list[Edge]]] = [(Guard(), [])]
        for edge in edges:
            own = Guard(frozenset(edge.need), frozenset(edge.forbid))
            split = [(guard.also(own), [*some, edge]) for guard, some in parts]
            rest = [(guard, some) for known, some in parts for guard in known.but(own)]
            parts = [(guard, some) for guard, some in (*split, *rest) if guard.possible]
        for guard, some in parts:
            if some:
                yield replace(
                    some[0],
                    need=tuple(sorted(guard.need)),
                    forbid=tuple(sorted(guard.forbid)),
                    target=self._target({edge.target for edge in some} - {END}),
                    completes=any(edge.completes for edge in some),
                )

    def _target(self, targets: set[int]) -> int:
        if not targets:
            return END
        members = frozenset().union(*(self.members[target] for target in targets))
        if members not in self.numbers:
            self.numbers[members] = len(self.states)
            self.members[len(self.states)] = members
            self.states.append(self._together([self.before[one] for one in sorted(members)]))
        return self.numbers[members]

    def _together(self, states: list[State]) -> State:
        names = dict.fromkeys(name for state in states for name in state.name.split(" or ") if name)
        patience = [state.patience for state in states]
        limits = [one for one in patience if one is not None]
        return State(
            " or ".join(names),
            tuple(dict.fromkeys(edge for state in states for edge in state.edges)),
            pending=any(state.pending for state in states),
            patience=max(limits) if len(limits) == len(states) else None,
            unfinished=any(state.pending for state in states)
            and any(not state.pending or state.unfinished for state in states),
        )


def _label(edge: Edge) -> tuple[object, ...]:
    """Return what the histories of runs depend on; edges that end at other times stay apart."""
    return edge.take is None, edge.take, edge.before


def _order(edge: Edge) -> tuple[object, ...]:
    before = -1 if edge.before is None else edge.before
    return edge.take is None, edge.take or 0, before, edge.target, edge.need, edge.forbid


def _overlap(edges: list[Edge]) -> bool:
    """Tell whether an event may open two of several edges that have the same block."""
    guards = [(_label(edge), Guard(frozenset(edge.need), frozenset(edge.forbid))) for edge in edges]
    return any(
        label == other and guard.also(another).possible
        for place, (label, guard) in enumerate(guards)
        for other, another in guards[:place]
    )


def _fewest(automaton: Automaton, first: int) -> Automaton:
    """Return an automaton without states that equal others; the first ones keep their numbers."""
    states = automaton.states
    classes = classes_of(list(states))
    lowest = {one: number for number, one in reversed(list(enumerate(classes)))}
    kept = [n for n in range(len(states)) if n < first or lowest[classes[n]] == n]
    places = {number: place for place, number in enumerate(kept)}

    def moved(edges: tuple[Edge, ...]) -> tuple[Edge, ...]:
        return tuple(
            edge
            if edge.target == END
            else replace(edge, target=places[lowest[classes[edge.target]]])
            for edge in edges
        )

    return replace(
        automaton,
        start=moved(automaton.start),
        states=tuple(replace(states[number], edges=moved(states[number].edges)) for number in kept),
    )
