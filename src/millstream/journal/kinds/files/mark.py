"""The mark: how far an index is known to be synced.

An index entry can be seen by other processes as soon as it is written, which is before it is
synced: a reader that trusted it could hand out rows that a loss of power takes back. So the writer
sets the mark after the sync, and readers go by the mark alone. It needs no sync of its own: what is
on the disk is always true, at worst old, and the next writer sets it right.

Two slots are written in turn, each with a checksum: of a slot that is being written, or was torn,
the other stands.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

import xxhash

from millstream.storage.disk import Disk

_SLOT = struct.Struct("<QQQQQ")
_SUM = struct.Struct("<Q")
SLOT = 64
_BEGINS = (0, SLOT)
SIZE = 2 * SLOT


@dataclass(frozen=True, slots=True)
class Mark:
    """`entries` of the segment at `segment` are synced, so the partition's end is `end`."""

    turn: int
    segment: int
    entries: int
    end: int
    generation: int


def mark_file(folder: Path) -> Path:
    return folder / "mark"


class MarkWriter:
    """Sets the mark of one partition."""

    def __init__(self, folder: Path, disk: Disk, generation: int) -> None:
        raw = _content(folder)
        last = parse(raw)
        #: A slot that is damaged, or was torn by a crash, is written again with the first mark.
        self._both = bool(damaged_slots(raw))
        self._file = disk.open(mark_file(folder))
        if self._file.size() < SIZE:
            self._file.truncate(SIZE)
        self._turn = 0 if last is None else last.turn
        self._generation = generation

    def set(self, segment: int, entries: int, end: int) -> None:
        self._write(segment, entries, end)
        if self._both:
            self._write(segment, entries, end)
            self._both = False

    def _write(self, segment: int, entries: int, end: int) -> None:
        self._turn += 1
        body = _SLOT.pack(self._turn, segment, entries, end, self._generation)
        slot = (body + _SUM.pack(xxhash.xxh3_64_intdigest(body))).ljust(SLOT, b"\0")
        self._file.write_at(SLOT * (self._turn % 2), slot)

    def close(self) -> None:
        self._file.close()


class MarkReader:
    """Looks at the mark of one partition: cheap enough to ask every time."""

    def __init__(self, folder: Path) -> None:
        self._path = mark_file(folder)
        self._map: mmap.mmap | None = None
        self._seen = b""
        self._mark: Mark | None = None

    def read(self) -> Mark | None:
        """Return the newest mark, None if there is none."""
        if self._map is None:
            self._map = _map(self._path)
            if self._map is None:
                return None
        raw = self._map[:SIZE]
        if raw != self._seen:
            self._mark = parse(raw) or self._mark
            self._seen = raw
        return self._mark


def _map(path: Path) -> mmap.mmap | None:
    try:
        with path.open("rb") as source:
            return mmap.mmap(source.fileno(), SIZE, access=mmap.ACCESS_READ)
    except (FileNotFoundError, ValueError):  # ValueError: shorter than the map
        return None


def read_mark(folder: Path) -> Mark | None:
    """Return the mark as it is now."""
    return parse(_content(folder))


def read_damaged_slots(folder: Path) -> list[int]:
    """Return where in the file the slots begin that are unsound, and stay so."""
    # Twice: a writer may be writing one of them.
    first, second = (damaged_slots(_content(folder)) for _ in range(2))
    return [begin for begin in first if begin in second]


def _content(folder: Path) -> bytes:
    try:
        return mark_file(folder).read_bytes()
    except FileNotFoundError:
        return b""


def parse(raw: bytes) -> Mark | None:
    """Return the newer of the two slots that are sound."""
    slots = [_parse_slot(raw[begin : begin + SLOT]) for begin in _BEGINS]
    found = [slot for slot in slots if slot is not None]
    return max(found, key=lambda mark: mark.turn, default=None)


def damaged_slots(raw: bytes) -> list[int]:
    """Return where the slots begin that were written and are unsound."""
    return [
        begin
        for begin in _BEGINS
        if any(raw[begin : begin + SLOT]) and _parse_slot(raw[begin : begin + SLOT]) is None
    ]


def _parse_slot(raw: bytes) -> Mark | None:
    if len(raw) < _SLOT.size + _SUM.size:
        return None
    body = raw[: _SLOT.size]
    if _SUM.unpack_from(raw, _SLOT.size)[0] != xxhash.xxh3_64_intdigest(body):
        return None
    return Mark(*_SLOT.unpack(body))
