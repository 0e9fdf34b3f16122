"""A naive matcher: it looks for positions of events that together are a match, by trying all of them.

There are no states, no runs and no steps: `matches` is the definition of what a pattern means,
written as plainly as possible. An event is a dictionary with "x" and "at"; conditions are Python
functions of (event, history so far) here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from millstream.patterns.blocks import Block
from millstream.patterns.pattern import Pattern

Taken = tuple[tuple[str, int], ...]
"""(block, position) pairs."""
Meets = Callable[[str, dict[str, Any], dict[str, list[dict[str, Any]]]], bool]


@dataclass(frozen=True)
class Found:
    taken: Taken
    known_at: int
    """The time at which the match is known."""
    ended: int
    """The position of the event that completed it."""


@dataclass
class Naive:
    pattern: Pattern
    events: list[dict[str, Any]]
    meets: Meets
    first: int = 0
    waiting: bool = False
    """Whether a match may still come of what was tried: something waits for events behind the last."""

    # What a condition says

    def any_of(self, conditions: tuple[Any, ...], place: int, taken: Taken) -> bool:
        history: dict[str, list[dict[str, Any]]] = {}
        for name, at in taken:
            history.setdefault(name, []).append(self.events[at])
        return any(self.meets(one, self.events[place], history) for one in conditions)

    def takes(self, block: Block, place: int, taken: Taken) -> bool:
        return (not block.conditions or self.any_of(block.conditions, place, taken)) and not (
            block.until and self.any_of(block.until, place, taken)
        )

    # Which positions a block may take next

    def places(
        self, block: Block, contiguity: str, start: int, taken: Taken, inner: bool
    ) -> tuple[list[int], bool]:
        """Return the positions at or after `start` that a leaf may take, and whether it would wait for more events behind the last."""
        found: list[int] = []
        for place in range(start, len(self.events)):
            if self.takes(block, place, taken):
                found.append(place)
                if contiguity != "any":
                    return found, False
            elif contiguity == "relaxed" and self.any_of(block.conditions, place, taken):
                return found, False  # it would be the next, and "until" forbids it
            if contiguity == "strict" or (
                inner and block.until and self.any_of(block.until, place, taken)
            ):
                return found, False
        return found, True

    # What may follow: `then(start, taken, forbidden)` yields what the rest of the pattern makes of
    # it. `forbidden` are (from position, block) pairs: no event from there up to the next that is
    # taken may meet the block.

    def sequence(self, blocks, contiguity, start, taken, barred, then) -> Iterator[Found]:
        if not blocks:
            yield from then(start, taken, barred)
            return
        block, rest = blocks[0], blocks[1:]

        def go_on(start, taken, barred):
            return self.sequence(rest, None, start, taken, barred, then)

        if block.negated:
            if block.contiguity == "strict":
                yield from go_on(start, taken, (*barred, ("once", start, block)))
            else:
                yield from go_on(start, taken, (*barred, ("not", start, block)))
            return
        own = contiguity or block.contiguity
        if block.nullable and block.preference == "reluctant":
            yield from self.reluctant(block, 0, start, taken, barred, go_on, own)
            return
        yield from self.block(block, own, start, taken, barred, go_on)
        if block.nullable:
            greedy = [("greedy", start, block)] if block.preference == "greedy" else []
            yield from go_on(start, taken, (*barred, *greedy))

    def block(self, block, contiguity, start, taken, barred, then) -> Iterator[Found]:
        """Yield what comes of taking a block (all of its loop) from `start` on."""

        def once_more(count):
            def after(start, taken, barred):
                yield from self.loop(block, count, start, taken, barred, then)

            return after

        yield from self.body(
            block, contiguity, start, taken, barred, once_more(1) if block.loops else then, False
        )

    def loop(self, block, count, start, taken, barred, then) -> Iterator[Found]:
        if block.preference == "reluctant" and count >= block.least:
            yield from self.reluctant(block, count, start, taken, barred, then)
            return
        if block.most is None or count < block.most:

            def after(start, taken, barred):
                yield from self.loop(block, count + 1, start, taken, barred, then)

            inside = self.negation_behind(block, start)
            yield from self.body(block, block.inner, start, taken, inside, after, True)
        empty = any(all(one.nullable for one in sequence) for sequence in block.body)
        if count >= block.least or empty:
            more = block.most is None or count < block.most
            greedy = block.preference == "greedy" and more
            yield from then(
                start, taken, (*barred, *([("greedy", start, block)] if greedy else []))
            )

    # Reluctant loops are of one block, with one behind them that must come.

    def reluctant(self, block, count, start, taken, barred, then, own=None) -> Iterator[Found]:
        """A loop that takes no event which what follows can take; `own` is how it is entered."""
        following = self.pattern.blocks[self.pattern.blocks.index(block) + 1]
        more = block.most is None or count < block.most
        inner = own or block.inner

        def stay(place):
            return self.loop(block, count + 1, place + 1, (*taken, (block.name, place)), (), then)

        if more and inner != "strict" and following.contiguity != "strict":
            # It waits for both, and does not fork to do so.
            for place in range(start, len(self.events)):
                if self.takes(following, place, taken):
                    yield from then(place, taken, barred)
                    return
                if self.takes(block, place, taken):
                    yield from stay(place)
                    if inner == "relaxed":
                        return
            return
        if more and start < len(self.events) and not self.takes(following, start, taken):
            for place in self.places(block, inner, start, taken, own is None)[0]:
                yield from stay(place)
        yield from then(start, taken, barred)

    def negation_behind(self, block, start):
        """A negation right behind a loop of one block holds inside the loop as well, as in Flink."""
        for sequence in self.sequences(self.pattern.blocks):
            for one, following in pairwise(sequence):
                if (
                    one is block
                    and following.negated
                    and following.contiguity == "relaxed"
                    and not block.body
                ):
                    return (("not", start, following),)
        return ()

    def sequences(self, blocks):
        yield blocks
        for block in blocks:
            for inside in block.body:
                yield from self.sequences(inside)

    def body(self, block, contiguity, start, taken, barred, then, inner) -> Iterator[Found]:
        limit = block.within.total_seconds() if block.within else None
        if block.body and len(block.body) == 1:

            def something(start, now, barred):
                if len(now) > len(
                    taken
                ):  # an empty group is no group: that it may be left out is said elsewhere
                    yield from then(start, now, barred)

            yield from self.sequence(block.body[0], contiguity, start, taken, barred, something)
            return
        if block.body:
            yield from self.either(block, contiguity, start, taken, barred, then)
            return
        places, waits = self.places(block, contiguity, start, taken, inner)
        self.note(waits, start, taken, barred, limit)
        for place in places:
            if not self.allowed(barred, place, taken) or not self.lives(start, place, taken):
                continue
            if limit is not None and taken and self.at(place) - self.at(taken[-1][1]) >= limit:
                continue
            yield from then(place + 1, (*taken, (block.name, place)), ())

    def either(self, block, contiguity, start, taken, barred, then) -> Iterator[Found]:
        """Alternatives, each a leaf here: all wait together."""
        for place in range(start, len(self.events)):
            hit = False
            for sequence in block.body:
                first = sequence[0]
                if self.takes(first, place, taken):
                    hit = True
                    if self.allowed(barred, place, taken) and self.lives(start, place, taken):
                        yield from self.sequence(
                            sequence[1:], None, place + 1, (*taken, (first.name, place)), (), then
                        )
            if contiguity == "strict" or (contiguity == "relaxed" and hit):
                return
        self.note(
            True, start, taken, barred, block.within.total_seconds() if block.within else None
        )

    def note(self, waits: bool, start: int, taken: Taken, barred, limit: float | None) -> None:
        """Note that something waits for an event behind the last, if nothing has ended it."""
        last = len(self.events) - 1
        if not waits or not taken or taken[0][1] != self.first:
            return
        if self.pattern.span and self.age(taken) >= self.pattern.span.total_seconds():
            return
        if limit is not None and self.at(last) - self.at(taken[-1][1]) >= limit:
            return
        if start > last or (self.allowed(barred, last, taken) and self.lives(start, last, taken)):
            self.waiting = True

    def age(self, taken: Taken) -> float:
        return self.at(len(self.events) - 1) - self.at(taken[0][1])

    def at(self, place: int) -> float:
        return self.events[place]["at"]

    def allowed(self, barred, place, taken) -> bool:
        for kind, start, block in barred:
            last = start if kind == "once" else place
            for between in range(start, min(last, place) + 1):
                if kind != "greedy" and self.any_of(block.conditions, between, taken):
                    return False
                if kind == "greedy" and self.takes(block, between, taken):
                    return False
                if kind == "greedy" and self.any_of(block.until, between, taken):
                    break  # what ends the loop ends its greed
        return True

    def lives(self, start, place, taken) -> bool:
        """Whether a run that has taken `taken` is alive after each event up to `place`."""
        first = start if taken else place
        for between in range(first, place + 1):
            if any(not self.any_of((one,), between, taken) for one in self.pattern.required):
                return False
            if any(self.any_of((one,), between, taken) for one in self.pattern.halting):
                return False
        return True

    # The whole

    def end(self, start: int, taken: Taken, barred) -> Iterator[Found]:
        """Yield the match that is complete when nothing must come any more."""
        if not taken:
            return
        if not any(kind in ("not", "once") for kind, _, _ in barred):
            yield Found(taken, self.at(taken[-1][1]), taken[-1][1])
        elif any(kind == "once" for kind, _, _ in barred):
            self.note(start >= len(self.events), start, taken, (), None)
            if (
                start < len(self.events)
                and self.allowed(barred, start, taken)
                and self.lives(start, start, taken)
            ):
                yield Found(taken, self.at(start), start)
        else:
            self.note(True, start, taken, barred, None)
            until = self.at(taken[0][1]) + self.pattern.span.total_seconds()
            inside = [place for place in range(start, len(self.events)) if self.at(place) < until]
            clear = all(self.allowed(barred, place, taken) for place in inside[-1:])
            if clear and all(self.lives(start, place, taken) for place in inside[-1:]):
                yield Found(taken, until, taken[-1][1])

    def all_matches(self) -> list[Found]:
        found: dict[tuple[Taken, float], Found] = {}
        starts = self.single_starts() if self.pattern.one_at_a_time else range(len(self.events))
        for first in starts:
            for one in self.from_start(first):
                found[(one.taken, one.known_at)] = one
        return list(found.values())

    def single_starts(self) -> list[int]:
        """Return the positions at which a run may begin, since none of those that began before lives on behind that event."""
        found: list[int] = []
        for place in range(len(self.events)):
            seen = [Naive(self.pattern, self.events[: place + 1], self.meets) for _ in found]
            for first, one in zip(found, seen, strict=True):
                list(one.from_start(first))
            if not any(one.waiting for one in seen):
                found.append(place)
        return found

    def from_start(self, first: int) -> Iterator[Found]:
        """Yield the matches whose first event is at position `first`."""
        self.first = first
        for one in self.sequence(self.pattern.blocks, "strict", first, (), (), self.end):
            if one.taken[0][1] == first and self.in_time(one):
                yield one

    def in_time(self, found: Found) -> bool:
        if self.pattern.span is None:
            return True
        first = self.at(found.taken[0][1])
        pending = (
            found.known_at == first + self.pattern.span.total_seconds()
            and found.ended == found.taken[-1][1]
        )
        last = self.at(found.taken[-1][1]) if pending else found.known_at
        return last - first < self.pattern.span.total_seconds()

    def matches(self) -> list[Found]:
        """The matches in order, after those that are skipped are left out."""
        skip = self.pattern.skip
        ordered = sorted(self.all_matches(), key=self.order)
        if skip.kind == "none":
            return ordered
        kept: list[Found] = []
        limit = 0
        for one in ordered:
            if one.taken[0][1] >= limit:
                kept.append(one)
                limit = max(limit, self.skipped_to(one))
        return kept

    def order(self, found: Found):
        return (
            found.taken[0][1],
            found.known_at,
            found.ended,
            -len(found.taken),
            [(place, name) for name, place in found.taken],
        )

    def skipped_to(self, found: Found) -> int:
        skip = self.pattern.skip
        if skip.kind == "next":
            return found.taken[0][1] + 1
        if skip.kind == "past_last":
            return found.taken[-1][1] + 1
        places = [place for name, place in found.taken if name == skip.block]
        if not places:
            return 0
        return min(places) if skip.kind == "to_first" else max(places)
