"""The clock, as an argument."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time; tests bring their own."""

    def now_us(self) -> int:
        """Return microseconds since 1970 in UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        return time.time_ns() // 1000


class ManualClock:
    """A clock that moves when it is told to."""

    def __init__(self, now_us: int = 0) -> None:
        self._now = now_us

    def now_us(self) -> int:
        return self._now

    def advance_us(self, step: int) -> None:
        self._now += step


def micros(moment: str | datetime) -> int:
    """Return a moment as microseconds since 1970; text and naive datetimes are in UTC."""
    at = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    whole = int(at.replace(microsecond=0).timestamp())
    return whole * 1_000_000 + at.microsecond
