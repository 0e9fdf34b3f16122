"""Lengths of time, as people write them."""

from __future__ import annotations

import re
from datetime import timedelta

from millstream.errors import InvalidDuration

# The last word is timedelta's.
_UNITS = {
    "us": ("microsecond", "microseconds"),
    "ms": ("millisecond", "milliseconds"),
    "s": ("sec", "secs", "second", "seconds"),
    "min": ("m", "mins", "minute", "minutes"),
    "h": ("hr", "hrs", "hour", "hours"),
    "d": ("day", "days"),
    "w": ("week", "weeks"),
}
_LENGTHS = {unit: timedelta(**{words[-1]: 1}) for unit, words in _UNITS.items()}
_BY_WORD = {word: unit for unit, words in _UNITS.items() for word in (unit, *words)}
_SHOWN = ("d", "h", "min", "s", "ms", "us")
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-zµ]+)\s*")
_HINT = 'write a number and a unit, like "500 ms", "30 seconds", "1 hour" or "1 h 30 min"'


def duration(value: str | timedelta) -> timedelta:
    """Return the length of time that `value` says: "1 hour", "90 s", "1 h 30 min" or a timedelta.

    Raises:
        InvalidDuration: It cannot be read, or is negative.
    """
    if isinstance(value, timedelta):
        return _not_negative(value, str(value))
    if not isinstance(value, str):
        raise InvalidDuration(f"{value!r} is not a length of time", hint=_HINT)
    return _not_negative(_parse(value), value)


def _not_negative(length: timedelta, text: str) -> timedelta:
    if length < timedelta(0):
        raise InvalidDuration(f'the length of time "{text}" is negative', hint=_HINT)
    return length


def _parse(text: str) -> timedelta:
    sign, rest = (-1, text.strip()[1:]) if text.strip().startswith("-") else (1, text)
    total, at = timedelta(0), 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None:
            raise InvalidDuration(f'"{text}" is not a length of time', hint=_HINT)
        total += _length(part, text)
        at = part.end()
    if at == 0:
        raise InvalidDuration("a length of time is empty", hint=_HINT)
    return sign * total


def _length(part: re.Match[str], text: str) -> timedelta:
    number, word = part.groups()
    unit = _BY_WORD.get(word.lower().replace("µ", "u"))
    if unit is None:
        msg = f'"{word}" in "{text}" is not a unit of time'
        raise InvalidDuration(msg, hint=f"units are {', '.join(_LENGTHS)}")
    try:
        # A whole number goes first: floats lose microseconds in long times.
        return _LENGTHS[unit] * (int(number) if number.isdigit() else float(number))
    except OverflowError as error:
        raise InvalidDuration(f'the length of time "{text}" is too long', hint=_HINT) from error


def format(length: timedelta) -> str:  # noqa: A001  (durations.format reads well)
    """Return `length` in short words: "1 h 30 min"."""
    sign, rest = ("-", -length) if length < timedelta(0) else ("", length)
    parts = []
    for unit in _SHOWN:
        count, rest = divmod(rest, _LENGTHS[unit])
        if count:
            parts.append(f"{count} {unit}")
    return sign + " ".join(parts) if parts else "0 s"
