"""What a kind of journal is: the operations that all of Millstream uses, and no more.

A second kind is a class with the operations of `Journal` in `journal/kinds/<kind>`, and a line in
`address.py`. `tests/contract/check_journal.py` says what it has to promise. Copies of partitions on
other engines (`kinds/files/mirror.py`) belong to the kind `files` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, Self

import pyarrow as pa

from millstream.clock import Clock
from millstream.journal.base import (
    Accepted,
    Claim,
    Committed,
    DeadLetter,
    Description,
    Entry,
    Kind,
    PartitionState,
    Reasoned,
    Slice,
    Staged,
    Trimmed,
)
from millstream.journal.health import Repaired, Summary, Verification

if TYPE_CHECKING:
    from millstream.journal.letters import Mark


class PartitionWriter(Protocol):
    """The one writer of a partition; any thread may append. It is closed as a context."""

    #: Called after every commit, by whichever thread has made it.
    on_durable: Callable[[], None]

    @property
    def description(self) -> Description: ...
    @property
    def partition(self) -> int: ...
    @property
    def ended(self) -> bool: ...
    @property
    def floor(self) -> int | None: ...
    @property
    def running_max(self) -> int | None: ...

    @property
    def end(self) -> int:
        """The position after the last durable one."""
        ...

    def highest(self, sender: str) -> int:
        """Return the highest sequence number taken from `sender`, queued ones too, or -1."""
        ...

    def append(self, sender: str, first_seq: int, batch: pa.RecordBatch) -> Accepted:
        """Append rows numbered from `first_seq`; they are durable when this returns."""
        ...

    def append_nowait(
        self,
        sender: str,
        first_seq: int,
        batch: pa.RecordBatch,
        *,
        message: pa.Buffer | None = None,
    ) -> Future[Accepted]:
        """Queue rows until they are durable. `message` is the serialized batch."""
        ...

    def append_staged(self, sender: str, epoch: int, staged: Sequence[Staged]) -> Future[Accepted]:
        """Queue the rows of an epoch that `Journal.stage_arrival` has staged, as one entry."""
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

    def instruct_nowait(
        self,
        kind: Kind,
        floor: int | None = None,
        *,
        sender: str | None = None,
        seq: int | None = None,
    ) -> Future[Accepted]:
        """Queue an instruction as `instruct` does."""
        ...

    def close(self) -> None:
        """Write what is queued and release the partition."""
        ...

    def abort(self) -> None:
        """Release the partition without writing what is queued."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class PartitionReader(Protocol):
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
        """Return where the running maximum first is above `moment`, from `start` on, else `end`."""
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


class JournalReader(Protocol):
    """A reader of all partitions."""

    @property
    def description(self) -> Description: ...

    def partition(self, number: int) -> PartitionReader:
        """Return the reader of a partition; the same one each time."""
        ...


class EpochWriter(Protocol):
    """The one writer of a journal that groups write: an epoch exists once it is decided."""

    def last(self, sender: str) -> int:
        """Return the last epoch decided for `sender`, or -1."""
        ...

    def decide(
        self,
        sender: str,
        epoch: int,
        staged: Iterable[Staged],
        floor: int | None = None,
        *,
        ended: bool = False,
    ) -> bool:
        """Make an epoch exist, durably; False if it did before, and what is staged is removed."""
        ...

    def publish(self) -> int:
        """Put all decided epochs into their partitions; return how many rows those were."""
        ...

    def recover(self) -> int:
        """Publish what is decided, remove what else is staged, and return the rows published."""
        ...

    def close(self) -> None:
        """Release the journal; decisions stand."""
        ...


class ClaimLog(Protocol):
    """Who has which sender's name in a partition, for its one writer."""

    @property
    def known(self) -> Mapping[str, Claim]:
        """The claims as they are now, by sender."""
        ...

    def put(self, sender: str, claim: Claim) -> None:
        """Note who has a name; it is durable when this returns."""
        ...


class DeadLetters(Protocol):
    """The dead letters of a journal, open for writing by one process at a time."""

    def put(
        self, origin: str, position: int, reason: str, record: object, partition: int = 0
    ) -> bool:
        """Store one letter unless it is there, durably; True if it is new."""
        ...

    def put_all(self, letters: Iterable[DeadLetter]) -> int:
        """Store the letters that are not there yet, durably, and return how many those were."""
        ...

    def put_marks(self, marks: Sequence[Mark]) -> None:
        """Store what is decided about letters, durably: of two marks with one number the first counts."""
        ...


class Excerpt(Protocol):
    """What a task on another host needs to read a range by itself; it is pickled."""

    @property
    def place(self) -> str:
        """Where the rows are, for messages."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of the journal."""
        ...

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Iterator[Slice]:
        """Yield what lies in [start, stop) of the range, as `PartitionReader.read` does.

        Raises:
            BrokerError: It is not in reach of this host.
            SecretMissing: This host has no value for a secret that it needs for that.
        """
        ...


class Journal(Protocol):
    """A journal at an address, whether it exists or not; each operation opens what it needs."""

    @property
    def everywhere(self) -> bool:
        """Whether hosts see what others write, without copies that engines keep of partitions."""
        ...

    # declaring

    def exists(self) -> bool: ...

    def create(
        self,
        schema: pa.Schema,
        *,
        partitions: int = 1,
        time: str | None = None,
        written_by: str = "inbox",
    ) -> Description:
        """Make it, or return the one that is there; nullable columns are added."""
        ...

    def describe(self) -> Description:
        """Return what it is declared to hold."""
        ...

    def grow(
        self, partitions: int, *, lateness_us: int = 0, clock: Clock | None = None
    ) -> Description:
        """Give it more partitions, if it has fewer and has not ended."""
        ...

    # rows

    def writer(
        self, partition: int = 0, *, clock: Clock | None = None, timeout: float = 0.0
    ) -> PartitionWriter:
        """Take a partition for writing, and recover it if its last writer died."""
        ...

    def reader(self) -> JournalReader:
        """Return a reader of its own."""
        ...

    def cached_reader(self) -> JournalReader:
        """Return this process's reader: what it knows lives on between calls."""
        ...

    def excerpt(self, partition: int, start: int, stop: int) -> Excerpt | None:
        """Return what a task needs to read a range without this host; None: it cannot."""
        ...

    # epochs of groups, which write here alone

    def stage(
        self, batches: Iterable[pa.RecordBatch], partition_of: str | int | None = None
    ) -> list[Staged]:
        """Keep rows aside, durably: by key, for a partition, or whole batches in turn."""
        ...

    def epochs(self) -> EpochWriter:
        """Take the journal for writing epochs; call `recover` before anything is staged."""
        ...

    # epochs of groups elsewhere, which arrive in inboxes

    def stage_arrival(
        self,
        partition: int,
        sender: str,
        epoch: int,
        batches: Iterable[pa.RecordBatch],
        refused: Sequence[Reasoned] = (),
    ) -> list[Staged]:
        """Keep rows of an epoch aside, and those that were refused, durably."""
        ...

    def checked_arrival(
        self, staged: Iterable[Staged], partition: int, sender: str, epoch: int
    ) -> tuple[list[Staged], list[Staged]]:
        """Return what holds rows and what holds refused rows, if all was staged for this epoch."""
        ...

    def read_refused(self, staged: Iterable[Staged]) -> list[Reasoned]:
        """Return the rows that were refused when they were staged."""
        ...

    def discard_arrival(self, partition: int, sender: str, epoch: int) -> None:
        """Remove what a sender has staged for a partition, for epochs up to this one."""
        ...

    def left_arrivals(self, partition: int, besides: Iterable[str] = ()) -> list[str]:
        """Return what is staged for a partition by senders other than these, by name."""
        ...

    def remove_arrival(self, partition: int, name: str) -> None:
        """Remove something that is staged for a partition, if it is there."""
        ...

    def ended_senders(self, partition: int) -> list[str]:
        """Return the senders that have ended in a partition."""
        ...

    def end_sender(self, partition: int, sender: str) -> None:
        """Note, durably, that a sender has ended in a partition."""
        ...

    def claims(self, partition: int) -> ClaimLog:
        """Return who has which sender's name in a partition."""
        ...

    # dead letters

    def dead_letters(
        self, *, clock: Clock | None = None, timeout: float = 30.0
    ) -> AbstractContextManager[DeadLetters]:
        """Open the dead letters for writing, made if there are none."""
        ...

    def dead_counts(self) -> dict[str, int]:
        """Return how many dead letters there are, by kind of reason."""
        ...

    def dead_waiting(self) -> dict[str, int]:
        """Return how many of them are neither replayed nor discarded, by kind of reason."""
        ...

    def dead_journal(self) -> Journal:
        """Return the dead letters as a journal, to read them."""
        ...

    # retention

    def commit(self, reader: str, positions: Mapping[int, int] | Sequence[int]) -> None:
        """Note that `reader` needs nothing before these positions; this registers it too."""
        ...

    def commit_for(self, partition: int, positions: Mapping[str, int]) -> None:
        """Note how far all readers have come in one partition; the others are forgotten."""
        ...

    def committed(self) -> list[Committed]:
        """Return the registered readers."""
        ...

    def forget(self, reader: str) -> None:
        """Unregister a reader: it holds nothing back any more."""
        ...

    def trim(
        self,
        *,
        keep_for: timedelta | None = None,
        keep_bytes: int | None = None,
        look_back: timedelta = timedelta(0),
    ) -> Trimmed:
        """Remove what no reader needs and what need not be kept, and return how much that was."""
        ...

    def trim_to(self, partition: int, position: int) -> Trimmed:
        """Remove what lies before a position of a partition, unless a reader needs it."""
        ...

    # health

    def summary(self) -> Summary:
        """Return the journal in numbers."""
        ...

    def verify(self, progress: Callable[[int], None] = lambda _: None) -> Verification:
        """Compare all that readers can see with its checksum; `progress` gets numbers of bytes."""
        ...

    def bytes_to_verify(self) -> int:
        """Return about how many bytes `verify` has to read."""
        ...

    def repair(self) -> list[Repaired]:
        """Put what is damaged aside, so that readers can continue."""
        ...
