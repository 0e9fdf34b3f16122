"""Arrow arrays for workers, made without `pa.array` and `pa.scalar`, and read without `to_numpy`.

Those look whether they are given something of pandas, and import it for that:
half a second for every new worker, in flows that never use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = np.ndarray[Any, np.dtype[np.int64]]


def numbers(values: Numbers, kind: pa.DataType) -> pa.Array:
    """Return 64-bit numbers, or times in the unit of `kind`, without a copy."""
    plain = np.ascontiguousarray(values, dtype=np.int64)
    return pa.Array.from_buffers(kind, len(plain), [None, pa.py_buffer(plain)])


def values(column: pa.Array) -> np.ndarray[Any, Any]:
    """Return the values of a column of numbers without nulls, without a copy."""
    kind = column.type.to_pandas_dtype()
    return np.frombuffer(column.buffers()[1], kind)[column.offset : column.offset + len(column)]


def moments(column: pa.Array) -> Numbers:
    """Return times without nulls as microseconds since 1970."""
    return values(pc.cast(column, pa.int64()))


def flags(value: bool, rows: int) -> pa.Array:
    """Return a boolean for each row, all the same."""
    bits = (b"\xff" if value else b"\0") * ((rows + 7) // 8)
    return pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(bits)])


def texts(values: Sequence[str]) -> pa.Array:
    """Return a column of texts."""
    encoded = [value.encode() for value in values]
    ends = np.cumsum([0, *(len(one) for one in encoded)], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(encoded), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    )


def narrowed(field: pa.Field, names: Sequence[str] | None) -> pa.Field:
    """Return the field of a struct with some of its own fields; all without names."""
    if names is None:
        return field
    return field.with_type(pa.struct([field.type.field(name) for name in names]))


def fitted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a struct with the fields of `kind`; null is one of nulls then, as for who asks for fields."""
    if array.type == kind or not pa.types.is_struct(array.type):
        return array
    fields = [kind.field(number) for number in range(kind.num_fields)]
    found = [pc.struct_field(array, [array.type.get_field_index(one.name)]) for one in fields]
    return pa.StructArray.from_arrays(found, fields=fields)
