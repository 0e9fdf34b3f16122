"""Which patterns share their runs: an event moves all that are in one state at once."""

from __future__ import annotations

from itertools import combinations

from millstream.patterns.automaton import END, Automaton, Edge


def shares(automaton: Automaton) -> bool:
    """Tell whether runs in one state have one future, so that an event can move them at once.

    Conditions look at the event alone, no block has a limit of its own, no event leads from a state
    to two others, and no match drops runs.
    """
    if automaton.prefers or automaton.singleton or automaton.skip.kind != "none":
        return False
    groups = [automaton.start, *(state.edges for state in automaton.states)]
    edges = [edge for group in groups for edge in group]
    plain = all(automaton.tests[one].plain for edge in edges for one in (*edge.need, *edge.forbid))
    return (
        plain
        and all(edge.before is None for edge in edges)
        and all(state.patience is None for state in automaton.states)
        and not any(
            _both_open(one, other) for some in groups for one, other in combinations(some, 2)
        )
    )


def _both_open(one: Edge, other: Edge) -> bool:
    """Tell whether an event may lead a run along two edges."""
    goes_on = END not in (one.target, other.target)
    return goes_on and not {*one.need, *other.need} & {*one.forbid, *other.forbid}
