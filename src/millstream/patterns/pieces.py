"""A shard of the kernel cut into pieces by key, and pieces as one shard again.

A *piece* holds all that is kept of some keys: their runs, held matches, histories and rows. Histories
are shared by runs of one key alone, so nothing speaks of another piece. In a piece every place (of a
run's key and node, of a node's event and the node before it, of a text in a register) counts from
the piece's own beginning: pieces are put together by adding offsets.

    [schema, count of keys, runs, held, nodes, numbers, words (2), keys (2), columns of rows (2 each)]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from millstream.patterns.batches import Numbers
from millstream.patterns.kernel import layout
from millstream.patterns.kernel.records import Table
from millstream.patterns.shard import Shard, deadlines
from millstream.patterns.streams import (
    Schemas,
    Stream,
    cut_bytes,
    cut_column,
    cut_table,
    join_column,
    join_table,
    transposed,
)
from millstream.patterns.tables import Tables

_KEY: Final = "key"
#: Where the streams of rows begin, those of keys among them.
_ROWS: Final = 8


class Piece(NamedTuple):
    """What is kept of some keys, as msgpack takes it, and when the time of a run is up next."""

    content: list[Any] | bytes
    keys: int
    soonest: int | None = None


def cut(tables: Tables, shard: Shard, pieces: Numbers, schemas: Schemas) -> dict[int, Piece]:
    """Return the pieces of a shard, given the number of each key's."""
    numbers, ranks = np.unique(pieces, return_inverse=True)
    count, of_nodes, of_runs = len(numbers), ranks[_owners(shard)], ranks[shard.runs[:, layout.KEY]]
    of_events = np.zeros(len(shard.numbers), np.int64)
    of_events[shard.nodes[:, layout.EVENT]] = of_nodes
    of_held = ranks[shard.held[:, layout.M_KEY]]
    keys, runs, held, nodes, events = (
        _Sorted.of(some, count) for some in (ranks, of_runs, of_held, of_nodes, of_events)
    )
    own_runs, words = _own_words(tables, shard, of_runs, count)
    rows = shard.rows.take(pa.array(events.order))
    streams: list[Stream] = [
        runs.cut(own_runs, {layout.KEY: keys, layout.NODE: nodes}),
        held.cut(shard.held, {layout.M_KEY: keys, layout.M_NODE: nodes}),
        nodes.cut(shard.nodes, {layout.EVENT: events, layout.BEFORE_NODE: nodes}, np.int32),
        events.cut(shard.numbers),
        *words,
        *cut_column(shard.keys.take(pa.array(keys.order)), keys.ends),
        *cut_table(rows, events.ends),
    ]
    limits = np.full(count, layout.NEVER)
    np.minimum.at(limits, of_runs, deadlines(tables, shard.runs))
    schema = schemas.number(pa.schema([(_KEY, shard.keys.type), *rows.schema]))
    parts, counts = transposed(streams), np.diff(keys.ends).tolist()
    return {
        number: Piece([schema, some, *part], some, None if limit >= layout.NEVER else limit)
        for number, part, some, limit in zip(
            numbers.tolist(), parts, counts, limits.tolist(), strict=True
        )
    }


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Rows of a table in the order of their pieces."""

    order: Numbers
    #: Those of the pieces, after a first 0.
    ends: list[int]
    #: The place of each row in its piece; the last is that of no row.
    places: Numbers

    @classmethod
    def of(cls, ranks: Numbers, count: int) -> _Sorted:
        order = np.argsort(ranks, kind="stable")
        sizes = np.bincount(ranks, minlength=count)
        ends = np.zeros(count + 1, np.int64)
        np.cumsum(sizes, out=ends[1:])
        places = np.full(len(ranks) + 1, -1, np.int64)
        places[order] = np.arange(len(ranks)) - np.repeat(ends[:-1], sizes)
        return cls(order, ends.tolist(), places)

    def cut(
        self, table: Table, moved: Mapping[int, _Sorted] | None = None, kind: Any = np.int64
    ) -> list[bytes]:
        """Return the rows of each piece as bytes, some columns as places in the piece."""
        table = table[self.order]
        for column, there in (moved or {}).items():
            table[:, column] = there.places[table[:, column]]
        table = table.astype(kind, copy=False)
        size = table.itemsize * int(np.prod(table.shape[1:]))
        return cut_bytes(table.tobytes(), [end * size for end in self.ends])


def _owners(shard: Shard) -> Numbers:
    """Return the key of each node."""
    before = shard.nodes[:, layout.BEFORE_NODE]
    first = np.where(before < 0, np.arange(len(before)), before)
    # Each round goes back twice as far.
    while (further := first[first]).tobytes() != first.tobytes():
        first = further
    owners = np.zeros(len(first), np.int64)
    for table, node, key in (
        (shard.runs, layout.NODE, layout.KEY),
        (shard.held, layout.M_NODE, layout.M_KEY),
    ):
        some = table[table[:, node] >= 0]
        owners[first[some[:, node]]] = some[:, key]
    found: Numbers = owners[first]
    return found


def _own_words(
    tables: Tables, shard: Shard, ranks: Numbers, count: int
) -> tuple[Table, tuple[Stream, Stream]]:
    """Return runs whose texts are places among those of their piece, and these texts."""
    registers = tables.text_registers
    if not registers or not len(shard.words):
        return shard.runs, ([b""] * count, [b""] * count)
    runs, many = shard.runs.copy(), len(shard.words)
    there = [runs[:, layout.NULLS] >> at & 1 == 0 for at in registers]
    codes = [ranks * many + runs[:, layout.REGISTERS + at] for at in registers]
    used = np.unique(np.concatenate([c[some] for c, some in zip(codes, there, strict=True)]))
    ends = np.searchsorted(used, np.arange(count + 1) * many)
    for at, code, some in zip(registers, codes, there, strict=True):
        places = np.searchsorted(used, code) - ends[ranks]
        runs[:, layout.REGISTERS + at] = np.where(some, places, 0)
    return runs, cut_column(shard.words.take(pa.array(used % many)), ends.tolist())


def joined(
    tables: Tables, empty: Shard, contents: Sequence[list[Any]], sequence: int, schemas: Schemas
) -> Shard:
    """Return the shard of which these are pieces."""
    if not contents:
        return replace(empty, sequence=sequence)
    contents = sorted(contents, key=itemgetter(0))
    columns = list(zip(*(one[1:_ROWS] for one in contents), strict=True))
    counts, of_runs, of_held, of_nodes, numbers, lengths, words = columns
    keys = _before(counts)
    nodes = _before(len(part) // 12 for part in of_nodes)
    events = _before(len(part) // 8 for part in numbers)
    texts = _before(len(part) // 4 for part in lengths)
    of_texts = {layout.REGISTERS + at: texts for at in tables.text_registers}
    moved_runs = {layout.KEY: keys, layout.NODE: nodes, **of_texts}
    all_keys, rows = _joined_rows(empty, contents, schemas)
    return Shard(
        all_keys,
        _joined(of_runs, tables.width, moved_runs),
        _joined(of_held, layout.MATCH_WIDTH, {layout.M_KEY: keys, layout.M_NODE: nodes}),
        _joined(of_nodes, 3, {layout.EVENT: events, layout.BEFORE_NODE: nodes}, np.int32),
        rows,
        np.frombuffer(b"".join(numbers), np.int64).copy(),
        join_column(pa.string(), lengths, words),
        sequence,
    )


def keys_and_runs(content: list[Any], width: int, schemas: Schemas) -> tuple[pa.Array, Table]:
    """Return the keys of a piece, and their runs."""
    kind = schemas.at(content[0]).types[0]
    keys = join_column(kind, [content[_ROWS]], [content[_ROWS + 1]])
    return keys, _joined([content[2]], width, {})


def _before(counts: Iterable[int]) -> Numbers:
    """Return how many there are before each piece."""
    found = np.fromiter(counts, np.int64)
    before: Numbers = np.cumsum(found) - found
    return before


def _joined(
    parts: Sequence[bytes], width: int, moved: Mapping[int, Numbers], kind: Any = np.int64
) -> Table:
    """Return the rows of pieces as one table, with places in all of them."""
    table = np.frombuffer(b"".join(parts), kind).reshape(-1, width).astype(np.int64)
    size = width * np.dtype(kind).itemsize
    pieces = np.repeat(np.arange(len(parts)), [len(part) // size for part in parts])
    for column, before in moved.items():
        values = table[:, column]
        values += np.where(values < 0, 0, before[pieces])
    return table


def _joined_rows(
    empty: Shard, contents: Sequence[list[Any]], schemas: Schemas
) -> tuple[pa.Array, pa.Table]:
    found = []
    for number, some in groupby(contents, itemgetter(0)):
        key, *rest = schemas.at(number)
        streams = transposed(one[_ROWS:] for one in some)
        rows = join_table(pa.schema(rest), streams[2:])
        found.append((join_column(key.type, *streams[:2]), rows))
    if len(found) == 1:
        return found[0]
    # Columns have other types than they had in some pieces.
    keys = [key.cast(empty.keys.type) for key, _ in found]
    return pa.concat_arrays(keys), pa.concat_tables(
        [row.cast(empty.rows.schema) for _, row in found]
    )
