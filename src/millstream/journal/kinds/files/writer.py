"""The writer of a journal kept in files.

Appending does the thinking at once, in the caller's thread and in order: which rows are new, their
times, their bytes. Writing is done by one thread per partition that takes everything queued, writes
it with one sync of the data and one of the index, and then resolves the futures: group commit. The
queue is bounded in bytes, so a slow disk holds the senders back and memory does not grow.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa
import xxhash

from millstream.clock import Clock, SystemClock
from millstream.errors import (
    Ended,
    InternalError,
    JournalMissing,
    SchemaConflict,
    WriterBroken,
    WriterClosed,
)
from millstream.journal.base import Accepted, Description, Kind, Staged, Trimmed
from millstream.journal.kinds.files.arrivals import Arrival, read_arrival
from millstream.journal.kinds.files.copylog import refuse_copy
from millstream.journal.kinds.files.description import create, describe
from millstream.journal.kinds.files.index import NOBODY, NOTHING, Record, State
from millstream.journal.kinds.files.layout import partition_folder
from millstream.journal.kinds.files.log import SEGMENT_BYTES, Item, PartitionLog, Recovery
from millstream.journal.kinds.files.retention import trim
from millstream.journal.kinds.files.senders import Senders
from millstream.journal.lateness import spread
from millstream.journal.rows import conform, times_of
from millstream.storage.disk import REAL, Disk, make_folder
from millstream.storage.lock import Lock

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Writer", "create", "describe"]

QUEUE_BYTES = 32 * 2**20  # few, large syncs: a busy disk makes each of them slow
QUEUE_LENGTH = 4096
ENTRY_ROWS = 2**17


@dataclass(slots=True)
class _Queued:
    """Entries to be written and the future that waits for them; no entries: it waits for those before it."""

    items: list[Item]
    accepted: Accepted
    future: Future[Accepted]
    size: int


@dataclass(frozen=True, slots=True)
class EpochPart:
    """What one epoch adds to one partition."""

    sender: str
    epoch: int
    buffers: Sequence[Buffer]
    parts: int
    rows: int
    length: int
    checksum: int
    min_time: int | None
    max_time: int | None
    floor: int | None
    ended: bool
    version: int


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
        wait_s: float = 0.0,
        background: bool = True,
    ) -> None:
        if not 0 <= partition < description.partitions:
            msg = f'journal "{description.path}" has no partition {partition}'
            raise JournalMissing(msg, hint=f"it has {description.partitions}")
        self.description = description
        self.partition = partition
        self._clock = clock or SystemClock()
        self._background = background
        self._disk = disk
        folder = partition_folder(description.path, partition)
        make_folder(disk, folder)
        what = f'partition {partition} of journal "{description.path}"'
        refuse_copy(folder, what)
        self._lock = Lock(folder / "lock", disk, what=what, wait_s=wait_s)
        try:
            self._log = PartitionLog(
                folder,
                description.schemas,
                disk,
                generation=self._lock.generation,
                segment_bytes=segment_bytes,
            )
            self._senders = Senders(folder, disk)
        except BaseException:
            self._lock.release()
            raise
        self._ahead = self._log.state.copy()
        self._end = self._ahead.position
        self._queue: list[_Queued] = []
        self._queued_bytes = 0
        self._busy = False
        self._closed = False
        self._broken: BaseException | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        #: Called after every commit, by whichever thread has made it.
        self.on_durable: Callable[[], None] = lambda: None

    @classmethod
    def open(
        cls,
        path: Path | str,
        partition: int = 0,
        *,
        disk: Disk = REAL,
        clock: Clock | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        wait_s: float = 0.0,
        background: bool = True,
    ) -> Writer:
        """Take the partition for writing, and recover it if its last writer died.

        Raises:
            AlreadyWriting: Someone else has had it for longer than `wait_s`.
            CorruptIndex: The index is damaged before its end.
        """
        return cls(
            describe(path),
            partition,
            disk=disk,
            clock=clock,
            segment_bytes=segment_bytes,
            wait_s=wait_s,
            background=background,
        )

    # asking

    @property
    def end(self) -> int:
        """The position after the last durable one."""
        return self._end

    @property
    def generation(self) -> int:
        return self._lock.generation

    @property
    def recovered(self) -> Recovery:
        """What opening has cut off."""
        return self._log.recovery

    @property
    def ended(self) -> bool:
        return self._ahead.ended

    @property
    def floor(self) -> int | None:
        return self._ahead.floor

    @property
    def running_max(self) -> int | None:
        return self._ahead.running_max

    def highest(self, sender: str) -> int:
        """Return the highest sequence number taken from `sender`, queued ones too, or -1."""
        with self._changed:
            number = self._senders.find(sender)
            return -1 if number is None else self._ahead.highest.get(number, -1)

    def numbers(self) -> dict[str, int]:
        """Return the highest sequence number taken from each sender, queued ones too."""
        with self._changed:
            return {self._senders.names[number]: seq for number, seq in self._ahead.highest.items()}

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
        return self._wait(self.append_nowait(sender, first_seq, batch))

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
        with self._changed:
            self._wait_for_room()
            fitted = self._fitted(batch)
            return self._enqueue(
                *self._rows(sender, first_seq, fitted, message if fitted is batch else None)
            )

    def instruct(
        self,
        kind: Kind,
        floor: int | None = None,
        *,
        sender: str | None = None,
        seq: int | None = None,
    ) -> Accepted:
        """Append an instruction; it is durable when this returns.

        A floor that does not rise and a second END_OF_STREAM are accepted and not stored.

        Raises:
            Ended: The partition has ended, and this is not END_OF_STREAM.
        """
        return self._wait(self.instruct_nowait(kind, floor, sender=sender, seq=seq))

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
            msg = f"{kind.name} is not an instruction"
            raise InternalError(msg)
        with self._changed:
            self._wait_for_room()
            return self._enqueue(*self._instruction(kind, floor, sender, seq))

    def append_epoch(self, part: EpochPart) -> Future[Accepted]:
        """Queue one epoch's part, one entry, taken or ignored as a whole; `epochs.EpochLog` is who calls it."""
        with self._changed:
            self._wait_for_room()
            return self._enqueue(*self._epoch(part))

    def append_staged(self, sender: str, epoch: int, staged: Sequence[Staged]) -> Future[Accepted]:
        """Queue the rows of an epoch that a group elsewhere has staged here (`arrivals.py`), as one entry.

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
        with self._changed:
            self._wait_for_room()
            return self._enqueue(*self._arrival(sender, epoch, arrival))

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self.description.schema):
            return batch
        if not set(batch.schema.names) <= set(self.description.schema.names):
            self._reload()
        return conform(batch, self.description.schema)

    def _reload(self) -> None:
        """Take over columns that were added to the journal since the writer was opened."""
        self.description = describe(self.description.path)
        self._log.schemas = list(self.description.schemas)

    def _rows(
        self, sender: str, first_seq: int, batch: pa.RecordBatch, message: pa.Buffer | None
    ) -> tuple[list[Item], Accepted]:
        rows = batch.num_rows
        number = self._senders.find(sender)
        highest = -1 if number is None else self._ahead.highest.get(number, -1)
        seen = max(0, min(rows, highest + 1 - first_seq))
        if seen == rows:
            return [], Accepted(rows, self._ahead.position, 0)
        self._refuse_if_ended()
        fresh = batch.slice(seen) if seen else batch
        # All records are made before any counts: a row without a time refuses the batch as a whole.
        ahead, items = self._ahead.copy() if fresh.num_rows > ENTRY_ROWS else self._ahead, []
        for begin in range(0, fresh.num_rows, ENTRY_ROWS):
            part = fresh.slice(begin, ENTRY_ROWS) if fresh.num_rows > ENTRY_ROWS else fresh
            whole = message if part is batch else None
            item = self._row_item(sender, first_seq + seen + begin, part, whole, ahead)
            if ahead is not self._ahead:
                ahead.apply(item.record)
            items.append(item)
        return items, Accepted(rows, self._ahead.position, rows - seen)

    def _row_item(
        self,
        sender: str,
        first_seq: int,
        batch: pa.RecordBatch,
        message: pa.Buffer | None,
        state: State,
    ) -> Item:
        rows, running_max = batch.num_rows, state.running_max
        low = high = lag = None
        if self.description.time is not None:
            low, high, lag = spread(
                times_of(batch, self.description.time), running_max, state.floor
            )
        message = batch.serialize() if message is None else message
        record = Record(
            kind=Kind.ROWS,
            position=state.position,
            count=rows,
            appended_at=self._clock.now_us(),
            sender=self._senders.number(sender),
            version=self.description.version,
            parts=1,
            length=message.size,
            first_seq=first_seq,
            last_seq=first_seq + rows - 1,
            min_time=low,
            max_time=high,
            max_before=running_max,
            max_after=_higher(running_max, high),
            max_lag=lag,
            floor_after=state.floor,
            data_checksum=xxhash.xxh3_64_intdigest(message),
        )
        return Item(record, [message])

    def _arrival(
        self, sender: str, epoch: int, arrival: Arrival | None
    ) -> tuple[list[Item], Accepted]:
        state = self._ahead
        rows = 0 if arrival is None else arrival.rows
        number = self._senders.find(sender)
        if (
            arrival is None
            or rows == 0
            or (number is not None and epoch <= state.highest.get(number, -1))
        ):
            return [], Accepted(rows, state.position, 0)
        self._refuse_if_ended()
        if arrival.version > self.description.version:
            self._reload()
        low = high = lag = None
        if arrival.times is not None:
            low, high, lag = spread(arrival.times, state.running_max, state.floor)
        record = Record(
            kind=Kind.ROWS,
            position=state.position,
            count=rows,
            appended_at=self._clock.now_us(),
            sender=self._senders.number(sender),
            version=arrival.version,
            parts=arrival.parts,
            length=arrival.length,
            first_seq=epoch,
            last_seq=epoch,
            min_time=low,
            max_time=high,
            max_before=state.running_max,
            max_after=_higher(state.running_max, high),
            max_lag=lag,
            floor_after=state.floor,
            data_checksum=arrival.checksum,
        )
        return [Item(record, arrival.buffers)], Accepted(rows, state.position, rows)

    def _instruction(
        self, kind: Kind, floor: int | None, sender: str | None, seq: int | None
    ) -> tuple[list[Item], Accepted]:
        state = self._ahead
        nothing = Accepted(0, state.position, 0)
        number = NOBODY if sender is None else self._senders.number(sender)
        if sender is not None and seq is not None and seq <= state.highest.get(number, -1):
            return [], nothing
        if state.ended and kind is Kind.END_OF_STREAM:
            return [], nothing
        self._refuse_if_ended()
        raised = _higher(state.floor, floor)
        if kind is not Kind.END_OF_STREAM and raised == state.floor:
            return [], nothing
        record = Record(
            kind=kind,
            position=state.position,
            count=1,
            appended_at=self._clock.now_us(),
            sender=number,
            version=self.description.version,
            first_seq=NOTHING if seq is None else seq,
            last_seq=NOTHING if seq is None else seq,
            max_before=state.running_max,
            max_after=state.running_max,
            floor_after=raised,
            ended=kind is Kind.END_OF_STREAM,
        )
        return [Item(record, [])], Accepted(0, state.position, 0)

    def _epoch(self, part: EpochPart) -> tuple[list[Item], Accepted]:
        state = self._ahead
        number = self._senders.find(part.sender)
        if number is not None and part.epoch <= state.highest.get(number, -1):
            return [], Accepted(part.rows, state.position, 0)
        if part.rows == 0:
            kind = Kind.END_OF_STREAM if part.ended else Kind.WATERMARK
            return self._instruction(kind, part.floor, part.sender, part.epoch)
        self._refuse_if_ended()
        if part.version > self.description.version:
            self._reload()
        record = Record(
            kind=Kind.EPOCH,
            position=state.position,
            count=part.rows,
            appended_at=self._clock.now_us(),
            sender=self._senders.number(part.sender),
            version=part.version,
            parts=part.parts,
            length=part.length,
            first_seq=part.epoch,
            last_seq=part.epoch,
            min_time=part.min_time,
            max_time=part.max_time,
            max_before=state.running_max,
            max_after=_higher(state.running_max, part.max_time),
            floor_after=_higher(state.floor, part.floor),
            ended=part.ended,
            data_checksum=part.checksum,
        )
        return [Item(record, part.buffers)], Accepted(part.rows, state.position, part.rows)

    def _refuse_if_ended(self) -> None:
        if self._ahead.ended:
            msg = f'partition {self.partition} of journal "{self.description.path}" has ended'
            raise Ended(msg, hint="END_OF_STREAM was written: no rows can follow it")

    # the queue

    def _wait_for_room(self) -> None:
        self._check_open()
        while self._background and (
            self._queued_bytes > QUEUE_BYTES or len(self._queue) > QUEUE_LENGTH
        ):
            self._changed.wait()
            self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise self._closed_error()
        if self._broken is not None:
            raise self._broken_error() from self._broken

    def _closed_error(self) -> WriterClosed:
        return WriterClosed(f'the writer of journal "{self.description.path}" is closed')

    def _broken_error(self) -> WriterBroken:
        msg = f'partition {self.partition} of journal "{self.description.path}" could not be written: {self._broken}'
        return WriterBroken(msg, hint="open the writer again and resend what was not acknowledged")

    def _enqueue(self, items: list[Item], accepted: Accepted) -> Future[Accepted]:
        future: Future[Accepted] = Future()
        future.set_running_or_notify_cancel()  # what is queued is written: nobody can take it back
        for item in items:
            self._ahead.apply(item.record)
        if not items and not self._queue and not self._busy:
            future.set_result(accepted)
            return future
        # A repeat waits too: the rows it repeats may themselves be waiting for the disk.
        size = sum(item.record.length for item in items)
        self._queue.append(_Queued(items, accepted, future, size))
        self._queued_bytes += size
        if self._background and self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name=f"journal-{self.partition}", daemon=True
            )
            self._thread.start()
        if not self._busy:
            self._changed.notify_all()
        return future

    def _wait(self, future: Future[Accepted]) -> Accepted:
        if not self._background:
            self.flush()
        return future.result()

    def flush(self) -> None:
        """Wait until everything queued so far is durable."""
        if not self._background:
            while self._queue:
                self._commit_queued()
            return
        with self._changed:
            while (self._queue or self._busy) and self._broken is None:
                self._changed.wait()
            if self._broken is not None:
                raise self._broken_error() from self._broken

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue or self._broken is not None:
                    return
            self._commit_queued()

    def _commit_queued(self) -> None:
        with self._changed:
            taken, self._queue = self._queue, []
            names = self._senders.take()
            self._queued_bytes = 0
            self._busy = True
            self._changed.notify_all()
        try:
            self._senders.write(names)
            self._log.commit([item for queued in taken for item in queued.items])
        except BaseException as exc:
            self._break(taken, exc)
            if not self._background or not isinstance(exc, Exception):
                raise
            return
        with self._changed:
            self._busy = False
            self._end = self._log.state.position
            self._changed.notify_all()
        self.on_durable()
        for queued in taken:
            queued.future.set_result(queued.accepted)

    def _break(self, taken: list[_Queued], exc: BaseException) -> None:
        """After a failed write nothing more is written: what is on the disk is known only to the next recovery."""
        with self._changed:
            self._broken = exc
            self._busy = False
            waiting, self._queue = taken + self._queue, []
            self._changed.notify_all()
        for queued in waiting:
            queued.future.set_exception(self._broken_error())

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
        """Write what is queued and let go of the partition."""
        if self._closed:
            return
        try:
            if self._broken is None:
                self.flush()
        finally:
            self._let_go()

    def abort(self) -> None:
        """Let go of the partition without writing what is queued."""
        with self._changed:
            waiting, self._queue = self._queue, []
        for queued in waiting:
            queued.future.set_exception(self._closed_error())
        self._let_go()

    def _let_go(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._log.close()
        self._senders.close()
        self._lock.release()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _higher(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)
