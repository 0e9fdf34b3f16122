"""Fewer states: those that cannot be told apart become one."""

from __future__ import annotations

from dataclasses import replace

from millstream.patterns.automaton import END, Edge, State


def minimal(states: list[State], start: list[Edge]) -> tuple[tuple[State, ...], tuple[Edge, ...]]:
    """Return an automaton that does the same with the fewest states, numbered in the order in which they are reached."""
    classes = _classes(states)
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
    kept = tuple(replace(first[one], edges=_distinct([moved(edge) for edge in first[one].edges])) for one in order)
    return kept, _distinct([moved(edge) for edge in start])


def _classes(states: list[State]) -> list[int]:
    """Return for each state the class of those that it cannot be told from."""
    classes = [0] * len(states)
    while True:
        known: dict[tuple[object, ...], int] = {}
        after = [
            known.setdefault(_signature(state, classes, own), len(known))
            for state, own in zip(states, classes, strict=True)
        ]
        if after == classes:
            return classes
        classes = after


def _signature(state: State, classes: list[int], own: int) -> tuple[object, ...]:
    edges = tuple(replace(edge, target=END if edge.target == END else classes[edge.target]) for edge in state.edges)
    return own, state.pending, state.patience, edges


def _distinct(edges: list[Edge]) -> tuple[Edge, ...]:
    return tuple(dict.fromkeys(edges))
