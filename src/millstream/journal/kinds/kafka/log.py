"""Which records of an index count, and when a writer may acknowledge: the rules, without a broker.

A partition of a journal is two partitions in Kafka: one with data, one with the index. Anybody can
append to either, at any time, also a writer that everyone believes dead: Kafka refuses nobody. So it
is for those who read the index to decide what counts, and they all decide alike:

    claim       counts always; its offset is the *generation* of the writer that appended it
    entry       counts if it names the latest claim before it and begins where the entry before it ends
    snapshot    the same, and takes no position: the state there, for those who begin to read there
    note        the same: something that the writer has to remember
    memo        counts always: something that anybody may add, in any order, and twice

A writer claims, reads the index up to its own claim, and goes on from there. It writes data first,
and the index after that. It acknowledges an entry once it has seen that the entry counts. That costs
nothing while the offsets of its records follow each other; where they do not, it reads what others
have written in between. A record whose delivery has failed may be there or not, or may come later:
so its writer has to claim again, after which it never counts if it was not there before.

What has become obsolete is deleted from the beginning of an index up to a snapshot that counts, so
whoever begins to read where the index begins finds one there, or finds offset 0.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from millstream.errors import JournalError

NOBODY: Final = -1
"""The generation before the first claim."""


class What(IntEnum):
    """What a record of an index is."""

    CLAIM = 1
    ENTRY = 2
    SNAPSHOT = 3
    NOTE = 4
    MEMO = 5


@dataclass(frozen=True, slots=True)
class IndexRecord:
    """A record of an index: what the rules look at, and a body that they do not look into."""

    what: What
    generation: int = NOBODY
    position: int = 0
    count: int = 0
    body: bytes = b""


Found = tuple[int, IndexRecord]
"""A record with its offset."""


class Fenced(JournalError):
    """Another writer has claimed the partition: this one may not write any more."""


@dataclass(slots=True)
class Counting:
    """How far an index has been read, and what counts there: `next` is the offset to read next."""

    next: int = 0
    generation: int = NOBODY
    position: int = 0
    #: Nothing was read yet, and the index does not begin with offset 0.
    truncated: bool = False

    def take(self, offset: int, record: IndexRecord) -> bool:
        """Move past a record, and return whether it counts."""
        self.next = offset + 1
        if record.what is What.CLAIM:
            self.generation = offset
            return True
        if record.what is What.MEMO:
            return True
        if self.truncated and record.what is What.SNAPSHOT:
            self.generation, self.position, self.truncated = (
                record.generation,
                record.position,
                False,
            )
            return True
        counts = record.generation == self.generation and record.position == self.position
        if counts:
            self.position += record.count
        return counts


# what an owner asks for; whoever drives it does it, and sends the answer


@dataclass(frozen=True, slots=True)
class ToData:
    """Append values to the data; the answer is their offsets."""

    values: Sequence[Any]


@dataclass(frozen=True, slots=True)
class ToIndex:
    """Append records to the index; the answer is their offsets."""

    records: Sequence[IndexRecord]


@dataclass(frozen=True, slots=True)
class FromIndex:
    """Read records of the index; the answer is those from `start` on that are there, before `stop`."""

    start: int
    stop: int


Request = ToData | ToIndex | FromIndex
Steps = Generator[Request, Any, None]
"""Steps of an owner: it asks, and is sent the answers."""


@dataclass(slots=True)
class Owner:
    """The one writer of a partition, as long as nobody else claims it.

    If a step raises, also because a delivery failed, the owner must claim again. What was found to
    count until then is in `fresh` all the same.
    """

    counting: Counting
    name: str
    generation: int = NOBODY
    #: The records that count and were not taken over yet.
    fresh: list[Found] = field(default_factory=list)

    def taken(self) -> list[Found]:
        """Return the records that count since this was asked last."""
        found, self.fresh = self.fresh, []
        return found

    def claim(self) -> Steps:
        """Take the partition, and read all that there is up to there."""
        (offset,) = yield ToIndex([IndexRecord(What.CLAIM, body=self.name.encode())])
        yield from self._read(offset + 1)
        self.generation = offset

    def record(self, what: What, position: int, count: int = 0, body: bytes = b"") -> IndexRecord:
        """Return a record of this owner."""
        return IndexRecord(what, self.generation, position, count, body)

    def append(self, records: Sequence[IndexRecord]) -> Steps:
        """Append records whose data is there; they count, durably, when this returns.

        Raises:
            Fenced: Another writer has claimed the partition; some of the records may count.
        """
        offsets = yield ToIndex(records)
        for offset, record in zip(offsets, records, strict=True):
            yield from self._read(offset)
            if self.counting.next != offset or not self._take(offset, record):
                raise Fenced(
                    f"another writer has claimed the partition, at offset {self.counting.generation}",
                    hint="a partition is written by one engine at a time",
                )

    def _read(self, stop: int) -> Steps:
        while self.counting.next < stop:
            answer: list[Found] = yield FromIndex(self.counting.next, stop)
            for offset, record in answer:
                self._take(offset, record)

    def _take(self, offset: int, record: IndexRecord) -> bool:
        counts = self.counting.take(offset, record)
        if counts:
            self.fresh.append((offset, record))
        return counts
