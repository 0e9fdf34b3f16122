"""Retention: what readers still need, and removing the rest.

A reader commits its positions in `DIR/readers/<name>.json`. A segment goes when every registered
reader has passed it *and* its age or the partition's size allows it; the last one stays. What the
running maximum, the floor and the senders' numbers need lies in the next segment's header.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from millstream.clock import MICROSECOND, Clock, SystemClock
from millstream.errors import CorruptIndex, JournalError
from millstream.journal.base import Committed, Trimmed
from millstream.journal.kinds.files.description import describe
from millstream.journal.kinds.files.index import State, read_header
from millstream.journal.kinds.files.layout import (
    data_file,
    index_file,
    partition_folder,
    readers_folder,
    segment_bytes,
    segment_positions,
)
from millstream.journal.kinds.files.lines import checked, with_checksum
from millstream.journal.kinds.files.reader import PartitionReader, Reader
from millstream.storage.disk import REAL, Disk, make_folder, write_whole

SizeOf = Callable[[Path, int], int]
"""Tells the size of a segment, by its partition's folder and its first position."""


def commit(
    path: Path | str,
    reader: str,
    positions: Mapping[int, int] | Sequence[int],
    *,
    disk: Disk = REAL,
    clock: Clock | None = None,
) -> None:
    """Note that `reader` needs nothing before these positions; this registers it too."""
    by_partition = positions if isinstance(positions, Mapping) else dict(enumerate(positions))
    folder = readers_folder(Path(path))
    make_folder(disk, folder)
    body = {
        "reader": reader,
        "positions": {str(k): v for k, v in sorted(by_partition.items())},
        "at": (clock or SystemClock()).now_us(),
    }
    write_whole(disk, _reader_file(folder, reader), json.dumps(with_checksum(body)).encode())


def commit_for(
    path: Path | str,
    partition: int,
    positions: Mapping[str, int],
    *,
    disk: Disk = REAL,
    clock: Clock | None = None,
) -> None:
    """Note how far all readers have come in one partition; the others are forgotten."""
    known = {reader.reader: dict(reader.positions) for reader in committed(path)}
    for reader in known.keys() - positions.keys():
        forget(path, reader, disk=disk)
    for reader, position in positions.items():
        before = known.get(reader, {})
        if before.get(partition) != position:
            commit(path, reader, before | {partition: position}, disk=disk, clock=clock)


def committed(path: Path | str) -> list[Committed]:
    """Return the registered readers.

    Raises:
        JournalError: A reader's file is damaged: until it commits again nothing may be removed.
    """
    folder = readers_folder(Path(path))
    if not folder.is_dir():
        return []
    return [read_committed(file) for file in sorted(folder.glob("*.json"))]


def forget(path: Path | str, reader: str, *, disk: Disk = REAL) -> None:
    """Unregister a reader: it holds nothing back any more."""
    disk.remove(_reader_file(readers_folder(Path(path)), reader))


def _reader_file(folder: Path, reader: str) -> Path:
    return folder / f"{urllib.parse.quote(reader, safe=' ')}.json"


def read_committed(file: Path) -> Committed:
    """Return what a reader has committed in its file."""
    try:
        body = checked(json.loads(file.read_bytes()))
        return Committed(
            body["reader"], {int(k): int(v) for k, v in body["positions"].items()}, body["at"]
        )
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        msg = f'the positions of a reader in "{file}" are damaged'
        hint = "run the reader once more, or remove the file if it is gone permanently"
        raise JournalError(msg, hint=hint) from exc


def trim(
    path: Path | str,
    *,
    keep_for: timedelta | None = None,
    keep_bytes: int | None = None,
    look_back: timedelta = timedelta(0),
    now: int | None = None,
    partitions: list[int] | None = None,
    disk: Disk = REAL,
    reader: type[Reader] | Callable[[Path], Reader] = Reader,
    size_of: SizeOf = segment_bytes,
) -> Trimmed:
    """Remove the segments that nobody needs, and return what went.

    With neither `keep_for` (since it was appended) nor `keep_bytes` (per partition) everything is
    kept. `look_back` keeps, for every reader, rows that are less than this behind the running
    maximum at its position.
    """
    wish = _Wish(SystemClock().now_us() if now is None else now, keep_for, keep_bytes)
    readers = committed(path)
    total = Trimmed(0, 0, 0)
    for partition in partitions if partitions is not None else range(describe(path).partitions):
        view = reader(Path(path)).partition(partition)
        needed_from = _needed_from(view, readers, look_back)
        folder = partition_folder(Path(path), partition)
        total = total.plus(_trim_partition(folder, needed_from, wish, disk, size_of))
    return total


def trim_to(
    path: Path | str,
    partition: int,
    position: int,
    *,
    disk: Disk = REAL,
    size_of: SizeOf = segment_bytes,
) -> Trimmed:
    """Remove the segments before a position of a partition, unless a reader needs them."""
    view = Reader(path).partition(partition)
    needed_from = _needed_from(view, committed(path), timedelta(0))
    stop = position if needed_from is None else min(position, needed_from)
    folder = partition_folder(Path(path), partition)
    return _trim_partition(folder, stop, _ANYTHING, disk, size_of)


@dataclass(frozen=True, slots=True)
class _Wish:
    """What the user allows to go."""

    now: int
    keep_for: timedelta | None
    keep_bytes: int | None

    def allows(self, last_append_at: int | None, partition_bytes: int) -> bool:
        old = (
            self.keep_for is not None
            and last_append_at is not None
            and self.now - last_append_at > self.keep_for // MICROSECOND
        )
        return old or (self.keep_bytes is not None and partition_bytes > self.keep_bytes)


_ANYTHING = _Wish(now=0, keep_for=None, keep_bytes=-1)


def _needed_from(
    reader: PartitionReader, readers: list[Committed], look_back: timedelta
) -> int | None:
    """Return the lowest position that a reader may ask for; None if there is no reader."""
    lowest: int | None = None
    for committed_by in readers:
        position = committed_by.positions.get(reader.partition, 0)
        if look_back and position > reader.begin:
            running_max = reader.state_at(min(position, reader.end)).running_max
            if running_max is not None:
                position = min(
                    position, reader.position_at_time(running_max - look_back // MICROSECOND)
                )
        lowest = position if lowest is None else min(lowest, position)
    return lowest


def _trim_partition(
    folder: Path, needed_from: int | None, wish: _Wish, disk: Disk, size_of: SizeOf
) -> Trimmed:
    firsts = segment_positions(folder)
    sizes = {first: size_of(folder, first) for first in firsts}
    left = sum(sizes.values())
    removed = Trimmed(0, 0, 0)
    for first, following in pairwise(firsts):
        if needed_from is not None and following > needed_from:
            break
        state = _state(folder, following)
        if state is None or not wish.allows(state.appended_at, left):
            break
        # The index first: without it there is no segment, and the next writer removes data that has
        # none.
        disk.remove(index_file(folder, first))
        disk.remove(data_file(folder, first))
        left -= sizes[first]
        removed = removed.plus(Trimmed(1, following - first, sizes[first]))
    if removed.segments:
        disk.sync_folder(folder)
    return removed


def _state(folder: Path, first: int) -> State | None:
    try:
        return read_header(index_file(folder, first)).state
    except CorruptIndex:
        return None  # it will be rebuilt from the segment before it, which has to stay until then
