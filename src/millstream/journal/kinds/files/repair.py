"""Repair: what is damaged is put aside with a note, and a tombstone takes its place.

Nothing is thrown away: the damaged bytes go to `DIR/aside/`. A tombstone (an entry of kind LOST)
holds the positions, so that all others keep theirs; readers hand it out as a loss, and `show`
counts it. A repaired index is written under another name and renamed, so a crash leaves the old one
or the new one. A sender whose name is lost keeps its number, under a name that nobody has.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import xxhash

from millstream.clock import Clock, SystemClock
from millstream.errors import CorruptIndex, JournalError
from millstream.journal.base import Description, Kind
from millstream.journal.health import Repaired
from millstream.journal.kinds.files.copylog import copied_from
from millstream.journal.kinds.files.dead import (
    is_dead_letters,
    remove_table,
    table_damage,
    table_file,
)
from millstream.journal.kinds.files.description import describe
from millstream.journal.kinds.files.ends import ends_file
from millstream.journal.kinds.files.index import (
    DTYPE,
    ENDED,
    SIZE,
    Entries,
    Header,
    Record,
    State,
    checksums,
    maybe,
    pack_header,
    read_header,
    state_after,
)
from millstream.journal.kinds.files.layout import (
    aside_folder,
    data_file,
    epochs_file,
    index_file,
    partition_folder,
    readers_folder,
    segment_positions,
)
from millstream.journal.kinds.files.lines import (
    checked_line,
    damaged_lines,
    parse_lines,
    sound_values,
)
from millstream.journal.kinds.files.mark import (
    SLOT,
    MarkWriter,
    mark_file,
    read_damaged_slots,
    read_mark,
)
from millstream.journal.kinds.files.retention import commit, read_committed
from millstream.journal.kinds.files.segments import synced_mark
from millstream.journal.kinds.files.senders import (
    damage,
    read_names,
    senders_copy,
    senders_file,
    used_numbers,
    write_names,
)
from millstream.journal.kinds.files.verify import verify, visible
from millstream.storage.disk import REAL, Disk, make_folder, write_whole
from millstream.storage.lock import Lock

_SECTOR = 512


def repair(path: Path | str, *, disk: Disk = REAL, clock: Clock | None = None) -> list[Repaired]:
    """Repair a journal that nobody writes, and return what had to be done.

    Raises:
        AlreadyWriting: A writer is at work: stop it first.
    """
    description = describe(path)
    done: list[Repaired] = []
    for number in range(description.partitions):
        original = copied_from(partition_folder(description.path, number))
        if original is None:
            done += _Repair(description, number, disk, clock or SystemClock()).run()
        else:
            done += _discard_damaged(description.path, number, original, disk)
    path = description.path
    return [
        *done,
        *_repair_decisions(path, disk),
        *_repair_readers(path, disk),
        *_repair_table(path),
    ]


def _repair_decisions(path: Path, disk: Disk) -> list[Repaired]:
    """Remove damaged lines from the decisions: those are published, or are made again."""
    file = epochs_file(path)
    lines = parse_lines(file.read_bytes()) if file.exists() else []
    if not damaged_lines(lines):
        return []
    lock = Lock(path / "epochs.lock", disk, what=f'journal "{path}"')
    try:
        write_whole(disk, file, b"".join(checked_line(value) for value in sound_values(lines)))
    finally:
        lock.release()
    return [Repaired(0, file, -1, 0, "a decision was damaged, and is removed", None)]


def _repair_readers(path: Path, disk: Disk) -> list[Repaired]:
    """Let readers whose positions are damaged hold everything, until they commit again."""
    done = []
    for file in sorted(readers_folder(path).glob("*.json")):
        try:
            read_committed(file)
        except JournalError as error:
            commit(path, unquote(file.stem), {}, disk=disk)
            fact = f"{error.message}: nothing is removed until it commits again"
            done.append(Repaired(0, file, -1, 0, fact, None))
    return done


def _repair_table(path: Path) -> list[Repaired]:
    """Remove the table of dead letters if it is damaged: it is filled again from them."""
    fact = table_damage(path) if is_dead_letters(path) else None
    if fact is None:
        return []
    remove_table(path)
    return [
        Repaired(0, table_file(path), -1, 0, f"{fact}; it is removed, to be filled again", None)
    ]


def _discard_damaged(path: Path, number: int, original: str, disk: Disk) -> list[Repaired]:
    """Remove a copy that is damaged: what it is copied from has it still."""
    folder = partition_folder(path, number)
    lock = Lock(folder / "lock", disk, what=f'partition {number} of journal "{path}"')
    try:
        damage = next((one for one in verify(path).damages if one.partition == number), None)
        if damage is None:
            return []
        for first in segment_positions(folder):
            disk.remove(index_file(folder, first))
            disk.remove(data_file(folder, first))
        for file in (mark_file(folder), senders_file(folder), senders_copy(folder)):
            disk.remove(file)
        disk.sync_folder(folder)
    finally:
        lock.release()
    fact = f"a copy, removed to be copied again from {original}: {damage.fact}"
    return [Repaired(number, damage.file, damage.position, 0, fact, None)]


@dataclass(slots=True)
class _Segment:
    """A segment's index during a repair: written again if something changed."""

    first: int
    header: Header
    entries: Entries
    good: np.ndarray[tuple[int], np.dtype[np.bool_]]
    changed: bool = False

    @property
    def stop(self) -> int:
        if len(self.entries) == 0:
            return self.header.first
        return int(self.entries[-1]["position"]) + int(self.entries[-1]["count"])

    def bury(self, record: Record, offset: int, number: int) -> None:
        """Put a tombstone in an entry's place."""
        self.entries[number] = np.frombuffer(record.pack(offset), dtype=DTYPE)[0]
        self.good[number] = True
        self.changed = True


class _Repair:
    def __init__(self, description: Description, partition: int, disk: Disk, clock: Clock) -> None:
        self._description = description
        self._partition = partition
        self._disk = disk
        self._now = clock.now_us()
        self._folder = partition_folder(description.path, partition)
        self._aside = aside_folder(description.path)
        self._done: list[Repaired] = []

    def run(self) -> list[Repaired]:
        what = f'partition {self._partition} of journal "{self._description.path}"'
        make_folder(self._disk, self._folder)
        lock = Lock(self._folder / "lock", self._disk, what=what)
        try:
            self._repair(lock.generation)
        finally:
            lock.release()
        return self._done

    def _repair(self, generation: int) -> None:
        firsts = segment_positions(self._folder)
        mark = self._synced = synced_mark(self._folder, locked=True)
        segments: list[_Segment] = []
        for number, first in enumerate(firsts):
            following = firsts[number + 1] if number + 1 < len(firsts) else None
            segment = self._load(first, segments[-1] if segments else None)
            last = following if following is not None else (mark.end if mark is not None else None)
            self._repair_entries(segment, last)
            self._repair_data(segment)
            segments.append(segment)
        for segment, following_segment in pairwise(segments):
            self._fill(segment, following_segment.first)
        if segments and mark is not None and segments[-1].stop < mark.end:
            self._fill(segments[-1], mark.end)
        for segment in segments:
            self._save(segment)
        self._repair_senders()
        self._repair_ends()
        for begin in read_damaged_slots(self._folder):
            file = mark_file(self._folder)
            aside = self._put_aside(file, begin, SLOT, begin, "a slot of the mark was damaged")
            self._note(file, -1, 0, "the mark was damaged and is written again", aside)
        if segments and self._done:
            self._mark(segments[-1], generation)

    # small files

    def _repair_senders(self) -> None:
        """Rebuild the names of senders from either file; give those that are lost another name."""
        used, names = used_numbers(self._folder), read_names(self._folder)
        fact = damage(names, used)
        if fact is None and not damaged_lines(names.copied):
            return
        file = senders_file(self._folder)
        aside = self._put_aside(file, 0, _size(file), 0, fact or "the copy was damaged")
        if fact is None or not names.missing(used):
            fact = "the names of senders were damaged and are rebuilt"
        else:
            fact += ": what these senders send again is stored again"
        self._note(file, -1, 0, fact, aside)
        count = max(used, len(names.prefix))
        kept = [names.known.get(number) or _nobody(number) for number in range(count)]
        write_names(self._folder, kept, self._disk)

    def _repair_ends(self) -> None:
        file = ends_file(self._folder)
        lines = parse_lines(file.read_bytes()) if file.exists() else []
        if damaged_lines(lines):
            aside = self._put_aside(file, 0, _size(file), 0, "the end of a sender was damaged")
            self._note(file, -1, 0, "the end of a sender was damaged; it has to end again", aside)
            content = b"".join(checked_line(value) for value in sound_values(lines))
            write_whole(self._disk, file, content)

    # the header

    def _load(self, first: int, before: _Segment | None) -> _Segment:
        file = index_file(self._folder, first)
        changed = False
        try:
            header = read_header(file)
        except CorruptIndex:
            header, changed = self._rebuilt(file, first, before), True
            aside = self._put_aside(file, 0, header.length, first, "the header was damaged")
            fact = "the header was damaged and is rebuilt"
            if before is None and first > 0:
                fact += f": who sent what before position {first} is lost, and stored if sent again"
            self._note(file, first, 0, fact, aside)
        raw, found = visible(file, header, self._synced)
        entries = found.copy()
        return _Segment(first, header, entries, checksums(raw) == entries["checksum"], changed)

    def _rebuilt(self, file: Path, first: int, before: _Segment | None) -> Header:
        """Make a header from what is left: the segment before, else the first entry."""
        raw = file.read_bytes()
        length = next(
            (
                n
                for n in range(_SECTOR, len(raw), _SECTOR)
                if _begins_here(raw[n : n + SIZE], first)
            ),
            0,
        )
        if length:
            entries = np.frombuffer(raw[length:], dtype=DTYPE, count=(len(raw) - length) // SIZE)
        else:
            entries = None
        version = int(entries[0]["version"]) if entries is not None else self._description.version
        data_start = self._description.schemas[version].serialize().size
        if before is not None:
            state = state_after(before.header.state, before.entries)
        else:
            running_max = maybe(entries[0]["max_before"]) if entries is not None else None
            state = State(running_max=running_max)
        state.position = first
        return Header(state, version, data_start, 0, length or len(raw))

    # entries and data

    def _repair_entries(self, segment: _Segment, following: int | None) -> None:
        """Replace damaged entries by tombstones: their neighbours show what they covered."""
        number = 0
        while number < len(segment.entries):
            if segment.good[number]:
                number += 1
                continue
            stop = number
            while stop < len(segment.entries) and not segment.good[stop]:
                stop += 1
            self._repair_run(segment, number, stop, following)
            number = stop

    def _repair_run(self, segment: _Segment, begin: int, stop: int, following: int | None) -> None:
        file = index_file(self._folder, segment.first)
        state = state_after(segment.header.state, segment.entries[:begin])
        offset = _data_stop(segment, begin)
        if stop < len(segment.entries):
            after = segment.entries[stop]
            position, data_stop = int(after["position"]), int(after["offset"])
            running_max = maybe(after["max_before"])
        else:
            position = following if following is not None else state.position
            data_stop = max(offset, _size(data_file(self._folder, segment.first)))
            running_max = state.running_max
        place = segment.header.length + begin * SIZE
        aside = self._put_aside(
            file, place, (stop - begin) * SIZE, state.position, "index entries were damaged"
        )
        self._note(
            file, state.position, position - state.position, f"entry {begin} was damaged", aside
        )
        for number in range(begin, stop):
            tombstone = self._tombstone(state, position - state.position, running_max)
            tombstone.length = data_stop - offset
            segment.bury(tombstone, offset, number)
            state.position, state.running_max, offset = position, running_max, data_stop

    def _repair_data(self, segment: _Segment) -> None:
        """Put tombstones in the place of entries whose batches are damaged."""
        file = data_file(self._folder, segment.first)
        for number, entry in enumerate(segment.entries):
            if int(entry["kind"]) == Kind.LOST or int(entry["length"]) == 0:
                continue
            offset, length = int(entry["offset"]), int(entry["length"])
            data = _read(file, offset, length)
            if len(data) == length and xxhash.xxh3_64_intdigest(data) == int(
                entry["data_checksum"]
            ):
                continue
            position, count = int(entry["position"]), int(entry["count"])
            aside = self._put_aside(file, offset, length, position, "a batch was damaged")
            self._note(file, position, count, "the batch was damaged", aside)
            segment.bury(_as_lost(entry), offset, number)

    def _fill(self, segment: _Segment, stop: int) -> None:
        """Let a tombstone reach to where the next segment begins."""
        if segment.stop >= stop:
            return
        state = state_after(segment.header.state, segment.entries)
        missing = self._tombstone(state, stop - state.position, state.running_max)
        offset = _data_stop(segment, len(segment.entries))
        entry = np.frombuffer(missing.pack(offset), dtype=DTYPE)
        self._note(
            index_file(self._folder, segment.first),
            state.position,
            missing.count,
            "entries are missing",
            None,
        )
        segment.entries = np.concatenate([segment.entries, entry])
        segment.good = np.append(segment.good, True)
        segment.changed = True

    def _tombstone(self, state: State, count: int, running_max: int | None) -> Record:
        return Record(
            kind=Kind.LOST,
            position=state.position,
            count=count,
            appended_at=self._now,
            max_before=state.running_max,
            max_after=running_max,
            floor_after=state.floor,
            ended=state.ended,
        )

    # writing

    def _save(self, segment: _Segment) -> None:
        if not segment.changed:
            return
        header = pack_header(
            segment.header.state,
            version=segment.header.version,
            data_start=segment.header.data_start,
            generation=segment.header.generation,
        )
        write_whole(
            self._disk, index_file(self._folder, segment.first), header + segment.entries.tobytes()
        )

    def _mark(self, last: _Segment, generation: int) -> None:
        """Set the mark to the repaired end: the same position, maybe another number of entries."""
        if mark_file(self._folder).exists() and read_mark(self._folder) is None:
            self._disk.remove(mark_file(self._folder))
        mark = MarkWriter(self._folder, self._disk, generation)
        mark.set(last.first, len(last.entries), last.stop)
        mark.close()

    def _put_aside(self, file: Path, offset: int, length: int, position: int, fact: str) -> Path:
        make_folder(self._disk, self._aside)
        name = f"p{self._partition:04d}-{position:020d}-{self._now}{file.suffix or '-' + file.name}"
        write_whole(self._disk, self._aside / name, _read(file, offset, length))
        note = {
            "from": file.name,
            "offset": offset,
            "length": length,
            "position": position,
            "fact": fact,
        }
        write_whole(self._disk, self._aside / f"{name}.json", json.dumps(note, indent=1).encode())
        return self._aside / name

    def _note(
        self, file: Path, position: int, positions: int, fact: str, aside: Path | None
    ) -> None:
        self._done.append(Repaired(self._partition, file, position, positions, fact, aside))


def _nobody(number: int) -> str:
    """Return a name for a sender whose name is lost; no sender has it."""
    return f"lost sender {number} ({uuid.uuid4().hex[:8]})"


def _as_lost(entry: np.void) -> Record:
    """Return the tombstone of an entry whose batch is damaged: sender, numbers, times stay."""
    return Record(
        kind=Kind.LOST,
        position=int(entry["position"]),
        count=int(entry["count"]),
        appended_at=int(entry["appended_at"]),
        sender=int(entry["sender"]),
        version=int(entry["version"]),
        length=int(entry["length"]),
        first_seq=int(entry["first_seq"]),
        last_seq=int(entry["last_seq"]),
        min_time=maybe(entry["min_time"]),
        max_time=maybe(entry["max_time"]),
        max_before=maybe(entry["max_before"]),
        max_after=maybe(entry["max_after"]),
        floor_after=maybe(entry["floor_after"]),
        ended=bool(entry["flags"] & ENDED),
    )


def _begins_here(raw: bytes, first: int) -> bool:
    return (
        len(raw) == SIZE
        and int(np.frombuffer(raw, dtype=DTYPE)[0]["position"]) == first
        and _is_sound(raw)
    )


def _is_sound(raw: bytes) -> bool:
    return bool(checksums(raw)[0] == np.frombuffer(raw, dtype=DTYPE)[0]["checksum"])


def _data_stop(segment: _Segment, number: int) -> int:
    """Return where the data of the entries before `number` ends."""
    if number == 0:
        return segment.header.data_start
    return int(segment.entries[number - 1]["offset"]) + int(segment.entries[number - 1]["length"])


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _read(file: Path, offset: int, length: int) -> bytes:
    if not file.exists():
        return b""
    with file.open("rb") as source:
        source.seek(offset)
        return source.read(length)
