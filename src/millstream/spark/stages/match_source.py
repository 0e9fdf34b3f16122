"""Which patterns need no SQL: a source can pick what they need of its rows by itself.

That is so if conditions compare columns with constants, in the types for which Arrow and Spark agree on
every value, and if outputs are columns. All other patterns have their masks from SQL.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from pyspark.sql.pandas.types import to_arrow_type
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
from millstream.journal.partitioning import placeable
from millstream.patterns.recipe import Recipe
from millstream.spark.io.picked_rows import Lost, Picked
from millstream.spark.io.row_tests import Always, Compare, Every, Flag, Missing, Not, Some, Test
from millstream.spark.io.shard_rows import Shards
from millstream.spark.io.source import PLACE
from millstream.spark.stages.keyless import Keyless
from millstream.spark.stages.match_rows import KEY, TIME, ShardMatcher

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


def picked_shards(
    columns: StructType,
    recipe: Recipe,
    rows: StructType,
    stage: ShardMatcher,
    keyless: Keyless | None,
) -> Shards | None:
    """Return what a source picks for a pattern, and for which shards; None if it takes SQL.

    Args:
        columns: The columns of the source's rows.
        recipe: The pattern.
        rows: The columns that it needs, under its own names for them.
        stage: What matches them.
        keyless: Where rows go that have no key.
    """
    try:
        picked = _picked(columns, recipe, rows, stage.shown, keyless)
    except NeedsSql:
        return None
    return Shards(KEY, stage.shards, json.dumps(rows.jsonValue()), TIME, picked)


def _picked(
    columns: StructType,
    recipe: Recipe,
    rows: StructType,
    shown: Sequence[str],
    keyless: Keyless | None,
) -> Picked:
    unusual = recipe.letters or recipe.order or recipe.keyless or recipe.asks_python
    if unusual or not recipe.time or len(recipe.keys) != 1 or PLACE not in columns.names:
        raise NeedsSql
    (key,) = recipe.keys
    if not placeable(to_arrow_type(columns[key].dataType, timezone="UTC")):
        raise NeedsSql
    if keyless is not None and not isinstance(keyless.letters, str):
        raise NeedsSql
    named = {TIME: recipe.time, PLACE: PLACE}
    values = {f"__value{place}": sql for place, sql in enumerate(recipe.values)}
    outputs = dict(zip(shown, recipe.rows, strict=True))
    for name, sql in chain(values.items(), outputs.items()):
        if name != KEY:
            named[name] = _field(expressions.expression(sql), columns).name
    masks = {
        f"__mask{word}": tuple(_test(sql, columns) for sql in tests)
        for word, tests in enumerate(_tests(recipe))
    }
    if {KEY, *named, *masks} != set(rows.names):
        raise NeedsSql
    lost = None
    if keyless is not None:
        lost = Lost(keyless.stage, keyless.columns, str(keyless.letters))
    return Picked((key, KEY), masks, named, recipe.quiet, lost)


def _tests(recipe: Recipe) -> list[list[str | None]]:
    """Return the tests of each mask, in the order of their bits."""
    words: list[list[str | None]] = [[] for _ in recipe.masks]
    for plan in recipe.plans:
        assert plan.shift == len(words[plan.word])
        words[plan.word] += [test.event for test in plan.automaton.tests]
    return words


def _test(sql: str | None, columns: StructType) -> Test:
    if sql is None:
        return Always(True)
    if any(sign in sql for sign in _REPLACED):
        raise NeedsSql
    try:
        tree = expressions.expression(sql)
    except InvalidSql as error:  # sqlglot cannot read all that Spark can
        raise NeedsSql from error
    return _tested(tree, columns, _DEEPEST)


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
            return Missing(_field(tree.this, columns).name)
        case exp.Between() if not tree.args.get("symmetric"):
            low, high = tree.args["low"], tree.args["high"]
            sides = ((">=", low), ("<=", high))
            return Every(tuple(_compared(sign, tree.this, one, columns) for sign, one in sides))
        case exp.In() if tree.expressions and not tree.args.get("query"):
            return Some(tuple(_compared("=", tree.this, one, columns) for one in tree.expressions))
        case exp.Column():
            field = _field(tree, columns)
            if isinstance(field.dataType, BooleanType):
                return Flag(field.name)
    raise NeedsSql


def _compared(sign: str, left: exp.Expr, right: exp.Expr, columns: StructType) -> Test:
    if isinstance(right, exp.Column):
        sign, left, right = _TURNED[sign], right, left
    field = _field(left, columns)
    if isinstance(field.dataType, BooleanType) and sign not in ("=", "<>"):
        raise NeedsSql
    return Compare(field.name, sign, _constant(right, field.dataType))


def _field(tree: exp.Expr, columns: StructType) -> Any:
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
