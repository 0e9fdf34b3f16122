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

from millstream.patterns.blocks import Block, Contiguity
from millstream.patterns.checks import check_sight
from millstream.patterns.conditions import Owner
from millstream.patterns.parts import Guard, Parts, micros
from millstream.patterns.pattern import Pattern

Place = tuple[object, ...]
"""("then", sequence, i, place after), ("again", loop, taken, place after), or () at the end."""

Barrier = tuple[Literal["not", "greedy"], Guard]
"""What must not be met on the way to the next event that is taken: a negation, or a greedy loop."""


@dataclass(frozen=True, slots=True)
class Way:
    """An edge in the making: its target is a key of a state."""

    guard: Guard
    take: int | None
    target: tuple[object, ...] | None
    before: int | None = None
    completes: bool = False

    @property
    def accepts(self) -> bool:
        """Whether this is no edge but the mark that the pattern may end here."""
        return self.target is None and not self.completes


@dataclass(frozen=True, slots=True)
class Through:
    """The mark, among the ways into a sequence, that what follows it may come at once."""

    barriers: frozenset[Barrier]
    once: frozenset[Guard]


@dataclass(frozen=True, slots=True)
class _Wait:
    """A state that waits for one block."""

    block: Block
    contiguity: Contiguity
    after: Place
    barriers: frozenset[Barrier]
    inner: bool


ACCEPT = Way(Guard(), None, None)


class Ways:
    """Finds the ways on from the places of one pattern, and the states that they lead to."""

    def __init__(self, pattern: Pattern, parts: Parts, *, prefers: bool) -> None:
        self.pattern, self.parts, self.prefers = pattern, parts, prefers
        self.pending: set[tuple[object, ...]] = set()
        self._sequences: list[tuple[Block, ...]] = []
        self._loops: list[Block] = []
        self._guards: dict[int, tuple[Guard, Guard]] = {}
        self._waits: dict[tuple[object, ...], _Wait] = {}

    def at_start(self) -> list[Way]:
        """Return the ways to begin a run."""
        start = self._place_ways(self._then(self.pattern.blocks, 0, ()), frozenset(), frozenset())
        return [way for way in start if way.take is not None]

    def of_state(self, key: tuple[object, ...]) -> list[Way]:
        if key[0] == "at":
            return self._place_ways(_place(key[1]), frozenset(), frozenset())
        if key[0] == "pending":
            return self._end_ways(key[1], frozenset())  # type: ignore[arg-type]
        wait = self._waits[key]
        return self._body_ways(
            wait.block, wait.contiguity, wait.after, wait.barriers, inner=wait.inner
        )

    # What an event must meet

    def guards_of(self, block: Block) -> tuple[Guard, Guard]:
        """Return what a block takes, and what ends its loop."""
        if id(block) not in self._guards:
            owner = Owner(f'{"variable" if self.prefers else "block"} "{block.name}"', block.where)
            if not self.prefers:
                check_sight(self.pattern, block, self.parts.words, owner)
            takes = self.parts.test(block.conditions, owner)
            self._guards[id(block)] = (
                takes,
                self.parts.test(block.until, owner) if block.until else Guard(),
            )
        return self._guards[id(block)]

    def _taken(self, block: Block) -> Guard:
        takes, until = self.guards_of(block)
        return takes.also(Guard(forbid=until.need))

    # Places

    def _then(self, sequence: tuple[Block, ...], at: int, after: Place) -> Place:
        return ("then", _number(self._sequences, sequence), at, after)

    def _again(self, loop: Block, taken: int, after: Place) -> Place:
        highest = max(loop.least, 1) if loop.most is None else loop.most
        return ("again", _number(self._loops, loop), min(taken, highest), after)

    def _place_ways(
        self, place: Place, barriers: frozenset[Barrier], once: frozenset[Guard]
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
        return (
            self._place_ways(after, way.barriers, way.once) if isinstance(way, Through) else [way]
        )

    def _end_ways(self, barriers: frozenset[Barrier], once: frozenset[Guard]) -> list[Way]:
        if once:
            way = Way(Guard(), None, None, completes=True)
            return _without([way], [*once, *(guard for _, guard in barriers)])
        if all(kind == "greedy" for kind, _ in barriers):
            return [ACCEPT]
        key = ("pending", barriers)
        self.pending.add(key)
        return _without([Way(Guard(), None, key)], [guard for _, guard in barriers])

    def _sequence_ways(
        self,
        sequence: tuple[Block, ...],
        at: int,
        contiguity: Contiguity | None,
        after: Place,
        barriers: frozenset[Barrier],
        once: frozenset[Guard],
    ) -> list[Way | Through]:
        """Return the ways into a sequence from block `at` on; a mark if it may be passed."""
        if at == len(sequence):
            return [Through(barriers, once)]
        block = sequence[at]
        if block.negated:
            once = once | {self._taken(block)} if block.contiguity == "strict" else once
            if block.contiguity == "relaxed":
                barriers = barriers | {("not", self._taken(block))}
            return self._sequence_ways(sequence, at + 1, None, after, barriers, once)
        rest = self._then(sequence, at + 1, after)
        own = block.contiguity if contiguity is None else contiguity
        if self.prefers:
            return self._preferred_rest(sequence, at, rest, after)
        ways: list[Way | Through] = [*_without(self._block_ways(block, own, rest, barriers), once)]
        if not block.nullable:
            return ways
        return [*ways, *self._sequence_ways(sequence, at + 1, None, after, barriers, once)]

    def _preferred_rest(
        self, sequence: tuple[Block, ...], at: int, rest: Place, after: Place
    ) -> list[Way | Through]:
        """Return the ways into a sequence in the order of preference.

        What comes behind a block stands where the block may be empty.
        """
        found: list[Way | Through] = []
        passed = False
        for way in self._preferred(sequence[at], rest):
            if isinstance(way, Way):
                found.append(way)
            elif not passed:
                # What comes behind the same place again is never preferred.
                passed = True
                found += self._sequence_ways(
                    sequence, at + 1, None, after, frozenset(), frozenset()
                )
        return found

    def _preferred(self, block: Block, after: Place) -> list[Way | Through]:
        """Return the ways into a block, with a mark wherever it may be passed without an event."""
        following = self._again(block, 1, after) if block.loops else after
        inside: list[Way | Through] = []
        if not block.body:
            inside += self._leaf_ways(block, "strict", following, frozenset(), inner=False)
        for sequence in block.body:
            inside += self._sequence_ways(
                sequence, 0, "strict", following, frozenset(), frozenset()
            )
        if not block.optional and not block.loops:
            return inside
        taking = _taking(inside)
        passing = [Through(frozenset(), frozenset())] if block.nullable else []
        return [*passing, *taking] if block.preference == "reluctant" else [*taking, *passing]

    def _loop_ways(
        self,
        loop: Block,
        taken: int,
        after: Place,
        barriers: frozenset[Barrier],
        once: frozenset[Guard],
    ) -> list[Way]:
        more: list[Way] = []
        if loop.most is None or taken < loop.most:
            inside: frozenset[Barrier] = frozenset(
                ("not", guard) for guard in self._negated_next(loop, after)
            )
            more = self._body_ways(
                loop, loop.inner, self._again(loop, taken + 1, after), inside, inner=True
            )
        if taken < loop.least and not _empty_body(loop):
            return more
        if loop.preference == "greedy" and not self.prefers and more:
            greedy = {("greedy", self._taken(loop))}
        else:
            greedy = set()
        leave = self._place_ways(after, barriers | frozenset(greedy), once)  # type: ignore[arg-type]
        if loop.preference != "reluctant":
            return [*more, *leave]
        if self.prefers:
            return [*leave, *more]
        return self._reluctant(loop, self._again(loop, taken, after), more, leave)

    def _reluctant(self, loop: Block, place: Place, more: list[Way], leave: list[Way]) -> list[Way]:
        """Return the ways of a loop that is left as soon as what follows matches.

        It passes over events without forking.
        """
        left = [way.guard for way in leave if way.take is not None]
        stay = _without([way for way in more if way.take is not None], left)
        waits = [way for way in leave if way.take is None and not way.accepts]
        inner = [way for way in more if way.take is None]
        if inner and waits and loop.inner != "strict":
            if loop.inner == "relaxed":
                own = [way.guard for way in more if way.take is not None]
            else:
                own = []
            both = _without([Way(Guard(), None, _key(place))], [*left, *own])
            # What follows may pass over an event that it can take, as each later one is worth a
            # match.
            later = [
                part
                for number, guard in enumerate(left)
                for part in _without(
                    [replace(way, guard=way.guard.also(guard)) for way in waits], left[:number]
                )
                if part.guard.possible
            ]
            return [*(way for way in leave if way not in waits), *stay, *later, *both]
        return [*leave, *stay, *_without(inner, left)]

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

    def _block_ways(
        self, block: Block, contiguity: Contiguity, after: Place, barriers: frozenset[Barrier]
    ) -> list[Way]:
        """Return the ways to take a block for the first time, or to wait for it."""
        following = self._again(block, 1, after) if block.loops else after
        return self._body_ways(block, contiguity, following, barriers, inner=False)

    def _body_ways(
        self,
        block: Block,
        contiguity: Contiguity,
        after: Place,
        barriers: frozenset[Barrier],
        *,
        inner: bool,
    ) -> list[Way]:
        if not block.body:
            ways = self._leaf_ways(block, contiguity, after, barriers, inner=inner)
        elif len(block.body) == 1:
            ways = _taking(
                self._sequence_ways(block.body[0], 0, contiguity, after, barriers, frozenset())
            )
        else:
            ways = self._either_ways(block, contiguity, after, barriers)
        limit = micros(block.within)
        if limit is None:
            return ways
        return [replace(way, before=_lower(way.before, limit)) for way in ways]

    def _leaf_ways(
        self,
        block: Block,
        contiguity: Contiguity,
        after: Place,
        barriers: frozenset[Barrier],
        *,
        inner: bool,
    ) -> list[Way]:
        takes, until = self.guards_of(block)
        stop = Guard(forbid=until.need)
        taking = Way(takes.also(stop), self.parts.number(block), _key(after))
        ways = _without([taking], [guard for _, guard in barriers])
        if contiguity == "strict":
            return ways
        key = ("wait", id(block), contiguity, after, barriers, inner)
        self._waits[key] = _Wait(block, contiguity, after, barriers, inner)
        waiting = [Way(stop if inner else Guard(), None, key)]
        if contiguity == "relaxed":
            waiting = _without(waiting, [takes])
        return [*ways, *_without(waiting, [guard for _, guard in barriers])]

    def _either_ways(
        self, block: Block, contiguity: Contiguity, after: Place, barriers: frozenset[Barrier]
    ) -> list[Way]:
        """Return the ways into alternatives: the run waits for all of them at once."""
        ways: list[Way] = []
        for sequence in block.body:
            ways += _taking(
                self._sequence_ways(sequence, 0, "strict", after, barriers, frozenset())
            )
        if contiguity == "strict":
            return ways
        key = ("wait", id(block), contiguity, after, barriers, False)
        self._waits[key] = _Wait(block, contiguity, after, barriers, inner=False)
        waiting = [Way(Guard(), None, key)]
        if contiguity == "relaxed":
            waiting = _without(waiting, [way.guard for way in ways if way.take is not None])
        return [*ways, *_without(waiting, [guard for _, guard in barriers])]


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


def _taking(ways: Iterable[Way | Through]) -> list[Way]:
    """Return the ways by which a group is entered; that it may be empty is its block's affair."""
    return [way for way in ways if isinstance(way, Way)]


def _lower(one: int | None, other: int) -> int:
    return other if one is None else min(one, other)


def _without(ways: Iterable[Way], guards: Iterable[Guard]) -> list[Way]:
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
