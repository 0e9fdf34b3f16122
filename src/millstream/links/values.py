"""A user's Python values as Arrow columns: exactly what they say, or refused.

Arrow reads much of what it is given: 1.5 as the integer 1, 5 as five microseconds after 1970, a
moment as its day. Here the types of a column's values are looked at first, all at once, and only
those pass that mean the same afterwards:

    bigint       int, not True, not 1.0          timestamp   datetime (no zone: UTC), date, ISO text
    double       float, int                      date        date, ISO text
    decimal      Decimal, int                    array       list, tuple, numpy array
    string       str                             map         dict, list of pairs
    binary       bytes                           struct      dict, dataclass

numpy's scalars count as what they hold. None and pandas' NA and NaT are null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millstream.errors import UnknownType
from millstream.flow.arrow import spark_type

Values = Sequence[Any]

_FAILURES: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)
_LOST_DIGITS: Final = re.compile(r"[.,]\d{6}0*[1-9]")


class Unfit(Exception):
    """A value that its column cannot hold; `column` has the names of the fields around it."""

    def __init__(
        self, column: str, value: object, kind: pa.DataType, hint: str | None = None
    ) -> None:
        super().__init__(column)
        self.column, self.value, self.kind, self.hint = column, value, kind, hint

    @property
    def wanted(self) -> str:
        try:
            return spark_type(self.kind)
        except UnknownType:
            return str(self.kind)


class UnknownField(Exception):
    """A field that a struct does not have."""

    def __init__(self, column: str, field: str, known: list[str]) -> None:
        super().__init__(field)
        self.column, self.field, self.known = column, field, known


def column(values: Values, kind: pa.DataType, name: str) -> pa.Array:
    """Return the values as an array of that type.

    Raises:
        Unfit: One of them is something else; which one is not searched for here, except in nested
            values.
        UnknownField: A struct has a field too many.
    """
    if pa.types.is_struct(kind):
        return _structs(values, kind, name)
    if pa.types.is_map(kind):
        return _maps(values, kind, name)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(values, kind, name)
    return _scalars(values, kind, name)


# scalars

_PLAIN: Final[dict[str, tuple[type, ...]]] = {
    "integer": (int,),
    "floating": (float, int),
    "boolean": (bool,),
    "string": (str,),
    "binary": (bytes, bytearray, memoryview),
    "decimal": (Decimal, int),
    "timestamp": (datetime,),
    "date": (date,),
}


@lru_cache(maxsize=256)
def _family(kind: pa.DataType) -> str | None:
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return "string" if pa.types.is_large_string(kind) else "binary"
    tests: dict[str, Callable[[pa.DataType], bool]] = {
        one: getattr(pa.types, f"is_{one}") for one in _PLAIN
    }
    return next((one for one, test in tests.items() if test(kind)), None)


def _scalars(values: Values, kind: pa.DataType, name: str) -> pa.Array:
    family = _family(kind)
    if family is not None and not set(map(type, values)) <= {type(None), *_PLAIN[family]}:
        values = [_held(value, family, kind, name) for value in values]
    try:
        return pa.array(values, type=kind)
    except _FAILURES:
        return _one_by_one(values, kind, name)


def _one_by_one(values: Values, kind: pa.DataType, name: str) -> pa.Array:
    """Convert each value alone, to find the one that cannot be."""
    found = []
    for value in values:
        try:
            found.append(pa.array([value], type=kind))
        except _FAILURES as exc:
            raise Unfit(name, value, kind, hint=str(exc)) from exc
    return pa.concat_arrays(found)


def _held(value: Any, family: str, kind: pa.DataType, name: str) -> Any:
    """Return a value of a type that Arrow reads as it is meant."""
    if missing(value):
        return None
    if isinstance(value, np.generic):
        value = _unboxed(value, kind, name)
    if isinstance(value, _PLAIN[family]) and not _mistaken(value, family):
        return value
    if isinstance(value, str) and family in {"timestamp", "date"}:
        return _moment(value, family, kind, name)
    if family == "timestamp" and isinstance(value, date) and not isinstance(value, datetime):
        return datetime.combine(value, time(), UTC)
    if value is None:
        return None
    raise Unfit(name, value, kind, hint=_advice(value, family))


def _mistaken(value: Any, family: str) -> bool:
    """Tell whether a value of the right class means something else: True is an int."""
    if isinstance(value, bool):
        return family != "boolean"
    if isinstance(value, datetime):
        return family == "date" or bool(getattr(value, "nanosecond", 0))
    return False


def missing(value: object) -> bool:
    """Whether a value is None, or pandas' NA or NaT."""
    return value is None or (
        type(value).__name__ in {"NAType", "NaTType"} and type(value).__module__[:7] == "pandas."
    )


def _unboxed(value: np.generic, kind: pa.DataType, name: str) -> Any:
    if not isinstance(value, np.datetime64):
        return value.item()
    moment = value.astype("datetime64[us]")
    if not np.isnat(value) and moment != value:
        raise Unfit(name, value, kind, hint="times have microseconds, and this one has more digits")
    return moment.item()


def _moment(text: str, family: str, kind: pa.DataType, name: str) -> date:
    if _LOST_DIGITS.search(text):
        raise Unfit(name, text, kind, hint="times have microseconds, and this one has more digits")
    try:
        return datetime.fromisoformat(text) if family == "timestamp" else date.fromisoformat(text)
    except ValueError as exc:
        hint = 'ISO 8601 is read, such as "2024-05-04T09:00:00Z"'
        raise Unfit(name, text, kind, hint=hint) from exc


def _advice(value: object, family: str) -> str | None:
    numbers = {"integer", "floating", "decimal"}
    if isinstance(value, str) and family in numbers:
        return "text is not read as a number: convert it first"
    if isinstance(value, bool) and family in numbers:
        return "True and False are not numbers: use int()"
    if isinstance(value, float) and family in {"integer", "decimal"}:
        if family == "integer":
            return "round it, or declare the column double"
        return "use decimal.Decimal"
    if isinstance(value, (int, float)) and family in {"timestamp", "date"}:
        return 'a number has no unit: send a datetime, or text such as "2024-05-04T09:00:00Z"'
    if isinstance(value, datetime):
        if family == "date":
            return "send its .date()"
        return "times have microseconds, and this one has more digits"
    if isinstance(value, (bytes, bytearray)) and family == "string":
        return "decode it first"
    return "encode it first" if isinstance(value, str) and family == "binary" else None


# nested


def _lists(values: Values, kind: pa.DataType, name: str) -> pa.Array:
    lists = [_sequence(value, kind, name) for value in values]
    inner = column(
        [one for value in lists if value is not None for one in value], kind.value_type, f"{name}[]"
    )
    make = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    width = pa.int64() if pa.types.is_large_list(kind) else pa.int32()
    return make.from_arrays(pa.array(_offsets(lists), type=width), inner, type=kind)


def _sequence(value: Any, kind: pa.DataType, name: str) -> Sequence[Any] | None:
    if missing(value):
        return None
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim):
        return value  # type: ignore[return-value]
    raise Unfit(name, value, kind)


def _offsets(sized: Iterable[Sequence[Any] | None]) -> list[int | None]:
    """Return where each list begins and the last one ends; None marks one that is null."""
    offsets: list[int | None] = []
    end = 0
    for one in sized:
        offsets.append(None if one is None else end)
        end += 0 if one is None else len(one)
    return [*offsets, end]


def _maps(values: Values, kind: pa.DataType, name: str) -> pa.Array:
    maps = [_pairs(value, kind, name) for value in values]
    pairs = [pair for value in maps if value is not None for pair in value]
    keys = column([key for key, _ in pairs], kind.key_type, f"{name}[key]")
    items = column([item for _, item in pairs], kind.item_type, f"{name}[]")
    if keys.null_count:
        raise Unfit(f"{name}[key]", None, kind.key_type, hint="a key of a map cannot be null")
    return pa.MapArray.from_arrays(
        pa.array(_offsets(maps), type=pa.int32()), keys, items, type=kind
    )


def _pairs(value: Any, kind: pa.DataType, name: str) -> list[tuple[Any, Any]] | None:
    if missing(value):
        return None
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, (list, tuple)) and all(
        isinstance(one, (list, tuple)) and len(one) == 2 for one in value
    ):
        return [(one[0], one[1]) for one in value]
    raise Unfit(name, value, kind)


def _structs(values: Values, kind: pa.DataType, name: str) -> pa.Array:
    rows = [None if missing(value) else _named(value, kind, name) for value in values]
    known = [field.name for field in kind]
    for row in rows:
        if row is not None and not row.keys() <= set(known):
            extra = next(one for one in row if one not in known)
            raise UnknownField(name, str(extra), known)
    children = [
        column(
            [None if row is None else row.get(field.name) for row in rows],
            field.type,
            f"{name}.{field.name}",
        )
        for field in kind
    ]
    mask = pa.array([row is None for row in rows], type=pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


def _named(value: Any, kind: pa.DataType, name: str) -> Mapping[str, Any]:
    found = as_mapping(value)
    if found is None:
        raise Unfit(name, value, kind)
    return found


def as_mapping(value: object) -> Mapping[str, Any] | None:
    """Return a dict's or a dataclass instance's fields, and None of anything else."""
    if isinstance(value, Mapping):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return None
