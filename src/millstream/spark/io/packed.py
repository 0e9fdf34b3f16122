"""Rows of a shard as Arrow data: on their way to the shard, and while they wait in its state.

A call for a row, in Spark and for its state, costs more than the row: one message has many of them. It
says when the first of its rows is due, so that rows which go on waiting stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.journal.partitioning import split

SHARD: Final = "__shard"
#: So many rows are gathered before they are packed by shard, or so many bytes of them.
GATHERED: Final = 1 << 17
GATHERED_BYTES: Final = 64 << 20
#: State values are stored in pieces of at most this size.
PIECE: Final = 16 << 20
_LOWEST: Final = b"lowest"

Packing = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def micros(column: pa.ChunkedArray | pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return a timestamp column as microseconds since 1970."""
    result: np.ndarray[Any, np.dtype[np.int64]] = pc.cast(column, pa.int64()).to_numpy()
    return result


def packing(time: str | None) -> Packing:
    """Return what turns rows that have the number of their shard into messages.

    Each is of one shard and of many rows.
    """

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: list[pa.RecordBatch] = []
        for batch in batches:
            waiting.append(batch)
            rows, size = sum(one.num_rows for one in waiting), sum(one.nbytes for one in waiting)
            if rows >= GATHERED or size >= GATHERED_BYTES:
                yield from _messages(waiting, time)
                waiting = []
        yield from _messages(waiting, time)

    return pack


def _messages(batches: list[pa.RecordBatch], time: str | None) -> Iterator[pa.RecordBatch]:
    if not any(batch.num_rows for batch in batches):
        return
    (rows,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    found = list(split(rows.drop_columns([SHARD]), rows.column(SHARD).to_numpy()))
    yield pa.RecordBatch.from_arrays(
        [
            pa.array([shard for shard, _, _ in found], pa.int32()),
            pa.array([to_bytes(own, time) for _, _, own in found], pa.binary()),
        ],
        names=[SHARD, "rows"],
    )


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows as bytes, and the event time of the first of them, in microseconds."""

    data: bytes
    lowest: int
    _reader: pa.RecordBatchReader

    @classmethod
    def of(cls, data: bytes, time: str) -> Packed:
        """Open what `to_bytes` has made; earlier releases did not write the time beside the rows."""
        reader = pa.ipc.open_stream(pa.py_buffer(data))
        known = (reader.schema.metadata or {}).get(_LOWEST)
        lowest = _lowest(from_bytes(data), time) if known is None else int(known)
        return cls(data, lowest, reader)

    def rows(self) -> pa.Table:
        """Return the rows; call it once."""
        return self._reader.read_all().replace_schema_metadata()


def packed(rows: pa.Table, time: str) -> list[bytes]:
    """Return rows that wait, in pieces of a size that state takes."""
    step = max(1, rows.num_rows * PIECE // max(1, rows.nbytes))
    return [to_bytes(rows.slice(at, step), time) for at in range(0, rows.num_rows, step)]


def to_bytes(rows: pa.Table | pa.RecordBatch, time: str | None = None) -> bytes:
    """Return rows as an Arrow stream, compressed; with `time`, it says when the first of them is due.

    On its way through Spark and its state a byte costs more than compressing it.
    """
    schema = rows.schema
    if time is not None and rows.num_rows:
        schema = schema.with_metadata({_LOWEST: str(_lowest(rows, time))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")
    ) as writer:
        writer.write(rows.combine_chunks() if isinstance(rows, pa.Table) else rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all().replace_schema_metadata()


def _lowest(rows: pa.Table | pa.RecordBatch, time: str) -> int:
    return int(micros(rows.column(time)).min())
