"""A complex event: what a watcher found, as its outputs give it to others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Final

import msgspec

from millstream.clock import moment_of

#: The columns that stand beside those that the pattern emits.
RUN, PATTERN, DEVICE = "run", "pattern", "device"
BESIDE: Final = (RUN, PATTERN, DEVICE)


@dataclass(frozen=True, slots=True)
class ComplexEvent(Mapping[str, Any]):
    """A match: its columns by name, and the run that found it.

    `run` is the same on every device that completes this run, and never another run's: who counts
    each value of it once counts each match once. `at` is the moment at which it is certain.
    """

    run: str
    pattern: str
    device: str
    at: int
    columns: Mapping[str, Any]

    @property
    def row(self) -> dict[str, Any]:
        """The columns, with run, pattern and device; a column of the pattern's goes before ours."""
        ours = {RUN: self.run, PATTERN: self.pattern, DEVICE: self.device}
        return ours | dict(self.columns)

    def __getitem__(self, name: str) -> Any:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


def run_text(run: object) -> str:
    """Return a short text for the id of a run: equal for equal ids, on all devices.

    Example:
        >>> run_text(("hot", ("s1",), ("A", 1), ())) == run_text(("hot", ("s1",), ("A", 1), ()))
        True
    """
    return blake2b(msgspec.msgpack.encode(run, enc_hook=jsonable), digest_size=16).hexdigest()


def encoded(row: Mapping[str, Any]) -> bytes:
    """Return a row as JSON, with times in ISO 8601 and NaN as text, as sources of JSON read it."""
    return msgspec.json.encode(
        {name: _value(value) for name, value in row.items()}, enc_hook=jsonable
    )


def jsonable(value: object) -> Any:
    """Return what stands for a value that JSON does not have."""
    if isinstance(value, timedelta):
        return value / timedelta(microseconds=1)
    return str(value)


def _value(value: Any) -> Any:
    kind = type(value)
    if kind is float and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if kind is list or kind is tuple:
        return [_value(one) for one in value]
    if kind is dict:
        return {str(name): _value(one) for name, one in value.items()}
    if isinstance(value, datetime | date | Decimal):
        return value.isoformat() if isinstance(value, date) else str(value)
    return value


def moment_text(at: int) -> str:
    """Return microseconds since 1970 in ISO 8601."""
    return moment_of(at).isoformat()
