"""The rows of several frames over one stream as columns of one frame, so that the stream is read once.

A frame that only selects and filters is a condition and columns over the rows that it reads. Spark's own
rule finds them, and says so of frames that are more. Its plans are Java objects, which have no types
here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millstream.spark.stages.stateless import each

#: Expressions that are used several times are written out each time: not beyond so many characters.
LONGEST: Final = 20_000
_INLINE: Final = "spark.sql.optimizer.collapseProjectAlwaysInline"


@contextmanager
def _inlined(frame: DataFrame) -> Iterator[None]:
    spark = frame.sparkSession
    spark.conf.set(_INLINE, value=True)
    try:
        yield
    finally:
        spark.conf.unset(_INLINE)


@dataclass(frozen=True, slots=True)
class Branch:
    """Rows as a condition and a struct over what `below` reads."""

    below: Any
    condition: Column
    row: Column


def branch_of(frame: DataFrame) -> Branch | None:
    """Return a frame as a branch; None if it is more than columns of some of the rows it reads."""
    jvm: Any = frame.sparkSession._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst
    plan = frame._jdf.queryExecution().analyzed()
    plan = catalyst.analysis.EliminateView.apply(
        catalyst.analysis.EliminateSubqueryAliases.apply(plan)
    )
    with _inlined(frame):
        found = catalyst.planning.PhysicalOperation.unapply(plan)
    if found.isEmpty() or found.get()._3().nodeName() != "CollectMetrics":
        return None
    if len(found.get()._1().toString()) + len(found.get()._2().toString()) > LONGEST:
        return None
    fields, filters = each(found.get()._1()), each(found.get()._2())

    def column(expression: Any) -> Column:
        return Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))

    named = zip(frame.columns, fields, strict=True)
    row = F.struct(*(column(one).alias(name) for name, one in named))
    return Branch(found.get()._3(), reduce(and_, map(column, filters), F.lit(True)), row)


def composed(spark: Any, branches: Mapping[str, Branch]) -> DataFrame:
    """Return a column for each branch, null where a row is none of its rows."""
    first, *_ = found = list(branches.values())
    below = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(
        spark._jsparkSession, first.below
    )
    some = reduce(or_, (one.condition for one in found))
    named = (F.when(one.condition, one.row).alias(name) for name, one in branches.items())
    return DataFrame(below, spark).where(some).select(*named)
