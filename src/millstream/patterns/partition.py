"""What a pattern of SQL keeps of a partition beside its runs: last rows, and a count of matches.

PREV looks at the rows of the partition, also before the match; MATCH_NUMBER counts the matches of a
key. Both are columns that are filled in around a matcher, before it sees the rows and after it has
found something, so that it need not know of them. They are kept permanently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from millstream.errors import InternalError
from millstream.patterns.batches import Batch, Found, Numbers, table_bytes, table_of
from millstream.patterns.outputs import Lag
from millstream.patterns.pieces import Piece
from millstream.patterns.streams import Schemas, cut_table, join_table, transposed

if TYPE_CHECKING:
    from millstream.patterns.matcher import Kept, Matcher, Places

MARK: Final = b"MSPN"
VERSION: Final = 1


@dataclass(frozen=True)
class Partition:
    """What is kept of the partitions of a shard, and what its matcher keeps."""

    inner: Kept
    memory: pa.Table | None
    counts: dict[str, int]

    @property
    def live(self) -> int:
        """How many runs are live."""
        return self.inner.live

    @property
    def idle(self) -> bool:
        """Whether there is nothing to keep."""
        return self.inner.idle and not self.memory and not self.counts

    @property
    def count(self) -> int:
        """How many keys something is kept of."""
        remembered = 0 if self.memory is None else len(self.memory.column("key").unique())
        return max(self.inner.count, remembered, len(self.counts))

    @property
    def sequence(self) -> int:
        """The number of the next event."""
        return self.inner.sequence


@dataclass(frozen=True)
class PartitionMatcher:
    """A matcher that sees earlier rows and numbers its matches."""

    inner: Matcher
    lags: tuple[Lag, ...]
    numbered: bool = False
    #: The tests that a row is the first, or the last, of all.
    anchors: tuple[tuple[str, int], ...] = ()

    @property
    def compiled(self) -> bool:
        """Whether the kernel runs it."""
        return self.inner.compiled

    @property
    def width(self) -> int:
        """How many numbers a run has."""
        return self.inner.width

    def empty(self, keys: pa.DataType, rows: pa.Schema) -> Kept:
        return Partition(self.inner.empty(keys, rows), None, {})

    def process(self, kept: Kept, batch: Batch, watermark: int) -> tuple[Kept, Found]:
        assert isinstance(kept, Partition)
        batch = anchored(self.anchors, batch) if self.anchors else batch
        memory, batch = remembered(self.lags, kept.memory, batch) if self.lags else (None, batch)
        inner, found = self.inner.process(kept.inner, batch, watermark)
        counts = dict(kept.counts)
        if self.numbered:
            found = replace(found, numbers=counted(found, counts))
        return Partition(inner, memory, counts), found

    def soonest(self, kept: Kept) -> int | None:
        """Return when the time of a run is up next."""
        assert isinstance(kept, Partition)
        return self.inner.soonest(kept.inner)

    def dump(self, kept: Kept) -> bytes:
        assert isinstance(kept, Partition)
        memory = None if kept.memory is None else table_bytes(kept.memory)
        content = {"inner": self.inner.dump(kept.inner), "memory": memory, "counts": kept.counts}
        return MARK + VERSION.to_bytes(2, "little") + msgspec.msgpack.encode(content)

    def load(self, data: bytes) -> Kept:
        if data[:4] != MARK or int.from_bytes(data[4:6], "little") != VERSION:
            msg = "the state of a pattern is not of a version that this release reads"
            raise InternalError(msg)
        content = msgspec.msgpack.decode(data[6:])
        memory = None if content["memory"] is None else table_of(content["memory"])
        return Partition(self.inner.load(content["inner"]), memory, content["counts"])

    def cut(self, kept: Kept, places: Places, schemas: Schemas) -> dict[int, Piece]:
        assert isinstance(kept, Partition)
        inner = self.inner.cut(kept.inner, places, schemas)
        memory = {} if kept.memory is None else _cut_memory(kept.memory, places, schemas)
        counts: dict[int, dict[str, int]] = {}
        numbers = places(pa.array(list(kept.counts), pa.string())).tolist()
        for number, (key, count) in zip(numbers, kept.counts.items(), strict=True):
            counts.setdefault(number, {})[key] = count
        found = {}
        for number in inner.keys() | memory.keys() | counts.keys():
            content, keys, soonest = inner.get(number) or (None, 0, None)
            own = counts.get(number, {})
            keys = max(keys, len(own), memory[number][1] if number in memory else 0)
            content = [content, memory.get(number), own]
            found[number] = Piece(content, keys, soonest)
        return found

    def joined(
        self, empty: Kept, contents: Sequence[list[Any]], sequence: int, schemas: Schemas
    ) -> Kept:
        assert isinstance(empty, Partition)
        inner, memory, counts = zip(*contents, strict=True) if contents else ((), (), ())
        some = [one for one in inner if one is not None]
        return Partition(
            self.inner.joined(empty.inner, some, sequence, schemas),
            _joined_memory([one for one in memory if one is not None], schemas),
            {key: count for own in counts for key, count in own.items()},
        )


def _cut_memory(memory: pa.Table, places: Places, schemas: Schemas) -> dict[int, list[Any]]:
    """Return the last rows of keys in pieces: the schema, a count of rows, and streams."""
    numbers, ranks = np.unique(places(memory.column("key").combine_chunks()), return_inverse=True)
    ends = np.cumsum(np.bincount(ranks, minlength=len(numbers)), dtype=np.int64).tolist()
    rows = memory.take(pa.array(np.argsort(ranks, kind="stable")))
    schema = schemas.number(rows.schema)
    parts = zip(np.diff([0, *ends]).tolist(), transposed(cut_table(rows, [0, *ends])), strict=True)
    found = ([schema, count, *streams] for count, streams in parts)
    return dict(zip(numbers.tolist(), found, strict=True))


def keys_of(memory: list[Any], schemas: Schemas) -> list[str]:
    """Return the keys of a piece of last rows."""
    rows = join_table(schemas.at(memory[0]), [[stream] for stream in memory[2:]])
    found: list[str] = rows.column("key").unique().to_pylist()
    return found


def _joined_memory(contents: list[list[Any]], schemas: Schemas) -> pa.Table | None:
    tables = [
        join_table(schemas.at(number), transposed(one[2:] for one in some))
        for number, some in groupby(sorted(contents, key=itemgetter(0)), itemgetter(0))
    ]
    return pa.concat_tables([one.cast(tables[0].schema) for one in tables]) if tables else None


def anchored(anchors: tuple[tuple[str, int], ...], batch: Batch) -> Batch:
    """Return a batch of all rows in which anchors are met by the first and last rows of keys."""
    order, first, last = _groups(pa.chunked_array([batch.keys]))
    places = np.arange(len(order))
    masks = batch.masks.copy()
    for name, test in anchors:
        others = order[places != (first if name == "^" else last - 1)]
        masks[others] &= ~np.int64(1 << test)
    return replace(batch, masks=masks)


def remembered(
    lags: tuple[Lag, ...], memory: pa.Table | None, batch: Batch
) -> tuple[pa.Table, Batch]:
    """Return the last rows of every key, and a batch with the columns of earlier rows."""
    fresh = pa.table(
        {"key": batch.keys, **{_name(lag.source): _column(batch, lag.source) for lag in lags}}
    )
    known = fresh if memory is None else pa.concat_tables([memory, fresh.cast(memory.schema)])
    before = len(known) - len(batch)
    order, first, last = _groups(known.column("key"))
    values, rows = list(batch.values), batch.rows
    for lag in lags:
        places = _earlier(order, first, last, lag.back)[before:]
        column = (
            known.column(_name(lag.source)).take(pa.array(places, mask=places < 0)).combine_chunks()
        )
        if isinstance(lag.target, int):
            values[lag.target] = column
        else:
            rows = rows.set_column(rows.column_names.index(lag.target), lag.target, column)
    most = max(lag.back for lag in lags)
    if most > 0:
        kept = known.take(pa.array(order[last - np.arange(len(order)) <= most]))
    else:
        kept = known.slice(0, 0)
    return kept.combine_chunks(), replace(batch, values=values, rows=rows)


def _name(source: int | str) -> str:
    return f"value {source}" if isinstance(source, int) else f"row {source}"


def _column(batch: Batch, source: int | str) -> Any:
    return batch.values[source] if isinstance(source, int) else batch.rows.column(source)


def _groups(keys: pa.ChunkedArray) -> tuple[Numbers, Numbers, Numbers]:
    """Return the places of rows by key, and for each where its key begins and ends among them."""
    codes = keys.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable").astype(np.int64)
    sorted_codes = codes[order]
    first = np.searchsorted(sorted_codes, sorted_codes, side="left")
    return order, first, np.searchsorted(sorted_codes, sorted_codes, side="right")


def _earlier(order: Numbers, first: Numbers, last: Numbers, back: int) -> Numbers:
    """Return the place of the row that is `back` rows of the key before each; -1 for none.

    A negative `back` is about rows behind it, which are known where all rows are.
    """
    wanted = np.arange(len(order)) - back
    found = np.full(len(order), -1, np.int64)
    there = (wanted >= first) & (wanted < last)
    found[order[there]] = order[wanted[there]]
    return found


def counted(found: Found, counts: dict[str, int]) -> Numbers:
    """Return the number of each match among those of its key, and count them."""
    numbers = np.zeros(len(found), np.int64)
    for place, (key, late) in enumerate(
        zip(found.keys.to_pylist(), found.late.tolist(), strict=True)
    ):
        counts[key] = counts.get(key, 0) + (not late)
        numbers[place] = counts[key]
    return numbers
