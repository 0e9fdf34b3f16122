"""Literals in conditions: numbers, texts, true and false, null, and lengths of time."""

from __future__ import annotations

from datetime import timedelta

from sqlglot import exp

from millstream.errors import InvalidCondition
from millstream.patterns.history import Node

_LENGTHS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1000,
    "SECOND": 10**6,
    "MINUTE": 60 * 10**6,
    "HOUR": 3600 * 10**6,
}
_LENGTHS |= {"DAY": 24 * _LENGTHS["HOUR"], "WEEK": 7 * 24 * _LENGTHS["HOUR"]}


def literal(tree: exp.Expr) -> Node | None:
    """Return the node of a literal, or None for anything else."""
    match tree:
        case exp.Literal() if tree.is_string:
            return Node("literal", of=tree.this)
        case exp.Literal():
            return Node("literal", of=int(tree.this) if tree.this.isdigit() else float(tree.this))
        case exp.Neg() if isinstance(tree.this, exp.Literal) and not tree.this.is_string:
            number = literal(tree.this)
            return None if number is None else Node("literal", of=-number.of)
        case exp.Boolean():
            return Node("literal", of=bool(tree.this))
        case exp.Null():
            return Node("literal")
        case exp.Interval():
            return Node("literal", of=_micros(tree))
    return None


def _micros(tree: exp.Interval) -> int | None:
    unit = tree.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        return _spanned(tree, unit)
    length = None if unit is None else _LENGTHS.get(unit.name.upper().removesuffix("S"))
    if length is None or not isinstance(tree.this, exp.Literal):
        msg = f'"{tree.sql(dialect="spark")}" is an interval without a fixed length'
        hint = "use seconds, minutes, hours, days or weeks: interval 5 minutes"
        raise InvalidCondition(msg, hint=hint)
    return round(timedelta(microseconds=length * float(tree.this.this)) / timedelta(microseconds=1))


_PARTS = ("DAY", "HOUR", "MINUTE", "SECOND")


def _spanned(tree: exp.Interval, unit: exp.IntervalSpan) -> int:
    """Return a length of time that several units say together: INTERVAL '1:30' HOUR TO MINUTE."""
    names = [part.name.upper().removesuffix("S") for part in (unit.this, unit.expression)]
    known = all(name in _PARTS for name in names)
    units = _PARTS[_PARTS.index(names[0]) : _PARTS.index(names[1]) + 1] if known else ()
    text = tree.this.this if isinstance(tree.this, exp.Literal) else ""
    numbers = text.lstrip("+-").replace(" ", ":").split(":")
    if len(units) < 2 or len(numbers) != len(units) or not all(map(_is_number, numbers)):
        msg = f'"{tree.sql(dialect="spark")}" is an interval without a fixed length'
        raise InvalidCondition(msg, hint="write INTERVAL '1 02:30:00' DAY TO SECOND")
    found = timedelta()
    for name, number in zip(units, numbers, strict=True):
        found += timedelta(microseconds=_LENGTHS[name] * float(number))
    return round(found / timedelta(microseconds=1)) * (-1 if text.startswith("-") else 1)


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()
