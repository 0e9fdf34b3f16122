"""The ways on from each place of a row pattern of SQL, in the order of preference.

Rows follow each other directly, so nothing is passed over. Where a part may take nothing there is a
mark, and what comes behind it stands in its place: the order of all ways is that in which a
backtracking matcher would try them, which is that of Python's `re`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from millstream.patterns.blocks import Block, Contiguity
from millstream.patterns.conditions import Owner
from millstream.patterns.parts import Guard
from millstream.patterns.ways import Barriers, Guards, Place, Through, Wait, Way, Ways, without


class PreferredWays(Ways):
    """Finds the ways on from the places of a row pattern."""

    noun = "variable"
    #: Whether no row has been taken yet: only there can a row be the first.
    _beginning = False

    def at_start(self) -> list[Way]:
        """Return the ways to begin a run, up to where a match may be empty."""
        self._beginning = True
        start = self._place_ways(self._then(self.pattern.blocks, 0, ()))
        self._beginning = False
        return list(self._before_empty(start))

    def _before_empty(self, start: list[Way]) -> Iterator[Way]:
        """Yield ways to begin that are preferred to taking nothing, at each row or at the first."""
        at_first: list[Guard] = []
        for way in start:
            if way.accepts and not way.last:
                at_first.append(way.guard)
                if way.guard == Guard():
                    self.empty = True
                    return
            elif way.take is not None:
                yield from without([way], at_first)
        self.empty_at_first = bool(at_first)

    def _then(self, sequence: tuple[Block, ...], at: int, after: Place) -> Place:
        """Return a place; behind a sequence it is that of what follows, however it was reached."""
        return after if at == len(sequence) else super()._then(sequence, at, after)

    def guards_of(self, block: Block) -> tuple[Guard, Guard]:
        """Return what a block takes, and what ends its loop; an anchor takes nothing."""
        if block.negated:
            return self.parts.anchor(block.name), Guard()
        return super().guards_of(block)

    def _check_sight(self, block: Block, owner: Owner) -> None:
        """Let conditions look at any variable: one that has no row yet is missing."""

    def _followed(self, way: Way | Through, after: Place) -> list[Way]:
        if not isinstance(way, Way) and way.first and not self._beginning:
            return []
        ways = super()._followed(way, after)
        if not isinstance(way, Way) and way.first:
            return [self._from_first(one) for one in ways]
        if isinstance(way, Way) or not way.last:
            return ways
        return [replace(one, last=True) for one in ways if one.accepts][:1]

    def _sequence_ways(
        self,
        sequence: tuple[Block, ...],
        at: int,
        contiguity: Contiguity | None,  # noqa: ARG002
        after: Place,
        barriers: Barriers = frozenset(),  # noqa: ARG002
        once: Guards = frozenset(),  # noqa: ARG002
    ) -> list[Way | Through]:
        """Return the ways into a sequence from block `at` on; a mark if it may be passed."""
        if at == len(sequence):
            return [Through()]
        if sequence[at].negated:
            return self._anchored(sequence, at, after)
        return self._preferred_rest(sequence, at, self._then(sequence, at + 1, after), after)

    def _loop_ways(
        self,
        loop: Block,
        taken: int,
        after: Place,
        barriers: Barriers,  # noqa: ARG002
        once: Guards,  # noqa: ARG002
    ) -> list[Way]:
        ways = self._first_passing(self._repeated(loop, taken, after))
        return [way for one in ways for way in self._followed(one, after)]

    def _preferred_rest(
        self, sequence: tuple[Block, ...], at: int, rest: Place, after: Place
    ) -> list[Way | Through]:
        """Return the ways into a sequence in the order of preference.

        What comes behind a block stands where the block may be empty.
        """
        found: list[Way | Through] = []
        for way in self._first_passing(self._preferred(sequence[at], rest)):
            if isinstance(way, Way):
                found.append(way)
                continue
            rest_ways = self._sequence_ways(sequence, at + 1, None, after)
            if way.first:
                found += self._at_first(rest_ways)
                continue
            found += _closing(rest_ways) if way.last else rest_ways
        return found

    def _anchored(self, sequence: tuple[Block, ...], at: int, after: Place) -> list[Way | Through]:
        """Return the ways behind an anchor: from the first row of a partition, or to no row."""
        ways = self._sequence_ways(sequence, at + 1, None, after)
        if sequence[at].name == "$":
            return _closing(ways)
        return self._at_first(ways)

    def _at_first(self, ways: list[Way | Through]) -> list[Way | Through]:
        """Return ways for the first row of a partition alone."""
        return [
            self._from_first(way) if isinstance(way, Way) else replace(way, first=True)
            for way in ways
        ]

    def _from_first(self, way: Way) -> Way:
        """Return a way for the first row of a partition alone."""
        return replace(way, guard=way.guard.also(self.parts.anchor("^")))

    def _first_passing(self, ways: list[Way | Through]) -> Iterator[Way | Through]:
        """Yield ways with the first mark: what comes behind the same place again is not preferred."""
        passed = False
        for way in ways:
            if isinstance(way, Way) or not passed:
                yield way
            passed = passed or (isinstance(way, Through) and not way.last and not way.first)

    def _preferred(self, block: Block, after: Place) -> list[Way | Through]:
        """Return the ways into a block, with a mark wherever it may be passed without an event."""
        if not block.optional and not block.loops:
            return self._once(block, after)
        return self._repeated(block, 0, after)

    def _once(self, block: Block, following: Place) -> list[Way | Through]:
        """Return the ways through a block once, with marks where it takes nothing."""
        if not block.body:
            return [*self._leaf_ways(Wait(block, "strict", following))]
        return [
            way
            for sequence in block.body
            for way in self._sequence_ways(sequence, 0, "strict", following)
        ]

    def _repeated(self, loop: Block, taken: int, after: Place) -> list[Way | Through]:
        """Return the ways on from a loop that has been taken so often, in the order of preference.

        To take nothing counts as one time more while it must be taken again, and leaves the loop
        after that: else it would never end.
        """
        least = 0 if loop.optional else loop.least
        following = self._again(loop, taken + 1, after) if loop.loops else after
        more: list[Way | Through] = []
        passed = False
        for way in self._once(loop, following) if self._takes_more(loop, taken) else ():
            if isinstance(way, Way) or way.last or way.first:
                more.append(way)
            elif not passed:
                passed = self.renumbered = True
                more += [way] if taken + 1 >= least else self._repeated(loop, taken + 1, after)
        if taken < least:
            return more
        leave = Through()
        return [leave, *more] if loop.preference == "reluctant" else [*more, leave]


def _closing(ways: Iterable[Way | Through]) -> list[Way | Through]:
    """Return what is left of ways behind the last row of a partition: only an end."""
    return [Through(last=True)] if any(isinstance(way, Through) for way in ways) else []
