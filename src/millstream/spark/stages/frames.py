"""Results as the frames that Spark takes from stages with state."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pandas as pd
import pyarrow as pa


def frame_of(
    rows: list[dict[str, Any]] | pa.Table,
    columns: list[str],
    fractions: Mapping[str, pa.DataType] | None = None,
) -> pd.DataFrame:
    """Return some columns of rows; `fractions` are the types of those with floating point."""
    if isinstance(rows, pa.Table):
        return pd.DataFrame({name: series(rows.column(name)) for name in columns})
    found = {name: [row.get(name) for row in rows] for name in columns}
    kinds = fractions or {}
    return pd.DataFrame({name: _objects(found[name], kinds.get(name)) for name in columns})


def _objects(values: list[Any], fraction: pa.DataType | None) -> pd.Series[Any]:
    if fraction is not None:
        # As objects, NaN would count as null.
        with suppress(pa.ArrowInvalid, pa.ArrowTypeError):
            return pd.Series(pd.arrays.ArrowExtensionArray(pa.array(values, fraction)))
    # Objects, not numpy's types: a null would turn a column of integers into floats.
    return pd.Series(values, dtype=object)


def series(column: pa.ChunkedArray) -> pd.Series[Any]:
    """Return a column of which Spark makes the same Arrow data again."""
    if pa.types.is_nested(column.type):
        return pd.Series(column.to_pylist(maps_as_pydicts="lossy"), dtype=object)
    if (
        pa.types.is_string(column.type)
        or pa.types.is_integer(column.type)
        or pa.types.is_floating(column.type)
    ):
        # As they are: Spark asks for Arrow data again.
        return pd.Series(pd.arrays.ArrowExtensionArray(column.combine_chunks()))
    # Objects where whole numbers are missing: numpy would turn the others into fractions.
    found: pd.Series[Any] = column.to_pandas(integer_object_nulls=True)
    return found
