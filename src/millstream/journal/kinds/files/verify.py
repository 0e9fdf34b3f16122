"""Verifying: every checksum and every joint of a journal, with the places of what is damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import xxhash

from millstream.errors import CorruptIndex, JournalError
from millstream.journal.base import Kind
from millstream.journal.health import Damage, Verification
from millstream.journal.kinds.files.dead import is_dead_letters, table_damage, table_file
from millstream.journal.kinds.files.description import describe
from millstream.journal.kinds.files.ends import ends_file
from millstream.journal.kinds.files.index import (
    DTYPE,
    SIZE,
    Entries,
    Header,
    checksums,
    joined,
    read_header,
)
from millstream.journal.kinds.files.layout import (
    data_file,
    epochs_file,
    index_file,
    partition_folder,
    readers_folder,
    segment_positions,
)
from millstream.journal.kinds.files.lines import damaged_lines, parse_lines
from millstream.journal.kinds.files.mark import Mark, mark_file, read_damaged_slots
from millstream.journal.kinds.files.retention import read_committed
from millstream.journal.kinds.files.segments import synced_mark
from millstream.journal.kinds.files.senders import (
    damage,
    read_names,
    senders_copy,
    senders_file,
    used_numbers,
)

Progress = Callable[[int], None]


def verify(path: Path | str, progress: Progress = lambda _: None) -> Verification:
    """Compare everything that readers can see with its checksum.

    A writer may be at work meanwhile. `progress` gets the number of bytes each time some are done.
    """
    path = Path(path)
    parts = [_Partition(path, number, progress) for number in range(describe(path).partitions)]
    for part in parts:
        part.verify()
    whole = [*_decisions(path), *(_letters(path) if is_dead_letters(path) else ())]
    return Verification(
        damages=(*(damage for part in parts for damage in part.damages), *whole),
        entries=sum(part.entries for part in parts),
        rows=sum(part.rows for part in parts),
        bytes=sum(part.bytes for part in parts),
        lost=sum(part.lost for part in parts),
    )


def size(path: Path | str) -> int:
    """Return about how many bytes `verify` has to read."""
    return sum(file.stat().st_size for file in Path(path).glob("p*/*.arrow"))


def _decisions(path: Path) -> Iterator[Damage]:
    """Yield the damages of what is known of all partitions together."""
    file = epochs_file(path)
    if file.exists():
        for line in damaged_lines(parse_lines(file.read_bytes())):
            fact = "a decision is damaged; it is published, or is made again"
            yield Damage(0, file, line.offset, -1, 0, fact)
    for file in sorted(readers_folder(path).glob("*.json")):
        try:
            read_committed(file)
        except JournalError as error:
            yield Damage(0, file, 0, -1, 0, error.message)


def _letters(path: Path) -> Iterator[Damage]:
    fact = table_damage(path)
    if fact is not None:
        yield Damage(0, table_file(path), 0, -1, 0, fact)


class _Partition:
    def __init__(self, path: Path, number: int, progress: Progress) -> None:
        self._number = number
        self._folder = partition_folder(path, number)
        self._progress = progress
        self.damages: list[Damage] = []
        self.entries = self.rows = self.bytes = self.lost = 0

    def verify(self) -> None:
        firsts = segment_positions(self._folder)
        self._small_files()
        mark = synced_mark(self._folder)
        ends = [self._segment(first, mark) for first in firsts]
        for (_, end), (first, _) in pairwise(list(zip(firsts, ends, strict=True))):
            if end is not None and end != first:
                self._damage(
                    index_file(self._folder, first),
                    0,
                    end,
                    first - end,
                    "positions before it are missing",
                )
        if mark is not None and ends and ends[-1] is not None and ends[-1] < mark.end:
            file = index_file(self._folder, firsts[-1])
            self._damage(
                file,
                0,
                ends[-1],
                mark.end - ends[-1],
                "acknowledged positions after its end are missing",
            )

    def _small_files(self) -> None:
        """Verify the mark, and the names of senders that the index uses."""
        for begin in read_damaged_slots(self._folder):
            fact = "a slot of the mark is damaged; the next writer, or a repair, writes it again"
            self._damage(mark_file(self._folder), begin, -1, 0, fact)
        with suppress(CorruptIndex):  # which is a damage of its own
            # The index first: what it uses was written before it.
            used = used_numbers(self._folder)
            names = read_names(self._folder)
            wrong = damage(names, used)
            if wrong is not None:
                self._damage(senders_file(self._folder), names.offset, -1, 0, wrong)
            for line in damaged_lines(names.copied):
                fact = "the copy of a sender's name is damaged"
                self._damage(senders_copy(self._folder), line.offset, -1, 0, fact)
        file = ends_file(self._folder)
        if file.exists():
            for line in damaged_lines(parse_lines(file.read_bytes())):
                self._damage(file, line.offset, -1, 0, "the end of a sender is damaged")

    def _damage(self, file: Path, offset: int, position: int, positions: int, fact: str) -> None:
        self.damages.append(Damage(self._number, file, offset, position, positions, fact))

    def _segment(self, first: int, mark: Mark | None) -> int | None:
        """Verify a segment and return the position after it, None if that is unknown."""
        file = index_file(self._folder, first)
        try:
            header = read_header(file)
        except CorruptIndex:
            self._damage(file, 0, first, 0, "the header is damaged")
            return None
        raw, entries = visible(file, header, mark)
        good = checksums(raw) == entries["checksum"]
        for number in np.flatnonzero(~good).tolist():
            self._damage(file, header.length + number * SIZE, -1, 0, f"entry {number} is damaged")
        for number in np.flatnonzero(good & ~joined(entries, header, good)).tolist():
            fact = f"entry {number} does not follow the one before it"
            self._damage(file, header.length + number * SIZE, -1, 0, fact)
        sound = entries[good]
        self._data(data_file(self._folder, first), sound)
        self._count(sound)
        return _stop(header, entries, good)

    def _data(self, file: Path, entries: Entries) -> None:
        entries = entries[(entries["kind"] != Kind.LOST) & (entries["length"] > 0)]
        try:
            source = file.open("rb")
        except FileNotFoundError:
            for entry in entries:
                self._batch_damage(file, entry, "the file is gone")
            return
        with source:
            for entry in entries:
                source.seek(int(entry["offset"]))
                data = source.read(int(entry["length"]))
                if len(data) < int(entry["length"]):
                    self._batch_damage(file, entry, "the batch is cut off")
                elif xxhash.xxh3_64_intdigest(data) != int(entry["data_checksum"]):
                    self._batch_damage(file, entry, "the batch is damaged")
                self.bytes += len(data)
                self._progress(len(data))

    def _batch_damage(self, file: Path, entry: np.void, fact: str) -> None:
        position, count = int(entry["position"]), int(entry["count"])
        fact = f"{fact}, positions {position} to {position + count - 1}"
        self._damage(file, int(entry["offset"]), position, count, fact)

    def _count(self, entries: Entries) -> None:
        self.entries += len(entries)
        stored = (entries["kind"] == Kind.ROWS) | (entries["kind"] == Kind.EPOCH)
        self.rows += int(entries["count"][stored].sum())
        self.lost += int(entries["count"][entries["kind"] == Kind.LOST].sum())


def visible(file: Path, header: Header, mark: Mark | None) -> tuple[bytes, Entries]:
    """Return the entries of a segment that readers can see, as bytes and as an array, unchecked."""
    with file.open("rb") as source:
        source.seek(header.length)
        raw = source.read()
    count = len(raw) // SIZE
    if mark is not None and mark.segment == header.first:
        count = min(count, mark.entries)
    raw = raw[: count * SIZE]
    return raw, np.frombuffer(raw, dtype=DTYPE)


def _stop(
    header: Header, entries: Entries, good: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> int | None:
    if len(entries) == 0:
        return header.first
    return int(entries[-1]["position"]) + int(entries[-1]["count"]) if good[-1] else None
