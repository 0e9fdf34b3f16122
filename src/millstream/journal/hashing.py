"""A key's place: `pmod(xxhash64(cast(key as string)), N)`, the same in Spark, in a router and here."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from millstream.errors import UnplaceableKey
from millstream.journal.rows import as_numpy

SEED = 42
NOWHERE = -1


def place(key: str, partitions: int) -> int:
    """Return the partition of a key.

    Example:
        >>> [place(key, 3) for key in ("JFK", "LGA", "EWR")]
        [2, 1, 2]
    """
    unsigned = xxhash.xxh64_intdigest(key.encode(), seed=SEED)
    return _signed(unsigned) % partitions


#: Keys come again: a look into this costs a sixth of a hash. Bounded, as all memory is.
_remembered = lru_cache(maxsize=1 << 16)(place)


def places(keys: pa.Array, partitions: int) -> npt.NDArray[np.int32]:
    """Return the partition of each key, `NOWHERE` for null keys.

    Each distinct key is hashed once. Strings, integers, booleans and dates only: for other types
    let Spark do the cast, and pass strings.
    """
    encoded = pc.dictionary_encode(keys)
    of_key = np.fromiter(
        (
            NOWHERE if text is None else _remembered(text, partitions)
            for text in _texts(encoded.dictionary)
        ),
        dtype=np.int32,
        count=len(encoded.dictionary),
    )
    of_key = np.append(of_key, np.int32(NOWHERE))
    indices = encoded.indices
    if indices.null_count:
        indices = pc.fill_null(indices, len(of_key) - 1)
    found: npt.NDArray[np.int32] = of_key[as_numpy(indices, np.int32)]
    return found


def _texts(keys: pa.Array) -> list[str | None]:
    if not placeable(keys.type):
        msg = f"a key of type {keys.type} has no place"
        raise UnplaceableKey(msg, hint="cast the key to a string")
    texts: list[str | None] = pc.cast(keys, pa.string()).to_pylist()
    return texts


def placeable(kind: pa.DataType) -> bool:
    """Tell if Arrow and Spark write values of this type as the same text."""
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
