"""Rows as JSON, for people and for `millstream send`: dead letters, and what `journal cat` prints.

    times           ISO 8601, with the year's sign where it has more than four digits
    NaN, Infinity   the texts "NaN", "Infinity" and "-Infinity": JSON has no such numbers
    binary          base64
    decimal         text
    map             an object

Sources read all of these back.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as JSON can hold them."""
    try:
        rows = batch.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, ValueError):  # a time that Python's calendar does not have
        names = batch.schema.names
        columns = [[_value(scalar) for scalar in column] for column in batch.columns]
        rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    return [{name: plain(value) for name, value in row.items()} for row in rows]


def as_json(row: dict[str, Any]) -> str:
    """Return a row of `rows_of` as a line of JSON in ASCII, for terminals."""
    return json.dumps(row, allow_nan=False)


def records(batch: pa.RecordBatch) -> list[str]:
    """Return rows as lines of JSON, for dead letters."""
    return [json.dumps(row, allow_nan=False, ensure_ascii=False) for row in rows_of(batch)]


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if pa.types.is_timestamp(scalar.type):
            return iso(scalar.value, scalar.type.unit)
        return f"a value of type {scalar.type}"


def iso(moment: int, unit: Literal["s", "ms", "us", "ns"] = "us") -> str:
    """Return a moment since 1970 as ISO 8601, whatever its year."""
    text = str(np.datetime64(moment, unit))
    return text if text.startswith("-") or len(text.partition("-")[0]) == 4 else f"+{text}"


def plain(value: object) -> Any:
    """Return a value as JSON can hold it."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case None | bool() | int() | float() | str():
            return value
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(plain(key)): plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
    return str(value)
