"""Fewer states: those that cannot be distinguished become one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from millstream.patterns.automaton import END, Edge, State


def minimal(states: list[State], start: list[Edge]) -> tuple[tuple[State, ...], tuple[Edge, ...]]:
    """Return an equal automaton with the fewest states, numbered as they are reached."""
    classes = classes_of(states)
    order: dict[int, int] = {}
    waiting = [edge.target for edge in start]
    while waiting:
        number = waiting.pop(0)
        if number == END or classes[number] in order:
            continue
        order[classes[number]] = len(order)
        waiting += [edge.target for edge in states[number].edges]

    def moved(edge: Edge) -> Edge:
        return edge if edge.target == END else replace(edge, target=order[classes[edge.target]])

    first = {classes[number]: state for number, state in reversed(list(enumerate(states)))}
    kept = tuple(
        replace(first[one], edges=_distinct([moved(edge) for edge in first[one].edges]))
        for one in order
    )
    return kept, _distinct([moved(edge) for edge in start])


def classes_of(states: list[State]) -> list[int]:
    """Return for each state the class of those that it cannot be distinguished from.

    A class is split when members lead to different classes. Only states that lead to one whose
    class has changed are looked at again: the steps of a long loop fall apart one after the other.
    """
    known: dict[tuple[object, ...], int] = {}
    classes = [known.setdefault(_kind(state), len(known)) for state in states]
    members = _grouped((own, number) for number, own in enumerate(classes))
    leading = _grouped(
        (edge.target, number) for number, state in enumerate(states) for edge in state.edges
    )
    agreed: dict[int, tuple[int, ...]] = {}
    waiting = set(range(len(states)))
    while waiting:
        touched = _grouped((classes[number], number) for number in waiting)
        waiting = set()
        for own, some in touched.items():
            ways = _grouped((_targets(states[number], classes), number) for number in some)
            if len(some) == len(members[own]):
                agreed[own] = max(ways, key=lambda way: len(ways[way]))
            for way, moved in ways.items():
                if way == agreed[own]:
                    continue
                new = len(members)
                members[own], members[new], agreed[new] = members[own] - moved, moved, way
                for number in moved:
                    classes[number] = new
                    waiting |= leading.get(number, set())
    return classes


def _grouped(pairs: Iterable[tuple[Any, int]]) -> dict[Any, set[int]]:
    found: dict[Any, set[int]] = {}
    for one, number in pairs:
        found.setdefault(one, set()).add(number)
    return found


def _kind(state: State) -> tuple[object, ...]:
    """Return what a state is, but for where its edges lead."""
    edges = tuple(replace(edge, target=END if edge.target == END else 0) for edge in state.edges)
    return state.pending, state.patience, state.unfinished, edges


def _targets(state: State, classes: list[int]) -> tuple[int, ...]:
    return tuple(END if edge.target == END else classes[edge.target] for edge in state.edges)


def _distinct(edges: list[Edge]) -> tuple[Edge, ...]:
    return tuple(dict.fromkeys(edges))
