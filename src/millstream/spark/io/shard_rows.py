"""Rows that a source packs for the shards of a stage, where no SQL stands between the two.

They go to the shards as they are in the journal, in columns. Otherwise Spark would make rows of the
columns, only to make columns of the rows again for Python.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StructField,
    StructType,
    TimestampType,
)

from millstream.journal.partitioning import SEED, places, split
from millstream.spark.io.packed import SHARD, Packed, to_bytes

#: Packed rows, and how many they are.
ROWS: Final = "__rows"
COUNT: Final = "__count"


class Shards(msgspec.Struct, frozen=True):
    """The shards that rows are packed for."""

    #: The column of the key, of a type that is `placeable`.
    by: str
    count: int
    #: The columns of the rows as Spark has them, as its JSON.
    schema: str


def message_fields(time: str, marker: str) -> StructType:
    """Return the columns of messages as Spark has them.

    They are when its first row is due, what marks a marker, for which shard it is, its rows, and how many.
    """
    types = (TimestampType(), BooleanType(), IntegerType(), BinaryType(), LongType())
    names = (time, marker, SHARD, ROWS, COUNT)
    return StructType([StructField(*one) for one in zip(names, types, strict=True)])


def message_schema(time: str, marker: str) -> pa.Schema:
    """Return the columns of messages in Arrow."""
    return to_arrow_schema(message_fields(time, marker), timezone="UTC")


def messages(batch: pa.RecordBatch, shards: Shards, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of each shard as one message."""
    kinds, time = _arrow(shards.schema), schema.names[0]
    rows = batch.select(kinds.names).cast(kinds)
    # What Spark makes of a key that is null.
    keyless = SEED % shards.count
    found = list(split(rows, places(rows.column(shards.by), shards.count, keyless=keyless)))
    data = [to_bytes(own, time) for _, _, own in found]
    columns = (
        [Packed.of(one, time).lowest for one in data],
        [False] * len(found),
        [shard for shard, _, _ in found],
        data,
        [own.num_rows for _, _, own in found],
    )
    arrays = [pa.array(one, field.type) for one, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@cache
def _arrow(schema: str) -> pa.Schema:
    return to_arrow_schema(StructType.fromJson(json.loads(schema)), timezone="UTC")
