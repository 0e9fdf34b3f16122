"""Arrow columns as bytes that can be cut between rows and put together again.

An Arrow message per part would cost some 50 us. Here a column of a type is two *streams*, so that a
part is a slice of each:

    values of one size   whether each is there (nothing where all are) | values
    texts and bytes      lengths, -1 where one is missing              | contents
    anything else        Arrow messages after all                      | nothing
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.patterns.batches import table_bytes, table_of

#: A stream, cut: the bytes of each part.
Stream = Sequence[bytes]
_NAME: Final = "column"


@dataclass
class Schemas:
    """Schemas by number: what was cut knows the number of its own."""

    known: list[bytes] = field(default_factory=list)

    def number(self, schema: pa.Schema) -> int:
        """Return the number of a schema, a new one if it is not known; only names and types count."""
        plain = pa.schema([(one.name, one.type) for one in schema])
        data = plain.serialize().to_pybytes()
        if data not in self.known:
            self.known.append(data)
        return self.known.index(data)

    def at(self, number: int) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self.known[number]))


def cut_bytes(data: bytes, ends: Sequence[int]) -> list[bytes]:
    """Return the parts of bytes; the first ends where the second begins."""
    return [data[a:z] for a, z in pairwise(ends)]


def cut_column(column: pa.Array, ends: Sequence[int]) -> tuple[Stream, Stream]:
    """Return the streams of a column; `ends` are those of the parts, after a first 0."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    if _is_text(kind):
        return _cut_texts(column, ends)
    size = _size(column.type)
    if size is None:
        parts = (pa.table({_NAME: column.slice(a, z - a)}) for a, z in pairwise(ends))
        return [table_bytes(part) for part in parts], [b""] * (len(ends) - 1)
    there = [b""] * (len(ends) - 1)
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)
        there = cut_bytes(valid.tobytes(), ends)
        column = pc.if_else(column.is_valid(), column, None)
    buffer = column.buffers()[1]
    data = buffer.to_pybytes()[column.offset * size :] if len(column) else b""
    return there, cut_bytes(data, [end * size for end in ends])


def join_column(kind: pa.DataType, first: Stream, second: Stream) -> pa.Array:
    """Return the column that was cut into these streams."""
    if _is_text(kind):
        return _joined_texts(kind, b"".join(first), b"".join(second))
    stored = pa.uint8() if pa.types.is_boolean(kind) else kind
    size = _size(stored)
    if size is None:
        tables = [table_of(part) for part in first]
        whole = pa.concat_tables(tables or [pa.table({_NAME: pa.array([], kind)})])
        return whole.column(_NAME).combine_chunks()
    valid = None
    if any(first):
        both = zip(first, second, strict=True)
        whole_parts = (part or b"\1" * (len(data) // size) for part, data in both)
        valid = _bits(np.frombuffer(b"".join(whole_parts), np.uint8))
    data = b"".join(second)
    found = pa.Array.from_buffers(stored, len(data) // size, [valid, pa.py_buffer(data)])
    return found if stored == kind else found.cast(kind)


def cut_table(table: pa.Table, ends: Sequence[int]) -> list[Stream]:
    """Return the streams of all columns."""
    columns = (column.combine_chunks() for column in table.columns)
    return [stream for column in columns for stream in cut_column(column, ends)]


def join_table(schema: pa.Schema, streams: Sequence[Stream]) -> pa.Table:
    """Return the table that was cut into these streams."""
    pairs = zip(schema.types, streams[::2], streams[1::2], strict=True)
    return pa.Table.from_arrays([join_column(*one) for one in pairs], schema=schema)


def transposed(streams: Iterable[Stream]) -> list[list[bytes]]:
    """Return the streams of each part, given the parts of each stream; and back."""
    return [list(one) for one in zip(*streams, strict=True)]


def _is_text(kind: pa.DataType) -> bool:
    checks = (
        pa.types.is_string,
        pa.types.is_binary,
        pa.types.is_large_string,
        pa.types.is_large_binary,
    )
    return any(check(kind) for check in checks)


def _size(kind: pa.DataType) -> int | None:
    """Return how many bytes a value of a type has; None if that is not so simple."""
    odd = pa.types.is_nested(kind) or pa.types.is_dictionary(kind) or pa.types.is_null(kind)
    if odd or isinstance(kind, pa.BaseExtensionType):
        return None
    try:
        bits = int(kind.bit_width)
    except ValueError:
        return None
    return bits // 8 if bits and bits % 8 == 0 else None


def _cut_texts(column: pa.Array, ends: Sequence[int]) -> tuple[Stream, Stream]:
    missing = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    plain = column.cast(pa.large_binary())
    if missing is not None:
        plain = pc.fill_null(plain, b"")
    offsets = np.zeros(1, np.int64)
    data = b""
    if len(plain):
        _, places, content = plain.buffers()
        first, last = plain.offset, plain.offset + len(plain) + 1
        offsets = np.frombuffer(places, np.int64)[first:last]
        data = b"" if content is None else content.to_pybytes()
    lengths = np.diff(offsets).astype(np.int32)
    if missing is not None:
        lengths[missing] = -1
    return (
        cut_bytes(lengths.tobytes(), [4 * end for end in ends]),
        cut_bytes(data, offsets[np.asarray(ends, np.int64)].tolist()),
    )


def _joined_texts(kind: pa.DataType, lengths: bytes, data: bytes) -> pa.Array:
    sizes = np.frombuffer(lengths, np.int32).astype(np.int64)
    missing = sizes < 0
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(np.maximum(sizes, 0), out=offsets[1:])
    valid = _bits(~missing) if missing.any() else None
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(data)]
    large = pa.Array.from_buffers(pa.large_binary(), len(sizes), buffers)
    return large if kind == pa.large_binary() else large.cast(kind)


def _bits(truths: Any) -> pa.Buffer:
    return pa.py_buffer(np.packbits(truths, bitorder="little"))
