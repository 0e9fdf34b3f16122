"""A matcher for a batch whose conditions look at every row of a match, or at the match's number.

It looks for one match after the other, as SQL defines them: from each row on it tries the ways in
the order of preference and goes back where they lead nowhere. What was tried in vain with the same
memory is not tried again. The number of a match is known when it is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.patterns import plain
from millstream.patterns.automaton import (
    END,
    FOREVER,
    Automaton,
    Edge,
    Event,
    Holding,
    Match,
    Run,
    deadline,
    skipped,
    taking,
)
from millstream.patterns.batches import Batch, Found
from millstream.patterns.history import MATCH_NUMBER
from millstream.patterns.landing import check_landings
from millstream.patterns.pieces import Piece
from millstream.patterns.streams import Schemas

if TYPE_CHECKING:
    from millstream.patterns.matcher import Kept, Places

Step = tuple[Run | None, Edge, int]
"""A run, a way that it may go on, and the place of the row to take."""


@dataclass(frozen=True)
class SearchMatcher:
    """Matches all rows of a shard at once; it keeps nothing."""

    automaton: Automaton
    compiled: bool = False
    width: int = 0

    def empty(self, keys: pa.DataType, rows: pa.Schema) -> Kept:
        return plain.empty(keys, rows)

    def process(self, kept: Kept, batch: Batch, watermark: int) -> tuple[Kept, Found]:
        assert isinstance(kept, plain.PlainShard)
        assert watermark >= FOREVER, "a search is over all rows"
        ordered = sorted(plain.events_of(self.automaton, batch, 0), key=lambda one: str(one[0]))
        found = [
            (key, match)
            for key, rows in groupby(ordered, key=lambda one: one[0])
            for match in _Search(self.automaton, [event for _, event in rows]).matches()
        ]
        shown = plain.found_in(found, batch, kept)
        check_landings(self.automaton, shown)
        return kept, shown

    def soonest(self, kept: Kept) -> int | None:  # noqa: ARG002
        return None

    def dump(self, kept: Kept) -> bytes:
        assert isinstance(kept, plain.PlainShard)
        return plain.dump(kept)

    def load(self, data: bytes) -> Kept:
        return plain.load(data)

    def cut(self, kept: Kept, places: Places, schemas: Schemas) -> dict[int, Piece]:  # noqa: ARG002
        return {}

    def joined(
        self,
        empty: Kept,
        contents: Sequence[list[Any]],  # noqa: ARG002
        sequence: int,  # noqa: ARG002
        schemas: Schemas,  # noqa: ARG002
    ) -> Kept:
        return empty


@dataclass
class _Search:
    """Looks for the matches of one key."""

    automaton: Automaton
    rows: Sequence[Event]
    #: Until when something preferred to the last match was alive, among all that was tried.
    known: int = 0
    vain: set[Any] = field(default_factory=set)

    def matches(self) -> Iterator[Match]:
        place, number = 0, 1
        while place < len(self.rows):
            rows = self._numbered(number)
            match = self._match(rows, place)
            if match is None:
                place += 1
                number += self.automaton.empty and not (place > 1 and self.automaton.empty_at_first)
                continue
            yield match
            self.vain.clear()
            number += 1
            # The numbers of a key's rows may have gaps, where those of others lie.
            limit = skipped(self.automaton, match)
            place = next(
                (at for at in range(place + 1, len(rows)) if rows[at].number >= limit), len(rows)
            )

    def _numbered(self, number: int) -> Sequence[Event]:
        """Return the rows, in which the number of the match is filled in."""
        values = self.automaton.values
        if MATCH_NUMBER not in values:
            return self.rows
        at = values.index(MATCH_NUMBER)
        self.vain.clear()
        return [
            replace(row, values=(*row.values[:at], number, *row.values[at + 1 :]))
            for row in self.rows
        ]

    def _match(self, rows: Sequence[Event], place: int) -> Match | None:
        """Return the preferred match that begins at a row."""
        steps: list[Step] = [(None, edge, place) for edge in reversed(self.automaton.start)]
        while steps:
            run, edge, at = steps.pop()
            if at < 0:
                assert run is not None
                event = run.taken.event
                at_last = self.known if self.known < FOREVER else event.at
                return Match(run.history, max(event.at, at_last), event.number)
            if at == len(rows):
                self.known = FOREVER
                continue
            event = rows[at]
            limit = None if run is None else deadline(self.automaton, run)
            if limit is not None and limit <= event.at:
                self.known = max(self.known, limit)
                continue
            self.known = max(self.known, event.at)
            if Holding(self.automaton, run, event).edge(edge):
                self._go_on(steps, taking(self.automaton, run, edge, event), edge, at + 1)
        return None

    def _go_on(self, steps: list[Step], run: Run, edge: Edge, at: int) -> None:
        """Put on the ways of a run that took a row: the last is tried first."""
        if edge.completes:
            steps.append((run, edge, -1))
        if edge.target == END:
            return
        same = (run.start if self.automaton.within is not None else 0, run.state, at, run.contents)
        if same not in self.vain:
            self.vain.add(same)
            steps += [(run, way, at) for way in reversed(self.automaton.states[run.state].edges)]
