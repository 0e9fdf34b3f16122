"""Which registers of a run are still read: those that no test can read again tell no runs apart."""

from __future__ import annotations

from millstream.patterns.automaton import END, Automaton, Edge

Registers = frozenset[int]


def read_later(automaton: Automaton) -> list[Registers]:
    """Return for each state the registers whose content some test may read later."""
    later: list[Registers] = [frozenset() for _ in automaton.states]
    changed = True
    while changed:
        changed = False
        for number, state in enumerate(automaton.states):
            found = frozenset().union(*(_read(automaton, edge, later) for edge in state.edges))
            changed = changed or found != later[number]
            later[number] = found
    return later


def _read(automaton: Automaton, edge: Edge, later: list[Registers]) -> Registers:
    """Return the registers whose content in front of an edge is read on it or behind it."""
    tests = [automaton.tests[number].history for number in (*edge.need, *edge.forbid)]
    asked = frozenset(
        node.of
        for test in tests
        if test is not None
        for node in test.walk()
        if node.op == "register"
    )
    after = frozenset() if edge.target == END else later[edge.target]
    if automaton.inclusive:
        return _before(automaton, edge, asked | after)
    return asked | _before(automaton, edge, after)


def _before(automaton: Automaton, edge: Edge, wanted: Registers) -> Registers:
    """Return the registers that these are made of when an edge takes an event."""
    found: set[int] = set()
    for number in wanted:
        register = automaton.registers[number]
        if edge.take not in register.blocks:
            found.add(number)
        elif register.back:
            found.add(automaton.registers.index(register.nearer))
        elif register.function != "last":
            found.add(number)
    return frozenset(found)
