"""Segments as readers see them: mapped indexes, mapped or read data."""

from __future__ import annotations

import bisect
import mmap
import os
import weakref
from collections import OrderedDict
from pathlib import Path

import pyarrow as pa

from millstream.errors import CorruptIndex
from millstream.journal.kinds.files.index import (
    SIZE,
    Entries,
    Header,
    map_entries,
    read_header,
    some,
    sound,
    sound_prefix,
)
from millstream.journal.kinds.files.layout import data_file, index_file, segment_positions
from millstream.journal.kinds.files.mark import Mark, read_mark
from millstream.storage.lock import held

_MAPS = 2
CHECK_HINT = (
    "millstream journal verify shows all damage, repair moves it aside so that readers continue"
)


class Segment:
    """One segment as a reader sees it: its header, and its entries up to a number."""

    def __init__(self, folder: Path, first: int) -> None:
        self.first = first
        self.index_path = index_file(folder, first)
        self.data_path = data_file(folder, first)
        self.header: Header = read_header(self.index_path)
        self._mapped = map_entries(self.index_path, self.header)
        self.entries = self._mapped[:0]
        self.checked = bytearray()
        self._sound = bytearray()
        self._finished = False
        self._data = -1

    def grow(self, count: int) -> None:
        """See entries up to `count`."""
        if count > len(self._mapped):
            self._mapped = map_entries(self.index_path, self.header)
        self._show(min(count, len(self._mapped)))

    def finish(self) -> None:
        """See all entries: nothing is added any more."""
        if not self._finished:
            self._mapped = map_entries(self.index_path, self.header)
            self._show(len(self._mapped))
            self._finished = True

    def _show(self, count: int) -> None:
        self.entries = self._mapped[:count]
        for flags in (self.checked, self._sound):
            flags.extend(bytes(count - len(flags)))

    def check_entry(self, number: int) -> None:
        """Compare an entry with its own checksum, once."""
        if self._sound[number]:
            return
        if not sound(self.entries[number].tobytes()):
            offset = self.header.length + number * SIZE
            msg = f'entry {number} of index "{self.index_path}" is damaged'
            raise CorruptIndex(msg, file=str(self.index_path), offset=offset, hint=CHECK_HINT)
        self._sound[number] = 1

    def find(self, position: int) -> int:
        """Return the number of the entry that holds `position`."""
        return bisect.bisect_right(_Column(self.entries, "position"), position) - 1

    def first_lifting(self, moment: int) -> int:
        """Return the first entry after which the running maximum is above `moment`."""
        return bisect.bisect_right(_Column(self.entries, "max_after"), moment)

    def read_data(self, offset: int, length: int) -> pa.Buffer | None:
        """Return a copy of some data, None if it is not all there."""
        if self._data < 0:
            try:
                self._data = os.open(self.data_path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            weakref.finalize(self, os.close, self._data)
        data = os.pread(self._data, length, offset)
        return pa.py_buffer(data) if len(data) == length else None

    @property
    def running_max(self) -> int:
        """The running maximum after its last entry."""
        if len(self.entries):
            return int(self.entries[-1]["max_after"])
        return some(self.header.state.running_max)


class _Column:
    """A field of the entries as a sequence, for `bisect`, without a copy."""

    def __init__(self, entries: Entries, name: str) -> None:
        self._column = entries[name]

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, number: int) -> int:
        return int(self._column[number])


class Maps:
    """The data files mapped last; a map is dropped when others push it out."""

    def __init__(self) -> None:
        self._maps: OrderedDict[Path, pa.Buffer] = OrderedDict()

    def get(self, path: Path, stop: int) -> pa.Buffer | None:
        """Return the file's bytes, at least up to `stop`, or None if it is shorter or gone."""
        buffer = self._maps.get(path)
        if buffer is None or buffer.size < stop:
            buffer = _map_file(path)
            if buffer.size < stop:
                return None
            self._maps[path] = buffer
            if len(self._maps) > _MAPS:
                self._maps.popitem(last=False)
        self._maps.move_to_end(path)
        return buffer

    def keep_only(self, paths: set[Path]) -> None:
        for path in [path for path in self._maps if path not in paths]:
            del self._maps[path]


def _map_file(path: Path) -> pa.Buffer:
    try:
        with path.open("rb") as source:
            return pa.py_buffer(mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ))
    except (FileNotFoundError, ValueError):  # ValueError: it is empty
        return pa.py_buffer(b"")


def synced_mark(folder: Path, *, locked: bool = False) -> Mark | None:
    """Return how far a partition is synced, with or without its mark."""
    mark = read_mark(folder)
    return synced_without_mark(folder, mark, locked=locked) or mark


def synced_without_mark(folder: Path, mark: Mark | None, *, locked: bool = False) -> Mark | None:
    """Return how far a partition goes that has lost its mark and has no writer to set it right.

    After a loss of power the mark may be older than what was acknowledged. Only if nobody writes,
    or the caller has the lock: the entries are synced here before they are trusted.
    """
    segments = segment_positions(folder)
    if not segments:
        return None
    path = index_file(folder, segments[-1])
    try:
        header = read_header(path)
        if _covers(mark, header, path) or (not locked and held(folder / "lock")):
            return None
        with path.open("rb") as source:
            os.fdatasync(source.fileno())
            source.seek(header.length)
            found = sound_prefix(source.read(), header)
    except (FileNotFoundError, CorruptIndex):
        return None
    end = int(found[-1]["position"]) + int(found[-1]["count"]) if len(found) else header.first
    if mark is not None and end <= mark.end:
        return None
    return Mark(0 if mark is None else mark.turn, segments[-1], len(found), end, header.generation)


def _covers(mark: Mark | None, header: Header, path: Path) -> bool:
    """Tell if the mark already says all that the newest index holds."""
    if mark is None or mark.segment != header.first:
        return False
    return path.stat().st_size <= header.length + mark.entries * SIZE
