"""The rows of one sink in a frame that several share: some of its rows, and some of its columns.

    flags   c0    c1     c2
    0b01    1     "a"    null        the first sink's:  c0, c1
    0b11    2     "b"    4           both sinks'
    0b10    3     "c"    9           the second sink's: c0, c2

A column that several sinks have is there once. Executors import this.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from millstream.spark.io.arrays import numbers, values

if TYPE_CHECKING:  # not wanted in executors, which import this
    from pyspark.sql import Column, DataFrame


class SinkRows(NamedTuple):
    """Where the rows of a sink are."""

    #: The column whose bits say whose a row is, and the bit of this sink.
    flags: str
    bit: int
    #: The columns in the frame, what the sink calls them, and whether they can be null for it.
    columns: tuple[str, ...]
    names: tuple[str, ...]
    nullable: tuple[bool, ...]

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of the sink as it knows them."""
        chosen = np.flatnonzero(values(batch.column(self.flags)) & self.bit)
        columns = [batch.column(name) for name in self.columns]
        if len(chosen) < batch.num_rows:
            places = numbers(chosen, pa.int64())
            columns = [column.take(places) for column in columns]
        fields = [
            batch.schema.field(column).with_name(name).with_nullable(nullable)
            for column, name, nullable in zip(self.columns, self.names, self.nullable, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def rows_of(frame: DataFrame, rows: SinkRows) -> DataFrame:
    """Return the rows of a sink in a frame."""
    from pyspark.sql import functions as F

    named = zip(rows.columns, rows.names, strict=True)
    return frame.where(chosen([rows])).select(*(F.col(one).alias(name) for one, name in named))


def chosen(sinks: Iterable[SinkRows]) -> Column:
    """Return the condition that a row of a frame is one of some sinks'."""
    from pyspark.sql import functions as F

    bits: defaultdict[str, int] = defaultdict(int)
    for one in sinks:
        bits[one.flags] |= one.bit
    tests = (F.col(flags).bitwiseAND(F.lit(some)) != 0 for flags, some in bits.items())
    return reduce(or_, tests)
