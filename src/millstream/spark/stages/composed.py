"""The rows of several frames over one stream as one frame, so that the stream is read once.

A frame that only selects and filters is a condition and columns over the rows that it reads. Spark's own
rule finds them, and says so of frames that are more. The conditions become bits of a column (see
`io/sink_rows.py`). A column is computed for the rows of its frames alone: it may fail on others.
Spark's plans are Java objects, which have no types here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millstream.spark.io.sink_rows import SinkRows, chosen
from millstream.spark.stages.stateless import each

#: Expressions that are used several times are written out each time: not beyond so many characters.
LONGEST: Final = 20_000
_INLINE: Final = "spark.sql.optimizer.collapseProjectAlwaysInline"
#: The columns of flags, and how many conditions are in one.
FLAGS: Final = "__flags"
BITS: Final = 62
#: Expressions that cannot fail, whatever the row.
_PLAIN: Final = ("AttributeReference", "Literal")


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
    """Rows as a condition and expressions over what `below` reads."""

    below: Any
    condition: Column
    fields: tuple[Any, ...]
    schema: StructType


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
    fields, filters, below = found.get()._1(), found.get()._2(), found.get()._3()
    if len(fields.toString()) + len(filters.toString()) > LONGEST:
        return None
    conditions = (_column(jvm, one) for one in each(filters))
    unnamed = tuple(one.child() if one.nodeName() == "Alias" else one for one in each(fields))
    return Branch(below, reduce(and_, conditions, F.lit(True)), unnamed, frame.schema)


def _column(jvm: Any, expression: Any) -> Column:
    return Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def composed(spark: Any, branches: Sequence[Branch]) -> tuple[DataFrame, list[SinkRows]]:
    """Return a frame with the rows of all branches, and where in it those of each are."""
    jvm, whole = spark._jvm, branches[0].below
    below = DataFrame(
        jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, whole), spark
    )
    flags = [
        _flags([one.condition for one in branches[first : first + BITS]]).alias(f"{FLAGS}{first}")
        for first in range(0, len(branches), BITS)
    ]
    flagged = below.where(reduce(or_, (one.condition for one in branches))).select("*", *flags)
    known = jvm.java.util.HashMap()
    distinct: list[Any] = []
    users: defaultdict[int, list[int]] = defaultdict(list)
    rows = []
    for number, branch in enumerate(branches):
        places = []
        for field in branch.fields:
            place = known.putIfAbsent(field, len(distinct))
            if place is None:
                place = len(distinct)
                distinct.append(field)
            users[place].append(number)
            places.append(place)
        fields = branch.schema.fields
        rows.append(
            SinkRows(
                f"{FLAGS}{number // BITS * BITS}",
                1 << number % BITS,
                tuple(f"c{place}" for place in places),
                tuple(one.name for one in fields),
                tuple(one.nullable for one in fields),
            )
        )
    columns = []
    for place, field in enumerate(distinct):
        column = _column(jvm, field)
        if field.nodeName() not in _PLAIN:
            column = F.when(chosen(rows[one] for one in users[place]), column)
        columns.append(column.alias(f"c{place}"))
    names = dict.fromkeys(one.flags for one in rows)
    return flagged.select(*names, *columns), rows


def _flags(conditions: Sequence[Column]) -> Column:
    bits = (
        F.when(condition, F.lit(1 << number).cast("long")).otherwise(F.lit(0).cast("long"))
        for number, condition in enumerate(conditions)
    )
    return reduce(Column.bitwiseOR, bits)
