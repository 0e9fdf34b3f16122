"""Windows that need no single rows: what they say follows from sums of rows.

That is so where every aggregate counts, or is the sum, the average, the lowest or the highest of a
column of numbers, and where keys are made of columns whose values are equal in Arrow if they are in
Spark. The checkpoint says whether its windows take sums (`Checkpoint.sums`), since their state differs
from that of windows that take rows. Whether one of them can must therefore follow from what its
fingerprint says of it, and from the types of its columns: never from the stages above it, which a switch may change while
state stays, nor from how an aggregate is spelled. Where its rows cannot be summed up on their
way, each row is a sum of one row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import gcd
from typing import Final

import sqlglot
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from sqlglot import exp

from millstream.clock import MICROSECOND
from millstream.flow import expressions
from millstream.flow.stages import Window
from millstream.spark.io.row_tests import Missing, Not, Test
from millstream.spark.io.shard_rows import COUNT
from millstream.spark.io.summed_rows import How, Merged, Met, Sums
from millstream.spark.stages.sql_tests import NeedsSql, column_in, row_test

_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_KEYS: Final = (*_WHOLE, BooleanType, DateType, TimestampType)
_CALLS: Final = ("count", "count_if", "sum", "avg", "min", "max")
#: What may stand in front of a bracket beside them. A fixed list: what sqlglot knows changes.
_AROUND: Final = {
    *("abs", "ceil", "coalesce", "concat", "floor", "greatest", "if", "least", "lower", "nullif"),
    *("round", "sqrt", "try_divide", "upper", "cast", "try_cast", "decimal"),
    *("and", "or", "not", "in", "between", "case", "when", "then", "else"),
}
_DEEPER: Final = {sqlglot.TokenType.L_PAREN: 1, sqlglot.TokenType.R_PAREN: -1}


@dataclass(frozen=True, slots=True)
class Summing:
    """How a window is computed of sums of rows."""

    sums: Sums
    #: The columns of sums, without those that a source adds.
    schema: StructType
    #: The same of one row, in SQL.
    single: tuple[str, ...]
    #: The aggregates over sums.
    aggregates: tuple[tuple[str, str], ...]


def summing_of(stage: Window, columns: StructType, time: str) -> Summing | None:
    """Return how a window over rows with these columns is computed of sums; None if it needs the rows."""
    if stage.size is None or stage.every is None or columns[time].dataType != TimestampType():
        return None
    parts = _Parts(columns)
    try:
        keys = _keys(stage, columns, time)
        aggregates = tuple((name, _over_sums(text, parts)) for name, text in stage.aggregates)
    except NeedsSql:
        return None
    pane = gcd(stage.size // MICROSECOND, stage.every // MICROSECOND)
    plain = [StructField(name, columns[name].dataType) for name in (time, *keys)]
    schema = StructType([*plain, StructField(COUNT, LongType()), *parts.fields])
    single = *(expressions.column(one.name) for one in plain), f"1L AS {COUNT}", *parts.single
    return Summing(Sums(time, pane, keys, tuple(parts.found)), schema, single, aggregates)


def _keys(stage: Window, columns: StructType, time: str) -> tuple[str, ...]:
    """Return the columns of which the keys are made."""
    found: dict[str, None] = {}
    for _, key in stage.by:
        for _, node in expressions.columns_in(expressions.expression(key)):
            one = column_in(node, columns)
            text = one.dataType == StringType()
            if one.name == time or not (text or isinstance(one.dataType, _KEYS)):
                raise NeedsSql
            found[one.name] = None
    return tuple(found)


@dataclass
class _Parts:
    """The parts of sums that aggregates need, each once."""

    columns: StructType
    found: list[Met | Merged] = field(default_factory=list)
    fields: list[StructField] = field(default_factory=list)
    #: Each of one row.
    single: list[str] = field(default_factory=list)

    def merged(self, how: How, of: StructField, kind: DataType) -> str:
        """Return the name of the part with the sum, lowest or highest value of a column."""
        name = self._named(how, of.name, kind)
        if name is None:
            name = self._new(kind, expressions.column(of.name))
            self.found.append(Merged(name, how, of.name))
        return name

    def there(self, of: StructField) -> str:
        """Return the name of the part that says how many values of a column are not null."""
        return self._met(Not(Missing(of.name)), f"{expressions.column(of.name)} IS NOT NULL")

    def met(self, sql: str, written: str) -> str:
        """Return the name of the part that says how many rows meet a condition, as it was written."""
        return self._met(row_test(sql, self.columns), f"coalesce({written}, false)")

    def _met(self, test: Test, single: str) -> str:
        for one in self.found:
            if isinstance(one, Met) and one.test == test:
                return one.name
        name = self._new(LongType(), single)
        self.found.append(Met(name, test))
        return name

    def _named(self, how: str, column: str, kind: DataType) -> str | None:
        for one, own in zip(self.found, self.fields, strict=True):
            same = isinstance(one, Merged) and (one.how, one.column) == (how, column)
            if same and own.dataType == kind:
                return one.name
        return None

    def _new(self, kind: DataType, single: str) -> str:
        name = f"__sum{len(self.found)}"
        self.fields.append(StructField(name, kind))
        self.single.append(f"CAST({single} AS {kind.simpleString()}) AS {name}")
        return name


def _over_sums(text: str, parts: _Parts) -> str:
    """Return the text of an aggregate over sums that is the same as one over rows.

    Raises:
        NeedsSql: There is none.
    """
    normal = expressions.normal(text)
    tree = expressions.expression(normal)
    # Spark replaces these before it reads a text.
    if "${" in normal or tree.find(exp.Filter, exp.WithinGroup) is not None:
        raise NeedsSql
    # What it means decides; what Spark gets is what the user wrote.
    meant, calls = list(_calls(normal, _AROUND)), list(_calls(text, None))
    if not len(calls) == len(meant) == sum(1 for _ in expressions.aggregates_in(tree)):
        raise NeedsSql
    written, end = "", 0
    for (first, last), (begin, until) in zip(calls, meant, strict=True):
        call = _call_over_sums(normal[begin:until], text[first:last], parts)
        written, end = written + text[end:first] + call, last
    return written + text[end:]


def _calls(text: str, around: Collection[str] | None) -> Iterator[tuple[int, int]]:
    """Yield where the calls of functions that may be aggregates begin and end.

    Raises:
        NeedsSql: What is called is not known; `around` are the others that may be.
    """
    tokens = sqlglot.tokenize(text, read="spark")
    for at, (token, after) in enumerate(pairwise(tokens), 1):
        name = token.text.lower()
        if after.token_type != sqlglot.TokenType.L_PAREN or not any(map(str.isalnum, name)):
            continue
        if name not in _CALLS:
            if around is not None and name not in around:  # it may be an aggregate
                raise NeedsSql
            continue
        depth = 0
        for other in tokens[at:]:
            depth += _DEEPER.get(other.token_type, 0)
            if depth == 0:
                yield token.start, other.end + 1
                break


def _call_over_sums(text: str, written: str, parts: _Parts) -> str:
    tree = expressions.expression(text)
    inner = tree.this
    if tree.expressions:
        raise NeedsSql
    match tree:
        case exp.Count() if isinstance(inner, exp.Star | exp.Literal):
            return _counted(COUNT)
        case exp.Count():
            return _counted(parts.there(column_in(inner, parts.columns)))
        case exp.CountIf():
            inside, own = (one[one.index("(") + 1 : -1] for one in (text, written))
            return _counted(parts.met(inside, own))
        case exp.Sum() | exp.Avg() | exp.Min() | exp.Max():
            return _merged(tree, column_in(inner, parts.columns), parts)
    raise NeedsSql


def _counted(part: str) -> str:
    return f"coalesce(sum({part}), 0L)"


def _merged(call: exp.Expr, of: StructField, parts: _Parts) -> str:
    kind = of.dataType
    if not isinstance(kind, (*_WHOLE, DoubleType)):
        raise NeedsSql
    match call:
        case exp.Min():
            return f"min({parts.merged('min', of, kind)})"
        case exp.Max():
            return f"max({parts.merged('max', of, kind)})"
        case exp.Sum():
            total = parts.merged("sum", of, DoubleType() if kind == DoubleType() else LongType())
            return f"sum({total})"
    total = parts.merged("sum", of, DoubleType())
    return f"try_divide(sum({total}), sum({parts.there(of)}))"
