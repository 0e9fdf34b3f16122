"""Functions of numbers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Final

from sqlglot import exp

from millstream.patterns import typed
from millstream.patterns.history import Value
from millstream.patterns.scalar import arithmetic
from millstream.patterns.scalar.calling import arguments, constant, given, nullable, strict
from millstream.patterns.scalar.codes import Build, Code, Writer, divided

_Whole = Callable[[Value], int]


def _number(writer: Writer, tree: exp.Expr) -> Code:
    """Return the first argument, which must be a number."""
    code = writer.code(arguments(tree)[0])
    if code.type not in (None, "void") and not arithmetic.numeric(code.type):
        raise writer.refused(tree, f"gives a {code.type} where a number should be")
    return code


def _absolute(writer: Writer, tree: exp.Abs) -> Code:
    code = _number(writer, tree)
    found = writer.call(abs, code.type, code)
    if code.type is None or code.type in typed.BITS:
        fit = arithmetic.fitting(code.type) if code.type else arithmetic.fitted
        return Code(f"{writer.name(fit)}({found.source})", code.type, code.when)
    return found


def _rounded(writer: Writer, tree: exp.Round) -> Code:
    if tree.args.get("truncate"):
        raise writer.refused(tree)
    code = _number(writer, tree)
    places = constant(writer, tree.args.get("decimals"), tree) or 0
    kind = code.type
    if typed.is_decimal(kind):
        assert kind is not None
        digits, scale = typed.precision(kind)
        whole, left = digits - scale + 1, min(scale, max(0, places))
        kind = f"decimal({min(38, max(whole, 1 - places) if places < 0 else whole + left)},{left})"

    def rounded(value: Value) -> Value:
        return round_half_up(value, places)

    found = writer.call(rounded, kind, code)
    if kind in typed.BITS and places < 0:
        return Code(f"{writer.name(arithmetic.fitting(kind))}({found.source})", kind, found.when)
    return found


def round_half_up(value: Value, places: int) -> Value:
    """Round away from zero where a digit is half, as people do."""
    step = Decimal(1).scaleb(-places)
    if isinstance(value, float):
        if not math.isfinite(value):
            return value
        # Adding zero takes the minus from a zero, as Java has none there.
        return float(Decimal(repr(value)).quantize(step, context=typed.WIDE)) + 0.0
    if isinstance(value, Decimal):
        found = value.quantize(step, context=typed.WIDE)
        return found if places >= 0 else found.quantize(Decimal(1))
    return value if places >= 0 else int(Decimal(value).quantize(step, context=typed.WIDE))


def _bounded(towards: str) -> Build:
    """Return what builds FLOOR or CEIL: of a decimal a decimal, else a bigint."""
    whole: _Whole = math.floor if towards == ROUND_FLOOR else math.ceil

    def bounded(value: Value) -> Value:
        if isinstance(value, Decimal):
            return value.to_integral_value(towards)
        if arithmetic.is_nan(value):
            return 0  # so it is in Java
        return arithmetic.fitted(whole(value))

    def build(writer: Writer, tree: exp.Expr) -> Code:
        if len(arguments(tree)) != 1:
            raise writer.refused(tree)
        code = _number(writer, tree)
        kind: str | None = "bigint"
        if typed.is_decimal(code.type):
            assert code.type is not None
            digits, scale = typed.precision(code.type)
            kind = f"decimal({digits - scale + (scale > 0)},0)"
        return writer.call(bounded, None if code.type is None else kind, code)

    return build


def power(base: float, exponent: float) -> float:
    """Return a power as Java has it, which never fails."""
    if exponent == 0 or (base == 1 and not math.isnan(exponent)):
        return 1.0
    if abs(base) == 1 and (math.isinf(exponent) or math.isnan(exponent)):
        return math.nan
    odd = math.isfinite(exponent) and exponent % 2 == 1
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        if base != 0:
            return math.nan
        return math.copysign(math.inf, base) if odd else math.inf


def exponential(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def root(value: float) -> float:
    return math.sqrt(value) if not value < 0 else math.nan


def natural_logarithm(value: float) -> float | None:
    return math.log(value) if not value <= 0 else None


def logarithm(base: float, value: float) -> float | None:
    if value <= 0 or base <= 0:
        return None
    if base == 10:
        return math.log10(value)
    below = math.log(base)
    return math.log(value) / below if below else math.copysign(math.inf, math.log(value))


def sign(value: float) -> float:
    return value if value == 0 or math.isnan(value) else math.copysign(1.0, value)


def modulus(value: Value, by: Value) -> Value:
    """Return a remainder that is not negative, of a positive divisor."""
    rest = arithmetic.remainder(value, by)
    return arithmetic.remainder(rest + by, by) if rest < 0 else rest


def _modulus(writer: Writer, tree: exp.Expr) -> Code:
    codes = writer.codes(arguments(tree))
    kinds = [code.type for code in codes if code.type != "void"]
    if None not in kinds and not all(kind in typed.BITS for kind in kinds):
        raise writer.refused(tree, "takes pmod() of what are no whole numbers")
    kind = None if None in kinds or not kinds else arithmetic.common(kinds[0], kinds[-1])
    return divided(writer.call(modulus, kind, *codes), *codes)


def _bitwise(combine: Callable[..., Value]) -> Build:
    def build(writer: Writer, tree: exp.Expr) -> Code:
        codes = writer.codes(arguments(tree))
        for code in codes:
            if code.type not in (None, "void") and code.type not in typed.BITS:
                raise writer.refused(tree, f"takes bits of a {code.type}")
        kinds = [code.type for code in codes if code.type != "void"]
        if None in kinds or not kinds:
            return writer.call(combine, None, *codes)
        kind = max(kinds, key=lambda one: typed.BITS[str(one)])
        return writer.call(combine, kind, *codes)

    return build


def _nan_value(writer: Writer, tree: exp.Nanvl) -> Code:
    left, right = (given(writer, code, "double", tree) for code in writer.codes(arguments(tree)))
    local = writer.local()
    chosen = f"({right.value} if {writer.name(arithmetic.is_nan)}({local}) else {local})"
    found = writer.kept(chosen, "double")
    held = f"({local} := {left.source}) is not None"
    return Code(found.source, "double", (*left.when, held, *found.when))


def _is_nan(writer: Writer, tree: exp.IsNan) -> Code:
    code = given(writer, writer.code(tree.this), "double", tree)
    # Null is no number, and not "not a number" either.
    return Code(
        Code(f"{writer.name(arithmetic.is_nan)}({code.source})", when=code.when).true, "boolean"
    )


def _negative(writer: Writer, tree: exp.Negative) -> Code:
    return writer.code(exp.Neg(this=tree.this.copy()))


NUMBER_CALLS: Final[dict[type[exp.Expr], Build]] = {
    exp.Abs: _absolute,
    exp.Round: _rounded,
    exp.Floor: _bounded(ROUND_FLOOR),
    exp.Ceil: _bounded(ROUND_CEILING),
    exp.Sqrt: strict(root, "double", "double"),
    exp.Pow: strict(power, "double", "double", "double"),
    exp.Exp: strict(exponential, "double", "double"),
    exp.Ln: nullable(natural_logarithm, "double", "double"),
    exp.Log: nullable(logarithm, "double", "double", "double"),
    exp.Sign: strict(sign, "double", "double"),
    exp.IsNan: _is_nan,
    exp.Nanvl: _nan_value,
    exp.Negative: _negative,
    exp.BitwiseAnd: _bitwise(operator.and_),
    exp.BitwiseOr: _bitwise(operator.or_),
    exp.BitwiseXor: _bitwise(operator.xor),
    exp.BitwiseNot: _bitwise(operator.invert),
}
NUMBER_NAMES: Final[dict[str, Build]] = {"pmod": _modulus}
