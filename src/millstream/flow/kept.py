"""What a fold with declared states keeps, checked; executors import this, and little else."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final

#: Names of states, each with its columns and their types.
Kept = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]

_ARRAY: Final = re.compile(r"array<(.+)>")
_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_KINDS: Final[dict[str, type]] = {"string": str, "boolean": bool, "binary": bytes}


def conformed(states: Kept, value: Any) -> dict[str, Any]:
    """Return what a step keeps, with all columns; a number of a double column as a float.

    Raises:
        ValueError: It does not have the declared states and columns.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"it keeps {value!r}, not a mapping of its states")
    unknown = [name for name in value if name not in {state for state, _ in states}]
    if unknown:
        raise ValueError(f'it keeps a state "{unknown[0]}", which is not declared')
    return {state: _columns(state, columns, value.get(state)) for state, columns in states}


def _columns(state: str, columns: tuple[tuple[str, str], ...], value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f'it keeps {value!r} as "{state}", not a mapping of columns')
    known = [name for name, _ in columns]
    unknown = [name for name in value if name not in known]
    if unknown:
        raise ValueError(f'state "{state}" has no column "{unknown[0]}"')
    return {name: _checked(state, name, kind, value.get(name)) for name, kind in columns}


def _checked(state: str, column: str, kind: str, value: Any) -> Any:
    check = check_of(kind)
    assert check is not None, "it was checked when it was declared"
    if value is None:
        return None
    if not check(value):
        raise ValueError(f'"{state}.{column}" is {kind}, and cannot hold {value!r}')
    return float(value) if kind in ("double", "float") else value


@cache
def check_of(kind: str) -> Callable[[Any], bool] | None:
    """Return what tells whether a value is of a type; None if that type cannot be kept."""
    if kind in _BITS:
        most = 1 << (_BITS[kind] - 1)
        return lambda value: type(value) is int and -most <= value < most
    if kind in ("double", "float"):
        return lambda value: type(value) in (int, float)
    if kind == "timestamp":
        return lambda value: isinstance(value, datetime) and value.tzinfo is not None
    if kind in _KINDS:
        expected = _KINDS[kind]
        return lambda value: type(value) is expected
    if (array := _ARRAY.fullmatch(kind)) is not None:
        inside = check_of(array[1])
        if inside is None:
            return None
        return lambda value: (
            type(value) is list and all(one is None or inside(one) for one in value)
        )
    return None
