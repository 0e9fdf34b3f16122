"""The log of one partition: segments, recovery, and writing a group of entries durably.

The order of writes is what the promises rest on:

    data, sync -> index entries, sync -> mark -> acknowledgement

An entry therefore never points to data that is not there; what is not acknowledged may be lost, or
may be found whole at recovery. Recovery reads the last segment only: a segment is begun after all
those before it are synced, and its header holds the state at its start.

Recovery keeps the entries up to the first unsound one; of those after the mark, up to the first
whose data is unsound. It cuts the rest. What lies after the mark is written and synced again, since
a page that the disk once refused can look written.

An unsound entry *before* the mark is no torn tail but damage: it is not cut, the writer refuses to
open.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import xxhash

from millstream.errors import CorruptIndex
from millstream.journal.kinds.files.index import (
    SIZE,
    Entries,
    Header,
    Record,
    State,
    pack_header,
    read_header,
    sound_prefix,
    state_after,
)
from millstream.journal.kinds.files.layout import (
    DATA,
    UNFINISHED,
    data_file,
    index_file,
    segment_positions,
)
from millstream.journal.kinds.files.mark import MarkWriter, read_mark
from millstream.storage.disk import Disk, DiskFile

if TYPE_CHECKING:
    from typing_extensions import Buffer

SEGMENT_BYTES = 256 * 2**20
SEGMENT_ENTRIES = 2**17
_CHECKED_WITHOUT_MARK = 64


@dataclass(slots=True)
class Item:
    """An entry with its data, ready to be written."""

    record: Record
    buffers: Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening a partition has cut off: never anything that was acknowledged."""

    entries: int
    data_bytes: int


class PartitionLog:
    """Writes one partition; not safe for several threads."""

    def __init__(
        self,
        folder: Path,
        schemas: Sequence[pa.Schema],
        disk: Disk,
        *,
        generation: int,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.schemas = list(schemas)
        self._folder = folder
        self._disk = disk
        self._generation = generation
        self._segment_bytes = segment_bytes
        self._data: DiskFile | None = None
        self._index: DiskFile | None = None
        self._mark = MarkWriter(folder, disk, generation)
        self._first = 0
        self._entries = 0
        self._version = 0
        self.state = State()
        self.recovery = self._open()

    @property
    def numbers_used(self) -> int:
        """The number after the highest of a sender that has numbered its rows."""
        return max(self.state.highest, default=-1) + 1

    # opening

    def _open(self) -> Recovery:
        # A writer that was killed may have given a name and not synced it; what is built on it
        # would go with it.
        self._disk.sync_folder(self._folder)
        self._remove_leftovers()
        segments = segment_positions(self._folder)
        if not segments:
            self._begin_first()
            return Recovery(0, 0)
        return self._recover(segments[-1])

    def _begin_first(self) -> None:
        self._begin_segment(len(self.schemas) - 1)

    def _remove_leftovers(self) -> None:
        """Remove what a crash left of a segment that was being begun or removed."""
        kept = set(segment_positions(self._folder))
        for file in list(self._folder.iterdir()):
            unfinished = file.name.endswith(UNFINISHED)
            ownerless = file.name.endswith(DATA) and int(file.name.removesuffix(DATA)) not in kept
            if unfinished or ownerless:
                self._disk.remove(file)

    def _recover(self, first: int) -> Recovery:
        path = index_file(self._folder, first)
        header = read_header(path)
        with path.open("rb") as source:
            source.seek(header.length)
            raw = source.read()
        entries = sound_prefix(raw, header)
        marked = self._marked(first, len(entries), path, header)
        entries = entries[: self._sound_data(first, entries, marked)]
        self._first, self._entries, self._version = first, len(entries), header.version
        self.state = state_after(header.state, entries)
        stop = _data_stop(entries, header)
        recovery = self._cut(header, stop, len(raw))
        self._rewrite(header, entries, marked or 0, stop)
        self._mark.set(first, self._entries, self.state.position)
        return recovery

    def _marked(self, first: int, sound: int, path: Path, header: Header) -> int | None:
        """Return how many entries of the last segment the mark covers; None if it is about another."""
        mark = read_mark(self._folder)
        if mark is None or mark.segment < first:
            return None
        if mark.segment > first or mark.entries > sound:
            if mark.segment > first:
                missing = "the newest segment is gone"
            else:
                missing = f"entry {sound} is damaged"
            msg = f'index "{path}" is damaged: {missing}, which was acknowledged'
            hint = "millstream journal repair puts the damaged part aside"
            raise CorruptIndex(msg, file=str(path), offset=header.length + sound * SIZE, hint=hint)
        return mark.entries

    def _sound_data(self, first: int, entries: Entries, marked: int | None) -> int:
        """Return how many entries to keep: those after the mark must have sound data."""
        begin = marked if marked is not None else max(0, len(entries) - _CHECKED_WITHOUT_MARK)
        if begin == len(entries) or not data_file(self._folder, first).exists():
            return begin
        with data_file(self._folder, first).open("rb") as source:
            for number in range(begin, len(entries)):
                entry = entries[number]
                source.seek(int(entry["offset"]))
                data = source.read(int(entry["length"]))
                whole = len(data) == int(entry["length"])
                if not whole or (
                    data and xxhash.xxh3_64_intdigest(data) != int(entry["data_checksum"])
                ):
                    return number
        return len(entries)

    def _cut(self, header: Header, stop: int, index_bytes: int) -> Recovery:
        index = self._index = self._disk.open(index_file(self._folder, self._first))
        data = self._data = self._disk.open(data_file(self._folder, self._first))
        kept = self._entries * SIZE
        cut = Recovery(-(-(index_bytes - kept) // SIZE), max(0, data.size() - stop))
        if index.size() != header.length + kept:
            index.truncate(header.length + kept)
        if data.size() != stop:
            data.truncate(stop)
        if self._entries == 0:
            # The crash may have come while this empty segment was being begun again for another
            # schema.
            self._restore_start(data, header)
        return cut

    def _restore_start(self, data: DiskFile, header: Header) -> None:
        data.write_at(0, self.schemas[header.version].serialize().to_pybytes())

    def _rewrite(self, header: Header, entries: Entries, marked: int, stop: int) -> None:
        """Write what lies after the mark again, and sync."""
        assert self._data is not None
        assert self._index is not None
        if marked < len(entries):
            _again(
                self._data,
                data_file(self._folder, self._first),
                int(entries[marked]["offset"]),
                stop,
            )
        self._data.sync()
        if marked < len(entries):
            begin = header.length + marked * SIZE
            _again(
                self._index,
                index_file(self._folder, self._first),
                begin,
                header.length + len(entries) * SIZE,
            )
        self._index.sync()

    # writing

    def commit(self, items: Sequence[Item]) -> None:
        """Write entries; they are durable when this returns.

        If it raises, some, all or none of them may be: close this log and open it again.
        """
        group: list[Item] = []
        size = self._data_size()
        for item in items:
            if size >= self._segment_bytes or self._must_roll(item.record, len(group)):
                self._write(group)
                group = []
                self._begin_segment(item.record.version)
                size = self._data_size()
            group.append(item)
            size += item.record.length
        self._write(group)

    def _must_roll(self, record: Record, queued: int) -> bool:
        full = self._entries + queued >= SEGMENT_ENTRIES
        return full or (record.length > 0 and record.version != self._version)

    def _data_size(self) -> int:
        assert self._data is not None
        return self._data.size()

    def _write(self, group: list[Item]) -> None:
        if not group:
            return
        assert self._data is not None
        assert self._index is not None
        offset = self._data.size()
        entries = []
        for item in group:
            entries.append(item.record.pack(offset))
            offset += item.record.length
        if offset > self._data.size():
            self._data.append([buffer for item in group for buffer in item.buffers])
            self._data.sync()
        self._index.append([b"".join(entries)])
        self._index.sync()
        for item in group:
            self.state.apply(item.record)
        self._entries += len(group)
        self._mark.set(self._first, self._entries, self.state.position)

    def _begin_segment(self, version: int) -> None:
        """Begin a new segment at the end."""
        message = self.schemas[version].serialize()
        header = pack_header(
            self.state, version=version, data_start=message.size, generation=self._generation
        )
        self._begin(self.state.position, version, message, header)

    def _begin(self, first: int, version: int, message: Buffer, header: bytes) -> None:
        """Begin a segment with these bytes; it exists once its index has its name."""
        self._close_files()
        data = self._data = self._disk.open(data_file(self._folder, first))
        data.truncate(0)
        data.append([message])
        data.sync()
        target = index_file(self._folder, first)
        fresh = target.with_name(target.name + UNFINISHED)
        index = self._index = self._disk.open(fresh)
        index.truncate(0)
        index.append([header])
        index.sync()
        self._disk.rename(fresh, target)
        self._disk.sync_folder(self._folder)
        self._first, self._entries, self._version = first, 0, version
        self._mark.set(first, 0, first)

    def _close_files(self) -> None:
        for file in (self._data, self._index):
            if file is not None:
                file.close()
        self._data = self._index = None

    def close(self) -> None:
        self._close_files()
        self._mark.close()


def _data_stop(entries: Entries, header: Header) -> int:
    if len(entries):
        return int(entries[-1]["offset"]) + int(entries[-1]["length"])
    return header.data_start


def _again(file: DiskFile, path: Path, begin: int, end: int) -> None:
    step = 16 * 2**20
    with path.open("rb") as source:
        for offset in range(begin, end, step):
            file.write_at(offset, os.pread(source.fileno(), min(step, end - offset), offset))
