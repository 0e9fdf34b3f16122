"""What a pattern needs of the rows of a source: the tests that they meet, and some columns.

A source picks rows itself where conditions look at columns alone. Rows that meet none stay where they
are, and the others go to the shards packed: Spark sees none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from millstream.spark.io.arrays import numbers
from millstream.spark.io.row_tests import Masking, Test, columns_of


class Lost(msgspec.Struct, frozen=True):
    """Where rows go that have no key."""

    stage: str
    columns: tuple[str, ...]
    #: The path of a journal.
    letters: str


class Picked(msgspec.Struct, frozen=True):
    """What is picked of rows."""

    #: The column that is the key, and the name that the pattern has for it.
    key: tuple[str, str]
    #: The tests of each mask, by its name; their bits rise from the first one.
    masks: dict[str, tuple[Test, ...]]
    #: The columns that are kept, by the name that the pattern has for each.
    columns: dict[str, str]
    #: Rows that meet no test are left out.
    quiet: bool
    lost: Lost | None = None

    @property
    def needed(self) -> set[str]:
        """The columns that are looked at."""
        tests = chain.from_iterable(self.masks.values())
        return {self.key[0], *self.columns.values()}.union(*map(columns_of, tests))


def keyless_reason(stage: str, columns: Sequence[str]) -> str:
    """Return why a row is a dead letter that has no key where a pattern needs one."""
    return f'pattern "{stage}": the event has no {" and ".join(columns)}'


def pick(
    rows: pa.RecordBatch, picked: Picked, schema: pa.Schema, refuse: Callable[[pa.Table], None]
) -> pa.RecordBatch:
    """Return what a pattern needs of rows, with the columns of a schema; those without a key go to `refuse`."""
    column, key = picked.key
    if rows.column(column).null_count:
        there = pc.is_valid(rows.column(column))
        if picked.lost is not None:
            refuse(pa.Table.from_batches([rows.filter(pc.invert(there))]))
        rows = rows.filter(there)
    masking = Masking(rows)
    masks = {name: masking.mask(tests) for name, tests in picked.masks.items()}
    if picked.quiet:
        met = sum(mask != 0 for mask in masks.values()) != 0
        chosen = met.nonzero()[0]
        if len(chosen) < rows.num_rows:
            rows = rows.take(numbers(chosen, pa.int64()))
            masks = {name: mask[chosen] for name, mask in masks.items()}
    arrays = {name: numbers(mask, pa.int64()) for name, mask in masks.items()}
    arrays[key] = rows.column(column)
    arrays |= {name: rows.column(own) for name, own in picked.columns.items()}
    cast = [pc.cast(arrays[one.name], one.type) for one in schema]
    return pa.RecordBatch.from_arrays(cast, schema=schema)
