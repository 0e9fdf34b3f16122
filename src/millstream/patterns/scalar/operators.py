"""Operators of Spark SQL as Python: columns, literals, logic, comparisons, arithmetic and CASE."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Final

from sqlglot import exp

from millstream.clock import MICROSECOND
from millstream.patterns import literals, typed
from millstream.patterns.history import Value
from millstream.patterns.scalar import arithmetic
from millstream.patterns.scalar.casts import converted
from millstream.patterns.scalar.codes import NULL, Build, Code, Source, Writer, asked, divided

#: How values of these types are compared by Python as they are by Spark.
_EXACT: Final = ("string", "boolean", "timestamp", "timestamp_ntz", "date", "binary", "interval")
_SIGNS: Final[dict[type[exp.Expr], str]] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}


# Leaves


def _literal(writer: Writer, tree: exp.Literal) -> Code:
    if tree.is_string:
        return writer.written(tree.this, "string")
    text = tree.this
    if text.isdigit():
        return _whole(writer, int(text))
    if "e" in text.lower():
        return writer.written(float(text), "double")
    value = Decimal(text)
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "a literal is a number"
    scale = max(0, -exponent)
    return writer.written(value, f"decimal({max(len(digits), scale)},{scale})")


def _whole(writer: Writer, value: int) -> Code:
    for kind in ("int", "bigint"):
        if -(1 << (typed.BITS[kind] - 1)) <= value < 1 << (typed.BITS[kind] - 1):
            return writer.written(value, kind)
    return writer.written(Decimal(value), f"decimal({len(str(abs(value)))},0)")


def _interval(writer: Writer, tree: exp.Interval) -> Code:
    node = literals.literal(tree)
    assert node is not None
    return writer.literal(timedelta(microseconds=node.of), "interval")


def _column(writer: Writer, tree: exp.Column) -> Code:
    if isinstance(tree.this, exp.Star):
        raise writer.refused(tree)
    first, *fields = (part.name for part in tree.parts)
    found = writer.column(first)
    for name in fields:
        found = field_of(writer, found, name, tree)
    return found


def _dot(writer: Writer, tree: exp.Dot) -> Code:
    if not isinstance(tree.expression, exp.Identifier):
        raise writer.refused(tree)
    return field_of(writer, writer.code(tree.this), tree.expression.name, tree)


def field_of(writer: Writer, code: Code, name: str, tree: exp.Expr) -> Code:
    """Return a field of a struct."""
    kind = None
    if code.type is not None:
        if not code.type.startswith("struct<"):
            raise writer.refused(tree, f'takes field "{name}" of a {code.type}')
        fields = typed.fields_of(code.type)
        spelled = next((one for one in fields if one.lower() == name.lower()), None)
        if spelled is None:
            raise writer.refused(tree, f'takes field "{name}", which is not in {code.type}')
        name, kind = spelled, fields[spelled]
    local = writer.local()
    got = f"({local} := {code.source}.get({writer.name(name)})) is not None"
    return Code(local, kind, (*code.when, got))


# Logic


def _logic(writer: Writer, tree: exp.Expr) -> Code:
    """Return AND, OR or NOT where its value counts, and null is not the same as false."""
    true, false = writer.true(tree), writer.false(tree)
    return writer.kept(f"(True if {true} else False if {false} else None)", "boolean")


def _is(writer: Writer, tree: exp.Is) -> Code:
    other = tree.expression
    if isinstance(other, exp.Null):
        return Code(is_null(writer.code(tree.this)), "boolean")
    if isinstance(other, exp.Boolean):
        source = writer.true(tree.this) if other.this else writer.false(tree.this)
        return Code(source, "boolean")
    raise writer.refused(tree)


def is_null(code: Code) -> Source:
    """Return the source of whether a value is null; it is computed, since it may fail instead."""
    if not code.source.isidentifier():
        return f"({code.value} is None)"
    return f"(not ({' and '.join(code.when)}))" if code.when else "False"


# Comparisons


def alike(writer: Writer, codes: Sequence[Code], tree: exp.Expr) -> list[Code]:
    """Return values as their common type, as Spark makes them alike to compare them."""
    kind = codes[0].type
    try:
        for code in codes[1:]:
            kind = arithmetic.common(kind, code.type)
    except TypeError as error:
        raise writer.refused(tree, f"compares {error}") from None
    return [converted(writer, code, kind, tree) for code in codes]


def compared(writer: Writer, sign: str, left: Code, right: Code) -> Source:
    """Return the comparison of two values that are alike and not null."""
    a, b = left.source, right.source
    exact = left.type in _EXACT or left.type in typed.BITS or typed.is_decimal(left.type)
    if exact:
        return f"({a} {sign} {b})"
    if any(one.literal and not arithmetic.is_nan(one.of) for one in (left, right)):
        # What is not up to it is above it, as NaN is.
        swapped = left.literal and not arithmetic.is_nan(left.of)
        return _beside_literal(sign, a, b, swapped=swapped)
    equal, less = writer.name(arithmetic.equal), writer.name(arithmetic.less)
    return {
        "==": f"{equal}({a}, {b})",
        "!=": f"(not {equal}({a}, {b}))",
        "<": f"{less}({a}, {b})",
        ">": f"{less}({b}, {a})",
        "<=": f"(not {less}({b}, {a}))",
        ">=": f"(not {less}({a}, {b}))",
    }[sign]


def _beside_literal(sign: str, a: Source, b: Source, *, swapped: bool) -> Source:
    if sign in ("==", "!="):
        return f"({a} {sign} {b})"
    if swapped:
        a, b, sign = b, a, sign.translate(str.maketrans("<>", "><"))
    opposite = {">": "<=", ">=": "<"}
    return f"(not {a} {opposite[sign]} {b})" if sign in opposite else f"({a} {sign} {b})"


def _comparison(sign: str) -> Build:
    def build(writer: Writer, tree: exp.Binary) -> Code:
        codes = [writer.code(tree.this), writer.code(tree.expression)]
        left, right = alike(writer, codes, tree)
        return Code(compared(writer, sign, left, right), "boolean", asked(left, right))

    return build


def _null_safe(writer: Writer, tree: exp.Binary) -> Code:
    codes = [writer.code(tree.this), writer.code(tree.expression)]
    left, right = alike(writer, codes, tree)
    equal = " and ".join((*asked(left, right), compared(writer, "==", left, right)))
    source = f"({equal} or {is_null(left)} and {is_null(right)})"
    return Code(source if not isinstance(tree, exp.NullSafeNEQ) else f"(not {source})", "boolean")


def _between(writer: Writer, tree: exp.Between) -> Code:
    low = exp.GTE(this=tree.this.copy(), expression=tree.args["low"].copy())
    high = exp.LTE(this=tree.this.copy(), expression=tree.args["high"].copy())
    return writer.code(exp.And(this=low, expression=high))


def _in(writer: Writer, tree: exp.In) -> Code:
    if not tree.expressions:
        raise writer.refused(tree)
    this, *others = alike(writer, writer.codes([tree.this, *tree.expressions]), tree)
    nulls = [one for one in others if one.when == NULL.when]
    values = [one for one in others if one.when != NULL.when]
    if all(one.literal and not arithmetic.is_nan(one.of) for one in values):
        among = f"{this.source} in {writer.name(frozenset(one.of for one in values))}"
        when = this.when
    else:
        held = writer.local()
        when = (*this.when, f"(({held} := {this.source}) is not None)")
        this = Code(held, this.type)
        among = " or ".join(
            f"({' and '.join((*one.when, compared(writer, '==', this, one)))})" for one in values
        )
    if not nulls and all(not one.when for one in values):
        return Code(f"({among})", "boolean", when)
    # A null in the list makes unknown what is not found.
    unknown = " or ".join(is_null(one) for one in others)
    found = f"(True if {among or 'False'} else None if {unknown} else False)"
    inner = writer.kept(found, "boolean")
    return Code(inner.source, "boolean", (*when, *inner.when))


# Arithmetic


def _calculation(writer: Writer, tree: exp.Binary) -> Code:
    sign = _SIGNS[type(tree)]
    return calculated(writer, sign, writer.code(tree.this), writer.code(tree.expression), tree)


def calculated(writer: Writer, sign: str, left: Code, right: Code, tree: exp.Expr) -> Code:
    """Return a calculation with two values."""
    if "void" in (left.type, right.type):
        kind = left.type if right.type == "void" else right.type
        return Code("None", kind, ("False",))
    if left.type is None or right.type is None:
        left, right = untyped(writer, left), untyped(writer, right)
        found = writer.call(arithmetic.UNTYPED[sign], None, left, right)
        return divided(found, left, right) if sign in "/%" else found
    if arithmetic.numeric(left.type) and arithmetic.numeric(right.type):
        return _number(writer, sign, left, right)
    return _time(writer, sign, left, right, tree)


def untyped(writer: Writer, code: Code) -> Code:
    """Return a literal as JSON would have it, to go with values whose types are not known."""
    return writer.literal(float(code.of), None) if isinstance(code.of, Decimal) else code


def _number(writer: Writer, sign: str, left: Code, right: Code) -> Code:
    assert left.type is not None
    assert right.type is not None
    if typed.is_decimal(left.type) or typed.is_decimal(right.type):
        left, right = _as_decimals(left, right)
    assert left.type is not None
    assert right.type is not None
    kind = arithmetic.result(sign, left.type, right.type)
    when = asked(right, left) if sign in "/%" else asked(left, right)
    if typed.is_decimal(kind):
        found = writer.call(arithmetic.DECIMAL[sign], kind, left, right)
        return Code(f"{writer.name(arithmetic.fitting(kind))}({found.source})", kind, when)
    if kind == "double":
        left, right = (converted(writer, one, "double") for one in (left, right))
    if sign == "%":
        source = writer.call(arithmetic.remainder, kind, left, right).source
    else:
        source = f"({left.source} {sign} {right.source})"
    if kind != "double":
        source = f"{writer.name(arithmetic.fitting(kind))}({source})"
    return Code(source, kind, when)


def _as_decimals(left: Code, right: Code) -> tuple[Code, Code]:
    """Return numbers of which one is a decimal; a whole literal counts with its own digits."""

    def narrowed(code: Code) -> Code:
        if code.written and code.type in typed.BITS:
            kind = f"decimal({len(str(abs(code.of)))},0)"
            return Code(code.source, kind, code.when, literal=True, of=code.of)
        return code

    return narrowed(left), narrowed(right)


def _time(writer: Writer, sign: str, left: Code, right: Code, tree: exp.Expr) -> Code:
    """Return a calculation with times, dates and lengths of time."""
    times = ("timestamp", "timestamp_ntz", "date")
    source, when = f"({left.source} {sign} {right.source})", asked(left, right)
    match left.type, sign, right.type:
        case "interval", "+" | "-", "interval":
            return Code(source, "interval", when)
        case "timestamp" | "timestamp_ntz", "+" | "-", "interval":
            return Code(source, left.type, when)
        case "interval", "+", "timestamp" | "timestamp_ntz" | "date":
            return _time(writer, sign, right, left, tree)
        case "date", "+" | "-", "interval":
            # Spark makes a moment of it if the interval has hours or less.
            if right.literal and arithmetic.day_length(right.of) and _days(tree):
                return Code(source, "date", when)
            left = converted(writer, left, "timestamp", tree)
            return Code(f"({left.source} {sign} {right.source})", "timestamp", when)
        case "interval", "*" | "/", number if arithmetic.numeric(number):
            return writer.call(multiplied if sign == "*" else parted, "interval", left, right)
        case number, "*", "interval" if arithmetic.numeric(number):
            return _time(writer, sign, right, left, tree)
    if sign == "-" and left.type in times and right.type in times:
        kind = arithmetic.common(left.type, right.type)
        left, right = (converted(writer, one, kind, tree) for one in (left, right))
        return Code(f"({left.source} - {right.source})", "interval", when)
    raise writer.refused(tree, f"calculates with a {left.type} and a {right.type}")


def _days(tree: exp.Expr) -> bool:
    interval = tree.find(exp.Interval)
    unit = None if interval is None else interval.args.get("unit")
    return unit is not None and unit.name.upper().rstrip("S") in ("DAY", "WEEK")


def multiplied(length: timedelta, by: Value) -> timedelta:
    return timedelta(microseconds=arithmetic.half_up(length // MICROSECOND, by))


def parted(length: timedelta, by: Value) -> timedelta:
    if by == 0:
        raise ZeroDivisionError("division by zero")
    return timedelta(microseconds=arithmetic.half_up(length // MICROSECOND, 1 / by))


def _negated(writer: Writer, tree: exp.Neg) -> Code:
    code = writer.code(tree.this)
    if code.type == "void":
        return NULL
    if code.written and isinstance(tree.this, exp.Literal) and arithmetic.numeric(code.type):
        return _negative(writer, code)
    if code.type in typed.BITS:
        return Code(
            f"{writer.name(arithmetic.fitting(code.type))}(-{code.source})", code.type, code.when
        )
    if code.type is None:
        return writer.call(arithmetic.negated, None, code)
    if not arithmetic.numeric(code.type) and code.type != "interval":
        raise writer.refused(tree, f"negates a {code.type}")
    return Code(f"(-{code.source})", code.type, code.when)


def _negative(writer: Writer, code: Code) -> Code:
    """Return a literal with a minus; the smallest whole numbers have no positive twin."""
    if code.type in typed.BITS or code.type in ("decimal(10,0)", "decimal(19,0)"):
        return _whole(writer, int(-code.of))
    return writer.written(-code.of, code.type)


def _quotient(writer: Writer, tree: exp.IntDiv) -> Code:
    left, right = writer.code(tree.this), writer.code(tree.expression)
    for one in (left, right):
        if one.type not in (None, "void", *typed.BITS) and not typed.is_decimal(one.type):
            raise writer.refused(tree, f"divides a {one.type} with div")
    found = divided(writer.call(arithmetic.quotient, "bigint", left, right), left, right)
    return Code(
        f"{writer.name(arithmetic.fitting('bigint'))}({found.source})", "bigint", found.when
    )


# Choices


def _choice(writer: Writer, tree: exp.If | exp.Case) -> Code:
    """Return CASE or IF: the first branch whose condition is true."""
    branches = tree.args.get("ifs") or [tree]
    default = tree.args.get("default") or tree.args.get("false")
    subject = tree.this if isinstance(tree, exp.Case) else None
    conditions = []
    for branch in branches:
        test = branch.this
        if subject is not None:
            test = exp.EQ(this=subject.copy(), expression=test.copy())
        conditions.append(writer.true(test))
    codes = [writer.code(branch.args["true"]) for branch in branches]
    codes.append(NULL if default is None else writer.code(default))
    codes = alike(writer, codes, tree)
    source = codes[-1].value
    for condition, code in zip(reversed(conditions), reversed(codes[:-1]), strict=True):
        source = f"({code.value} if {condition} else {source})"
    return writer.kept(source, _known(codes))


def _known(codes: Sequence[Code]) -> str | None:
    return next((code.type for code in codes if code.type != "void"), "void")


def _coalesce(writer: Writer, tree: exp.Coalesce) -> Code:
    codes = alike(writer, writer.codes([tree.this, *tree.expressions]), tree)
    source = codes[-1].value
    for code in reversed(codes[:-1]):
        if not code.when:
            source = code.source
        else:
            source = f"({code.source} if {' and '.join(code.when)} else {source})"
    return writer.kept(source, _known(codes))


OPERATORS: Final[dict[type[exp.Expr], Build]] = {
    exp.Paren: lambda writer, tree: writer.code(tree.this),
    exp.Literal: _literal,
    exp.RawString: lambda writer, tree: writer.literal(tree.this, "string"),
    exp.Boolean: lambda writer, tree: writer.literal(bool(tree.this), "boolean"),
    exp.Null: lambda _writer, _tree: NULL,
    exp.Interval: _interval,
    exp.Column: _column,
    exp.Dot: _dot,
    exp.And: _logic,
    exp.Or: _logic,
    exp.Not: _logic,
    exp.Is: _is,
    exp.EQ: _comparison("=="),
    exp.NEQ: _comparison("!="),
    exp.LT: _comparison("<"),
    exp.LTE: _comparison("<="),
    exp.GT: _comparison(">"),
    exp.GTE: _comparison(">="),
    exp.NullSafeEQ: _null_safe,
    exp.NullSafeNEQ: _null_safe,
    exp.EqualNull: _null_safe,
    exp.Between: _between,
    exp.In: _in,
    exp.Neg: _negated,
    exp.IntDiv: _quotient,
    exp.If: _choice,
    exp.Case: _choice,
    exp.Coalesce: _coalesce,
    **dict.fromkeys(_SIGNS, _calculation),
}
