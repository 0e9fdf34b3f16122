"""JSON with checksums: small files as a whole, or lines `<16 hex digits> <JSON>` that are appended.

A crash can leave the lines that were not synced torn, at the end. An unsound line *before* sound
ones is damage: who reads such a file keeps the sound ones, and cuts nothing that follows a sound
line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xxhash


def checksum_of(body: bytes) -> str:
    return f"{xxhash.xxh3_64_intdigest(body):016x}"


def with_checksum(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with its checksum in the field `checksum`."""
    return {**body, "checksum": _canonical(body)}


def checked(body: Any) -> dict[str, Any]:
    """Return an object without its checksum, if it is right; files of 0.1 have none.

    Raises:
        ValueError: It is wrong.
    """
    rest = dict(body)
    expected = rest.pop("checksum", None)
    if expected is not None and expected != _canonical(rest):
        raise ValueError("the checksum is wrong")
    return rest


def _canonical(body: Mapping[str, Any]) -> str:
    return checksum_of(json.dumps(body, separators=(",", ":"), sort_keys=True).encode())


def checked_line(value: object) -> bytes:
    """Return a value as a line of JSON that carries its checksum."""
    body = json.dumps(value, separators=(",", ":")).encode()
    return checksum_of(body).encode() + b" " + body + b"\n"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file; the value of an unsound one is None."""

    offset: int
    stop: int
    sound: bool
    value: object = None


def parse_lines(raw: bytes) -> list[Line]:
    """Return all lines, sound or not; an unfinished one at the end is unsound."""
    found, at = [], 0
    while at < len(raw):
        stop = raw.find(b"\n", at)
        end = len(raw) if stop < 0 else stop
        checksum, _, body = raw[at:end].partition(b" ")
        sound = stop >= 0 and checksum == checksum_of(body).encode()
        found.append(Line(at, end + 1, sound, json.loads(body) if sound else None))
        at = end + 1
    return found


def sound_values(lines: Sequence[Line]) -> list[object]:
    """Return the values of the sound lines, also of those after unsound ones."""
    return [line.value for line in lines if line.sound]


def sound_prefix(lines: Sequence[Line]) -> list[object]:
    """Return the values of the lines before the first unsound one."""
    first = next((number for number, line in enumerate(lines) if not line.sound), len(lines))
    return [line.value for line in lines[:first]]


def sound_end(lines: Sequence[Line]) -> int:
    """Return where the last sound line ends: what follows was torn by a crash."""
    return max((line.stop for line in lines if line.sound), default=0)


def damaged_lines(lines: Sequence[Line]) -> list[Line]:
    """Return the unsound lines that sound ones follow: no crash leaves those."""
    end = sound_end(lines)
    return [line for line in lines if not line.sound and line.offset < end]
