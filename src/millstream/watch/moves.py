"""What an event makes of a run: the automaton's edges, tried for a set of states at once.

A run with one history may wait in several states. What they do with an event depends on the tests
that it meets, so this is worked out once for each set of states and tests, and remembered. Only
tests that look at the run's history are left to be asked for each run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from millstream.errors import ConditionFailed
from millstream.patterns.automaton import END, Automaton, Edge
from millstream.patterns.edge import Seen
from millstream.patterns.history import Node, evaluator, read
from millstream.watch.runs import Link

States = tuple[int, ...]
START: Final = (-2,)
"""Where a run is that has not begun."""


class Taking(NamedTuple):
    """A block takes the event: the states after it, and whether a match is complete."""

    block: int
    states: States
    completes: bool


class Step(NamedTuple):
    """What becomes of a run: the states that wait on, and the blocks that take the event.

    `done` tells that a match is complete without the event.
    """

    waits: States
    takes: tuple[Taking, ...]
    done: bool


class Place(NamedTuple):
    """What it means for a run that a block takes an event.

    It is the run's `own` next place if nothing is left that waits on. Else the taking is a run of
    its own beside the one that waits, which may or may not be able to take the block `again`.
    """

    own: bool
    again: bool


class Way(NamedTuple):
    """An edge that an event may go, and what of its tests is open until a run's history is asked."""

    edge: Edge
    need: tuple[int, ...]
    forbid: tuple[int, ...]


class Plan(NamedTuple):
    """What an event that meets certain tests may do in certain states.

    `step` is the answer where it is the same for all runs. `idle` tells that a run for which no
    open test holds stays as it is; then, if `equal` is not None, only the runs are concerned of
    which a register (the second number) is equal to a value of the event (the first).
    """

    ways: tuple[Way, ...]
    step: Step | None
    idle: bool
    equal: tuple[tuple[int, int], ...] | None


class Moves:
    """The moves of one automaton; `ordered` ones begin at the last event and wait for nothing."""

    def __init__(self, automaton: Automaton, *, ordered: bool) -> None:
        self.automaton, self.ordered = automaton, ordered
        self.registers = automaton.registers
        self.plans: dict[tuple[States, int], Plan] = {}
        self._places: dict[tuple[States, int], Place] = {}
        self._takes = [
            frozenset(edge.take for edge in state.edges if edge.take is not None)
            for state in automaton.states
        ]
        self._limits = [state.patience for state in automaton.states]
        self.empty = tuple(register.empty for register in automaton.registers)
        #: Gets the errors of conditions that could not be computed for a run: they do not hold.
        self.failures: list[ConditionFailed] = []

    def plan(self, states: States, met: int) -> Plan:
        """Return what an event that meets `met` may do in these states."""
        found = self.plans.get((states, met))
        if found is None:
            found = self.plans[states, met] = self._planned(states, met)
        return found

    def step(self, states: States, link: Link | None, seen: Seen) -> Step:
        """Return what an event makes of a run in these states, whose last event is `link`'s."""
        plan = self.plans.get((states, seen.met)) or self.plan(states, seen.met)
        if plan.step is not None:
            return plan.step
        known: dict[int, bool] = {}

        def holds(test: int) -> bool:
            if test not in known:
                known[test] = self._holds(test, link, seen)
            return known[test]

        try:
            return self._collected(
                way.edge
                for way in plan.ways
                if self._in_time(way.edge, link, seen)
                and all(holds(test) for test in way.need)
                and not any(holds(test) for test in way.forbid)
            )
        except ConditionFailed as error:
            self.failures.append(error)
            return Step(() if states == START else states, (), False)

    def place(self, states: States, block: int) -> Place:
        """Return what it means that a block takes an event in these states.

        That is judged by an event which meets nothing else, so that it is the same for all.
        """
        found = self._places.get((states, block))
        if found is None:
            edges = [edge for state in states for edge in self._edges(state)]
            met = [set(edge.need) for edge in edges if edge.take == block]
            waits = {
                edge.target
                for tests in met
                for edge in edges
                if edge.take is None and tests >= set(edge.need) and not tests & set(edge.forbid)
            } - {END}
            again = any(block in self._takes[state] for state in waits)
            found = self._places[states, block] = Place(not waits, again)
        return found

    def deadline(self, states: States, started_at: int, last_at: int) -> int | None:
        """Return when the time of a run is up."""
        within = self.automaton.within
        limit = None if within is None else started_at + within
        patience = [self._limits[state] for state in states]
        if not patience or None in patience:
            return limit
        last = last_at + max(one for one in patience if one is not None)
        return last if limit is None else min(limit, last)

    def pending(self, states: States) -> bool:
        """Tell whether a run in these states matches when its time is up."""
        return any(self.automaton.states[state].pending for state in states)

    # Inside

    def _planned(self, states: States, met: int) -> Plan:
        ways = [
            way
            for state in states
            for edge in self._edges(state)
            if (way := self._way(edge, met)) is not None
        ]
        opened = [way for way in ways if way.need or way.forbid]
        limited = any(way.edge.before is not None for way in ways)
        step = None if opened or limited else self._collected(way.edge for way in ways)
        # Of those that hold in any case, the ones that wait are as good as in time: a run whose
        # time is up has ended by its deadline.
        calm = self._collected(way.edge for way in ways if not way.need)
        idle = self._stays(calm, states)
        tests = {test for way in opened for test in (*way.need, *way.forbid)}
        pairs = [self._equality(test) for test in sorted(tests)]
        equal = None if not tests or None in pairs else tuple(p for p in pairs if p is not None)
        return Plan(tuple(ways), step, idle, equal)

    def _edges(self, state: int) -> tuple[Edge, ...]:
        return self.automaton.start if state == START[0] else self.automaton.states[state].edges

    def _way(self, edge: Edge, met: int) -> Way | None:
        """Return an edge that may hold for an event that meets `met`."""
        tests = self.automaton.tests
        if any(not met >> test & 1 for test in edge.need):
            return None
        if any(met >> test & 1 and tests[test].plain for test in edge.forbid):
            return None
        return Way(
            edge,
            tuple(test for test in edge.need if not tests[test].plain),
            tuple(test for test in edge.forbid if met >> test & 1),
        )

    def _stays(self, step: Step, states: States) -> bool:
        if step.takes or step.done:
            return False
        return self.ordered or states in (step.waits, START)

    def _equality(self, test: int) -> tuple[int, int] | None:
        """Return the value and the register that must be equal for a test to hold."""
        if self.automaton.tests[test].functions:
            return None
        return _equality(self.automaton.tests[test].history)

    def _collected(self, edges: Iterable[Edge]) -> Step:
        waits: set[int] = set()
        takes: dict[int, tuple[set[int], bool]] = {}
        done = False
        for edge in edges:
            if edge.take is None:
                done |= edge.completes
                targets = waits
            else:
                targets, completes = takes.get(edge.take, (set(), False))
                takes[edge.take] = targets, completes or edge.completes
            if edge.target != END:
                targets.add(edge.target)
        taking = (Taking(b, tuple(sorted(t)), c) for b, (t, c) in sorted(takes.items()))
        return Step(tuple(sorted(waits)), tuple(taking), done)

    def _in_time(self, edge: Edge, link: Link | None, seen: Seen) -> bool:
        return edge.before is None or link is None or seen.at - link.seen.at < edge.before

    def _holds(self, number: int, link: Link | None, seen: Seen) -> bool:
        test = self.automaton.tests[number]
        if test.history is not None:
            contents = self.empty if link is None else link.contents
            values = [read(one, c) for one, c in zip(self.registers, contents, strict=True)]
            if evaluator(test.history)(seen.values, values) is not True:
                return False
        return not test.functions or self._ask(test.functions, link, seen)

    def _ask(self, functions: tuple[Any, ...], link: Link | None, seen: Seen) -> bool:
        past: dict[str, list[Any]] = {}
        for block, event in () if link is None else link.history:
            past.setdefault(self.automaton.blocks[block], []).append(event.row)
        return any(function(seen.row, past) for function in functions)


def _equality(node: Node | None) -> tuple[int, int] | None:
    """Return (value, register) if a tree can only hold where they are equal."""
    if node is None:
        return None
    if node.op == "and":
        return next((pair for arg in node.args if (pair := _equality(arg)) is not None), None)
    if node.op == "=":
        found = {arg.op: arg.of for arg in node.args}
        if set(found) == {"value", "register"}:
            return found["value"], found["register"]
    return None
