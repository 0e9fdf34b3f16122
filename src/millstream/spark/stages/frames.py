"""Results as the frames that Spark takes from stages with state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any, Final

import pandas as pd
import pyarrow as pa
from pyspark.sql.conversion import PandasToArrowConversion
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from millstream.spark.io.result_rows import RESULTS, messages
from millstream.spark.io.schemas import arrow_schema


def frame_of(
    rows: list[dict[str, Any]] | pa.Table,
    columns: list[str],
    types: Mapping[str, pa.DataType] | None = None,
) -> pd.DataFrame:
    """Return some columns of rows; `types` has those of columns that Arrow can make by itself."""
    if isinstance(rows, pa.Table):
        return pd.DataFrame({name: series(rows.column(name)) for name in columns})
    known, found = types or {}, zip(columns, _columns(rows, columns), strict=True)
    return pd.DataFrame({name: _column(values, known.get(name)) for name, values in found})


def packed_frame(
    rows: list[dict[str, Any]] | pa.Table, schema: StructType, types: Mapping[str, pa.DataType]
) -> pd.DataFrame:
    """Return rows as messages (`io/result_rows.py`), of the types that Spark would give them."""
    if isinstance(rows, pa.Table):
        table = rows.select(schema.names).cast(arrow_schema(schema), safe=False)
        (batch,) = table.combine_chunks().to_batches()
    else:
        frame = frame_of(rows, schema.names, types)
        # As Spark does with what a stage returns.
        batch = PandasToArrowConversion.convert(
            frame, schema, timezone="UTC", safecheck=False, arrow_cast=True
        )
    return pd.DataFrame({RESULTS: messages(batch)})


def _columns(rows: list[dict[str, Any]], names: Sequence[str]) -> list[Sequence[Any]]:
    """Return the values of rows by name; null where a row has none."""
    if len(names) > 1 and set(map(type, rows)) == {dict}:  # others may make up what they lack
        with suppress(KeyError):
            return list(zip(*map(itemgetter(*names), rows), strict=True))
    return [[row.get(name) for row in rows] for name in names]


def plain_types(output: StructType) -> dict[str, pa.DataType]:
    """Return the columns of plain types, with their types in Arrow."""
    return {
        one.name: to_arrow_type(one.dataType, timezone="UTC")
        for one in output
        if isinstance(one.dataType, _PLAIN)
    }


_PLAIN: Final = (
    *(ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType),
    *(BooleanType, StringType, TimestampType),
)


def _column(values: Sequence[Any], kind: pa.DataType | None) -> pd.Series[Any]:
    if kind is not None:
        # As objects, they would take Spark three times as long, and NaN would count as null.
        with suppress(pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return series(pa.chunked_array([pa.array(values, kind)]))
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
