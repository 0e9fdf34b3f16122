"""Rows on their way into a journal, each with its place at the origin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that was not taken: where it was, why, and what it said."""

    number: int
    reason: str
    record: str


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A batch, the rising places of its rows at the origin, and what was refused among them."""

    batch: pa.RecordBatch
    numbers: Numbers
    refused: tuple[Refused, ...] = ()

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def slice(self, start: int, stop: int) -> Rows:
        """Return the rows from `start` to before `stop`, without the refused."""
        return Rows(self.batch.slice(start, stop - start), self.numbers[start:stop])

    def filter(self, kept: npt.NDArray[np.bool_]) -> Rows:
        """Return the rows where `kept` is true, without the refused."""
        if kept.all():
            return Rows(self.batch, self.numbers)
        return Rows(self.batch.filter(pa.array(kept)), self.numbers[kept])

    def up_to(self, number: int) -> Rows:
        """Return the rows whose place is not after `number`, without the refused."""
        return self.slice(0, int(np.searchsorted(self.numbers, number, side="right")))

    def above(self, number: int) -> Rows:
        """Return the rows and the refused whose place is after `number`."""
        if number < 0:
            return self
        first = int(np.searchsorted(self.numbers, number, side="right"))
        rows = self.slice(first, len(self))
        return Rows(rows.batch, rows.numbers, tuple(r for r in self.refused if r.number > number))


def numbered(batch: pa.RecordBatch, first: int) -> Rows:
    """Return a batch whose rows are numbered from `first`."""
    return Rows(batch, np.arange(first, first + batch.num_rows, dtype=np.int64))


def empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


def joined(schema: pa.Schema, parts: Sequence[Rows]) -> Rows:
    """Return parts that follow each other as one."""
    refused = tuple(sorted((r for part in parts for r in part.refused), key=lambda r: r.number))
    filled = [part for part in parts if len(part)]
    if len(filled) == 1:
        return Rows(filled[0].batch, filled[0].numbers, refused)
    numbers = np.concatenate([part.numbers for part in filled]) if filled else np.empty(0, np.int64)
    return Rows(_one(schema, [part.batch for part in filled]), numbers, refused)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table's rows as one batch."""
    return _one(table.schema, table.to_batches())


def _one(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    found: list[Any] = [batch for batch in batches if batch.num_rows]
    if not found:
        return empty(schema)
    return found[0] if len(found) == 1 else pa.concat_batches(found)
