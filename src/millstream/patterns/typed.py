"""Values of Spark's types in Python, one at a time: what they are and how they are read.

tinyint .. bigint  int             string      str         timestamp      datetime in UTC
float, double      float           boolean     bool        timestamp_ntz  datetime without zone
decimal(p,s)       Decimal         binary      bytes       date           date
array<t>, map<..>  list, dict      struct<..>  dict        interval       timedelta
"""

from __future__ import annotations

import re
import struct
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from functools import lru_cache
from typing import Final

from millstream.clock import EPOCH, MICROSECOND
from millstream.errors import EventRefused
from millstream.flow import ddl
from millstream.flow.schema import Schema
from millstream.patterns.history import Value

BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
EPOCH_NTZ: Final = EPOCH.replace(tzinfo=None)
EPOCH_DAY: Final = date(1970, 1, 1)
#: Room for every product of two decimals, and for every double.
DIGITS: Final = Context(prec=80, rounding=ROUND_HALF_UP)
WIDE: Final = Context(prec=800, rounding=ROUND_HALF_UP)
_DECIMAL: Final = re.compile(r"decimal\((\d+),(-?\d+)\)")

Read = Callable[[Value], Value]


def precision(kind: str) -> tuple[int, int]:
    """Return the precision and scale of a decimal type."""
    found = _DECIMAL.fullmatch(kind)
    assert found is not None, kind
    return int(found[1]), int(found[2])


def is_decimal(kind: str | None) -> bool:
    return kind is not None and kind.startswith("decimal(")


def element_of(kind: str) -> str:
    """Return the type of an array's elements."""
    return kind.removeprefix("array<").removesuffix(">")


def value_of(kind: str) -> str:
    """Return the type of a map's values."""
    return ddl.split_types(kind.removeprefix("map<").removesuffix(">"))[1]


def fields_of(kind: str) -> dict[str, str]:
    """Return the fields of a struct, in order."""
    return dict(ddl.parse_columns(kind.removeprefix("struct<").removesuffix(">")))


def micros_of(value: Value) -> Value:
    """Return times, dates and lengths of time as whole microseconds, others as they are."""
    match value:
        case datetime():
            return (value - (EPOCH_NTZ if value.tzinfo is None else EPOCH)) // MICROSECOND
        case date():
            return (value - EPOCH_DAY) // MICROSECOND
        case timedelta():
            return value // MICROSECOND
    return value


def single(value: float) -> float:
    """Return a number as precise as Spark's float."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0]  # type: ignore[no-any-return]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


# Rows as they come


def coerced(row: Mapping[str, Value], schema: Schema) -> dict[str, Value]:
    """Return a row with a schema's columns, their values as its types: ISO texts become times.

    Columns that the row lacks are null; what is no column is left out.

    Raises:
        EventRefused: A value is not of its column's type.
    """
    known = _KNOWN.get(id(schema))
    if known is None or known[0] is not schema:
        if len(_KNOWN) > 64:
            _KNOWN.clear()
        known = _KNOWN[id(schema)] = schema, coercer(schema)
    return known[1](row)


def coercer(schema: Schema) -> Coerce:
    """Return the function that does what `coerced` does, for rows of one schema."""
    columns = _columns(schema)

    def coerce(row: Mapping[str, Value]) -> dict[str, Value]:
        get, found = row.get, {}
        for name, plain, read, kind in columns:
            value = get(name)
            if value is not None and type(value) is not plain:
                try:
                    value = read(value)
                except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
                    fact = f'column "{name}" of an event is {value!r:.80}, which is no {kind}'
                    raise EventRefused(fact, hint=str(error) or None) from None
            found[name] = value
        return found

    return coerce


Coerce = Callable[[Mapping[str, Value]], dict[str, Value]]
_Columns = tuple[tuple[str, type | None, Read, str], ...]
#: What reads a schema that was used, by its id: comparing schemas would cost more than a row.
_KNOWN: Final[dict[int, tuple[Schema, Coerce]]] = {}
#: What values of a type are as they come, if they are that already.
_PLAINLY: Final[dict[str, type]] = {"string": str, "double": float, "boolean": bool}


def _columns(schema: Schema) -> _Columns:
    return tuple(
        (
            field.name,
            _PLAINLY.get(str(field.type)),
            _as_it_is if field.type is None else reader(field.type),
            str(field.type),
        )
        for field in schema
    )


def _as_it_is(value: Value) -> Value:
    return value


@lru_cache(maxsize=256)
def reader(kind: str) -> Read:
    """Return the function that reads values of a type as JSON or Python have them.

    It raises a ValueError with a hint for what is no such value.
    """
    if kind in BITS:
        return _whole(BITS[kind])
    if is_decimal(kind):
        return _decimal(*precision(kind))
    if kind.startswith("array<"):
        return _list(reader(element_of(kind)))
    if kind.startswith("map<"):
        key, value = map(reader, ddl.split_types(kind.removeprefix("map<").removesuffix(">")))
        return lambda found: {
            key(one): None if other is None else value(other) for one, other in found.items()
        }
    if kind.startswith("struct<"):
        return _struct({name: reader(inner) for name, inner in fields_of(kind).items()})
    return _PLAIN[kind]


def _whole(bits: int) -> Read:
    bound = 1 << (bits - 1)

    def read(value: Value) -> int:
        if type(value) is not int:
            raise ValueError("it must be a whole number")
        if not -bound <= value < bound:
            raise ValueError(f"it must be from {-bound} to {bound - 1}")
        return value

    return read


def _decimal(digits: int, scale: int) -> Read:
    step = Decimal(1).scaleb(-scale)

    def read(value: Value) -> Decimal:
        if isinstance(value, bool | float) or not isinstance(value, int | str | Decimal):
            raise ValueError("give a decimal number as text, so that no digit is lost")
        try:
            found = Decimal(value).quantize(step, context=DIGITS)
        except DecimalException:
            raise ValueError("it must be a decimal number") from None
        if found != Decimal(value) or abs(found) >= Decimal(10) ** (digits - scale):
            raise ValueError("it has too many digits")
        return found

    return read


def _list(read: Read) -> Read:
    def items(value: Value) -> list[Value]:
        if not isinstance(value, list | tuple):
            raise ValueError("it must be a list")
        return [None if one is None else read(one) for one in value]

    return items


def _struct(readers: dict[str, Read]) -> Read:
    def fields(value: Value) -> dict[str, Value]:
        if not isinstance(value, Mapping):
            raise ValueError("it must have fields")
        return {
            name: None if (inner := value.get(name)) is None else read(inner)
            for name, read in readers.items()
        }

    return fields


def _number(value: Value) -> float:
    if isinstance(value, bool) or not isinstance(value, float | int):
        if value in ("NaN", "Infinity", "-Infinity"):  # JSON has no numbers for them
            return float(value)
        raise ValueError("it must be a number")
    return float(value)


def _of(kind: type, what: str) -> Read:
    def read(value: Value) -> Value:
        if not isinstance(value, kind):
            raise ValueError(f"it must be {what}")
        return value

    return read


def _bytes(value: Value) -> bytes:
    if isinstance(value, str):
        return b64decode(value, validate=True)
    return bytes(_of(bytes | bytearray | memoryview, "bytes, or text in base64")(value))  # type: ignore[arg-type]


def _time(value: Value) -> datetime:
    """Return a moment; without a zone it is taken for UTC, as links take it."""
    found = _moment(value)
    if found.tzinfo is UTC:
        return found
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _time_without_zone(value: Value) -> datetime:
    found = _moment(value)
    return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)


def _moment(value: Value) -> datetime:
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("write times as 2026-11-16T09:30:00Z") from None
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    raise ValueError("write times as 2026-11-16T09:30:00Z")


def _day(value: Value) -> date:
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            raise ValueError("write dates as 2026-11-16") from None
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    raise ValueError("write dates as 2026-11-16")


_PLAIN: Final[dict[str, Read]] = {
    "float": lambda value: single(_number(value)),
    "double": _number,
    "string": _of(str, "text"),
    "boolean": _of(bool, "true or false"),
    "binary": _bytes,
    "timestamp": _time,
    "timestamp_ntz": _time_without_zone,
    "date": _day,
}
