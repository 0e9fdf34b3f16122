"""Rows that have no key where a pattern needs one: they become dead letters of their journal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.spark.io.packed import packing
from millstream.spark.io.picked_rows import keyless_reason
from millstream.spark.io.refused_rows import refuse
from millstream.spark.io.source import PLACE
from millstream.spark.served.borrowed import Letters

#: Such a row as it came; missing in all others.
RECORD: Final = "__record"


@dataclass(frozen=True, slots=True)
class Keyless:
    """Packs rows for the shuffle, and keeps those that have no key from it.

    A row is known by its place in its journal, so that a batch that is run again adds nothing.
    """

    stage: str
    columns: tuple[str, ...]
    letters: Letters
    #: The column by which rows are due.
    time: str | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return packing(self.time)(self._keyed(batch) for batch in batches)

    def _keyed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        lost = pc.is_valid(batch.column(RECORD))
        if pc.any(lost).as_py():
            self._bury(batch.filter(lost))
            batch = batch.filter(pc.invert(lost))
        return batch.drop_columns([RECORD])

    def _bury(self, rows: pa.RecordBatch) -> None:
        whole = pa.Table.from_batches([pa.RecordBatch.from_struct_array(rows.column(RECORD))])
        if PLACE in rows.schema.names:
            whole = whole.append_column(PLACE, rows.column(PLACE))
        reason = keyless_reason(self.stage, self.columns)
        refuse(self.letters, f"match:{self.stage}", whole, [reason] * whole.num_rows)
