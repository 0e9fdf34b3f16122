"""Runs that a changed pattern goes on with: pure, by the names of blocks.

A run keeps the events that it has taken, each in the block of the same name, and waits for what the
new pattern has behind these. To find out where that is, both automata take the blocks of its history
in step, and pass over events in step: a *pair* is a state of each in which a run may be now.

    old   a --b--> 1 --c--> 2        new   a --b--> 1 --x--> 2 --c--> 3
    a run that has taken a b and waits for c: the pair (1, 1), so it waits for x

Of several new states one is chosen in which a run would do the same, then one that waits for the same
blocks, then the first. A run is lost if the new pattern does not take its blocks in that order, or if a
condition that is still to come looks at something that the old version has not kept. What a run
remembers is taken over where both automata have the same register, and computed again where the
values are kept. From the cut on, the new conditions and the new `within` hold.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

from millstream.patterns import history
from millstream.patterns.automaton import (
    END,
    Automaton,
    Edge,
    Event,
    Key,
    Link,
    Match,
    Run,
    State,
    deadline,
)
from millstream.patterns.history import Register, Value
from millstream.patterns.reading import read_later
from millstream.patterns.states import classes_of

#: The new state of a run that has none.
LOST: Final = -2
#: What a loss is called that concerns matches which wait for earlier runs.
HELD: Final = "held"

Pair = tuple[int, int]
#: Returns an event with the values that the new automaton has of it.
Seen = Callable[[Event], Event]


class Reached(NamedTuple):
    """A pair after an event was taken: the place of the pair before it, and the new block."""

    old: int
    new: int
    before: int
    block: int

    @property
    def pair(self) -> Pair:
        return self.old, self.new


@dataclass
class Outcome:
    """What becomes of runs: how many go on, are lost at a block, or have no time left."""

    carried: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    ended: int = 0

    def add(self, other: Outcome) -> None:
        self.carried += other.carried
        self.lost += other.lost
        self.ended += other.ended


@dataclass(frozen=True)
class Carrying:
    """How runs of one automaton become runs of another.

    Args:
        old: The automaton that has made them.
        new: The one that goes on with them.
        renames: By old names, the new names of blocks.
        drops: Blocks whose runs may be lost: those that have taken one are dropped.
        kept: The values, as SQL, that are known of the events of a history.
    """

    old: Automaton
    new: Automaton
    renames: Mapping[str, str] = field(default_factory=dict)
    drops: Collection[str] = ()
    kept: Container[str] = ()
    _steps: dict[tuple[tuple[Pair, ...], int], tuple[Reached, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _ends: dict[tuple[tuple[Pair, ...], int], tuple[int, int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    # Keys

    def key(self, key: Key, cut: int, seen: Seen) -> tuple[Key, Outcome]:
        """Return what a key goes on with at the cut, and what became of its runs."""
        found, runs = Outcome(), list[Run]()
        for run in key.runs:
            after = self.run(run, seen)
            if isinstance(after, str):
                found.lost[after] += 1
            elif (limit := deadline(self.new, after)) is not None and limit <= cut:
                found.ended += 1
            else:
                runs.append(after)
        held = list(self._held(key.held, seen, found))
        if self.new.prefers:
            runs.sort(key=lambda run: run.start)
        found.carried = len(runs) + len(held)
        return Key(tuple(runs), tuple(held)), found

    def run(self, run: Run, seen: Seen) -> Run | str:
        """Return the run of the new automaton, or the block at which it is lost."""
        pairs: tuple[Pair, ...] = (self.start,)
        links: list[Link | None] = [None]
        lost = ""
        for block, event in run.history:
            reached = self.after(pairs, block)
            if not lost and all(one.new == LOST for one in reached):
                lost = self.old.blocks[block]
            shown = seen(event)
            links = [
                None if one.new == LOST else Link(one.block, shown, links[one.before])
                for one in reached
            ]
            pairs = tuple(one.pair for one in reached)
        place, state = self._end(pairs, run.state)
        link = links[place] if state != LOST else None
        if link is None:
            return lost or self.old.blocks[run.taken.block]
        contents = self._contents(run, link)
        after = Run(state, link, run.length, run.start, run.started_at, contents)
        return self._forgotten(after) or after

    def _held(self, held: Iterable[Match], seen: Seen, found: Outcome) -> Iterator[Match]:
        for match in held:
            gone = [block for block, _ in match.history if self.name(block) not in self.numbers]
            if gone or not self.holds:
                found.lost[self.old.blocks[gone[0]] if gone else HELD] += 1
                continue
            events = [seen(event) for _, event in match.history]
            blocks = [self.numbers[self.name(block)][0] for block, _ in match.history]
            yield replace(match, history=tuple(zip(blocks, events, strict=True)))

    @property
    def holds(self) -> bool:
        """Whether a match of the new automaton may wait for others."""
        return self.new.holds

    # States

    @property
    def start(self) -> Pair:
        return len(self.old.states), len(self.new.states)

    def after(self, pairs: tuple[Pair, ...], block: int) -> tuple[Reached, ...]:
        """Return the pairs after a block of the old automaton took an event, each once."""
        known = self._steps.get((pairs, block))
        if known is not None:
            return known
        found: dict[Pair, Reached] = {}
        name = self.name(block)
        for old, new, before in self.waited(pairs):
            for target in self._old_takes[old].get(block, ()):
                ways = self._new_takes[new].get(name, ()) if new != LOST else ()
                for number, state in ways or ((-1, LOST),):
                    found.setdefault((target, state), Reached(target, state, before, number))
        live = {old for old, new in found if new != LOST}
        made = tuple(one for one in found.values() if one.new != LOST or one.old not in live)
        self._steps[pairs, block] = made
        return made

    def waited(self, pairs: Sequence[Pair]) -> list[tuple[int, int, int]]:
        """Return pairs and those behind events that are passed over, each with where it came from."""
        found = {pair: place for place, pair in reversed(list(enumerate(pairs)))}
        waiting = deque(pairs)
        while waiting:
            old, new = pair = waiting.popleft()
            # A pattern that passes over nothing any more waits where it is.
            others = (self._new_waits[new] or (new,)) if new != LOST else (LOST,)
            for following in ((one, other) for one in self._old_waits[old] for other in others):
                if following not in found:
                    found[following] = found[pair]
                    waiting.append(following)
        return [(old, new, place) for (old, new), place in found.items()]

    def _end(self, pairs: tuple[Pair, ...], state: int) -> tuple[int, int]:
        """Return the place among pairs from which a run is in a state, and its new state."""
        if (pairs, state) not in self._ends:
            ways = [(p, new) for old, new, p in self.waited(pairs) if old == state and new != LOST]
            best = min(ways, key=lambda way: self._distance(state, way[1]), default=(0, LOST))
            self._ends[pairs, state] = best
        return self._ends[pairs, state]

    def _distance(self, old: int, new: int) -> tuple[bool, bool]:
        same = self._classes[old] == self._classes[len(self.old.states) + new]
        return not same, self._awaited(self.old, old) != self._awaited(self.new, new)

    def _awaited(self, automaton: Automaton, state: int) -> tuple[bool, frozenset[str]]:
        takes = [edge.take for edge in automaton.states[state].edges if edge.take is not None]
        own = automaton is self.old
        names = (self.name(take) if own else automaton.blocks[take].lower() for take in takes)
        return automaton.states[state].pending, frozenset(names)

    def name(self, block: int) -> str:
        """Return what a block of the old automaton is called in the new one; empty if it is dropped."""
        return self.names[block]

    @cached_property
    def names(self) -> list[str]:
        renames = {old.lower(): new.lower() for old, new in self.renames.items()}
        dropped = {name.lower() for name in self.drops}
        names = [name.lower() for name in self.old.blocks]
        return ["" if name in dropped else renames.get(name, name) for name in names]

    @cached_property
    def numbers(self) -> dict[str, list[int]]:
        """The blocks of the new automaton by name."""
        found: dict[str, list[int]] = {}
        for number, name in enumerate(self.new.blocks):
            found.setdefault(name.lower(), []).append(number)
        return found

    @cached_property
    def _old_takes(self) -> list[dict[int, list[int]]]:
        found: list[dict[int, list[int]]] = []
        for edges in edges_of(self.old):
            ways: dict[int, list[int]] = {}
            for edge in edges:
                if edge.take is not None and edge.target != END:
                    ways.setdefault(edge.take, []).append(edge.target)
            found.append(ways)
        return found

    @cached_property
    def _new_takes(self) -> list[dict[str, list[tuple[int, int]]]]:
        found: list[dict[str, list[tuple[int, int]]]] = []
        for edges in edges_of(self.new):
            ways: dict[str, list[tuple[int, int]]] = {}
            for edge in edges:
                if edge.take is not None and edge.target != END:
                    name = self.new.blocks[edge.take].lower()
                    ways.setdefault(name, []).append((edge.take, edge.target))
            found.append(ways)
        return found

    @cached_property
    def _old_waits(self) -> list[tuple[int, ...]]:
        return _waits(self.old)

    @cached_property
    def _new_waits(self) -> list[tuple[int, ...]]:
        return _waits(self.new)

    @cached_property
    def _classes(self) -> list[int]:
        """For the states of both automata, which of them do the same by the words of conditions."""
        tests: dict[str, int] = {}
        blocks: dict[str, int] = {}
        states: list[State] = []
        for automaton, before in ((self.old, 0), (self.new, len(self.old.states))):
            own = automaton is self.old
            names = self.names if own else [name.lower() for name in automaton.blocks]
            labels = [tests.setdefault(test.label, len(tests)) for test in automaton.tests]
            takes = [blocks.setdefault(name, len(blocks)) for name in names]

            def moved(
                edge: Edge,
                before: int = before,
                labels: list[int] = labels,
                takes: list[int] = takes,
            ) -> Edge:
                return replace(
                    edge,
                    need=tuple(sorted(labels[one] for one in edge.need)),
                    forbid=tuple(sorted(labels[one] for one in edge.forbid)),
                    take=None if edge.take is None else takes[edge.take],
                    target=END if edge.target == END else edge.target + before,
                )

            states += [replace(one, edges=tuple(map(moved, one.edges))) for one in automaton.states]
        return classes_of(states)

    # Registers

    @cached_property
    def _sources(self) -> list[int | None]:
        """For each register of the new automaton, the same one of the old."""
        known = {self._meaning(self.old, one): at for at, one in enumerate(self.old.registers)}
        return [
            None if one.function == "labels" else known.get(self._meaning(self.new, one))
            for one in self.new.registers
        ]

    def _meaning(self, automaton: Automaton, register: Register) -> tuple[object, ...]:
        own = automaton is self.old
        blocks = frozenset(
            self.names[one] if own else automaton.blocks[one].lower() for one in register.blocks
        )
        value = None if register.value is None else automaton.values[register.value]
        return register.function, blocks, value, register.back

    @cached_property
    def unknown(self) -> list[int]:
        """The registers of the new automaton that nothing is known of."""
        return [
            at
            for at, (register, source) in enumerate(
                zip(self.new.registers, self._sources, strict=True)
            )
            if source is None
            and register.value is not None
            and self.new.values[register.value] not in self.kept
        ]

    def _contents(self, run: Run, link: Link) -> tuple[Value, ...]:
        registers = self.new.registers
        contents = tuple(register.empty for register in registers)
        if None in self._sources:
            for block, event in replace(run, taken=link).history:
                contents = history.updated(registers, contents, block, event.values)
        return tuple(
            computed if source is None else run.contents[source]
            for computed, source in zip(contents, self._sources, strict=True)
        )

    @cached_property
    def read_later(self) -> list[frozenset[int]]:
        return read_later(self.new)

    def _forgotten(self, after: Run) -> str:
        """Return the block whose events a later condition asks for something that is not kept."""
        taken = {block for block, _ in after.history} if self.unknown else frozenset[int]()
        for at in self.unknown:
            asked = taken & self.new.registers[at].blocks
            if asked and at in self.read_later[after.state]:
                return self.new.blocks[min(asked)]
        return ""


def edges_of(automaton: Automaton) -> list[tuple[Edge, ...]]:
    """Return the edges of all states, then those from the start."""
    return [*(state.edges for state in automaton.states), automaton.start]


def _waits(automaton: Automaton) -> list[tuple[int, ...]]:
    """Return for each state, then for the start, where passing over an event leads."""
    return [
        tuple(dict.fromkeys(e.target for e in edges if e.take is None and e.target != END))
        for edges in edges_of(automaton)
    ]
