"""A matcher: runs an automaton by the kernel where that is possible, else event by event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from millstream.patterns import pieces, plain, shard, tabled
from millstream.patterns.automaton import Automaton, deadline
from millstream.patterns.batches import Batch, Found, Numbers
from millstream.patterns.landing import check_landings
from millstream.patterns.outputs import Lag
from millstream.patterns.partition import PartitionMatcher
from millstream.patterns.pieces import Piece
from millstream.patterns.program import Unsupported
from millstream.patterns.row_pattern import ANCHORS
from millstream.patterns.search import SearchMatcher
from millstream.patterns.streams import Schemas
from millstream.patterns.tables import Tables, tables


class Kept(Protocol):
    """What a matcher keeps between batches."""

    @property
    def live(self) -> int: ...
    @property
    def idle(self) -> bool: ...
    @property
    def count(self) -> int:
        """How many keys something is kept of."""

    @property
    def sequence(self) -> int:
        """The number of the next event."""


#: Returns the number of each key's piece.
Places = Callable[[pa.Array], Numbers]


class Matcher(Protocol):
    """Moves shards on, batch by batch."""

    @property
    def compiled(self) -> bool:
        """Whether the kernel runs it."""

    @property
    def width(self) -> int:
        """How many numbers a run has; 0 if it is no row of numbers."""

    def empty(self, keys: pa.DataType, rows: pa.Schema) -> Kept: ...
    def process(self, kept: Kept, batch: Batch, watermark: int) -> tuple[Kept, Found]: ...
    def soonest(self, kept: Kept) -> int | None: ...
    def dump(self, kept: Kept) -> bytes: ...
    def load(self, data: bytes) -> Kept: ...
    def cut(self, kept: Kept, places: Places, schemas: Schemas) -> dict[int, Piece]:
        """Return what is kept in pieces by key, by their numbers."""

    def joined(
        self, empty: Kept, contents: Sequence[list[Any]], sequence: int, schemas: Schemas
    ) -> Kept:
        """Return what pieces hold together."""


@dataclass(frozen=True)
class KernelMatcher:
    """Runs an automaton by the kernel."""

    tables: Tables
    automaton: Automaton
    compiled: bool = True

    @property
    def width(self) -> int:
        return self.tables.width

    def empty(self, keys: pa.DataType, rows: pa.Schema) -> Kept:
        return shard.empty(self.tables, keys, rows)

    def process(self, kept: Kept, batch: Batch, watermark: int) -> tuple[Kept, Found]:
        assert isinstance(kept, shard.Shard)
        process = tabled.process if self.tables.forgetful else shard.process
        after, found = process(self.tables, kept, batch, watermark)
        check_landings(self.automaton, found)
        return after, found

    def soonest(self, kept: Kept) -> int | None:
        """Return when the time of a run is up next."""
        assert isinstance(kept, shard.Shard)
        return shard.soonest(self.tables, kept)

    def dump(self, kept: Kept) -> bytes:
        assert isinstance(kept, shard.Shard)
        return shard.dump(kept)

    def load(self, data: bytes) -> Kept:
        return shard.load(self.tables, data)

    def cut(self, kept: Kept, places: Places, schemas: Schemas) -> dict[int, Piece]:
        assert isinstance(kept, shard.Shard)
        return pieces.cut(self.tables, kept, places(kept.keys), schemas)

    def joined(
        self, empty: Kept, contents: Sequence[list[Any]], sequence: int, schemas: Schemas
    ) -> Kept:
        assert isinstance(empty, shard.Shard)
        return pieces.joined(self.tables, empty, contents, sequence, schemas)


@dataclass(frozen=True)
class PlainMatcher:
    """Runs an automaton event by event."""

    automaton: Automaton
    late: bool = False
    compiled: bool = False
    width: int = 0

    def empty(self, keys: pa.DataType, rows: pa.Schema) -> Kept:
        return plain.empty(keys, rows)

    def process(self, kept: Kept, batch: Batch, watermark: int) -> tuple[Kept, Found]:
        assert isinstance(kept, plain.PlainShard)
        after, found = plain.process(self.automaton, kept, batch, watermark)
        check_landings(self.automaton, found)
        return after, found if self.late else found.select(~found.late)

    def soonest(self, kept: Kept) -> int | None:
        """Return when the time of a run is up next."""
        assert isinstance(kept, plain.PlainShard)
        limits = [deadline(self.automaton, run) for key in kept.keys.values() for run in key.runs]
        return min((limit for limit in limits if limit is not None), default=None)

    def dump(self, kept: Kept) -> bytes:
        assert isinstance(kept, plain.PlainShard)
        return plain.dump(kept)

    def load(self, data: bytes) -> Kept:
        return plain.load(data)

    def cut(self, kept: Kept, places: Places, _schemas: Schemas) -> dict[int, Piece]:
        assert isinstance(kept, plain.PlainShard)
        found = {}
        for number, part in plain.cut(kept, places(pa.array(list(kept.keys), kept.kind))).items():
            found[number] = Piece([plain.dump(part)], len(part.keys), self.soonest(part))
        return found

    def joined(
        self, empty: Kept, contents: Sequence[list[Any]], sequence: int, _schemas: Schemas
    ) -> Kept:
        assert isinstance(empty, plain.PlainShard)
        return plain.joined(empty, [plain.load(data) for (data,) in contents], sequence)


def matcher(
    automaton: Automaton,
    types: Sequence[pa.DataType],
    *,
    late: bool = False,
    rows: tuple[Lag, ...] = (),
) -> Matcher:
    """Return the fastest matcher for an automaton whose values have these types.

    Args:
        automaton: What to match.
        types: Those of its values.
        late: Runs without time left are wanted too.
        rows: Columns of the rows that are those of earlier rows.
    """
    if automaton.searched:
        return remembering(automaton, SearchMatcher(automaton), rows)
    known = list(types)
    for target, source, _ in automaton.lags:
        known[target] = known[source]
    try:
        made: Matcher = KernelMatcher(tables(automaton, known, late=late), automaton)
    except Unsupported:
        made = PlainMatcher(automaton, late)
    return remembering(automaton, made, rows)


def remembering(automaton: Automaton, made: Matcher, rows: tuple[Lag, ...] = ()) -> Matcher:
    """Return a matcher that also keeps what the automaton needs of its partition, if anything."""
    lags = (*(Lag(*lag) for lag in automaton.lags), *rows)
    tests = enumerate(automaton.tests)
    anchors = tuple((test.label, number) for number, test in tests if test.label in ANCHORS)
    if lags or anchors or automaton.numbered:
        return PartitionMatcher(made, lags, automaton.numbered, anchors)
    return made
