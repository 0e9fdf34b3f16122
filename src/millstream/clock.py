"""The clock, as an argument."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)


class Clock(Protocol):
    """Returns the time; tests have their own."""

    def now_us(self) -> int:
        """Return microseconds since 1970 in UTC."""
        ...

    def elapsed_us(self) -> int:
        """Return microseconds since some moment: these only rise, and do not jump."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def elapsed_us(self) -> int:
        return time.monotonic_ns() // 1000


class ManualClock:
    """A clock that a test advances."""

    def __init__(self, now_us: int = 0) -> None:
        self._now = self._elapsed = now_us

    def now_us(self) -> int:
        return self._now

    def elapsed_us(self) -> int:
        return self._elapsed

    def advance_us(self, step: int) -> None:
        self._now += step
        self._elapsed += step

    def jump_us(self, step: int) -> None:
        """Set it forward, or back, as somebody does to a machine's clock."""
        self._now += step


def micros(moment: str | datetime) -> int:
    """Return a moment as microseconds since 1970; text and naive datetimes are in UTC."""
    at = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    whole = int(at.replace(microsecond=0).timestamp())
    return whole * 1_000_000 + at.microsecond


def moment_of(us: int) -> datetime:
    """Return microseconds since 1970 as a moment in UTC."""
    return EPOCH + us * MICROSECOND


def iso(seconds: float) -> str:
    """Return seconds since 1970 as ISO 8601 in UTC, to the millisecond."""
    at = datetime.fromtimestamp(seconds, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
