"""Casts between Spark's types, in Python; as in its ANSI mode, what cannot be cast is an error."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import ROUND_DOWN, Decimal
from functools import lru_cache
from typing import Final

from sqlglot import exp

from millstream.clock import EPOCH
from millstream.flow import ddl
from millstream.patterns import typed
from millstream.patterns.history import Value
from millstream.patterns.scalar import arithmetic
from millstream.patterns.scalar.codes import Build, Code, Writer

Change = Callable[[Value], Value]
_TRUE: Final = frozenset(["t", "true", "y", "yes", "1"])
_FALSE: Final = frozenset(["f", "false", "n", "no", "0"])
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[dDfF]?", re.ASCII)
_WHOLE: Final = re.compile(r"[+-]?\d+", re.ASCII)
_SPECIAL: Final = re.compile(r"([+-]?)(inf|infinity|nan)", re.IGNORECASE)
_DAY: Final = re.compile(
    r"(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL
)
_MOMENT: Final = re.compile(
    r"(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?)?(?:\s*(Z|UTC|[+-]\d{1,2}(?::?\d{2})?))?)?)?)?",
    re.ASCII,
)
#: What Spark leaves out around a text that it casts.
_AROUND: Final = "".join(map(chr, range(33)))


def converted(writer: Writer, code: Code, kind: str | None, tree: exp.Expr | None = None) -> Code:
    """Return a value as another type, where it has one."""
    if code.type in (kind, "void"):
        return code
    if kind is None:
        return writer.literal(float(code.of), None) if isinstance(code.of, Decimal) else code
    if code.type is None:
        return code
    return changed(writer, code, kind, cast(code.type, kind), tree)


def changed(
    writer: Writer, code: Code, kind: str, change: Change | None, tree: exp.Expr | None
) -> Code:
    """Return a value of another type; that of a literal is computed at once."""
    if change is None:
        return Code(code.source, kind, code.when, code.literal, code.of)
    if not code.literal:
        return Code(f"{writer.name(change)}({code.source})", kind, code.when)
    try:
        return writer.literal(change(code.of), kind)
    except (ValueError, ArithmeticError) as error:
        assert tree is not None, "numbers are converted without fail"
        raise writer.refused(tree, f"casts {code.of!r} to {kind}: {error}") from None


@lru_cache(maxsize=512)
def cast(given: str, wanted: str) -> Change | None:
    """Return what makes a value of one type one of another; None if it stays as it is.

    Raises:
        TypeError: There is no such cast.
    """
    if given == wanted:
        return None
    if given in typed.BITS:
        return _from_whole(given, wanted)
    if typed.is_decimal(given):
        return _from_decimal(wanted)
    found = _OTHERS.get((given, wanted))
    if found is None and given in ("float", "double"):
        found = _from_number(given, wanted)
    if found is None and given == "string":
        found = _from_text(wanted)
    if found is None and given == "boolean" and arithmetic.numeric(wanted):
        found = _compose(int, cast("int", wanted))
    if found is None:
        raise TypeError(f"{given} to {wanted}")
    return None if found is _same else found


def _same(value: Value) -> Value:
    return value


def _compose(first: Change, then: Change | None) -> Change:
    return first if then is None else lambda value: then(first(value))


def _from_whole(given: str, wanted: str) -> Change | None:
    if wanted in typed.BITS:
        wider = typed.BITS[wanted] > typed.BITS[given]
        return None if wider else arithmetic.fitting(wanted)
    if typed.is_decimal(wanted):
        return arithmetic.fitting(wanted)
    others: dict[str, Change] = {
        "double": float,
        "float": _single,
        "boolean": bool,
        "string": str,
        "timestamp": _seconds,
    }
    return others.get(wanted) or _none(given, wanted)


def _none(given: str, wanted: str) -> Change:
    raise TypeError(f"{given} to {wanted}")


def _single(value: Value) -> float:
    return typed.single(float(value))


def _seconds(value: Value) -> datetime:
    return EPOCH + timedelta(microseconds=math.trunc(value * 10**6))


def _from_decimal(wanted: str) -> Change:
    if wanted in typed.BITS:
        return _compose(_truncated, arithmetic.fitting(wanted))
    if typed.is_decimal(wanted):
        return arithmetic.fitting(wanted)
    others: dict[str, Change] = {
        "double": float,
        "float": _single,
        "boolean": bool,
        "string": lambda value: f"{value:f}",
        "timestamp": _seconds,
    }
    return others.get(wanted) or _none("decimal", wanted)


def _truncated(value: Decimal) -> int:
    return int(value.to_integral_value(ROUND_DOWN))


def _from_number(given: str, wanted: str) -> Change | None:
    if wanted in typed.BITS:
        return _compose(_part, arithmetic.fitting(wanted))
    if typed.is_decimal(wanted):
        return _compose(_digits, arithmetic.fitting(wanted))
    others: dict[str, Change] = {
        "boolean": bool,
        "string": text_of_single if given == "float" else text_of_double,
        "timestamp": _seconds,
        "double": _same,
        "float": typed.single,
    }
    return others.get(wanted)


def _part(value: float) -> int:
    if math.isnan(value) or math.isinf(value):
        raise OverflowError(f"{value} is no whole number")
    return int(value)


def _digits(value: float) -> Decimal:
    if math.isnan(value) or math.isinf(value):
        raise OverflowError(f"{value} is no decimal number")
    return Decimal(repr(value))


def _from_text(wanted: str) -> Change | None:
    if wanted in typed.BITS:
        return _compose(_whole_in, arithmetic.fitting(wanted))
    if typed.is_decimal(wanted):
        return _compose(_decimal_in, arithmetic.fitting(wanted))
    return None


def _whole_in(text: str) -> int:
    found = text.strip(_AROUND)
    if not _WHOLE.fullmatch(found):
        raise ValueError(f'"{text}" is no whole number')
    return int(found)


def _decimal_in(text: str) -> Decimal:
    found = text.strip(_AROUND)
    if not _NUMBER.fullmatch(found) or found[-1] in "dDfF":
        raise ValueError(f'"{text}" is no number')
    return Decimal(found)


def _number_in(text: str) -> float:
    found = text.strip(_AROUND)
    if _NUMBER.fullmatch(found):
        return float(found.rstrip("dDfF"))
    if _SPECIAL.fullmatch(found) and found.lower() not in ("+nan", "-nan"):
        return float(found)
    raise ValueError(f'"{text}" is no number')


def _truth_in(text: str) -> bool:
    found = text.strip(_AROUND).lower()
    if found in _TRUE or found in _FALSE:
        return found in _TRUE
    raise ValueError(f'"{text}" is neither true nor false')


def _day_in(text: str) -> date:
    found = _DAY.fullmatch(text.strip(_AROUND))
    if found is None:
        raise ValueError(f'"{text}" is no date')
    return date(*(int(part or 1) for part in found.groups()))


def _moment_in(text: str) -> datetime:
    found = _MOMENT.fullmatch(text.strip(_AROUND))
    if found is None:
        raise ValueError(f'"{text}" is no time')
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    micros = int((fraction or "")[:6].ljust(6, "0"))
    midnight = datetime(int(year), int(month or 1), int(day or 1), tzinfo=_zone(zone))
    hours, minutes, seconds = (int(part or 0) for part in (hour, minute, second))
    local = midnight.replace(hour=hours, minute=minutes, second=seconds, microsecond=micros)
    return local.astimezone(UTC)


def _zone(text: str | None) -> timezone:
    if text in (None, "Z", "UTC"):
        return UTC
    sign, digits = (-1 if text[0] == "-" else 1), text[1:].replace(":", "")
    hours, minutes = (digits, "0") if len(digits) <= 2 else (digits[:-2], digits[-2:])
    return timezone(sign * timedelta(hours=int(hours), minutes=int(minutes)))


def _without_zone(text: str) -> datetime:
    found = _MOMENT.fullmatch(text.strip(_AROUND))
    if found is None:
        raise ValueError(f'"{text}" is no time')
    # What is written counts, whatever the zone.
    whole = text.strip(_AROUND)
    zone = found.group(8)
    return _moment_in(whole.removesuffix(zone) if zone else whole).replace(tzinfo=None)


# To text, as Java writes it


def text_of_double(value: float) -> str:
    return _java(value, repr(value))


def text_of_single(value: float) -> str:
    """Return the shortest text that is this number and no other float."""
    if math.isnan(value) or math.isinf(value):
        return _java(value, "")
    digits = next(
        text
        for places in range(1, 18)
        if typed.single(float(text := f"{value:.{places}g}")) == value
    )
    return _java(value, digits)


def _java(value: float, digits: str) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    number = Decimal(digits)
    if number == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign, figures, _ = number.normalize().as_tuple()
    exponent, minus = number.adjusted(), "-" if sign else ""
    text = "".join(map(str, figures))
    if not -3 <= exponent < 7:
        return f"{minus}{text[0]}.{text[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{minus}0.{'0' * (-exponent - 1)}{text}"
    text = text.ljust(exponent + 1, "0")
    return f"{minus}{text[: exponent + 1]}.{text[exponent + 1 :] or '0'}"


def text_of_moment(value: datetime) -> str:
    text = f"{value:%H:%M:%S}"
    fraction = f".{value.microsecond:06}".rstrip("0") if value.microsecond else ""
    return f"{value.year:04}-{value.month:02}-{value.day:02} {text}{fraction}"


def _midnight(value: date) -> datetime:
    return datetime(value.year, value.month, value.day, tzinfo=UTC)


def _midnight_ntz(value: date) -> datetime:
    return _midnight(value).replace(tzinfo=None)


_OTHERS: Final[dict[tuple[str, str], Change]] = {
    ("float", "double"): _same,
    ("string", "double"): _number_in,
    ("string", "float"): lambda text: typed.single(_number_in(text)),
    ("string", "boolean"): _truth_in,
    ("string", "date"): _day_in,
    ("string", "timestamp"): _moment_in,
    ("string", "timestamp_ntz"): _without_zone,
    ("string", "binary"): lambda text: text.encode(),
    ("binary", "string"): lambda value: value.decode(),
    ("boolean", "string"): lambda value: "true" if value else "false",
    ("date", "timestamp"): _midnight,
    ("date", "timestamp_ntz"): _midnight_ntz,
    ("date", "string"): lambda value: value.isoformat(),
    ("timestamp", "date"): lambda value: value.date(),
    ("timestamp_ntz", "date"): lambda value: value.date(),
    ("timestamp", "string"): text_of_moment,
    ("timestamp_ntz", "string"): text_of_moment,
    ("timestamp", "timestamp_ntz"): lambda value: value.replace(tzinfo=None),
    ("timestamp_ntz", "timestamp"): lambda value: value.replace(tzinfo=UTC),
    ("timestamp", "bigint"): lambda value: (value - EPOCH) // timedelta(seconds=1),
    ("timestamp", "double"): lambda value: (value - EPOCH) / timedelta(seconds=1),
}


def _cast(writer: Writer, tree: exp.Cast) -> Code:
    """Return CAST or TRY_CAST, which is null where CAST fails."""
    code, wanted = writer.code(tree.this), ddl.parse_type(tree.to.sql(dialect="spark"))
    if code.type == "void":
        return Code(code.source, wanted, code.when)
    tries = isinstance(tree, exp.TryCast) and tree.args.get("safe")
    if code.type is None:
        change: Change | None = lambda value: untyped(value, wanted)  # noqa: E731
    else:
        try:
            change = cast(code.type, wanted)
        except TypeError as error:
            raise writer.refused(tree, f"casts {error}") from None
    if not tries or change is None:
        return changed(writer, code, wanted, change, tree)
    tried = writer.name(trying(change))
    return writer.kept(
        f"({tried}({code.source}) if {' and '.join(code.when) or 'True'} else None)", wanted
    )


def trying(change: Callable[..., Value]) -> Callable[..., Value]:
    """Return a function that is null where another fails."""

    def tried(*values: Value) -> Value:
        try:
            return change(*values)
        except (ValueError, ArithmeticError):
            return None

    return tried


_KINDS: Final[dict[type, str]] = {
    bool: "boolean",
    int: "bigint",
    float: "double",
    str: "string",
    date: "date",
    bytes: "binary",
}


def untyped(value: Value, wanted: str) -> Value:
    """Cast a value whose type only it can tell."""
    kind = _KINDS.get(type(value))
    if isinstance(value, datetime):
        kind = "timestamp" if value.tzinfo is not None else "timestamp_ntz"
    if isinstance(value, Decimal):
        kind = "decimal(38,18)"
    if kind is None:
        raise ValueError(f"{value!r} cannot be cast")
    change = cast(kind, wanted)
    return value if change is None else change(value)


CASTS: Final[dict[type[exp.Expr], Build]] = {exp.Cast: _cast, exp.TryCast: _cast}
