"""Rows that a source packs for the shards of a stage, where no SQL stands between the two.

They go to the shards as they are in the journal, in columns. Otherwise Spark would make rows of the
columns, only to make columns of the rows again for Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
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
from millstream.spark.io.arrays import flags, numbers
from millstream.spark.io.packed import GATHERED, GATHERED_BYTES, SHARD, Packed, to_bytes
from millstream.spark.io.picked_rows import Picked, pick
from millstream.spark.io.row_tests import Test, meeting
from millstream.spark.io.schemas import arrow_schema, arrow_schema_of

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
    #: The column by which rows are due.
    due: str
    #: What is picked of rows, for a pattern; None: all.
    picked: Picked | None = None
    #: What rows must meet, or they go to no shard.
    kept: tuple[Test, ...] = ()


def message_fields(time: str, marker: str) -> StructType:
    """Return the columns of messages as Spark has them.

    They are when its first row is due, what marks a marker, for which shard it is, its rows, and how many.
    """
    types = (TimestampType(), BooleanType(), IntegerType(), BinaryType(), LongType())
    names = (time, marker, SHARD, ROWS, COUNT)
    return StructType([StructField(*one) for one in zip(names, types, strict=True)])


def message_schema(time: str, marker: str) -> pa.Schema:
    """Return the columns of messages in Arrow."""
    return arrow_schema(message_fields(time, marker))


def messages(
    batches: Iterator[pa.RecordBatch],
    shards: Shards,
    schema: pa.Schema,
    refuse: Callable[[Picked, pa.Table], None],
) -> Iterator[pa.RecordBatch]:
    """Yield rows as messages, many of a shard at a time; those that a pattern cannot take go to `refuse`."""
    kinds, picked = arrow_schema_of(shards.schema), shards.picked
    held: list[pa.RecordBatch] = []
    left_out = 0
    for batch in batches:
        rows = meeting(batch, shards.kept)
        if picked is None:
            rows = rows.select(kinds.names).cast(kinds)
        else:
            rows = pick(rows, picked, kinds, partial(refuse, picked))
        left_out += batch.num_rows - rows.num_rows
        held.append(rows)
        if sum(one.num_rows for one in held) >= GATHERED or _bytes(held) >= GATHERED_BYTES:
            yield shard_messages(_one(held), shards, schema)
            held = []
    if any(one.num_rows for one in held):
        yield shard_messages(_one(held), shards, schema)
    if left_out:
        yield counted(left_out, schema)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _bytes(batches: list[pa.RecordBatch]) -> int:
    return sum(one.nbytes for one in batches)


def counted(rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return what says that so many rows were read and go nowhere: a marker that moves no watermark."""
    time, marker, *_ = schema
    found = {
        time.name: numbers(np.zeros(1, np.int64), time.type),
        marker.name: flags(True, 1),
        COUNT: numbers(np.array([rows]), pa.int64()),
    }
    columns = [found[one.name] if one.name in found else pa.nulls(1, one.type) for one in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def shard_messages(rows: pa.RecordBatch, shards: Shards, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of each shard as one message."""
    time = shards.due
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
