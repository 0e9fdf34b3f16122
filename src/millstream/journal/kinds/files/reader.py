"""Reading a journal by position, from memory maps, while it is written.

A reader goes by the mark (`mark.py`): it sees an entry once it is synced, never one that a crash
could take back. Finding a position or a time is two binary searches, over the segments (each header
holds the state at its start) and over the entries of one of them, so it costs the same in a small
journal and in a large one.

The data of an entry is compared with its checksum the first time that a process reads it, also if
only some columns are wanted: batches are small, so their other columns are in memory by then.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

import numpy as np

from millstream.errors import JournalMissing, PositionUnwritten
from millstream.journal.base import Description, Entry, Kind, PartitionState, Slice
from millstream.journal.kinds.files.entry_data import Described, EntryData
from millstream.journal.kinds.files.index import ENDED, NOBODY, NOTHING, kind_of, maybe
from millstream.journal.kinds.files.layout import description_file, partition_folder
from millstream.journal.kinds.files.segments import Segment
from millstream.journal.kinds.files.senders import read_senders
from millstream.journal.kinds.files.visible import Visible
from millstream.journal.lateness import max_lag

_INSTRUCTIONS: Final = [int(kind) for kind in Kind if kind.instruction]


class PartitionReader:
    """Reads one partition; not safe for several threads."""

    def __init__(self, described: Described, partition: int, *, check: bool = True) -> None:
        self.partition = partition
        self._described = described
        self._folder = partition_folder(described.path, partition)
        self._name = f'partition {partition} of journal "{described.path}"'
        self._visible = Visible(self._folder, self._name)
        self._data = self._entry_data(check=check)
        self._senders: dict[int, str] = {}

    def _entry_data(self, *, check: bool) -> EntryData:
        return EntryData(self._described, self._visible.maps, check=check)

    @property
    def begin(self) -> int:
        """The first position that is still there."""
        return self._visible.begin

    @property
    def end(self) -> int:
        """The position after the last durable one, now."""
        return self._visible.end

    # finding

    def state_at(self, position: int) -> PartitionState:
        """Return what is known before `position`, exact to the row.

        Raises:
            PositionTrimmed: Retention has removed it.
            PositionUnwritten: It lies after the end.
        """
        end = self.end
        if position > end:
            msg = f"position {position} of {self._name} is not written, the end is {end}"
            raise PositionUnwritten(msg)
        if self._visible.mark is None:
            return PartitionState(None, None, ended=False, last_append_at=None)
        segment = self._visible.segment_of(position)
        number = len(segment.entries) if position == end else self._visible.find(segment, position)
        state = self._state_before(segment, number)
        if number == len(segment.entries) or position == int(segment.entries[number]["position"]):
            return state
        running_max = self._running_max_inside(segment, number, position, state.running_max)
        return PartitionState(running_max, state.floor, state.ended, state.last_append_at)

    def _state_before(self, segment: Segment, number: int) -> PartitionState:
        """Return the state before an entry, or after the last."""
        if number <= 0:
            at = segment.header.state
            return PartitionState(at.running_max, at.floor, at.ended, at.appended_at)
        segment.check_entry(number - 1)
        entry = segment.entries[number - 1]
        return PartitionState(
            maybe(entry["max_after"]),
            maybe(entry["floor_after"]),
            bool(entry["flags"] & ENDED),
            int(entry["appended_at"]),
        )

    def _running_max_inside(
        self, segment: Segment, number: int, position: int, before: int | None
    ) -> int | None:
        """Return the running maximum before a row in the middle of an entry."""
        entry = segment.entries[number]
        if entry["kind"] == Kind.LOST or entry["max_after"] == entry["max_before"]:
            return before
        for start, batch in self._data.batches(segment, number, self._data.copied(segment, number)):
            if start >= position:
                break
            times = self._data.times(batch)[: position - start]
            if len(times):
                highest = int(times.max())
                before = highest if before is None else max(before, highest)
        return before

    def first_above(self, moment: int, start: int, end: int) -> int:
        """Return where the running maximum first is above `moment`, from `start` on, else `end`.

        So no row in [start, result) is above `moment`. If the maximum is above it already before
        `start`, the result is `start`.
        """
        return min(max(start, self._lifting(moment)), end)

    def position_at_time(self, moment: int) -> int:
        """Return the first position with a row at or after `moment`, else the end."""
        end = self.end
        return min(self._lifting(moment - 1), end)

    def _lifting(self, moment: int) -> int:
        """Return the position of the row that lifts the running maximum above `moment`."""
        end = self.end
        try:
            return self._find_lifting(moment, end)
        except FileNotFoundError:  # retention was quicker
            self._visible.list_segments()
            return self._find_lifting(moment, end)

    def _find_lifting(self, moment: int, end: int) -> int:
        if not self._visible.firsts:
            return end
        if self._visible.max_before(0) > moment:
            return self._visible.firsts[0]
        found = bisect.bisect_right(
            range(len(self._visible.firsts)), moment, key=self._visible.max_after
        )
        if found == len(self._visible.firsts):
            return end
        segment = self._visible.segment(found)
        return self._lifting_inside(segment, segment.first_lifting(moment), moment)

    def _lifting_inside(self, segment: Segment, number: int, moment: int) -> int:
        segment.check_entry(number)
        position = int(segment.entries[number]["position"])
        if segment.entries[number]["kind"] == Kind.LOST:
            return position  # one of the lost rows may have been the one
        for start, batch in self._data.batches(segment, number, self._data.copied(segment, number)):
            above = np.flatnonzero(self._data.times(batch) > moment)
            if len(above):
                return start + int(above[0])
        return position

    # reading

    def entries(self, start: int, stop: int) -> Iterator[Entry]:
        """Yield the entries that touch [start, stop)."""
        for segment, number in self._walk(start, stop):
            yield self._entry(segment, number)

    def rows(self, start: int, stop: int) -> int:
        """Return how many rows lie in [start, stop): instructions have positions too."""
        stop, found = min(stop, self.end), 0
        while start < stop:
            segment = self._visible.segment_of(start)
            part = segment.entries[self._visible.find(segment, start) : segment.find(stop - 1) + 1]
            until = min(stop, int(part[-1]["position"]) + int(part[-1]["count"]))
            found += until - start - int(np.count_nonzero(np.isin(part["kind"], _INSTRUCTIONS)))
            start = until
        return found

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Iterator[Slice]:
        """Yield what lies in [start, stop), cut to the row; batches are views of the files.

        Columns that an older batch does not have are null.

        Raises:
            CorruptBatch: An entry's bytes are not those that were written; nothing of it was handed
                out.
            PositionTrimmed: `start` was removed by retention.
        """
        wanted = list(columns) if columns is not None else None
        for segment, number in self._walk(start, stop):
            yield from self._slices(segment, number, start, stop, wanted)

    def _walk(self, start: int, stop: int) -> Iterator[tuple[Segment, int]]:
        stop = min(stop, self.end)
        if start >= stop:
            return
        position = start
        while position < stop:
            segment = self._visible.segment_of(position)
            number, count = self._visible.find(segment, position), len(segment.entries)
            while number < count and position < stop:
                segment.check_entry(number)
                yield segment, number
                entry = segment.entries[number]
                position = int(entry["position"]) + int(entry["count"])
                number += 1

    def _entry(self, segment: Segment, number: int) -> Entry:
        raw = segment.entries[number]
        kind = kind_of(raw)
        count = int(raw["count"])
        return Entry(
            kind=kind,
            position=int(raw["position"]),
            count=count,
            rows=count if kind in (Kind.ROWS, Kind.EPOCH) else 0,
            sender=self._sender(int(raw["sender"])),
            first_seq=_sequence(raw["first_seq"]),
            last_seq=_sequence(raw["last_seq"]),
            min_time=maybe(raw["min_time"]),
            max_time=maybe(raw["max_time"]),
            running_max_before=maybe(raw["max_before"]),
            running_max_after=maybe(raw["max_after"]),
            max_lag=maybe(raw["max_lag"]),
            floor_after=maybe(raw["floor_after"]),
            ended=bool(raw["flags"] & ENDED),
            appended_at=int(raw["appended_at"]),
            file=segment.data_path,
            offset=int(raw["offset"]),
            length=int(raw["length"]),
        )

    def _sender(self, number: int) -> str | None:
        if number == NOBODY:
            return None
        if number not in self._senders:
            self._senders = read_senders(self._folder)
        return self._senders.get(number, f"sender {number}")

    def _slices(
        self, segment: Segment, number: int, start: int, stop: int, columns: list[str] | None
    ) -> Iterator[Slice]:
        raw = segment.entries[number]
        kind = kind_of(raw)
        before = self._state_before(segment, number)
        floor_after, ended = maybe(raw["floor_after"]), bool(raw["flags"] & ENDED)
        position, count = int(raw["position"]), int(raw["count"])
        running_max = maybe(raw["max_before"])
        if kind not in (Kind.ROWS, Kind.EPOCH):
            begin, last = max(start, position), min(stop, position + count)
            yield Slice(
                begin, None, kind, None, running_max, before.floor, floor_after, ended, last
            )
            return
        whole = start <= position and position + count <= stop and int(raw["parts"]) == 1
        for begin, batch in self._data.batches(segment, number, self._data.mapped(segment, number)):
            if begin >= stop:
                return
            cut = batch.slice(max(0, start - begin), max(0, stop - max(start, begin)))
            lag = maybe(raw["max_lag"])
            if not whole and self._described.description.time is not None:
                times = self._data.times(batch)
                skipped = times[: max(0, start - begin)]
                running_max = _raised(running_max, skipped)
                if kind is Kind.ROWS:
                    lag = max_lag(self._data.times(cut), running_max, before.floor)
            if cut.num_rows:
                at = max(begin, start)
                end = at + cut.num_rows
                done = end == position + count
                yield Slice(
                    position=at,
                    batch=self._data.widened(cut, columns),
                    kind=kind,
                    max_lag=lag,
                    running_max_before=running_max,
                    floor_before=before.floor,
                    # What an epoch says about the future holds once all of it is read.
                    floor_after=floor_after if done else before.floor,
                    ended=ended and done,
                    stop=end,
                )
            if not whole and self._described.description.time is not None:
                running_max = _raised(running_max, self._data.times(cut))


def _raised(
    running_max: int | None, times: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> int | None:
    if len(times) == 0:
        return running_max
    highest = int(times.max())
    return highest if running_max is None else max(running_max, highest)


def _sequence(number: int) -> int:
    return -1 if number == NOTHING else int(number)


class Reader:
    """Reads a journal. Needs only the path, so executors open their own."""

    def __init__(self, path: Path | str, *, check: bool = True) -> None:
        self._described = Described(Path(path))
        self._check = check
        self._partitions: dict[int, PartitionReader] = {}

    @property
    def path(self) -> Path:
        return self._described.path

    @property
    def description(self) -> Description:
        return self._described.description

    def partition(self, number: int) -> PartitionReader:
        """Return the reader of a partition; the same one each time."""
        if not 0 <= number < self.description.partitions:
            msg = f'journal "{self.path}" has no partition {number}'
            raise JournalMissing(msg, hint=f"it has {self.description.partitions}")
        if number not in self._partitions:
            self._partitions[number] = self._opened(number)
        return self._partitions[number]

    def _opened(self, number: int) -> PartitionReader:
        return PartitionReader(self._described, number, check=self._check)

    @classmethod
    def cached(cls, path: Path | str) -> Reader:
        """Return this process's reader of a journal: maps and checks live on between calls."""
        return _readers.get(Path(path), cls)


R = TypeVar("R")


class ReaderCache(Generic[R]):
    """The readers of this process, each as long as its journal is there."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int], R]] = {}

    def get(self, path: Path, make: Callable[[Path], R]) -> R:
        """Return the reader of a journal, and forget those of journals that are gone.

        A process outlives many: those of a switched version and of a shadow are removed.
        """
        identity = description_identity(path)
        known = self._known.get(path)
        if known is None or known[0] != identity:
            known = (identity, make(path))
            kept = [(at, one) for at, one in list(self._known.items()) if at != path]
            self._known = {at: one for at, one in kept if description_identity(at) == one[0]}
            self._known[path] = known
        return known[1]


_readers: ReaderCache[Reader] = ReaderCache()


def description_identity(path: Path) -> tuple[int, int]:
    """Return what changes when the journal is described again, or is another one."""
    try:
        status = description_file(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return (0, 0)
    return (status.st_ino, status.st_mtime_ns)
