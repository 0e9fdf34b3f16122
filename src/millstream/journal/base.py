"""What a journal is, whatever it is kept in.

A journal is an append-only, partitioned, durable log of Arrow record batches. A position is a row's
number in its partition; an instruction takes one position and no row. Times are microseconds since
1970 in UTC.

Two kinds of senders write: inboxes append *rows*, numbered one by one, of which those already seen
are left out; groups append *epochs*, taken or ignored as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Protocol

import pyarrow as pa

FOREVER = 2**63 - 1
"""The largest time: a `max_lag` of this means that a row lies below the floor, so it is late at any lateness."""


class Kind(IntEnum):
    """What an entry of a journal is."""

    ROWS = 1
    EPOCH = 2
    IDLE = 3
    WATERMARK = 4
    END_OF_STREAM = 5
    LOST = 6

    @property
    def instruction(self) -> bool:
        return self in (Kind.IDLE, Kind.WATERMARK, Kind.END_OF_STREAM)


@dataclass(frozen=True, slots=True)
class Layout:
    """How many partitions a journal had before it grew, and up to which number each sender's rows are spread over them.

    Of senders that are not named none is: see `growth.py`.
    """

    partitions: int
    until: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Description:
    """What a journal is declared to hold; `schema` is the newest of `schemas`."""

    path: Path
    schema: pa.Schema
    partitions: int
    time: str | None
    written_by: str
    schemas: tuple[pa.Schema, ...]
    #: How it was laid out before it grew, oldest first.
    earlier: tuple[Layout, ...] = ()

    @property
    def version(self) -> int:
        return len(self.schemas) - 1

    @property
    def lasting(self) -> int:
        """How many partitions it was made with: the same for ever, whoever sends a row again."""
        return self.earlier[0].partitions if self.earlier else self.partitions


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer to an append.

    `rows` are all rows sent, also repeated ones; `stored` are those that were new, from `position`
    on. If none were new, `position` is the end of the partition.
    """

    rows: int
    position: int
    stored: int


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What is known before a position: a function of what the partition holds up to there."""

    running_max: int | None
    floor: int | None
    ended: bool
    last_append_at: int | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the index.

    `count` positions are taken, `rows` of them are rows. `max_lag` is the largest distance of a row
    behind the running maximum before it (None: there is none to compare with, or the entry is an
    epoch, where no row is late).
    """

    kind: Kind
    position: int
    count: int
    rows: int
    sender: str | None
    first_seq: int
    last_seq: int
    min_time: int | None
    max_time: int | None
    running_max_before: int | None
    running_max_after: int | None
    max_lag: int | None
    floor_after: int | None
    ended: bool
    appended_at: int
    file: Path
    offset: int
    length: int

    @property
    def stop(self) -> int:
        return self.position + self.count


@dataclass(frozen=True, slots=True)
class Slice:
    """A run of positions as read: rows, or an instruction, or a loss (then `batch` is None).

    `max_lag`, `running_max_before` and `floor_before` are those of this slice, so that `late_mask`
    needs no more.
    """

    position: int
    batch: pa.RecordBatch | None
    kind: Kind
    max_lag: int | None
    running_max_before: int | None
    floor_before: int | None
    floor_after: int | None
    ended: bool
    stop: int


@dataclass(frozen=True, slots=True)
class Staged:
    """A file of rows for one partition, written and synced by a task, not yet part of the journal."""

    file: str
    partition: int
    rows: int
    bytes: int
    checksum: int
    min_time: int | None
    max_time: int | None
    parts: int
    version: int


class JournalWriter(Protocol):
    """The one writer of a partition."""

    @property
    def end(self) -> int:
        """The position after the last durable one."""
        ...

    def highest(self, sender: str) -> int:
        """Return the highest sequence number taken from `sender`, or -1."""
        ...

    def append(self, sender: str, first_seq: int, batch: pa.RecordBatch) -> Accepted:
        """Append rows numbered from `first_seq`; they are durable when this returns."""
        ...

    def append_nowait(self, sender: str, first_seq: int, batch: pa.RecordBatch) -> Future[Accepted]:
        """Queue rows; the future resolves when they are durable."""
        ...

    def instruct(
        self,
        kind: Kind,
        floor: int | None = None,
        *,
        sender: str | None = None,
        seq: int | None = None,
    ) -> Accepted:
        """Append an instruction; it is durable when this returns."""
        ...

    def close(self) -> None:
        """Write what is queued and let go of the partition."""
        ...


class JournalReader(Protocol):
    """A reader of one partition, by position."""

    @property
    def begin(self) -> int:
        """The first position that is still there."""
        ...

    @property
    def end(self) -> int:
        """The position after the last durable one, now."""
        ...

    def state_at(self, position: int) -> PartitionState:
        """Return what is known before `position`."""
        ...

    def first_above(self, moment: int, start: int, end: int) -> int:
        """Return the first position from `start` on at which the running maximum is above `moment`, else `end`."""
        ...

    def position_at_time(self, moment: int) -> int:
        """Return the first position with a row at or after `moment`, else the end."""
        ...

    def entries(self, start: int, stop: int) -> Iterator[Entry]:
        """Yield the entries that touch [start, stop)."""
        ...

    def rows(self, start: int, stop: int) -> int:
        """Return how many rows lie in [start, stop): instructions have positions too."""
        ...

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Iterator[Slice]:
        """Yield what lies in [start, stop), cut to the row."""
        ...
