"""Rows that a stage cannot take: they become dead letters of their journal, and the others go on.

Expressions of Spark's fail a whole task, not a row. So a group runs without looking for such rows,
which costs nothing, until a batch fails. Then it is started again *carefully* (`GroupQuery`): a
sieve in front of a stage computes its expressions once more, row by row, and keeps the rows on
which one fails from it.

This is done only for expressions that are computed for every row, in both ways: those of keys and
of patterns. Of what a query computes Spark leaves out what nothing below it needs, so a row that
fails it must not be missing from results only because another row has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.spark.daemon import settle
from millstream.spark.io.refused_rows import refuse
from millstream.spark.served.borrowed import Letters

if TYPE_CHECKING:  # not wanted in executors, which import this
    from pyspark.sql import DataFrame

#: Whether an expression fails on a row.
FAILS: Final = "__fails"


@dataclass(frozen=True, slots=True)
class Sieve:
    """Lets rows pass, except those on which an expression fails."""

    origin: str
    reason: str
    letters: Letters

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        return map(self._passing, batches)

    def _passing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        fails, rows = batch.column(FAILS), batch.drop_columns([FAILS])
        if not pc.any(fails).as_py():
            return rows
        lost = pa.Table.from_batches([rows.filter(fails)])
        refuse(self.letters, self.origin, lost, [self.reason] * lost.num_rows)
        return rows.filter(pc.invert(fails))


def sifted(frame: DataFrame, expressions: Iterable[str], sieve: Sieve) -> DataFrame:
    """Return the rows of a frame on which no expression fails."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    hashed = ", ".join(f"cast(({text}) as string)" for text in expressions)
    # Null for a row on which an argument fails: what begins with "try" catches that too. Nothing
    # below may be merged with this, or Spark would compute what both have in common outside of it.
    computed = F.expr(f"try_to_binary(cast(xxhash64({hashed}) as string), 'utf-8')")
    marked = frame.withColumn(FAILS, computed.isNull())
    return marked.mapInArrow(sieve, StructType(frame.schema.fields))
