"""Which patterns share their runs: an event moves all that are in one state at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from millstream.patterns.automaton import END, Automaton, Edge


def shares(automaton: Automaton, *, late: bool = False) -> bool:
    """Tell whether runs in one state have one future, so that an event can move them at once.

    `late`, runs without time left are wanted too.
    """
    return not automaton.prefers and why_apart(automaton, late=late) is None


def why_apart(automaton: Automaton, *, late: bool = False) -> str | None:
    """Return why an event must be tried on each run; None if it need not be."""
    return next(_reasons(automaton, late=late), None)


def _reasons(automaton: Automaton, *, late: bool) -> Iterator[str]:
    groups = [automaton.start, *(state.edges for state in automaton.states)]
    edges = [edge for group in groups for edge in group]
    if automaton.singleton:
        yield "it is a singleton"
    if not all(automaton.tests[one].plain for edge in edges for one in (*edge.need, *edge.forbid)):
        yield "a condition looks at the run"
    if any(edge.before is not None for edge in edges) or any(
        state.patience is not None for state in automaton.states
    ):
        yield "a block has a limit of its own"
    if any(_both_open(one, other) for some in groups for one, other in combinations(some, 2)):
        yield "an event may lead a run to two states"
    if automaton.skip.block is not None and not _leads_on(automaton):
        yield f"skip {automaton.skip} may drop nothing"
    if automaton.skip.kind != "none" and late and any(map(_goes_on, groups)):
        yield "a run that has a match may run out of time too"


def _both_open(one: Edge, other: Edge) -> bool:
    """Tell whether an event may lead a run along two edges."""
    goes_on = END not in (one.target, other.target)
    return goes_on and not {*one.need, *other.need} & {*one.forbid, *other.forbid}


def _leads_on(automaton: Automaton) -> bool:
    """Tell whether every match has an event of the block that it skips to, behind its first."""
    assert automaton.skip.block is not None
    blocks = automaton.blocks_of(automaton.skip.block)
    if any(edge.take in blocks for edge in automaton.start):
        return False
    seen: set[int] = set()
    edges = list(automaton.start)
    while edges:
        edge = edges.pop()
        if edge.take in blocks:
            continue
        if edge.completes or (edge.target != END and automaton.states[edge.target].pending):
            return False
        if edge.target != END and edge.target not in seen:
            seen.add(edge.target)
            edges += automaton.states[edge.target].edges
    return True


def _goes_on(edges: tuple[Edge, ...]) -> bool:
    """Tell whether an event may complete a run that goes on."""
    return any(
        one.completes
        and other.target != END
        and not {*one.need, *other.need} & {*one.forbid, *other.forbid}
        for one in edges
        for other in edges
    )
