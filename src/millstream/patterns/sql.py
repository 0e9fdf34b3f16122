"""Spark SQL expressions over Arrow columns, for matching where no Spark is near.

Only the plain operators are here, with SQL's rules for missing values. What else a condition may
use, Spark computes; asked for it here, the answer is an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millstream.errors import InvalidCondition, UnknownColumn
from millstream.flow import expressions
from millstream.patterns.literals import literal

# Arrow's arrays and scalars have no types of their own.
Column = Any


def _nans(left: Column, right: Column) -> tuple[Column, Column] | None:
    """Return where two columns are NaN, if they can be."""
    if not (pa.types.is_floating(left.type) or pa.types.is_floating(right.type)):
        return None
    return tuple(pc.is_nan(pc.cast(one, pa.float64())) for one in (left, right))


def _equal(left: Column, right: Column) -> Column:
    """Compare as Spark does: NaN is equal to itself, and above all others."""
    found, nans = pc.equal(left, right), _nans(left, right)
    return found if nans is None else pc.or_kleene(found, pc.and_kleene(*nans))


def _less(left: Column, right: Column) -> Column:
    found, nans = pc.less(left, right), _nans(left, right)
    return found if nans is None else pc.or_kleene(found, pc.and_not_kleene(nans[1], nans[0]))


_COMPARE: dict[type[exp.Expr], Callable[..., Column]] = {
    exp.EQ: _equal,
    exp.NEQ: lambda left, right: pc.invert(_equal(left, right)),
    exp.LT: _less,
    exp.LTE: lambda left, right: pc.invert(_less(right, left)),
    exp.GT: lambda left, right: _less(right, left),
    exp.GTE: lambda left, right: pc.invert(_less(left, right)),
    exp.And: pc.and_kleene,
    exp.Or: pc.or_kleene,
    exp.Add: pc.add,
    exp.Sub: pc.subtract,
    exp.Mul: pc.multiply,
}
_ONE: dict[type[exp.Expr], Callable[[Column], Column]] = {
    exp.Not: pc.invert,
    exp.Neg: pc.negate,
    exp.Abs: pc.abs,
    exp.Lower: pc.utf8_lower,
    exp.Upper: pc.utf8_upper,
    exp.Length: pc.utf8_length,
}


def evaluate(sql: str, rows: pa.Table) -> pa.Array:
    """Return the column that an expression is over `rows`.

    Raises:
        InvalidCondition: It uses what only Spark can compute.
        UnknownColumn: It reads a column that `rows` does not have.
    """
    found = _evaluate(expressions.expression(sql), rows)
    if isinstance(found, pa.Scalar):
        return pa.repeat(found, len(rows))
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _evaluate(tree: exp.Expr, rows: pa.Table) -> Column:
    constant = literal(tree)
    if constant is not None:
        return _interval(constant.of) if isinstance(tree, exp.Interval) else pa.scalar(constant.of)
    if type(tree) in _COMPARE:
        left, right = _evaluate(tree.this, rows), _evaluate(tree.expression, rows)
        return _COMPARE[type(tree)](left, right)
    if type(tree) in _ONE:
        return _ONE[type(tree)](_evaluate(tree.this, rows))
    match tree:
        case exp.Paren():
            return _evaluate(tree.this, rows)
        case exp.Column() if len(tree.parts) == 1:
            return _column(tree.name, rows)
        case exp.Div() | exp.Mod():
            return _divided(tree, rows)
        case exp.Is() if isinstance(tree.expression, exp.Null):
            return pc.is_null(_evaluate(tree.this, rows))
        case exp.Between():
            this = _evaluate(tree.this, rows)
            low, high = (_evaluate(tree.args[side], rows) for side in ("low", "high"))
            return pc.and_kleene(_COMPARE[exp.GTE](this, low), _COMPARE[exp.LTE](this, high))
        case exp.In() if tree.expressions:
            return _in(tree, rows)
        case exp.Coalesce():
            return pc.coalesce(*(_evaluate(one, rows) for one in (tree.this, *tree.expressions)))
    msg = f'"{tree.sql(dialect="spark")}" can only be computed by Spark'
    hint = "use comparisons, arithmetic, AND, OR, NOT, IN, BETWEEN and IS NULL"
    raise InvalidCondition(msg, hint=hint)


def _interval(micros: int) -> Column:
    return pa.scalar(micros, pa.duration("us"))


def _column(name: str, rows: pa.Table) -> Column:
    for known in rows.column_names:
        if known.lower() == name.lower():
            return rows.column(known)
    msg = f'the events have no column "{name}"'
    raise UnknownColumn(msg, hint=f"their columns are {', '.join(rows.column_names)}")


def _divided(tree: exp.Expr, rows: pa.Table) -> Column:
    if isinstance(tree, exp.Mod):
        return _remainder(_evaluate(tree.this, rows), _evaluate(tree.expression, rows))
    below = pc.cast(_evaluate(tree.expression, rows), pa.float64())
    some = pc.if_else(pc.equal(below, 0.0), pa.scalar(None, pa.float64()), below)
    return pc.divide(pc.cast(_evaluate(tree.this, rows), pa.float64()), some)


def _remainder(left: Column, right: Column) -> Column:
    some = pc.if_else(pc.equal(right, 0), pa.scalar(None, right.type), right)
    return pc.subtract(left, pc.multiply(pc.divide(left, some), some))


def _in(tree: exp.In, rows: pa.Table) -> Column:
    this = _evaluate(tree.this, rows)
    found = _equal(this, _evaluate(tree.expressions[0], rows))
    for one in tree.expressions[1:]:
        found = pc.or_kleene(found, _equal(this, _evaluate(one, rows)))
    return found
