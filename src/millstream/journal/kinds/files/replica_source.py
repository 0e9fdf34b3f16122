"""The original of a partition, as those who copy it see it: what is durable, piece by piece."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import xxhash

from millstream.errors import CopyDiffers, CorruptBatch, CorruptSenders
from millstream.journal.base import Description
from millstream.journal.kinds.files.description import describe
from millstream.journal.kinds.files.index import NOBODY, Entries
from millstream.journal.kinds.files.layout import (
    data_file,
    description_file,
    index_file,
    partition_folder,
    segment_positions,
)
from millstream.journal.kinds.files.mark import Mark, MarkReader
from millstream.journal.kinds.files.replica_chunk import NOWHERE, Reached, ReplicaChunk
from millstream.journal.kinds.files.segments import CHECK_HINT, Segment
from millstream.journal.kinds.files.senders import read_senders, senders_file

PIECE_BYTES = 4 * 2**20
PIECE_ENTRIES = 2**13


class ReplicaSource:
    """Hands out what the mark covers of one partition; not safe for several threads."""

    def __init__(self, path: Path | str, partition: int, *, most: int = PIECE_BYTES) -> None:
        self.path = Path(path)
        self.partition = partition
        self._most = most
        self._folder = partition_folder(self.path, partition)
        self._marks = MarkReader(self._folder)
        self._opened: _Opened | None = None
        self._description: tuple[int, Description] | None = None

    def after(self, reached: Reached) -> ReplicaChunk:
        """Return what follows `reached`; an empty piece if there is nothing yet.

        Raises:
            CopyDiffers: The copy holds what is not here.
        """
        try:
            piece = self._after(reached)
        except FileNotFoundError:  # retention was quicker
            self._opened = None
            piece = self._after(reached)
        return replace(piece, description=self._described(reached))

    def _after(self, reached: Reached) -> ReplicaChunk:
        mark = self._marks.read()
        if mark is None:
            firsts = []
        else:
            firsts = [first for first in segment_positions(self._folder) if first <= mark.segment]
        end = 0 if mark is None else mark.end
        if reached.end > end:
            raise self._differs(reached, f"it ends at {end}, its copy at {reached.end}")
        if mark is None or not firsts:
            return ReplicaChunk(NOWHERE, 0, 0, 0)
        if reached.segment in firsts:
            return self._inside(reached, firsts, mark)
        return self._entering(reached, firsts, mark)

    # where the copy is

    def _inside(self, reached: Reached, firsts: list[int], mark: Mark) -> ReplicaChunk:
        opened = self._open(reached.segment, mark)
        if reached.header != opened.checksum:
            if reached.entries:
                raise self._differs(
                    reached, f"segment {reached.segment} does not begin as its copy does"
                )
            return self._begin(reached.segment, reached, firsts, mark)
        if reached.entries and not opened.holds(reached):
            raise self._differs(
                reached, f"the entry before position {reached.end} is not that of its copy"
            )
        if reached.entries < len(opened.segment.entries):
            return self._part(opened, reached, firsts)
        if reached.segment == firsts[-1]:
            return ReplicaChunk(reached.segment, reached.data, firsts[0], 0)
        following = firsts[firsts.index(reached.segment) + 1]
        if following != reached.end:
            raise self._differs(
                reached, f"segment {reached.segment} ends at {following}, its copy at {reached.end}"
            )
        return self._begin(following, reached, firsts, mark)

    def _entering(self, reached: Reached, firsts: list[int], mark: Mark) -> ReplicaChunk:
        if reached.end in firsts:
            return self._begin(reached.end, reached, firsts, mark)
        if reached.end < firsts[0]:
            return replace(self._begin(firsts[0], reached, firsts, mark), anew=True)
        raise self._differs(reached, f"segment {reached.segment} is not there")

    def _differs(self, reached: Reached, fact: str) -> CopyDiffers:
        msg = f'partition {self.partition} of journal "{self.path}" is not what was copied up to {reached.end}: {fact}'
        hint = "was the original restored from an older backup, or is the copy another one's?"
        return CopyDiffers(msg, hint=hint)

    # pieces

    def _begin(self, first: int, reached: Reached, firsts: list[int], mark: Mark) -> ReplicaChunk:
        opened = self._open(first, mark)
        fresh = Reached(first, opened.checksum, senders=reached.senders)
        return replace(self._part(opened, fresh, firsts), header=opened.header)

    def _part(self, opened: _Opened, reached: Reached, firsts: list[int]) -> ReplicaChunk:
        segment = opened.segment
        entries = segment.entries[reached.entries : reached.entries + PIECE_ENTRIES]
        stops = entries["offset"] + entries["length"]
        # The beginning of the data, its schema, is sent as a whole.
        most = max(reached.data + self._most, segment.header.data_start)
        count = int(np.searchsorted(stops, most, side="right"))
        stop = most if len(entries) else segment.header.data_start
        stop = int(stops[count - 1]) if count else stop
        if reached.data > stop:
            raise self._differs(
                reached, f"its data of segment {segment.first} does not go to byte {reached.data}"
            )
        entries = entries[:count]
        return ReplicaChunk(
            segment=segment.first,
            start=reached.data,
            begin=firsts[0],
            behind=self._behind(segment, stop, firsts),
            data=self._data(segment, reached.data, stop),
            index=entries.tobytes(),
            senders=self._senders(reached, entries, segment),
        )

    def _data(self, segment: Segment, start: int, stop: int) -> bytes:
        if stop == start:
            return b""
        found = segment.read_data(start, stop - start)
        if found is None:
            if not segment.data_path.exists():
                raise FileNotFoundError(segment.data_path)
            msg = f'"{segment.data_path}" ends before byte {stop}'
            raise CorruptBatch(
                msg,
                file=str(segment.data_path),
                position=segment.first,
                offset=start,
                hint=CHECK_HINT,
            )
        return bytes(found)

    def _senders(self, reached: Reached, entries: Entries, segment: Segment) -> tuple[str, ...]:
        """Return the senders' names that the entries and the header need, which are durable."""
        numbers = entries["sender"][entries["sender"] != NOBODY]
        needed = (
            max(int(numbers.max()) if len(numbers) else -1, *segment.header.state.highest, -1) + 1
        )
        if needed <= reached.senders:
            return ()
        names = read_senders(self._folder)
        lost = [number for number in range(reached.senders, needed) if number not in names]
        if lost:
            file = str(senders_file(self._folder))
            msg = f'the name of sender {lost[0]} in "{file}" is damaged'
            raise CorruptSenders(msg, file=file, offset=0, hint=CHECK_HINT)
        return tuple(names[number] for number in range(reached.senders, needed))

    def _behind(self, segment: Segment, stop: int, firsts: list[int]) -> int:
        entries = segment.entries
        last = int(entries[-1]["offset"]) + int(entries[-1]["length"]) if len(entries) else stop
        later = [data_file(self._folder, first) for first in firsts if first > segment.first]
        return last - stop + sum(file.stat().st_size for file in later)

    # what is there

    def _open(self, first: int, mark: Mark) -> _Opened:
        opened = self._opened
        # An empty segment may have been begun again under another schema.
        if opened is None or opened.segment.first != first or len(opened.segment.entries) == 0:
            opened = self._opened = _Opened(self._folder, first)
        if first == mark.segment:
            opened.segment.grow(mark.entries)
        else:
            opened.segment.finish()
        return opened

    def _described(self, reached: Reached) -> bytes:
        """Return the journal's description if the copy does not know all of its schemas."""
        file = description_file(self.path)
        changed_at = file.stat().st_mtime_ns
        if self._description is None or self._description[0] != changed_at:
            self._description = (changed_at, describe(self.path))
        return file.read_bytes() if len(self._description[1].schemas) > reached.schemas else b""


class _Opened:
    """A segment, and the bytes of its header."""

    def __init__(self, folder: Path, first: int) -> None:
        self.segment = Segment(folder, first)
        with index_file(folder, first).open("rb") as source:
            self.header = source.read(self.segment.header.length)
        self.checksum = xxhash.xxh3_64_intdigest(self.header)

    def holds(self, reached: Reached) -> bool:
        """Tell if the copy's last entry is here."""
        entries = self.segment.entries
        return (
            reached.entries <= len(entries)
            and int(entries[reached.entries - 1]["checksum"]) == reached.entry
        )
