"""Any value as JSON can hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def jsonable(value: object) -> Any:
    """Return a value as JSON can hold it; what JSON does not know becomes its text."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [jsonable(item) for item in value]
        case Mapping():
            return {str(key): jsonable(item) for key, item in value.items()}
    return repr(value)
