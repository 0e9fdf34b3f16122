"""Results as the frames that Spark takes from stages with state."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa


def frame_of(rows: list[dict[str, Any]] | pa.Table, columns: list[str]) -> pd.DataFrame:
    """Return some columns of rows."""
    if isinstance(rows, pa.Table):
        return pd.DataFrame({name: series(rows.column(name)) for name in columns})
    # Objects, not numpy's types: a null would turn a column of integers into floats.
    return pd.DataFrame(
        {name: pd.Series([row.get(name) for row in rows], dtype=object) for name in columns}
    )


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
