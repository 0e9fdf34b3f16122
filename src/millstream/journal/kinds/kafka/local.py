"""The copy of an index in a folder: segments as the kind `files` has them, with addresses as their data.

    DIR/p0000/<position>.index      entries, as ever
    DIR/p0000/<position>.arrow      what they point to: `records.Address`, one after the other
    DIR/p0000/senders               the senders' names
    DIR/p0000/noted                 what memos note: `noted.py`
    DIR/p0000/snapshots             where the index can be cut: a line for each snapshot that counts
    DIR/p0000/copy.lock             held by whoever adds to the copy
    DIR/p0000/lock                  held by the partition's writer on this host

Nothing is synced: what a loss of power takes or damages is read from Kafka again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from millstream.errors import CorruptIndex, CorruptSenders
from millstream.journal.kinds.files.index import (
    Entries,
    Header,
    Record,
    State,
    map_entries,
    read_header,
)
from millstream.journal.kinds.files.layout import data_file, index_file, segment_positions
from millstream.journal.kinds.files.lines import checked_line, parse_lines, sound_values
from millstream.journal.kinds.files.log import Item, PartitionLog
from millstream.journal.kinds.files.senders import (
    Named,
    Senders,
    senders_copy,
    senders_file,
    write_names,
)
from millstream.journal.kinds.kafka import noted
from millstream.journal.kinds.kafka.log import Counting, Found, What
from millstream.journal.kinds.kafka.records import (
    Address,
    EntryBody,
    localized,
    noted_in,
    unpack_snapshot,
)
from millstream.storage.disk import RealDisk, RealFile

SEGMENT_ENTRIES: Final = 2**13
SEGMENT_DATA: Final = 256 * 2**20
_SNAPSHOTS: Final = "snapshots"


class _CacheFile(RealFile):
    def sync(self) -> None:
        """Do nothing: the file can be made again."""


class CacheDisk(RealDisk):
    """A disk for what can be made again."""

    def open(self, path: Path) -> RealFile:
        return _CacheFile(path)

    def sync_folder(self, path: Path) -> None:
        """Do nothing: a name can be given again."""


CACHE: Final = CacheDisk()


class KnownSenders(Senders):
    """The senders of a partition; names are written once they count in Kafka."""

    def __init__(self, folder: Path, needed: int) -> None:
        super().__init__(folder, CACHE, needed)
        self.unsent: list[Named] = []

    def write(self, named: Sequence[Named]) -> None:
        """Keep new names until their entries are written: then they travel with the first of them."""
        self.unsent += named

    def sent(self) -> tuple[Named, ...]:
        """Return the names that the next entry has to introduce."""
        found, self.unsent = self.unsent, []
        return tuple(found)

    def learn(self, named: Sequence[Named], written: int) -> int:
        """Write names that count, of which `written` are, and return how many are written now."""
        fresh = [(number, name) for number, name in named if number >= written]
        for number, name in fresh:
            if number >= len(self.names):  # another writer has introduced it
                self.names.append(name)
                self._numbers[name] = number
        super().write(fresh)
        return written + len(fresh)


class LocalIndex(PartitionLog):
    """Adds to the copy of a partition's index, with its lock held."""

    def __init__(
        self, folder: Path, schemas: Sequence[pa.Schema], start: State | None = None
    ) -> None:
        self._start = start or State()
        self._data_bytes = 0
        super().__init__(folder, schemas, CACHE, generation=0)
        self.senders = KnownSenders(folder, self.numbers_used)
        self._written = len(self.senders.names)
        self._noted = noted.read(folder)

    @property
    def folder(self) -> Path:
        return self._folder

    def _begin_first(self) -> None:
        self.state = self._start.copy()
        super()._begin_first()

    def _sound_data(self, first: int, entries: Entries, marked: int | None) -> int:
        """Keep all entries whose addresses are there."""
        del marked
        file = data_file(self._folder, first)
        size = file.stat().st_size if file.exists() else 0
        whole = entries["offset"] + entries["length"] <= size
        return int(whole.sum())

    def _must_roll(self, record: Record, queued: int) -> bool:
        full = self._entries + queued >= SEGMENT_ENTRIES or self._data_bytes >= SEGMENT_DATA
        return full or record.version != self._version

    def rolls_before(self, record: Record) -> bool:
        """Tell whether a record begins a segment, before which a snapshot is due."""
        return self._entries > 0 and self._must_roll(record, 0)

    def _begin(self, *about: object) -> None:
        super()._begin(*about)  # type: ignore[arg-type]
        self._data_bytes = 0

    def counting(self, low: int) -> Counting | None:
        """Return how far the copy goes, for an index that begins at `low`; None: it is of no use."""
        last = last_address(self._folder)
        if last is not None:
            if last.index_offset + 1 < low:
                return None
            return Counting(last.index_offset + 1, last.generation, self.state.position)
        return Counting(low, position=self.state.position, truncated=low > 0)

    def take(self, found: Sequence[Found]) -> None:
        """Add records that count."""
        items: list[Item] = []
        named: list[Named] = []
        for offset, record in found:
            if record.what is What.ENTRY:
                body = EntryBody.unpack(record.body)
                address = Address(offset, record.generation, body.places).pack()
                items.append(Item(localized(body.record, len(address)), [address]))
                named += body.named
                self._data_bytes += body.data_bytes
            elif record.what is What.SNAPSHOT:
                with (self._folder / _SNAPSHOTS).open("ab") as file:
                    file.write(checked_line([offset, record.position]))
                noted.write(self._folder, self._noted)
            elif record.what is What.MEMO:
                noted.add(self._folder, self._noted, noted_in(record))
        self._written = self.senders.learn(named, self._written)
        self.commit(items)

    def close(self) -> None:
        super().close()
        self.senders.close()


def opened(folder: Path, schemas: Sequence[pa.Schema], begin: Found | None) -> LocalIndex:
    """Open the copy, made again if it is damaged; `begin` is the snapshot with which the index begins."""
    start = None
    if begin is not None and not segment_positions(folder):
        start, names = unpack_snapshot(begin[1].body)
        write_names(folder, names, CACHE)
        noted.add(folder, noted.read(folder), noted_in(begin[1]))
    try:
        return LocalIndex(folder, schemas, start)
    except (CorruptIndex, CorruptSenders):
        wipe(folder)
        if begin is None:
            return LocalIndex(folder, schemas)
        return opened(folder, schemas, begin)


def wipe(folder: Path) -> None:
    """Remove the copy, so that it is made again."""
    for first in segment_positions(folder):
        index_file(folder, first).unlink(missing_ok=True)
        data_file(folder, first).unlink(missing_ok=True)
    # The mark stays: readers have it mapped.
    for file in (
        senders_file(folder),
        senders_copy(folder),
        folder / _SNAPSHOTS,
        noted.file(folder),
    ):
        file.unlink(missing_ok=True)


def snapshots(folder: Path) -> list[tuple[int, int]]:
    """Return the offsets and positions of snapshots that count."""
    try:
        raw = (folder / _SNAPSHOTS).read_bytes()
    except FileNotFoundError:
        return []
    values = [value for value in sound_values(parse_lines(raw)) if isinstance(value, list)]
    return [(int(offset), int(position)) for offset, position in values]


# addresses


def addresses(folder: Path, first: int) -> Iterator[Address]:
    """Yield what the entries of a segment point to."""
    header: Header = read_header(index_file(folder, first))
    entries = map_entries(index_file(folder, first), header)
    raw = data_file(folder, first).read_bytes()
    for entry in entries:
        offset, length = int(entry["offset"]), int(entry["length"])
        if offset + length <= len(raw):
            yield Address.unpack(raw[offset : offset + length])


def last_address(folder: Path) -> Address | None:
    """Return what the last entry points to, if there is one."""
    for first in reversed(segment_positions(folder)):
        header = read_header(index_file(folder, first))
        entries = map_entries(index_file(folder, first), header)
        if len(entries):
            offset, length = int(entries[-1]["offset"]), int(entries[-1]["length"])
            with data_file(folder, first).open("rb") as source:
                raw = os.pread(source.fileno(), length, offset)
            return Address.unpack(raw)
    return None


def data_bytes(folder: Path, first: int) -> int:
    """Return how many bytes of data a segment has in Kafka."""
    return sum(address.data_bytes for address in addresses(folder, first))
