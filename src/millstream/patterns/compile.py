"""From a pattern to its automaton.

A *place* in a pattern is what is still to come: a sequence from block i on, then what follows the
sequence; or a loop that has been taken j times, then what follows it. The state of a place has the
edges of every block that may come next, each tried on the same event:

    wait for a block   take it if the event meets it; pass over the event as its contiguity says
    an optional block  its edges, and those of what follows it
    a loop             its edges once more (while it may), and those of what follows (once it may)

Passing over an event leads to a state that waits for that block alone: what else could have come
has become a run of its own. Negations and greedy loops are *guards*: what must not be met on the
way to the next event that is taken. These are Flink CEP's rules, with two differences: an event
that meets a negated condition ends a run even if it would complete it, and a negation behind an
optional block does not end a run that still waits for that block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal

from millstream.errors import FlowError, ImpossiblePattern, UnboundedState, UnknownBlock
from millstream.flow import expressions
from millstream.flow.schema import Schema
from millstream.patterns.automaton import END, Automaton, Edge, State
from millstream.patterns.blocks import Block, Condition, Contiguity, all_blocks, leaves
from millstream.patterns.conditions import Owner, Reader, Test, Vocabulary, test_of
from millstream.patterns.pattern import Pattern
from millstream.patterns.states import minimal

Place = tuple[object, ...]
"""("then", sequence, i, place after it), ("again", loop, taken, place after it), or () at the end."""

Guard = tuple[Literal["not", "greedy"], "Wish"]


@dataclass(frozen=True, slots=True)
class Wish:
    """Tests that an event must meet and must not meet, all at once."""

    need: frozenset[int] = frozenset()
    forbid: frozenset[int] = frozenset()

    @property
    def possible(self) -> bool:
        return not self.need & self.forbid

    def also(self, other: Wish) -> Wish:
        return Wish(self.need | other.need, self.forbid | other.forbid)

    def but(self, other: Wish) -> Iterator[Wish]:
        """Yield wishes, no two of which an event can meet, that are together this one without the other."""
        kept = self
        for test in sorted(other.need):
            yield Wish(kept.need, kept.forbid | {test})
            kept = Wish(kept.need | {test}, kept.forbid)
        for test in sorted(other.forbid):
            yield Wish(kept.need | {test}, kept.forbid)
            kept = Wish(kept.need, kept.forbid | {test})


@dataclass(frozen=True, slots=True)
class Way:
    """An edge in the making: its target is a key of a state."""

    wish: Wish
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

    guards: frozenset[Guard]
    once: frozenset[Wish]


@dataclass(frozen=True, slots=True)
class _Wait:
    """A state that waits for one block."""

    block: Block
    contiguity: Contiguity
    after: Place
    guards: frozenset[Guard]
    inner: bool


ACCEPT = Way(Wish(), None, None)


def compile_pattern(
    pattern: Pattern,
    schema: Schema | None = None,
    *,
    strict: bool = False,
    compat: str | None = None,
) -> Automaton:
    """Return the automaton of a pattern, checked against the columns of its events if they are known.

    Args:
        pattern: The pattern.
        schema: The columns of the events.
        strict: Refuse a pattern whose runs may live for ever, instead of warning.
        compat: "bobocep" for the rules of BoboCEP.

    Raises:
        PatternError: The pattern can never match, or a condition cannot be tested.
        UnknownColumn: A condition reads a column that is not in `schema`.
    """
    if compat == "bobocep":
        from millstream.patterns.bobocep import compile_bobocep

        return compile_bobocep(pattern, schema)
    check(pattern)
    build = Build(pattern, Parts.of(pattern, schema))
    automaton = build.automaton()
    check_reached(build, automaton)
    warnings = tuple(endless(pattern))
    if strict and warnings:
        raise UnboundedState(warnings[0], hint=_LIMIT, where=pattern.where)
    return replace(automaton, warnings=warnings)


_LIMIT = 'say within("1 hour")'


def check(pattern: Pattern) -> None:
    """Refuse a pattern that can never match."""
    called = f'pattern "{pattern.name}"' if pattern.name else "the pattern"
    if not pattern.blocks:
        raise ImpossiblePattern(f"{called} has no blocks", hint="begin() it", where=pattern.where)
    first = pattern.blocks[0]
    if first.negated:
        raise _impossible(first, "is negated and the first", "begin with what starts a run")
    if all(block.nullable for block in pattern.blocks):
        fact = f"{called} has no block that must match"
        raise ImpossiblePattern(fact, hint="at least one must not be optional", where=pattern.where)
    last = next(
        (block for block in ending(pattern) if block.negated and block.contiguity == "relaxed"),
        None,
    )
    if last is not None and pattern.span is None:
        raise _impossible(
            last,
            "is negated and may be the last, without a time",
            'say within("1 hour"): it holds then',
        )
    for block in all_blocks(pattern.blocks):
        for sequence in block.body:
            if sequence[0].negated or sequence[-1].negated:
                negated = sequence[0] if sequence[0].negated else sequence[-1]
                raise _impossible(
                    negated, "is negated at the edge of a group", "negate between two blocks"
                )


def check_reached(build: Build, automaton: Automaton) -> None:
    """Refuse a pattern whose conditions leave no way to a match: one is forbidden where it must hold."""
    reached: set[int] = set()
    waiting = list(automaton.start)
    while waiting:
        edge = waiting.pop()
        if edge.completes:
            return
        if edge.target != END and edge.target not in reached:
            reached.add(edge.target)
            waiting += automaton.states[edge.target].edges
    if any(automaton.states[target].pending for target in reached):
        return
    never = [block for number, block in enumerate(build.parts.blocks) if number not in build.taken]
    stuck = next(
        (block for block in never if not block.nullable),
        never[0] if never else build.parts.blocks[-1],
    )
    hint = "what it must meet is forbidden there, by a negation, until, a greedy loop, or a halt condition"
    raise ImpossiblePattern(
        f'block "{stuck.name}" can never take an event',
        hint=hint,
        where=stuck.where or build.pattern.where,
    )


def ending(pattern: Pattern) -> list[Block]:
    """Return the blocks with which a match may end, or that it may end without."""
    found: list[Block] = []
    for block in reversed(pattern.blocks):
        found.append(block)
        if not block.nullable:
            break
    return found


def _impossible(block: Block, fact: str, hint: str) -> FlowError:
    return ImpossiblePattern(f'block "{block.name}" {fact}', hint=hint, where=block.where)


def endless(pattern: Pattern) -> Iterator[str]:
    """Yield why the runs of a pattern may live for ever."""
    waits = any(block.contiguity != "strict" for block in pattern.blocks[1:])
    loops = any(block.loops and block.most is None for block in all_blocks(pattern.blocks))
    if pattern.span is None and (waits or loops) and not pattern.one_at_a_time:
        said = f'pattern "{pattern.name}"' if pattern.name else "the pattern"
        why = "waits for an event that may never come" if waits else "has a loop without an end"
        yield f"{said} {why}, and has no within: its runs may live for ever"


@dataclass
class Parts:
    """The numbered parts of a pattern: blocks, tests, words."""

    words: Vocabulary
    blocks: list[Block]
    tests: list[Test] = field(default_factory=list)

    @classmethod
    def of(cls, pattern: Pattern, schema: Schema | None) -> Parts:
        taking = [block for block in leaves(pattern.blocks) if not block.negated]
        return cls(Vocabulary(names_of(pattern.blocks, taking), schema), taking)

    def number(self, block: Block) -> int:
        return next(number for number, known in enumerate(self.blocks) if known is block)

    def test(self, conditions: tuple[Condition, ...], owner: Owner) -> Wish:
        """Return the wish that any of `conditions` holds; an empty one if there are none."""
        found = test_of(conditions, self.words, owner)
        if found is None:
            return Wish()
        if found not in self.tests:
            self.tests.append(found)
        return Wish(need=frozenset([self.tests.index(found)]))


def names_of(blocks: tuple[Block, ...], taking: list[Block]) -> dict[str, frozenset[int]]:
    """Return what each name of a block or a group stands for."""
    names: dict[str, frozenset[int]] = {}
    for block in all_blocks(blocks):
        if block.name and not block.negated:
            inside = {id(leaf) for leaf in leaves((block,))}
            found = frozenset(number for number, leaf in enumerate(taking) if id(leaf) in inside)
            names[block.name.lower()] = names.get(block.name.lower(), frozenset()) | found
    return names


def micros(span: timedelta | None) -> int | None:
    return None if span is None else span // timedelta(microseconds=1)


def check_sight(pattern: Pattern, block: Block, words: Vocabulary, owner: Owner) -> None:
    """Refuse conditions that look at blocks which come later; in a group that loops they may have come before."""
    order = list(leaves(pattern.blocks))
    own = max((place for place, leaf in enumerate(order) if leaf is block), default=len(order))
    looping = [
        set(map(id, leaves((one,)))) for one in all_blocks(pattern.blocks) if one.body and one.loops
    ]
    for text in (one for one in (*block.conditions, *block.until) if isinstance(one, str)):
        for column in Reader(words, owner).references(expressions.expression(text)):
            name = column.parts[0].name
            places = [
                place for place, leaf in enumerate(order) if leaf.name.lower() == name.lower()
            ]
            together = any(
                id(block) in inside and any(id(order[place]) in inside for place in places)
                for inside in looping
            )
            if places and min(places) > own and not together:
                raise owner.mistake(
                    UnknownBlock,
                    f'looks at block "{name}", which comes after it',
                    hint="look back only",
                )


class Build:
    """Builds the states of one pattern, each when it is first needed."""

    def __init__(self, pattern: Pattern, parts: Parts, *, prefers: bool = False) -> None:
        self.pattern, self.parts, self.prefers = pattern, parts, prefers
        self.sequences: list[tuple[Block, ...]] = []
        self.loops: list[Block] = []
        self.wishes: dict[int, tuple[Wish, Wish]] = {}
        self.ways: dict[tuple[object, ...], list[Way]] = {}
        self.pending: set[tuple[object, ...]] = set()
        self.waits: dict[tuple[object, ...], _Wait] = {}
        self.taken: set[int | None] = set()

    def automaton(self) -> Automaton:
        pattern, parts = self.pattern, self.parts
        for block in all_blocks(pattern.blocks):
            self._wishes(block)
        required = [parts.test((one,), self._owner("precondition")) for one in pattern.required]
        halting = [parts.test((one,), self._owner("halt condition")) for one in pattern.halting]
        start = self._place_ways(self._then(pattern.blocks, 0, ()), frozenset(), frozenset())
        begins = [way for way in start if way.take is not None]
        self._complete(begins)
        states, start_edges = self._edges(begins, required, halting)
        return Automaton(
            name=pattern.name or "pattern",
            blocks=tuple(block.name for block in parts.blocks),
            names=tuple(sorted(parts.words.blocks.items())),
            tests=tuple(parts.tests),
            values=tuple(parts.words.values),
            registers=tuple(parts.words.registers),
            start=start_edges,
            states=states,
            within=micros(pattern.span),
            skip=pattern.skip,
            singleton=pattern.one_at_a_time,
            prefers=self.prefers,
            inclusive=self.prefers,
            keys=pattern.keys,
            hidden=frozenset(
                number for number, block in enumerate(parts.blocks) if not block.shown
            ),
        )

    def _owner(self, what: str) -> Owner:
        called = f'pattern "{self.pattern.name}"' if self.pattern.name else "the pattern"
        return Owner(f"the {what} of {called}", self.pattern.where)

    # What an event must meet

    def _wishes(self, block: Block) -> tuple[Wish, Wish]:
        """Return what a block takes, and what ends its loop."""
        if id(block) not in self.wishes:
            owner = Owner(f'{"variable" if self.prefers else "block"} "{block.name}"', block.where)
            if not self.prefers:
                check_sight(self.pattern, block, self.parts.words, owner)
            takes = self.parts.test(block.conditions, owner)
            self.wishes[id(block)] = (
                takes,
                self.parts.test(block.until, owner) if block.until else Wish(),
            )
        return self.wishes[id(block)]

    def _taken(self, block: Block) -> Wish:
        takes, until = self._wishes(block)
        return takes.also(Wish(forbid=until.need))

    # Places

    def _then(self, sequence: tuple[Block, ...], at: int, after: Place) -> Place:
        number = next((n for n, known in enumerate(self.sequences) if known is sequence), None)
        if number is None:
            number = len(self.sequences)
            self.sequences.append(sequence)
        return ("then", number, at, after)

    def _again(self, loop: Block, taken: int, after: Place) -> Place:
        number = next((n for n, known in enumerate(self.loops) if known is loop), None)
        if number is None:
            number = len(self.loops)
            self.loops.append(loop)
        highest = max(loop.least, 1) if loop.most is None else loop.most
        return ("again", number, min(taken, highest), after)

    def _place_ways(
        self, place: Place, guards: frozenset[Guard], once: frozenset[Wish]
    ) -> list[Way]:
        """Return the ways on from a place, and ACCEPT where the pattern may end."""
        if not place:
            return self._end_ways(guards, once)
        kind, number, at, after = place
        assert isinstance(number, int)
        assert isinstance(at, int)
        assert isinstance(after, tuple)
        if kind == "then":
            found = self._sequence_ways(self.sequences[number], at, None, after, guards, once)
            return [way for one in found for way in self._followed(one, after)]
        return self._loop_ways(self.loops[number], at, after, guards, once)

    def _followed(self, way: Way | Through, after: Place) -> list[Way]:
        return self._place_ways(after, way.guards, way.once) if isinstance(way, Through) else [way]

    def _end_ways(self, guards: frozenset[Guard], once: frozenset[Wish]) -> list[Way]:
        if once:
            way = Way(Wish(), None, None, completes=True)
            return _without([way], [*once, *(wish for _, wish in guards)])
        if all(kind == "greedy" for kind, _ in guards):
            return [ACCEPT]
        key = ("pending", guards)
        self.pending.add(key)
        return _without([Way(Wish(), None, key)], [wish for _, wish in guards])

    def _sequence_ways(
        self,
        sequence: tuple[Block, ...],
        at: int,
        contiguity: Contiguity | None,
        after: Place,
        guards: frozenset[Guard],
        once: frozenset[Wish],
    ) -> list[Way | Through]:
        """Return the ways into a sequence from block `at` on, with a mark if what follows it may come at once."""
        if at == len(sequence):
            return [Through(guards, once)]
        block = sequence[at]
        if block.negated:
            once = once | {self._taken(block)} if block.contiguity == "strict" else once
            guards = (
                guards | {("not", self._taken(block))} if block.contiguity == "relaxed" else guards
            )
            return self._sequence_ways(sequence, at + 1, None, after, guards, once)
        rest = self._then(sequence, at + 1, after)
        own = block.contiguity if contiguity is None else contiguity
        if self.prefers:
            return self._preferred_rest(sequence, at, rest, after)
        ways: list[Way | Through] = [*_without(self._block_ways(block, own, rest, guards), once)]
        if not block.nullable:
            return ways
        return [*ways, *self._sequence_ways(sequence, at + 1, None, after, guards, once)]

    def _preferred_rest(
        self, sequence: tuple[Block, ...], at: int, rest: Place, after: Place
    ) -> list[Way | Through]:
        """Return the ways into a sequence in the order of preference; what comes behind a block stands where the block may be empty."""
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
        """Return the ways into a block, with a mark at each place where it may be passed without an event."""
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
        self, loop: Block, taken: int, after: Place, guards: frozenset[Guard], once: frozenset[Wish]
    ) -> list[Way]:
        more: list[Way] = []
        if loop.most is None or taken < loop.most:
            inside: frozenset[Guard] = frozenset(
                ("not", wish) for wish in self._negated_next(loop, after)
            )
            more = self._body_ways(
                loop, loop.inner, self._again(loop, taken + 1, after), inside, inner=True
            )
        if taken < loop.least and not _empty_body(loop):
            return more
        greedy = (
            {("greedy", self._taken(loop))}
            if loop.preference == "greedy" and not self.prefers and more
            else set()
        )
        leave = self._place_ways(after, guards | frozenset(greedy), once)  # type: ignore[arg-type]
        if loop.preference != "reluctant":
            return [*more, *leave]
        return (
            [*leave, *more]
            if self.prefers
            else self._reluctant(loop, self._again(loop, taken, after), more, leave)
        )

    def _reluctant(self, loop: Block, place: Place, more: list[Way], leave: list[Way]) -> list[Way]:
        """Return the ways of a loop that is left as soon as what follows matches; it passes over events without forking."""
        left = [way.wish for way in leave if way.take is not None]
        stay = _without([way for way in more if way.take is not None], left)
        waits = [way for way in leave if way.take is None and not way.accepts]
        inner = [way for way in more if way.take is None]
        if inner and waits and loop.inner != "strict":
            own = (
                [way.wish for way in more if way.take is not None]
                if loop.inner == "relaxed"
                else []
            )
            both = _without([Way(Wish(), None, self._key(place))], [*left, *own])
            # What follows may pass over an event that it can take, as each later one is worth a
            # match.
            later = [
                part
                for number, wish in enumerate(left)
                for part in _without(
                    [replace(way, wish=way.wish.also(wish)) for way in waits], left[:number]
                )
                if part.wish.possible
            ]
            return [*(way for way in leave if way not in waits), *stay, *later, *both]
        return [*leave, *stay, *_without(inner, left)]

    def _negated_next(self, loop: Block, after: Place) -> list[Wish]:
        """Return what a negation right behind a loop forbids already inside it, as in Flink."""
        if loop.body or not after or after[0] != "then":
            return []
        sequence, at = self.sequences[int(str(after[1]))], int(str(after[2]))
        block = sequence[at] if at < len(sequence) else None
        return (
            [self._taken(block)]
            if block is not None and block.negated and block.contiguity == "relaxed"
            else []
        )

    # Blocks

    def _block_ways(
        self, block: Block, contiguity: Contiguity, after: Place, guards: frozenset[Guard]
    ) -> list[Way]:
        """Return the ways to take a block for the first time, or to wait for it."""
        following = self._again(block, 1, after) if block.loops else after
        return self._body_ways(block, contiguity, following, guards, inner=False)

    def _body_ways(
        self,
        block: Block,
        contiguity: Contiguity,
        after: Place,
        guards: frozenset[Guard],
        *,
        inner: bool,
    ) -> list[Way]:
        if not block.body:
            ways = self._leaf_ways(block, contiguity, after, guards, inner=inner)
        elif len(block.body) == 1:
            ways = _taking(
                self._sequence_ways(block.body[0], 0, contiguity, after, guards, frozenset())
            )
        else:
            ways = self._either_ways(block, contiguity, after, guards)
        limit = micros(block.within)
        return (
            ways
            if limit is None
            else [replace(way, before=_lower(way.before, limit)) for way in ways]
        )

    def _leaf_ways(
        self,
        block: Block,
        contiguity: Contiguity,
        after: Place,
        guards: frozenset[Guard],
        *,
        inner: bool,
    ) -> list[Way]:
        takes, until = self._wishes(block)
        stop = Wish(forbid=until.need)
        taking = Way(takes.also(stop), self.parts.number(block), self._key(after))
        ways = _without([taking], [wish for _, wish in guards])
        if contiguity == "strict":
            return ways
        key = ("wait", id(block), contiguity, after, guards, inner)
        self.waits[key] = _Wait(block, contiguity, after, guards, inner)
        waiting = [Way(stop if inner else Wish(), None, key)]
        if contiguity == "relaxed":
            waiting = _without(waiting, [takes])
        return [*ways, *_without(waiting, [wish for _, wish in guards])]

    def _either_ways(
        self, block: Block, contiguity: Contiguity, after: Place, guards: frozenset[Guard]
    ) -> list[Way]:
        """Return the ways into alternatives: the run waits for all of them at once."""
        ways: list[Way] = []
        for sequence in block.body:
            ways += _taking(self._sequence_ways(sequence, 0, "strict", after, guards, frozenset()))
        if contiguity == "strict":
            return ways
        key = ("wait", id(block), contiguity, after, guards, False)
        self.waits[key] = _Wait(block, contiguity, after, guards, inner=False)
        waiting = [Way(Wish(), None, key)]
        if contiguity == "relaxed":
            waiting = _without(waiting, [way.wish for way in ways if way.take is not None])
        return [*ways, *_without(waiting, [wish for _, wish in guards])]

    # States

    def _key(self, place: Place) -> tuple[object, ...]:
        return ("at", place)

    def _complete(self, begins: list[Way]) -> None:
        """Find the ways of all states that can be reached."""
        waiting = deque(way.target for way in begins)
        while waiting:
            key = waiting.popleft()
            if key is None or key in self.ways:
                continue
            self.ways[key] = self._cut(self._state_ways(key))
            waiting.extend(way.target for way in self.ways[key])

    def _state_ways(self, key: tuple[object, ...]) -> list[Way]:
        if key[0] == "at":
            return self._place_ways(_place(key[1]), frozenset(), frozenset())
        if key[0] == "pending":
            return self._end_ways(key[1], frozenset())  # type: ignore[arg-type]
        wait = self.waits[key]
        return self._body_ways(
            wait.block, wait.contiguity, wait.after, wait.guards, inner=wait.inner
        )

    def _cut(self, ways: list[Way]) -> list[Way]:
        """Leave out, where preference counts, what comes behind the end of the pattern: it can never be chosen."""
        if self.prefers and any(way.accepts for way in ways):
            return ways[: next(place for place, way in enumerate(ways) if way.accepts) + 1]
        return ways

    def _edges(
        self, begins: list[Way], required: list[Wish], halting: list[Wish]
    ) -> tuple[tuple[State, ...], tuple[Edge, ...]]:
        extra = Wish(
            frozenset().union(*(w.need for w in required)),
            frozenset().union(*(w.need for w in halting)),
        )
        ways = [way for some in (begins, *self.ways.values()) for way in some]
        self.taken = {way.take for way in ways if way.wish.also(extra).possible}
        numbers = {key: number for number, key in enumerate(self.ways)}
        states = [self._state(key, numbers, extra) for key in self.ways]
        start = list(self._as_edges(begins, numbers, extra))
        return minimal(states, start)

    def _state(
        self, key: tuple[object, ...], numbers: dict[tuple[object, ...], int], extra: Wish
    ) -> State:
        ways = self.ways[key]
        edges = tuple(self._as_edges(ways, numbers, extra))
        pending = key in self.pending or any(way.target in self.pending for way in ways)
        names = dict.fromkeys(
            self.parts.blocks[way.take].name for way in ways if way.take is not None
        )
        limits = [edge.before for edge in edges]
        patience = (
            None
            if pending or not limits or None in limits
            else max(limit for limit in limits if limit is not None)
        )
        return State(" or ".join(names), edges, pending, patience)

    def _as_edges(
        self, ways: Iterable[Way], numbers: dict[tuple[object, ...], int], extra: Wish
    ) -> Iterator[Edge]:
        for way in ways:
            wish = way.wish.also(extra)
            if way.accepts or not wish.possible:
                continue
            target, completes = END, way.completes
            if way.target is not None:
                after = self.ways[way.target]
                completes = way.take is not None and any(one.accepts for one in after)
                goes_on = way.target in self.pending or any(not one.accepts for one in after)
                target = numbers[way.target] if goes_on else END
            if target == END and not completes:
                continue
            yield Edge(
                tuple(sorted(wish.need)),
                tuple(sorted(wish.forbid)),
                way.take,
                target,
                completes,
                way.before,
            )


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


def _without(ways: Iterable[Way], wishes: Iterable[Wish]) -> list[Way]:
    """Return the ways for events that meet none of the wishes."""
    found = list(ways)
    for wish in wishes:
        found = [
            replace(way, wish=part)
            for way in found
            for part in ([way.wish] if way.accepts else way.wish.but(wish))
            if part.possible
        ]
    return found
