"""Axes: where ticks go and how they are written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

AxisKind = Literal["date", "elapsed", "hour", "number"]
_DAY = 86_400.0
_STEPS_MS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400)


@dataclass(frozen=True, slots=True)
class Tick:
    """A place on an axis, and its label."""

    at: float
    label: str


def ticks(kind: AxisKind, low: float, high: float, about: int = 6) -> list[Tick]:
    """Return roughly `about` ticks between `low` and `high`; dates are in seconds since 1970."""
    match kind:
        case "date":
            return _date_ticks(low, high, about)
        case "elapsed":
            step = next((s for s in _STEPS_S if (high - low) / s <= about), _STEPS_S[-1])
            return [Tick(at, elapsed(at)) for at in _multiples(low, high, step)]
        case "hour":
            step = next(s for s in (1, 2, 3, 4, 6, 24) if (high - low) / s <= about or s == 24)
            return [Tick(at, f"{int(at):02}:00") for at in _multiples(low, high, step)]
        case "number":
            return [
                Tick(at, number(at))
                for at in _multiples(low, high, _nice((high - low) / max(1, about)))
            ]


def rounded_up(high: float, about: int = 5) -> float:
    """Return the end of an axis from 0 to at least `high`: a whole number of its steps."""
    if high <= 0:
        return 1.0
    step = _nice(high / about)
    return step * math.ceil(high / step - 1e-9)


def written(kind: AxisKind, at: float) -> str:
    """Return a place on an axis as full text."""
    match kind:
        case "date":
            return _moment(at).strftime("%Y-%m-%d")
        case "elapsed":
            return elapsed(at)
        case "hour":
            return f"{int(at):02}:00"
        case "number":
            return number(at)


def number(value: float) -> str:
    """Return a number as short text: 950, 12.5, 4,200, 336k, 1.2M.

    >>> [number(value) for value in (0, 12.5, 4200, 336_776, 1_200_000)]
    ['0', '12.5', '4,200', '337k', '1.2M']
    """
    size = abs(value)
    if size >= 1e6:
        return f"{_short(value / 1e6)}M"
    if size >= 1e4:
        return f"{_short(value / 1e3)}k"
    return f"{value:,.0f}" if size >= 100 or value == int(value) else _short(value)


def elapsed(seconds: float) -> str:
    """Return a duration as text: 45 s, 1:30 min, 2:05 h.

    >>> [elapsed(value) for value in (45, 90, 7500)]
    ['45 s', '1:30 min', '2:05 h']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole // 60 % 60:02} h"


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"


def _nice(raw: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least `raw`."""
    if raw <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(raw))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= raw * (1 - 1e-9))


def _multiples(low: float, high: float, step: float) -> Sequence[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _date_ticks(low: float, high: float, about: int) -> list[Tick]:
    days = (high - low) / _DAY
    if days > 62:
        return _month_ticks(low, high, about)
    if days < about / 3:
        return _clock_ticks(low, high, about)
    step = next((s for s in (1, 2, 7, 14) if days / s <= about), 14) * _DAY
    return [Tick(at, _moment(at).strftime("%-d %b")) for at in _multiples(low, high, step)]


def _clock_ticks(low: float, high: float, about: int) -> list[Tick]:
    step = next(s for s in (*_STEPS_MS, *_STEPS_S, _DAY) if (high - low) / s <= about or s == _DAY)
    return [Tick(at, _clock(at, step)) for at in _multiples(low, high, step)]


def _clock(at: float, step: float) -> str:
    """Return a time of day as precise as the step needs; midnight is the new day."""
    if at % _DAY == 0:
        return _moment(at).strftime("%-d %b")
    if step < 1:
        return f"{_moment(at):%H:%M:%S}.{round(at % 1 * 1000):03}"
    return _moment(at).strftime("%H:%M" if step >= 60 else "%H:%M:%S")


def _month_ticks(low: float, high: float, about: int) -> list[Tick]:
    found = []
    month = _moment(low).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    while month.timestamp() <= high:
        if month.timestamp() >= low:
            found.append(
                Tick(month.timestamp(), month.strftime("%b %Y" if month.month == 1 else "%b"))
            )
        month = (month + timedelta(days=32)).replace(day=1)
    return found[:: max(1, math.ceil(len(found) / max(1, about)))]


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
