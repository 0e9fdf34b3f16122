"""Which partition a row belongs to, and the one way to split rows by partition.

A key's partition is `pmod(xxhash64(cast(key as string)), N)`, the same as in Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from millstream.errors import UnplaceableKey
from millstream.journal.hashing import hashes
from millstream.journal.rows import as_numpy

SEED = 42
NOWHERE = -1

Places = npt.NDArray[np.signedinteger]
"""The partition of each row."""
Indices = npt.NDArray[np.intp]
"""Row numbers in a batch."""


def place(key: str, partitions: int) -> int:
    """Return the partition of a key.

    Example:
        >>> [place(key, 3) for key in ("JFK", "LGA", "EWR")]
        [2, 1, 2]
    """
    unsigned = xxhash.xxh64_intdigest(key.encode(), seed=SEED)
    return _signed(unsigned) % partitions


#: Keys repeat, and a lookup costs a sixth of a hash. Bounded, as all memory is.
_remembered = lru_cache(maxsize=1 << 16)(place)
#: Fewer texts of a length, and longer ones, are hashed one by one.
_FEWEST, _LONGEST = 64, 256


def places(keys: pa.Array, partitions: int, *, keyless: int = NOWHERE) -> npt.NDArray[np.int32]:
    """Return the partition of each key, `keyless` for null keys.

    Each distinct key is hashed once. Strings, integers, booleans and dates only: for other types
    let Spark do the cast, and pass strings.
    """
    if pa.types.is_dictionary(keys.type) and keys.dictionary.null_count:
        keys = keys.dictionary_decode()
    encoded = keys.dictionary_encode()
    of_key = np.append(_places(_texts(encoded.dictionary), partitions), np.int32(keyless))
    indices = encoded.indices
    if indices.null_count:
        indices = indices.fill_null(len(of_key) - 1)
    found: npt.NDArray[np.int32] = of_key[as_numpy(indices, np.int32)]
    return found


def _texts(keys: pa.Array) -> pa.Array:
    if not placeable(keys.type):
        msg = f"a key of type {keys.type} has no place"
        raise UnplaceableKey(msg, hint="cast the key to a string")
    return keys.cast(pa.string())


def _places(texts: pa.Array, partitions: int) -> npt.NDArray[np.int32]:
    """Return the partitions of texts that are not null; those of the same length are hashed together."""
    ends = np.frombuffer(texts.buffers()[1] or bytes(4), np.int32)
    lengths = np.diff(ends[texts.offset : texts.offset + len(texts) + 1])
    found = np.empty(len(texts), np.int32)
    for length, rows in grouped(lengths):
        same = texts if len(rows) == len(texts) else texts.take(_arrow(rows))
        found[rows] = _same_length(same, length, partitions)
    return found


def _same_length(texts: pa.Array, length: int, partitions: int) -> npt.ArrayLike:
    if len(texts) < _FEWEST or length > _LONGEST:
        return [_remembered(text, partitions) for text in texts.to_pylist()]
    _, ends, data = texts.buffers()
    begin = int(np.frombuffer(ends, np.int32)[texts.offset])
    read = np.frombuffer(data or b"", np.uint8, count=len(texts) * length, offset=begin)
    return hashes(read.reshape(len(texts), length), SEED).view(np.int64) % partitions


def placeable(kind: pa.DataType) -> bool:
    """Return whether Arrow and Spark write values of this type as the same text."""
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_integer,
        pa.types.is_boolean,
        pa.types.is_date32,
    )
    return any(test(kind) for test in tests)


def _signed(unsigned: int) -> int:
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned


def grouped(places: Places) -> list[tuple[int, Indices]]:
    """Return the partitions that occur, each with its rows' numbers in rising order.

    Example:
        >>> [(partition, rows.tolist()) for partition, rows in grouped(np.array([2, 0, 2]))]
        [(0, [1]), (2, [0, 2])]
    """
    order, bounds = _ordered(places)
    return [(partition, order[begin:end]) for partition, begin, end in bounds]


def split(batch: pa.RecordBatch, places: Places) -> Iterator[tuple[int, Indices, pa.RecordBatch]]:
    """Yield each partition that gets rows, their numbers in the batch, and the rows.

    The parts are slices of one copy: that is faster than a copy per partition, the more so the more
    partitions there are.
    """
    order, bounds = _ordered(places)
    rows = batch if len(bounds) == 1 else batch.take(_arrow(order))
    for partition, begin, end in bounds:
        yield partition, order[begin:end], rows.slice(begin, end - begin)


def _ordered(places: Places) -> tuple[Indices, list[tuple[int, int, int]]]:
    """Return the row numbers by partition, and where each partition begins and ends there."""
    counts = np.bincount(places)
    # numpy sorts 16 bits by radix, wider integers by comparing.
    narrow = places.astype(np.int16) if len(counts) <= 1 << 15 else places
    ends = np.cumsum(counts).tolist()
    bounds = [
        (partition, end - count, end)
        for partition, (count, end) in enumerate(zip(counts.tolist(), ends, strict=True))
        if count
    ]
    return np.argsort(narrow, kind="stable"), bounds


def _arrow(rows: Indices) -> pa.Array:
    """Return row numbers as `take` wants them; `pa.array` would import pandas."""
    return pa.Array.from_buffers(
        pa.int64(), len(rows), [None, pa.py_buffer(rows.astype(np.int64, copy=False))]
    )
