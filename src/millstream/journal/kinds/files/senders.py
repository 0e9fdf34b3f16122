"""The senders of a partition: index entries hold numbers, this file their names.

One line each, with a checksum: `<16 hex digits> <name as JSON>`. A sender's number is its line.
"""

from __future__ import annotations

import json
from pathlib import Path

import xxhash

from millstream.storage.disk import Disk


def senders_file(folder: Path) -> Path:
    return folder / "senders"


def checked_line(value: object) -> bytes:
    """Return a value as a line of JSON that carries its checksum."""
    body = json.dumps(value, separators=(",", ":")).encode()
    return f"{xxhash.xxh3_64_intdigest(body):016x} ".encode() + body + b"\n"


def checked_lines(raw: bytes) -> tuple[list[object], int]:
    """Return the values of the sound lines at the beginning, and how many bytes they take."""
    values: list[object] = []
    used = 0
    while (stop := raw.find(b"\n", used)) >= 0:
        line = raw[used:stop]
        checksum, _, body = line.partition(b" ")
        if checksum != f"{xxhash.xxh3_64_intdigest(body):016x}".encode():
            break
        values.append(json.loads(body))
        used = stop + 1
    return values, used


def read_senders(folder: Path) -> list[str]:
    """Return the names by number."""
    try:
        values, _ = checked_lines(senders_file(folder).read_bytes())
    except FileNotFoundError:
        return []
    return [str(value) for value in values]


class Senders:
    """The writer's side: gives new senders a number, durable before any entry holds it."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        path = senders_file(folder)
        self._file = disk.open(path)
        values, used = checked_lines(path.read_bytes())
        if used < self._file.size():
            self._file.truncate(used)
        # Whoever wrote these lines may have been killed before it synced them.
        self._file.sync()
        disk.sync_folder(folder)
        self.names = [str(value) for value in values]
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._unwritten: list[bytes] = []

    def find(self, name: str) -> int | None:
        return self._numbers.get(name)

    def number(self, name: str) -> int:
        """Return a sender's number, a new one if it has none."""
        number = self._numbers.get(name)
        if number is None:
            number = len(self.names)
            self.names.append(name)
            self._numbers[name] = number
            self._unwritten.append(checked_line(name))
        return number

    def take(self) -> list[bytes]:
        """Return the lines not handed out yet, for `write`."""
        lines, self._unwritten = self._unwritten, []
        return lines

    def write(self, lines: list[bytes]) -> None:
        """Make lines durable."""
        if lines:
            self._file.append(lines)
            self._file.sync()

    def close(self) -> None:
        self._file.close()
