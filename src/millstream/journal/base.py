"""What a journal is, whatever it is kept in.

A journal is an append-only, partitioned, durable log of Arrow record batches. A position is a row's
number in its partition; an instruction takes one position and no row. Times are microseconds since
1970 in UTC.

Two kinds of senders write: inboxes append *rows*, numbered one by one, of which those already seen
are left out; groups append *epochs*, taken or ignored as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import pyarrow as pa

PASSING = "client:"
"""How the names of senders begin that are made up for one connection, and never come again."""

Reasoned = tuple[str, str]
"""A row that was refused: the reason, and the row as JSON."""

FOREVER = 2**63 - 1
"""The largest time; as a `max_lag`, a row lies below the floor and is late at any lateness."""


class Kind(IntEnum):
    """What an entry of a journal is."""

    ROWS = 1
    EPOCH = 2
    IDLE = 3
    WATERMARK = 4
    END_OF_STREAM = 5
    LOST = 6
    #: Everything of a sender up to a number was dealt with, whether it made rows or not.
    PROGRESS = 7

    @property
    def instruction(self) -> bool:
        return self in (Kind.IDLE, Kind.WATERMARK, Kind.END_OF_STREAM, Kind.PROGRESS)


@dataclass(frozen=True, slots=True)
class EarlierPartitions:
    """The partitions of a journal before it grew, and which rows are spread over them.

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
    earlier: tuple[EarlierPartitions, ...] = ()

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
    """Rows for one partition, written and synced by a task, not yet part of the journal."""

    file: str
    partition: int
    rows: int
    bytes: int
    checksum: int
    min_time: int | None
    max_time: int | None
    parts: int
    version: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that was not taken: where it came from, and why."""

    origin: str
    position: int
    reason: str
    record: str
    partition: int = 0

    @property
    def key(self) -> tuple[str, int, int]:
        return (self.origin, self.partition, self.position)


@dataclass(frozen=True, slots=True)
class Claim:
    """Who has a sender's name: an incarnation (0: none has claimed it), and a producer's key."""

    incarnation: int = 0
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """How far a reader has come, per partition."""

    reader: str
    positions: Mapping[int, int]
    at: int


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What a trim has removed."""

    segments: int
    positions: int
    bytes: int

    def plus(self, other: Trimmed) -> Trimmed:
        return Trimmed(
            self.segments + other.segments,
            self.positions + other.positions,
            self.bytes + other.bytes,
        )
