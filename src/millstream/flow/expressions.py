"""Spark SQL expressions, read without Spark: their columns, aggregates, type and normal form.

sqlglot reads them in its Spark dialect. A type that is not plain to see is None: Spark tells it at
planning.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from millstream.errors import FlowError, InvalidSql
from millstream.flow import ddl
from millstream.flow.schema import Schema

# It warns of statements that it takes for commands; those we refuse by ourselves.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

# Spark's aggregates that sqlglot takes for functions of the user.
_AGGREGATES = """
    any approx_top_k bitmap_and_agg bitmap_construct_agg bitmap_or_agg count_min_sketch every
    histogram_numeric hll_sketch_agg hll_union_agg kurtosis mode percentile regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness some std
    try_avg try_sum
"""
_AGGREGATE_NAMES = frozenset(_AGGREGATES.split())
_PICKING = exp.Min | exp.Max | exp.First | exp.Last | exp.AnyValue | exp.ArgMax | exp.ArgMin
_VERBS: dict[type[exp.Expr], str] = {exp.Avg: "averages", exp.Sum: "sums", exp.Count: "counts"}
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


#: What sqlglot raises for texts that are not SQL; some are too deep for it.
UNREADABLE: Final = (SqlglotError, ValueError, RecursionError)


@lru_cache(maxsize=1024)
def parse(text: str) -> exp.Expr:
    """Return the syntax tree of an expression or a query; it is shared, so leave it as it is.

    Raises:
        InvalidSql: It is not one expression or query.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidSql("the SQL text is empty", hint="write a Spark SQL expression")
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
    except UNREADABLE as error:
        raise InvalidSql(f'"{_short(text)}" is not Spark SQL: {reason(error)}') from None
    if isinstance(tree, exp.Command | exp.Block):
        raise InvalidSql(f'"{_short(text)}" is not one expression or query')
    return tree


def expression(text: str) -> exp.Expr:
    """Return the syntax tree of an expression that is not a query."""
    tree = parse(text)
    if isinstance(tree, exp.Query | exp.Alias):
        msg = f'"{_short(text)}" is not a plain expression'
        raise InvalidSql(msg, hint='write the expression alone, without SELECT and without "AS"')
    return tree


def words(text: str) -> tuple[str, ...]:
    """Return the words and signs of a SQL text, names without their quotes.

    Raises:
        InvalidSql: It is not made of such.
    """
    try:
        return tuple(token.text for token in sqlglot.tokenize(text, read="spark"))
    except UNREADABLE as error:
        raise InvalidSql(f'"{_short(text)}" is not Spark SQL: {reason(error)}') from None


def normal(text: str) -> str:
    """Return the text that all spellings of an expression or query share."""
    try:
        return parse(text).sql(dialect="spark", comments=False, normalize_functions="lower")
    except InvalidSql:
        return " ".join(text.split())


def column(name: str) -> str:
    """Return the expression for a column, quoted where its name means something else in SQL."""
    try:
        tree = parse(name)
    except InvalidSql:
        return f"`{name.replace('`', '``')}`"
    plain = isinstance(tree, exp.Column) and len(tree.parts) == 1 and tree.name == name
    return ddl.quoted(name) if plain else f"`{name.replace('`', '``')}`"


def columns(text: str) -> tuple[str, ...]:
    """Return the names of the columns that an expression uses, each once, in order."""
    return tuple(dict.fromkeys(name for name, _ in columns_in(parse(text))))


def aggregate(text: str) -> bool:
    """Tell whether an expression holds an aggregate function."""
    return any(aggregates_in(parse(text)))


def distinct(text: str) -> bool:
    """Tell whether an expression holds an aggregate with DISTINCT."""
    return any(True for _ in parse(text).find_all(exp.Distinct))


def type_of(text: str, schema: Schema) -> str | None:
    """Return the type of an expression over these columns where it is plain to see."""
    return type_in(parse(text), schema)


def columns_in(tree: exp.Expr, tables: Collection[str] = ()) -> Iterator[tuple[str, exp.Expr]]:
    """Yield each column that a tree uses, with its node.

    "a.b" is column "b" of table "a" if there is such a table, else field "b" of "a".
    """
    known = {table.lower() for table in tables}
    for node in tree.find_all(exp.Column):
        parts = [part.name for part in node.parts]
        if isinstance(node.this, exp.Star) or parts[0].lower() in _parameters(node):
            continue
        qualified = len(parts) > 1 and parts[0].lower() in known
        yield parts[1 if qualified else 0], node


def aggregates_in(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the aggregate functions in a tree."""
    for node in tree.walk():
        if isinstance(node, exp.AggFunc) or (
            isinstance(node, exp.Anonymous) and node.name.lower() in _AGGREGATE_NAMES
        ):
            yield node


def unaggregated(tree: exp.Expr) -> Iterator[str]:
    """Yield the columns that an expression uses outside of any aggregate."""
    inside = {id(inner) for node in aggregates_in(tree) for inner in node.walk()}
    # In max(x) FILTER (WHERE y) the condition is the aggregate's too, as is the order in WITHIN
    # GROUP.
    inside |= {
        id(inner) for node in tree.find_all(exp.Filter, exp.WithinGroup) for inner in node.walk()
    }
    return (name for name, node in columns_in(tree) if id(node) not in inside)


def may_aggregate(tree: exp.Expr) -> bool:
    """Tell whether a tree holds an aggregate, or a function of the user's that may be one."""
    return any(aggregates_in(tree)) or tree.find(exp.Anonymous) is not None


def windowed(tree: exp.Expr) -> bool:
    """Tell whether a tree holds a window function: something OVER something."""
    return tree.find(exp.Window) is not None


def verb(node: exp.Expr) -> str:
    """Return what the function around a column does, for the text of mistakes."""
    return _VERBS.get(type(node.parent), "reads") if node.parent is not None else "reads"


def _parameters(node: exp.Expr) -> set[str]:
    """Return the names that lambda functions around a node give to their parameters."""
    names: set[str] = set()
    around = node.find_ancestor(exp.Lambda)
    while around is not None:
        names.update(parameter.name.lower() for parameter in around.expressions)
        around = around.find_ancestor(exp.Lambda)
    return names


def type_in(node: exp.Expr | None, schema: Schema) -> str | None:
    """Return the type of a node over these columns where it is plain to see."""
    match node:
        case exp.Column() if len(node.parts) == 1:
            found = schema.find(node.name)
            return None if found is None else found.type
        case exp.Alias() | exp.Paren() | exp.Filter():
            return type_in(node.this, schema)
        case exp.Cast():
            return _spelled(node.to.sql(dialect="spark"))
        case exp.Boolean() | exp.Predicate() | exp.Not() | exp.And() | exp.Or():
            return "boolean"
        case exp.Literal():
            return _literal(node)
        case exp.Count() | exp.CountIf() | exp.ApproxDistinct():
            return "bigint"
        case exp.Sum():
            return _sum(type_in(node.this, schema))
        case exp.Avg():
            return _average(type_in(node.this, schema))
        case _ if isinstance(node, _PICKING):
            return type_in(node.this, schema)
    return None


def _spelled(text: str) -> str | None:
    try:
        return ddl.parse_type(text)
    except FlowError:
        return None


def _literal(node: exp.Literal) -> str | None:
    if node.is_string:
        return "string"
    return "int" if node.this.isdigit() and int(node.this) < 2**31 else None


def _sum(found: str | None) -> str | None:
    if found in _WHOLE:
        return "bigint"
    if found in ("float", "double"):
        return "double"
    if found is not None and (decimal := _DECIMAL.fullmatch(found)):
        return f"decimal({min(38, int(decimal[1]) + 10)},{decimal[2]})"
    return None


def _average(found: str | None) -> str | None:
    return "double" if found in (*_WHOLE, "float", "double") else None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else line[:77] + "..."


def reason(error: Exception) -> str:
    """Return what is wrong in a text that is not SQL, and where."""
    details = getattr(error, "errors", None) or []
    if not details:
        return (str(error).splitlines() or ["it is empty"])[0].lower()
    first = details[0]
    near = f' near "{first["highlight"]}"' if first.get("highlight") else ""
    wrong = str(first["description"])
    # sqlglot names its own classes here, which tells a user nothing.
    missing = re.match(r"Required keyword: '(\w+)' missing", wrong)
    wrong = "something is missing" if missing else wrong[:1].lower() + wrong[1:]
    return f"{wrong}{near}, line {first['line']}, column {first['col']}"
