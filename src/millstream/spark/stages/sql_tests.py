"""SQL as tests and columns that Arrow computes, where Arrow and Spark agree on every value.

Tests are comparisons of columns with constants, in some types. All others are Spark's alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)
from sqlglot import exp

from millstream.errors import InvalidSql
from millstream.flow import expressions
from millstream.flow import query as queries
from millstream.spark.io.row_tests import Always, Compare, Every, Flag, Missing, Not, Some, Test

_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_SIGNS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_TURNED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: Texts of SQL in which Spark may replace something before it reads them.
_REPLACED: Final = ("\\", "${")
#: How deep a condition may be: executors look at it again for all rows.
_DEEPEST: Final = 50
#: So many digits of a decimal number are one double, however it is read.
_DIGITS: Final = 15


class NeedsSql(Exception):
    """Only Spark can compute it."""


def row_test(sql: str | None, columns: StructType) -> Test:
    """Return the test that a condition over columns is; none is always met.

    Raises:
        NeedsSql: Only Spark can compute it.
    """
    if sql is None:
        return Always(True)
    if any(sign in sql for sign in _REPLACED):
        raise NeedsSql
    try:
        tree = expressions.expression(sql)
    except InvalidSql as error:  # sqlglot cannot read all that Spark can
        raise NeedsSql from error
    return _tested(tree, columns, _DEEPEST)


class Chosen(NamedTuple):
    """What a query chooses of rows."""

    #: What they must meet.
    test: Test
    #: Where each column comes from: a column, or a field of one. None: all are as they were.
    #: Columns that are computed are missing.
    columns: Mapping[str, tuple[str, ...]] | None = None


def chosen(query: str, input_name: str, columns: StructType) -> Chosen | None:
    """Return what a query over a stream chooses of its rows; None if Arrow cannot do that, too."""
    found = queries.choice_of(query, input_name)
    if found is None or any(sign in query for sign in _REPLACED):
        return None
    items, condition = found
    try:
        test = _tested(condition, columns, _DEEPEST)
        if items == [exp.Star()]:
            return Chosen(test)
        named = [pair for item in items for pair in _selected(item, input_name, columns)]
    except NeedsSql:
        return None
    # Spark takes names for the same that differ in case alone.
    if len({name.lower() for name, _ in named}) < len(named):
        return None
    return Chosen(test, {name: path for name, path in named if path})


def _selected(
    item: exp.Expr, input_name: str, columns: StructType
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the columns that an item of a SELECT gives, and where each is from: () if it is computed."""
    tree = item.this if isinstance(item, exp.Alias) else item
    if not isinstance(tree, exp.Column | exp.Star):
        yield item.alias_or_name, ()
        return
    *above, last = tree.parts if isinstance(tree, exp.Column) else [tree]
    if len(above) > 1 or any(one.name.lower() == input_name.lower() for one in above):
        raise NeedsSql
    inner, path = columns, tuple[str, ...]()
    if above:
        field = column_in(exp.column(above[0].name), columns)
        inner, path = field.dataType, (field.name,)
        if not isinstance(inner, StructType):
            raise NeedsSql
    if not isinstance(last, exp.Star):
        name = column_in(exp.column(last.name), inner).name
        yield item.alias or name, (*path, name)
    elif any(last.args.values()):  # EXCEPT and the like
        raise NeedsSql
    else:
        yield from ((name, (*path, name)) for name in inner.names)


def _tested(tree: exp.Expr, columns: StructType, room: int) -> Test:
    """Return the test that an expression is, which may be so deep."""
    if room == 0:
        raise NeedsSql
    if type(tree) in _SIGNS:
        return _compared(_SIGNS[type(tree)], tree.this, tree.expression, columns)
    match tree:
        case exp.Paren():
            return _tested(tree.this, columns, room - 1)
        case exp.Boolean():
            return Always(bool(tree.this))
        case exp.Not():
            return Not(_tested(tree.this, columns, room - 1))
        case exp.And() | exp.Or():
            several = tuple(_tested(one, columns, room - 1) for one in tree.flatten())
            return Every(several) if isinstance(tree, exp.And) else Some(several)
        case exp.Is() if isinstance(tree.expression, exp.Null):
            return Missing(column_in(tree.this, columns).name)
        case exp.Between() if not tree.args.get("symmetric"):
            low, high = tree.args["low"], tree.args["high"]
            sides = ((">=", low), ("<=", high))
            return Every(tuple(_compared(sign, tree.this, one, columns) for sign, one in sides))
        case exp.In() if tree.expressions and not tree.args.get("query"):
            return Some(tuple(_compared("=", tree.this, one, columns) for one in tree.expressions))
        case exp.Column():
            field = column_in(tree, columns)
            if isinstance(field.dataType, BooleanType):
                return Flag(field.name)
    raise NeedsSql


def _compared(sign: str, left: exp.Expr, right: exp.Expr, columns: StructType) -> Test:
    if isinstance(right, exp.Column):
        sign, left, right = _TURNED[sign], right, left
    field = column_in(left, columns)
    if isinstance(field.dataType, BooleanType) and sign not in ("=", "<>"):
        raise NeedsSql
    return Compare(field.name, sign, _constant(right, field.dataType))


def column_in(tree: exp.Expr, columns: StructType) -> Any:
    """Return the column that an expression is; Spark has no types for its fields."""
    if isinstance(tree, exp.Column) and len(tree.parts) == 1:
        found = [one for one in columns.fields if one.name.lower() == tree.name.lower()]
        if len(found) == 1:
            return found[0]
    raise NeedsSql


def _constant(tree: exp.Expr, kind: DataType) -> str | bool | int | float:
    """Return a constant that has the type of the column beside it."""
    negative = isinstance(tree, exp.Neg)
    inner = tree.this if negative else tree
    if isinstance(inner, exp.Boolean) and isinstance(kind, BooleanType) and not negative:
        return bool(inner.this)
    if not isinstance(inner, exp.Literal):
        raise NeedsSql
    text = str(inner.this)
    if inner.is_string:
        # What quotes mean in a text is Spark's to say, too.
        if kind != StringType() or negative or "'" in text or '"' in text:
            raise NeedsSql
        return text
    digits = text.replace(".", "", 1)
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _DIGITS:
        raise NeedsSql
    if isinstance(kind, _WHOLE) and text == digits:
        return -int(text) if negative else int(text)
    if isinstance(kind, DoubleType):
        return -float(text) if negative else float(text)
    raise NeedsSql
