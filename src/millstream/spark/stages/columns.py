"""Columns and intervals as Spark has them, and the watermark that a column may carry."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from millstream.clock import MICROSECOND
from millstream.errors import InternalError
from millstream.spark.io.source import PLACE

#: The mark of a column that carries the watermark, in Spark's metadata.
WATERMARK: Final = "spark.watermarkDelayMs"


def parsed(ddl: str) -> StructType:
    """Return the columns that a DDL text describes."""
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def marked(frame: DataFrame) -> tuple[str, ...]:
    """Return the columns that carry the watermark."""
    return tuple(field.name for field in frame.schema.fields if WATERMARK in field.metadata)


def delay(frame: DataFrame) -> int:
    """Return how far the watermark of a frame stays behind its rows, in milliseconds."""
    return max(int(field.metadata.get(WATERMARK, 0)) for field in frame.schema.fields)


def unmarked(name: str) -> Column:
    """Return a timestamp column without the watermark that it may carry."""
    return F.expr(f"timestamp_micros(unix_micros(`{name}`))")


def place_field() -> StructField:
    return StructField(PLACE, LongType())


def interval(span: timedelta | None) -> str:
    """Return a duration as Spark writes it."""
    if span is None:
        raise InternalError("a duration is missing")
    return f"{span // MICROSECOND} microseconds"
