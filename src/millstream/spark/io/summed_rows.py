"""Rows that a source sums up for windows, where no SQL stands between the two.

A row of sums stands for rows that have the same keys and lie in the same pane: the longest span that
no window cuts. It is dated at the start of its pane. Any rows may also go out one by one, each as a sum
of one row. That is so for those that Arrow would not add up exactly as Spark, and where hardly two
rows belong together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Not of `pyarrow.acero`, which imports pandas: a fifth of a second for every worker.
from pyarrow._acero import AggregateNodeOptions, Declaration, TableSourceNodeOptions

from millstream.spark.io.arrays import Numbers, flags, moments, numbers, values
from millstream.spark.io.row_tests import Masking, Test, columns_of, meeting
from millstream.spark.io.shard_rows import COUNT, counted

#: So many rows are summed up at once; of fewer than the other it is not worth it.
MOST: Final = 262_144
FEWEST: Final = 4096
#: The sums of rows are at most this part of them, or the next rows go out one by one.
WORTH: Final = 0.6
#: Whole numbers overflow only if their sum is more than this.
_SAFE: Final = float(1 << 62)

How = Literal["sum", "min", "max"]


class Met(msgspec.Struct, frozen=True, tag="met"):
    """A column that says how many rows meet a test."""

    name: str
    test: Test


class Merged(msgspec.Struct, frozen=True, tag="merged"):
    """A column that has the sum, the lowest or the highest of the values of a column."""

    name: str
    how: How
    column: str


class Sums(msgspec.Struct, frozen=True):
    """What a source sums up."""

    time: str
    #: The length of a pane, in microseconds.
    pane: int
    keys: tuple[str, ...]
    parts: tuple[Met | Merged, ...]
    #: What rows must meet, or they are left out.
    kept: tuple[Test, ...] = ()
    #: Where columns are in the rows of the source: a column, or a field of one.
    paths: dict[str, tuple[str, ...]] = {}

    @property
    def needed(self) -> set[str]:
        """The columns that are summed up."""
        tests = (one.test for one in self.parts if isinstance(one, Met))
        merged = (one.column for one in self.parts if isinstance(one, Merged))
        return {self.time, *self.keys, *merged}.union(*map(columns_of, tests))


def summed(
    batches: Iterator[pa.RecordBatch], sums: Sums, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the sums of rows; the columns are those of `schema`."""
    left_out, worth = 0, True
    for batch in batches:
        rows = _chosen(meeting(batch, sums.kept), sums)
        left_out += batch.num_rows - rows.num_rows
        if rows.num_rows == 0:
            continue
        single = _single(rows, sums, schema)
        if worth and rows.num_rows >= FEWEST and _exact(single, rows.column(sums.time), sums):
            found = _added(single, rows.column(sums.time), sums)
            worth = found.num_rows <= rows.num_rows * WORTH
            single = found if worth else single
        yield single
    if left_out:
        yield counted(left_out, schema)


def _chosen(rows: pa.RecordBatch, sums: Sums) -> pa.RecordBatch:
    """Return the columns that are summed up, under their own names."""
    arrays = []
    for path in sums.paths.values():
        array = rows.column(path[0])
        for name in path[1:]:
            array = pc.struct_field(array, [array.type.get_field_index(name)])
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, names=list(sums.paths))


def _single(rows: pa.RecordBatch, sums: Sums, schema: pa.Schema) -> pa.RecordBatch:
    """Return each row as a sum of one row."""
    masking, number = Masking(rows), rows.num_rows
    found = {name: rows.column(name) for name in (sums.time, *sums.keys)}
    for part in sums.parts:
        if isinstance(part, Met):
            # What is null is not met.
            met = pc.fill_null(masking.met(part.test), flags(False, 1)[0])
            found[part.name] = pc.cast(met, pa.int64())
        else:
            # A whole number becomes the fraction that is nearest, as in Spark.
            found[part.name] = pc.cast(
                rows.column(part.column), schema.field(part.name).type, safe=False
            )
    found[COUNT] = numbers(np.ones(number, np.int64), pa.int64())
    missing = (one for one in schema.names if one not in found)
    found |= {name: flags(False, number) for name in missing}
    arrays = [pc.cast(found[one.name], one.type) for one in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _exact(rows: pa.RecordBatch, time: pa.Array, sums: Sums) -> bool:
    """Tell whether Arrow adds these rows up as Spark does."""
    merged = [one for one in sums.parts if isinstance(one, Merged)]
    return time.null_count == 0 and all(_same(rows.column(one.name), one.how) for one in merged)


def _same(found: pa.Array, how: str) -> bool:
    fraction = pa.types.is_floating(found.type)
    if fraction and how != "sum":
        # Spark puts NaN above all numbers, and takes the first of two zeros.
        plain = values(pc.drop_null(found))
        return not bool(np.isnan(plain).any() or (np.signbit(plain) & (plain == 0)).any())
    if fraction or how != "sum":
        return True
    ends = pc.min_max(found)
    reach = max(abs(ends[one].as_py() or 0) for one in ("min", "max"))
    return float(reach) * len(found) < _SAFE


def _added(rows: pa.RecordBatch, time: pa.Array, sums: Sums) -> pa.RecordBatch:
    """Return the sums of the rows that belong together."""
    at = rows.schema.get_field_index(sums.time)
    panes = numbers(_floors(moments(time), sums.pane), time.type)
    table = pa.Table.from_batches([rows.set_column(at, rows.schema.field(at), panes)])
    hows = {one.name: "sum" if isinstance(one, Met) else one.how for one in sums.parts}
    added = [(name, f"hash_{how}", None, name) for name, how in {**hows, COUNT: "sum"}.items()]
    together = Declaration("aggregate", AggregateNodeOptions(added, keys=[*sums.keys, sums.time]))
    source = Declaration("table_source", TableSourceNodeOptions(table))
    found = Declaration.from_sequence([source, together]).to_table(use_threads=False)
    marker = flags(False, found.num_rows)

    def column(field: pa.Field) -> pa.Array:
        there = field.name in found.column_names
        return found.column(field.name).combine_chunks() if there else marker

    return pa.RecordBatch.from_arrays([column(one) for one in rows.schema], schema=rows.schema)


def _floors(times: Numbers, pane: int) -> Numbers:
    """Return where the panes of moments start, also before 1970."""
    floors: Numbers = times - times % pane
    return floors
