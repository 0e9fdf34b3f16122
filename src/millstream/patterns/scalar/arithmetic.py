"""Spark's arithmetic and order in Python.

As in its ANSI mode, which Millstream leaves on, what overflows or divides by zero is an error. NaN
is equal to itself and above all other numbers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import ROUND_DOWN, Decimal
from functools import lru_cache
from typing import Final

from millstream.patterns import typed
from millstream.patterns.history import Value

#: How many digits the whole types may have as decimals.
_DIGITS: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_LONGEST: Final = 38
_LEAST_SCALE: Final = 6


# Types


def numeric(kind: str | None) -> bool:
    return kind in typed.BITS or kind in ("float", "double") or typed.is_decimal(kind)


def common(left: str | None, right: str | None) -> str | None:
    """Return the type in which Spark compares two values; None if only the row can tell.

    Raises:
        TypeError: There is none, or Spark would have to guess what a text means.
    """
    if right in (left, "void"):
        return left
    if left == "void":
        return right
    if left is None or right is None:
        return None
    if numeric(left) and numeric(right):
        return _common_number(left, right)
    pair = {left, right}
    for time in ("timestamp", "timestamp_ntz", "date"):
        if time in pair and pair <= {"timestamp", "timestamp_ntz", "date", "string"}:
            return time
    raise TypeError(f"a {left} with a {right}")


def _common_number(left: str, right: str) -> str:
    if left in typed.BITS and right in typed.BITS:
        return max(left, right, key=lambda kind: typed.BITS[kind])
    if {left, right} & {"float", "double"}:
        return "double"
    (digits, scale), (others, other) = as_decimal(left), as_decimal(right)
    whole, fraction = max(digits - scale, others - other), max(scale, other)
    return decimal_type(whole + fraction, fraction)


def as_decimal(kind: str) -> tuple[int, int]:
    """Return the precision and scale of a whole or decimal type."""
    return (_DIGITS[kind], 0) if kind in typed.BITS else typed.precision(kind)


def decimal_type(digits: int, scale: int) -> str:
    """Return a decimal type, cut to 38 digits as Spark cuts it."""
    if digits > _LONGEST:
        scale = max(_LONGEST - (digits - scale), min(scale, _LEAST_SCALE))
        digits = _LONGEST
    return f"decimal({digits},{scale})"


def result(sign: str, left: str, right: str) -> str:
    """Return the type of a calculation with two numbers."""
    if {left, right} & {"float", "double"}:
        return "float" if left == right == "float" and sign != "/" else "double"
    if left in typed.BITS and right in typed.BITS:
        return "double" if sign == "/" else _common_number(left, right)
    (p1, s1), (p2, s2) = as_decimal(left), as_decimal(right)
    whole, scale = max(p1 - s1, p2 - s2), max(s1, s2)
    match sign:
        case "+" | "-":
            return decimal_type(whole + scale + 1, scale)
        case "*":
            return decimal_type(p1 + p2 + 1, s1 + s2)
        case "/":
            scale = max(_LEAST_SCALE, s1 + p2 + 1)
            return decimal_type(p1 - s1 + s2 + scale, scale)
    return decimal_type(min(p1 - s1, p2 - s2) + scale, scale)


# Values


@lru_cache(maxsize=64)
def fitting(kind: str) -> Callable[[Value], Value]:
    """Return the function that passes a result of this type on, or fails if it overflows."""
    if kind == "float":
        return typed.single
    if typed.is_decimal(kind):
        return _fitting_decimal(*typed.precision(kind))
    bound = 1 << (typed.BITS[kind] - 1)

    def fit(value: int) -> int:
        if -bound <= value < bound:
            return value
        raise OverflowError(f"{value} is too large for {kind}")

    return fit


def _fitting_decimal(digits: int, scale: int) -> Callable[[Decimal], Decimal]:
    step, bound = Decimal(1).scaleb(-scale), Decimal(10) ** (digits - scale)

    def fit(value: Decimal | int) -> Decimal:
        found = Decimal(value).quantize(step, context=typed.DIGITS)
        if abs(found) < bound:
            return found
        raise OverflowError(f"{value} is too large for decimal({digits},{scale})")

    return fit


def divided(left: Value, right: Value) -> Value:
    return float(left) / float(right)


def remainder(left: Value, right: Value) -> Value:
    """Return the remainder, which has the sign of the dividend."""
    if right == 0:
        raise ZeroDivisionError("division by zero")
    if isinstance(left, float) or isinstance(right, float):
        return math.nan if math.isinf(left) else math.fmod(left, right)
    if isinstance(left, int) and isinstance(right, int):
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest
    return typed.DIGITS.remainder(Decimal(left), Decimal(right))


def quotient(left: Value, right: Value) -> int:
    """Return the whole part of a quotient."""
    if right == 0:
        raise ZeroDivisionError("division by zero")
    if isinstance(left, int) and isinstance(right, int):
        whole = abs(left) // abs(right)
        return whole if (left < 0) == (right < 0) else -whole
    found = typed.DIGITS.divide(Decimal(left), Decimal(right))
    return int(found.to_integral_value(ROUND_DOWN))


def add_decimal(left: Value, right: Value) -> Decimal:
    return typed.DIGITS.add(Decimal(left), Decimal(right))


def subtract_decimal(left: Value, right: Value) -> Decimal:
    return typed.DIGITS.subtract(Decimal(left), Decimal(right))


def multiply_decimal(left: Value, right: Value) -> Decimal:
    return typed.DIGITS.multiply(Decimal(left), Decimal(right))


def divide_decimal(left: Value, right: Value) -> Decimal:
    if right == 0:
        raise ZeroDivisionError("division by zero")
    return typed.DIGITS.divide(Decimal(left), Decimal(right))


DECIMAL: Final = {
    "+": add_decimal,
    "-": subtract_decimal,
    "*": multiply_decimal,
    "/": divide_decimal,
    "%": remainder,
}


# Values whose types only the row can tell


def fitted(value: Value) -> Value:
    """Pass a number on; whole ones are of 64 bits."""
    return _fit_long(value) if type(value) is int else value


_fit_long: Final = fitting("bigint")


def _untyped(calculate: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    def calculated(left: Value, right: Value) -> Value:
        if isinstance(left, str) or isinstance(right, str):
            raise TypeError("calculates with text")
        return fitted(calculate(left, right))

    return calculated


add: Final = _untyped(operator.add)
subtract: Final = _untyped(operator.sub)
multiply: Final = _untyped(operator.mul)
UNTYPED: Final = {"+": add, "-": subtract, "*": multiply, "/": divided, "%": remainder}


def negated(value: Value) -> Value:
    return fitted(-value)


def is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)


def equal(left: Value, right: Value) -> bool:
    """Compare as Spark does: NaN is equal to itself."""
    return bool(left == right or (is_nan(left) and is_nan(right)))


def less(left: Value, right: Value) -> bool:
    """Compare as Spark does: NaN is above all other numbers."""
    return bool(left < right or (is_nan(right) and not is_nan(left)))


def ordered(value: Value) -> tuple[bool, Value]:
    """Return what values are sorted by: NaN is the last."""
    return (True, 0) if is_nan(value) else (False, value)


def instant(value: date | datetime, zone: Value) -> datetime:
    """Return the start of a day, or a moment, in the zone that is wanted."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=zone)
    return datetime(value.year, value.month, value.day, tzinfo=zone)


def day_length(value: timedelta) -> bool:
    """Tell whether an interval is of whole days."""
    return not value.seconds and not value.microseconds


def half_up(whole: int, by: Value) -> int:
    """Return a multiple of a whole number, rounded."""
    if isinstance(by, float):
        return math.floor(whole * by + 0.5)
    return int((Decimal(whole) * Decimal(by)).quantize(Decimal(1), context=typed.DIGITS))
