"""The writer of a partition: what is appended is drafted at once, in order, and written in groups.

`drafts.py` thinks, in the caller's thread; `commit_queue.py` writes, in a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Self

import pyarrow as pa

from millstream.clock import Clock, SystemClock
from millstream.errors import InternalError, JournalMissing, SchemaConflict
from millstream.journal.base import Accepted, Description, Kind, Staged, Trimmed
from millstream.journal.kinds.files.arrivals import read_arrival
from millstream.journal.kinds.files.commit_queue import CommitQueue
from millstream.journal.kinds.files.copylog import refuse_copy
from millstream.journal.kinds.files.description import describe
from millstream.journal.kinds.files.drafts import Drafted, Drafts, EpochPart
from millstream.journal.kinds.files.layout import partition_folder
from millstream.journal.kinds.files.log import SEGMENT_BYTES, PartitionLog, Recovery
from millstream.journal.kinds.files.retention import trim
from millstream.journal.kinds.files.senders import Senders
from millstream.storage.disk import REAL, Disk, make_folder
from millstream.storage.lock import Lock


class Writer:
    """The one writer of a partition. Any thread may append.

    Nothing acknowledged is lost, nothing is stored twice: a sender numbers its rows from 0 and,
    after a failure, sends again from `highest` + 1 or from anywhere before.
    """

    def __init__(
        self,
        description: Description,
        partition: int,
        *,
        disk: Disk = REAL,
        clock: Clock | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        timeout: float = 0.0,
        background: bool = True,
    ) -> None:
        if not 0 <= partition < description.partitions:
            msg = f'journal "{description.path}" has no partition {partition}'
            raise JournalMissing(msg, hint=f"it has {description.partitions}")
        self.partition = partition
        self._clock = clock or SystemClock()
        self._disk = disk
        folder = partition_folder(description.path, partition)
        make_folder(disk, folder)
        what = f'partition {partition} of journal "{description.path}"'
        refuse_copy(folder, what)
        self._lock = Lock(folder / "lock", disk, what=what, timeout=timeout)
        try:
            self._log, self._senders = self._opened(folder, description, segment_bytes)
        except BaseException:
            self._lock.release()
            raise
        self._queue = CommitQueue(
            description.path, partition, self._log, self._senders, background=background
        )
        self._drafts = Drafts(
            description, partition, self._log.state.copy(), self._senders, self._clock
        )

    def _opened(
        self, folder: Path, description: Description, segment_bytes: int
    ) -> tuple[PartitionLog, Senders]:
        """Open what is written, with the lock held."""
        log = PartitionLog(
            folder,
            description.schemas,
            self._disk,
            generation=self._lock.generation,
            segment_bytes=segment_bytes,
        )
        return log, Senders(folder, self._disk, log.numbers_used)

    @classmethod
    def open(
        cls,
        path: Path | str,
        partition: int = 0,
        *,
        disk: Disk = REAL,
        clock: Clock | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        timeout: float = 0.0,
        background: bool = True,
    ) -> Writer:
        """Take the partition for writing, and recover it if its last writer died.

        Raises:
            AlreadyWriting: Someone else has had it for longer than `timeout`.
            CorruptIndex: The index is damaged before its end.
            CorruptSenders: It is not known who sent what is there.
        """
        return cls(
            describe(path),
            partition,
            disk=disk,
            clock=clock,
            segment_bytes=segment_bytes,
            timeout=timeout,
            background=background,
        )

    # asking

    @property
    def end(self) -> int:
        """The position after the last durable one."""
        return self._queue.end

    @property
    def description(self) -> Description:
        return self._drafts.description

    @property
    def on_durable(self) -> Callable[[], None]:
        """Called after every commit, by whichever thread has made it."""
        return self._queue.on_durable

    @on_durable.setter
    def on_durable(self, call: Callable[[], None]) -> None:
        self._queue.on_durable = call

    @property
    def generation(self) -> int:
        return self._lock.generation

    @property
    def recovered(self) -> Recovery:
        """What opening has cut off."""
        return self._log.recovery

    @property
    def ended(self) -> bool:
        return self._drafts.state.ended

    @property
    def floor(self) -> int | None:
        return self._drafts.state.floor

    @property
    def running_max(self) -> int | None:
        return self._drafts.state.running_max

    def highest(self, sender: str) -> int:
        """Return the highest sequence number taken from `sender`, queued ones too, or -1."""
        with self._queue.changed:
            return self._drafts.highest(sender)

    def numbers(self) -> dict[str, int]:
        """Return the highest sequence number taken from each sender, queued ones too."""
        with self._queue.changed:
            return self._drafts.numbers()

    # appending

    def append(self, sender: str, first_seq: int, batch: pa.RecordBatch) -> Accepted:
        """Append rows numbered from `first_seq`; they are durable when this returns.

        Rows at or below the sender's highest number are counted as accepted and not stored again; a
        gap is allowed. If it raises `WriterBroken`, some, all or none of the rows may be there:
        open the writer again and resend.

        Raises:
            Ended: The partition takes no more rows.
            SchemaConflict: The rows do not fit.
            NullTime: A row has no time; none is stored.
        """
        return self._queue.wait(self.append_nowait(sender, first_seq, batch))

    def append_nowait(
        self,
        sender: str,
        first_seq: int,
        batch: pa.RecordBatch,
        *,
        message: pa.Buffer | None = None,
    ) -> Future[Accepted]:
        """Queue rows as `append` does; the future resolves when they are durable.

        It waits only while the queue is full. Rows of one call order are stored in that order.
        `message` is the batch as `serialize` returns it: bytes that came over a link are written as
        they are, if the batch is taken whole.
        """
        if first_seq < 0:
            msg = f"sequence number {first_seq} is negative"
            raise SchemaConflict(msg, hint="a sender numbers its rows from 0")
        with self._queue.changed:
            self._queue.wait_for_room()
            fitted = self._drafts.fitted(batch)
            whole = message if fitted is batch else None
            return self._put(self._drafts.rows(sender, first_seq, fitted, whole))

    def instruct(
        self,
        kind: Kind,
        floor: int | None = None,
        *,
        sender: str | None = None,
        seq: int | None = None,
    ) -> Accepted:
        """Append an instruction; it is durable when this returns.

        A floor that does not rise, a PROGRESS that is not ahead of its sender's highest number and
        a second END_OF_STREAM are accepted and not stored.

        Raises:
            Ended: The partition has ended, and this is not END_OF_STREAM.
        """
        return self._queue.wait(self.instruct_nowait(kind, floor, sender=sender, seq=seq))

    def instruct_nowait(
        self,
        kind: Kind,
        floor: int | None = None,
        *,
        sender: str | None = None,
        seq: int | None = None,
    ) -> Future[Accepted]:
        """Queue an instruction as `instruct` does."""
        if not kind.instruction:
            raise InternalError(f"{kind.name} is not an instruction")
        if kind is Kind.PROGRESS and (sender is None or seq is None or floor is not None):
            raise InternalError("PROGRESS has a sender and a number, and no floor")
        with self._queue.changed:
            self._queue.wait_for_room()
            return self._put(self._drafts.instruction(kind, floor, sender, seq))

    def append_epoch(self, part: EpochPart) -> Future[Accepted]:
        """Queue what an epoch adds to this partition: one entry, taken or ignored as a whole."""
        with self._queue.changed:
            self._queue.wait_for_room()
            return self._put(self._drafts.epoch(part))

    def append_staged(self, sender: str, epoch: int, staged: Sequence[Staged]) -> Future[Accepted]:
        """Queue the rows of an epoch that a group elsewhere has staged here, as one entry.

        It is taken or ignored as a whole. Its rows may be late, by their positions, as those of any
        sender.

        Raises:
            CorruptStaging: A staged file is gone or damaged.
            Ended: The partition takes no more rows.
        """
        if epoch <= self.highest(sender):
            arrival = None  # its files may be gone
        else:
            newest = max((item.version for item in staged), default=0)
            known = newest <= self.description.version
            arrival = read_arrival(
                self.description if known else describe(self.description.path), staged
            )
        with self._queue.changed:
            self._queue.wait_for_room()
            return self._put(self._drafts.arrival(sender, epoch, arrival))

    def _put(self, drafted: Drafted) -> Future[Accepted]:
        items, accepted = drafted
        if self.description.version >= len(self._log.schemas):
            self._log.schemas = list(self.description.schemas)
        for item in items:
            self._drafts.state.apply(item.record)
        return self._queue.put(items, accepted)

    def flush(self) -> None:
        """Wait until everything queued so far is durable."""
        self._queue.flush()

    # keeping

    def trim(
        self,
        *,
        keep_for: timedelta | None = None,
        keep_bytes: int | None = None,
        look_back: timedelta = timedelta(0),
    ) -> Trimmed:
        """Remove the segments of this partition that nobody needs (`retention.trim`)."""
        return trim(
            self.description.path,
            keep_for=keep_for,
            keep_bytes=keep_bytes,
            look_back=look_back,
            now=self._clock.now_us(),
            partitions=[self.partition],
            disk=self._disk,
        )

    # closing

    def close(self) -> None:
        """Write what is queued and release the partition."""
        try:
            self._queue.close()
        finally:
            self._release()

    def abort(self) -> None:
        """Release the partition without writing what is queued."""
        self._queue.abort()
        self._release()

    def _release(self) -> None:
        self._log.close()
        self._senders.close()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
