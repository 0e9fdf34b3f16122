"""The ways on from each place of a pattern.

A *place* in a pattern is what is still to come: a sequence from block i on, then what follows the
sequence; or a loop that has been taken j times, then what follows it. The state of a place has the
edges of every block that may come next, each tried on the same event:

    wait for a block   take it if the event meets it; pass over the event as its contiguity says
    an optional block  its edges, and those of what follows it
    a loop             its edges once more (while it may), and those of what follows (once it may)

Passing over an event leads to a state that waits for that block alone: what else could have come
has become a run of its own. Negations and greedy loops are *barriers*: what must not be met on the
way to the next event that is taken. These are Flink CEP's rules, with two differences: an event
that meets a negated condition ends a run even if it would complete it, and a negation behind an
optional block does not end a run that still waits for that block.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from millstream.patterns.blocks import Block, Contiguity, all_blocks, leaves
from millstream.patterns.checks import check_sight
from millstream.patterns.conditions import Owner
from millstream.patterns.parts import Guard, Parts, micros
from millstream.patterns.pattern import Pattern

Place = tuple[object, ...]
"""("then", sequence, i, place after), ("again", loop, taken, place after), or () at the end."""

Barrier = tuple[Literal["not", "greedy"], Guard]
"""What must not be met on the way to the next event that is taken: a negation, or a greedy loop."""
Barriers = frozenset[Barrier]
Guards = frozenset[Guard]


@dataclass(frozen=True, slots=True)
class Way:
    """An edge in the making: its target is a key of a state.

    One that `accepts` and is `last` does so if the row before was the last of its partition.
    """

    guard: Guard
    take: int | None
    target: tuple[object, ...] | None
    before: int | None = None
    completes: bool = False
    last: bool = False

    @property
    def accepts(self) -> bool:
        """Whether this is no edge but the mark that the pattern may end here."""
        return self.target is None and not self.completes


@dataclass(frozen=True, slots=True)
class Through:
    """The mark, among the ways into a sequence, that what follows it may come at once."""

    barriers: Barriers = frozenset()
    once: Guards = frozenset()
    #: Only behind the last row of a partition, or only before its first.
    last: bool = False
    first: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Waiting for one block: also a state."""

    block: Block
    contiguity: Contiguity
    after: Place
    barriers: Barriers = frozenset()
    inner: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        rest = self.contiguity, self.after, self.barriers, self.inner
        return ("wait", id(self.block), *rest)

    def past(self, ways: list[Way]) -> list[Way]:
        """Return ways for events that meet no barrier."""
        return without(ways, [guard for _, guard in self.barriers])


ACCEPT = Way(Guard(), None, None)


class Ways:
    """Finds the ways on from the places of one pattern, and the states that they lead to."""

    #: What a block is called.
    noun = "block"

    def __init__(self, pattern: Pattern, parts: Parts) -> None:
        self.pattern, self.parts = pattern, parts
        self.pending: set[tuple[object, ...]] = set()
        #: Whether a match may take nothing, in SQL.
        self.empty = self.empty_at_first = False
        #: Whether 0.1.0 had other states for the pattern: runs that it kept cannot be read.
        self.renumbered = False
        self._sequences: list[tuple[Block, ...]] = []
        self._loops: list[Block] = []
        self._guards: dict[int, tuple[Guard, Guard]] = {}
        self._waits: dict[tuple[object, ...], Wait] = {}
        #: How long what a negated block forbids must not come, if it is the last.
        self._limits: dict[Guard, int] = {}
        #: What ends a greedy loop, and so the barrier that it is.
        self._ends: dict[Guard, Guard] = {}
        self._ended: dict[int, list[Block]] = {}

    def at_start(self) -> list[Way]:
        """Return the ways to begin a run."""
        start = self._place_ways(self._then(self.pattern.blocks, 0, ()))
        return [way for way in start if way.take is not None]

    def patience_of(
        self, key: tuple[object, ...], targets: Iterable[tuple[object, ...] | None]
    ) -> int | None:
        """Return how long after its last event a run in a pending state matches, if it says so."""
        found: list[int] = []
        for one in (key, *targets):
            if one in self.pending:
                barriers: Any = one[1]
                found += [self._limits[guard] for _, guard in barriers if guard in self._limits]
        return min(found, default=None)

    def of_state(self, key: tuple[object, ...]) -> list[Way]:
        if key[0] == "at":
            return self._place_ways(_place(key[1]))
        if key[0] == "pending":
            return self._end_ways(key[1], frozenset())  # type: ignore[arg-type]
        return self._body_ways(self._waits[key])

    # What an event must meet

    def guards_of(self, block: Block) -> tuple[Guard, Guard]:
        """Return what a block takes, and what ends its loop."""
        if id(block) not in self._guards:
            owner = Owner(f'{self.noun} "{block.name}"', block.where)
            self._check_sight(block, owner)
            takes = self.parts.test(block.conditions, owner)
            self._guards[id(block)] = (
                takes,
                self.parts.test(block.until, owner) if block.until else Guard(),
            )
        return self._guards[id(block)]

    def _check_sight(self, block: Block, owner: Owner) -> None:
        check_sight(self.pattern, block, self.parts.words, owner)

    def _taken(self, block: Block) -> Guard:
        takes, until = self.guards_of(block)
        return takes.also(Guard(forbid=until.need))

    def _greedy(self, block: Block) -> Barriers:
        """Return the barrier that a greedy block is to what follows it."""
        taken = self._taken(block)
        if block.until:
            self._ends[taken], self.renumbered = self.guards_of(block)[1], True
        return frozenset([("greedy", taken)])

    def _lifted(self, guard: Guard, barriers: Barriers) -> list[tuple[Guard, Barriers]]:
        """Return which barriers an event leaves: what ends a greedy loop ends its greed."""
        found = [(guard, barriers)]
        for barrier in sorted(barriers, key=repr):
            end = self._ends.get(barrier[1]) if barrier[0] == "greedy" else None
            if end is not None:
                ended = [(one.also(end), left - {barrier}) for one, left in found]
                found = [(part, left) for one, left in found for part in one.but(end)] + ended
        return [(one, left) for one, left in found if one.possible]

    # Places

    def _then(self, sequence: tuple[Block, ...], at: int, after: Place) -> Place:
        return ("then", _number(self._sequences, sequence), at, after)

    def _again(self, loop: Block, taken: int, after: Place) -> Place:
        highest = max(loop.least, 1) if loop.most is None else loop.most
        return ("again", _number(self._loops, loop), min(taken, highest), after)

    def _place_ways(
        self, place: Place, barriers: Barriers = frozenset(), once: Guards = frozenset()
    ) -> list[Way]:
        """Return the ways on from a place, and ACCEPT where the pattern may end."""
        if not place:
            return self._end_ways(barriers, once)
        kind, number, at, after = place
        assert isinstance(number, int)
        assert isinstance(at, int)
        assert isinstance(after, tuple)
        if kind == "then":
            found = self._sequence_ways(self._sequences[number], at, None, after, barriers, once)
            return [way for one in found for way in self._followed(one, after)]
        return self._loop_ways(self._loops[number], at, after, barriers, once)

    def _followed(self, way: Way | Through, after: Place) -> list[Way]:
        if isinstance(way, Way):
            return [way]
        return self._place_ways(after, way.barriers, way.once)

    def _end_ways(self, barriers: Barriers, once: Guards) -> list[Way]:
        if once:
            way = Way(Guard(), None, None, completes=True)
            return without([way], [*once, *(guard for _, guard in barriers)])
        if all(kind == "greedy" for kind, _ in barriers):
            return [ACCEPT]
        ways: list[Way] = []
        for guard, left in self._lifted(Guard(), barriers):
            key = ("pending", left)
            self.pending.add(key)
            ways.append(Way(guard, None, key))
        return without(ways, [guard for _, guard in barriers])

    def _sequence_ways(
        self,
        sequence: tuple[Block, ...],
        at: int,
        contiguity: Contiguity | None,
        after: Place,
        barriers: Barriers = frozenset(),
        once: Guards = frozenset(),
    ) -> list[Way | Through]:
        """Return the ways into a sequence from block `at` on; a mark if it may be passed."""
        if at == len(sequence):
            return [Through(barriers, once)]
        block = sequence[at]
        if block.negated:
            once = once | {self._taken(block)} if block.contiguity == "strict" else once
            if block.contiguity == "relaxed":
                barriers = barriers | {("not", self._taken(block))}
            if (limit := micros(block.within)) is not None:
                self._limits[self._taken(block)] = limit
            return self._sequence_ways(sequence, at + 1, None, after, barriers, once)
        rest = self._then(sequence, at + 1, after)
        own = block.contiguity if contiguity is None else contiguity
        following = self._again(block, 1, rest) if block.loops else rest
        taking = self._body_ways(Wait(block, own, following, barriers))
        entering = without(taking, once)
        if not block.nullable:
            return [*entering]
        self.renumbered = self.renumbered or block.preference in ("greedy", "reluctant")
        if block.preference == "greedy":
            barriers = barriers | self._greedy(block)
        leaving = self._sequence_ways(sequence, at + 1, None, after, barriers, once)
        if block.preference != "reluctant":
            return [*entering, *leaving]
        wait = Wait(block, own, following, barriers)
        return self._reluctant_entry(wait, entering, leaving, (sequence, at, after), once)

    def _reluctant_entry(
        self,
        wait: Wait,
        entering: list[Way],
        leaving: list[Way | Through],
        place: tuple[tuple[Block, ...], int, Place],
        once: Guards,
    ) -> list[Way | Through]:
        """Return the ways into a loop that may be left out, and is where what follows matches."""
        ways = taking(leaving)
        left = [way.guard for way in ways if way.take is not None]
        if wait.contiguity == "strict" or all(way.take is not None or way.accepts for way in ways):
            return [*leaving, *without(entering, left)]
        # Both wait, each until an event comes that belongs to the other alone.
        if wait.contiguity == "relaxed":
            sequence, at, after = place
            alone = _barriers(_but(self._taken(wait.block), left))
            leaving = self._sequence_ways(
                sequence, at + 1, None, after, wait.barriers | alone, once
            )
        ended = replace(wait, barriers=wait.barriers | _barriers(left))
        return [*leaving, *without(self._body_ways(ended), once)]

    def _takes_more(self, loop: Block, taken: int) -> bool:
        return loop.most is None or taken < loop.most

    def _loop_ways(
        self, loop: Block, taken: int, after: Place, barriers: Barriers, once: Guards
    ) -> list[Way]:
        more: list[Way] = []
        if self._takes_more(loop, taken):
            inside: Barriers = frozenset(("not", one) for one in self._negated_next(loop, after))
            again = self._again(loop, taken + 1, after)
            more = self._body_ways(Wait(loop, loop.inner, again, inside, inner=True))
        if taken < loop.least and not _empty_body(loop):
            return more
        if loop.preference == "greedy" and more:
            barriers = barriers | self._greedy(loop)
        leave = self._place_ways(after, barriers, once)
        if loop.preference != "reluctant":
            return [*more, *leave]
        return self._reluctant(loop, self._again(loop, taken, after), more, leave)

    def _reluctant(self, loop: Block, place: Place, more: list[Way], leave: list[Way]) -> list[Way]:
        """Return the ways of a loop that is left as soon as what follows matches.

        It passes over events without forking.
        """
        left = [way.guard for way in leave if way.take is not None]
        stay = without([way for way in more if way.take is not None], left)
        waits = [way for way in leave if way.take is None and not way.accepts]
        inner = [way for way in more if way.take is None]
        if inner and waits and loop.inner != "strict":
            own = [way.guard for way in more if way.take is not None]
            both = without([Way(Guard(), None, _key(place))], left)
            both = without(both, own) if loop.inner == "relaxed" else both
            # What follows may pass over an event that it can take, as each later one is worth a
            # match.
            later = [
                part
                for number, guard in enumerate(left)
                for part in without(
                    [replace(way, guard=way.guard.also(guard)) for way in waits], left[:number]
                )
                if part.guard.possible
            ]
            return [*(way for way in leave if way not in waits), *stay, *later, *both]
        return [*leave, *stay, *without(inner, left)]

    def _negated_next(self, loop: Block, after: Place) -> list[Guard]:
        """Return what a negation right behind a loop forbids already inside it, as in Flink."""
        if loop.body or not after or after[0] != "then":
            return []
        sequence, at = self._sequences[int(str(after[1]))], int(str(after[2]))
        block = sequence[at] if at < len(sequence) else None
        if block is not None and block.negated and block.contiguity == "relaxed":
            return [self._taken(block)]
        return []

    # Blocks

    def _body_ways(self, wait: Wait) -> list[Way]:
        body = wait.block.body
        if not body:
            ways = self._leaf_ways(wait)
        elif len(body) == 1:
            ways = self._inside(body[0], wait.contiguity, wait)
        else:
            ways = self._either_ways(wait)
        spans = (wait.block.within, wait.block.between if wait.inner else None)
        limits = [limit for limit in map(micros, spans) if limit is not None]
        if not limits:
            return ways
        return [replace(way, before=_lower(way.before, min(limits))) for way in ways]

    def _inside(self, sequence: tuple[Block, ...], contiguity: Contiguity, wait: Wait) -> list[Way]:
        return taking(self._sequence_ways(sequence, 0, contiguity, wait.after, wait.barriers))

    def _leaf_ways(self, wait: Wait) -> list[Way]:
        takes, until = self.guards_of(wait.block)
        stop, around = Guard(forbid=until.need), self._until_around(wait.block)
        taken = takes.also(stop).also(around)
        taking = Way(taken, self.parts.number(wait.block), _key(wait.after))
        passing = self._passing(wait, (stop if wait.inner else Guard()).also(around), [takes])
        return [*wait.past([taking]), *passing]

    def _until_around(self, block: Block) -> Guard:
        """Return that an event ends none of the groups around a block: none waits past its end."""
        if not self._ended:
            self._ended = {
                id(leaf): [
                    group for group in groups if any(leaf is one for one in leaves((group,)))
                ]
                for groups in [
                    [one for one in all_blocks(self.pattern.blocks) if one.until and one.body]
                ]
                for leaf in leaves(self.pattern.blocks)
            }
        tests = [self.guards_of(group)[1].need for group in self._ended.get(id(block), ())]
        return Guard(forbid=frozenset().union(*tests))

    def _either_ways(self, wait: Wait) -> list[Way]:
        """Return the ways into alternatives: the run waits for all of them at once."""
        ways = [way for body in wait.block.body for way in self._inside(body, "strict", wait)]
        takes = [way.guard for way in ways if way.take is not None]
        stop = Guard(forbid=self.guards_of(wait.block)[1].need)
        return [*ways, *self._passing(replace(wait, inner=False), stop, takes)]

    def _passing(self, wait: Wait, guard: Guard, takes: list[Guard]) -> list[Way]:
        """Return the ways to pass over an event, while a block is waited for."""
        if wait.contiguity == "strict":
            return []
        passing: list[Way] = []
        for part, barriers in self._lifted(guard, wait.barriers):
            left = replace(wait, barriers=barriers)
            self._waits[left.key] = left
            passing.append(Way(part, None, left.key))
        return wait.past(without(passing, takes) if wait.contiguity == "relaxed" else passing)


def _key(place: Place) -> tuple[object, ...]:
    return ("at", place)


def _number(known: list[Any], one: object) -> int:
    """Return the place of the very object in a list, at the end of which it is put if need be."""
    if not any(other is one for other in known):
        known.append(one)
    return next(number for number, other in enumerate(known) if other is one)


def _place(place: object) -> Place:
    assert isinstance(place, tuple)
    return place


def _empty_body(loop: Block) -> bool:
    return bool(loop.body) and any(all(one.nullable for one in sequence) for sequence in loop.body)


def taking(ways: Iterable[Way | Through]) -> list[Way]:
    """Return the ways by which a group is entered; that it may be empty is its block's affair."""
    return [way for way in ways if isinstance(way, Way)]


def _lower(one: int | None, other: int) -> int:
    return other if one is None else min(one, other)


def _barriers(guards: Iterable[Guard]) -> Barriers:
    return frozenset(("greedy", guard) for guard in guards)


def _but(guard: Guard, others: Iterable[Guard]) -> list[Guard]:
    """Return guards that are together this one without the others."""
    found = [guard]
    for other in others:
        found = [part for one in found for part in one.but(other) if part.possible]
    return found


def without(ways: Iterable[Way], guards: Iterable[Guard]) -> list[Way]:
    """Return the ways for events that meet none of the guards."""
    found = list(ways)
    for guard in guards:
        found = [
            replace(way, guard=part)
            for way in found
            for part in ([way.guard] if way.accepts else way.guard.but(guard))
            if part.possible
        ]
    return found
