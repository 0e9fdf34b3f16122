"""The inbox: the one way into a journal partition for events from outside.

    envelope -> admit (admission.py) -> check (ingest) -> append, sync -> answer
                                          |
                                          +--> dead letters, with the reason

An event is in the journal, synced, before it is acknowledged. What waits for the disk is bounded in
rows, bytes and requests; an envelope that finds no room is taken in part or not at all, and the
answer says so: the sender holds the rest. If the disk refuses, the inbox takes nothing until it can
open its partition again.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from millstream.clock import Clock, SystemClock
from millstream.errors import AlreadyWriting, JournalError, LinkClosed, WriterBroken, WriterClosed
from millstream.ingest import Progress, Refused, Settings
from millstream.ingest import Rows as Numbered
from millstream.ingest.checks import check
from millstream.ingest.rows import numbered
from millstream.journal import DeadLetter, Description, Kind, Staged, journal_at
from millstream.journal.base import Accepted, Reasoned
from millstream.journal.rows import conform
from millstream.links.admission import NOTHING, Admission, Ends, Numbers, admit, array
from millstream.links.envelope import MOST_ROWS

_log = logging.getLogger(__name__)
_REOPEN_EVERY_S: Final = 1.0
_DEAD_LETTERS_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much may wait for the disk. Below what a journal's writer takes without making its caller wait."""

    rows: int = 1 << 18
    bytes: int = 24 << 20
    requests: int = 4000


@dataclass(frozen=True, slots=True)
class Taken:
    """The answer to an envelope: events taken from the front, the highest number made durable, free room in rows.

    Of those taken, some were `repeated` (there already), and some `refused` (they are dead letters
    now).
    """

    taken: int
    highest: int
    free: int
    repeated: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class InboxStatistics:
    """What an inbox has done since it was opened, and what it is doing."""

    name: str
    rows: int
    repeated: int
    refused: int
    waiting: int
    free: int
    senders: int
    error: str | None


@dataclass(slots=True)
class _Sender:
    """A sender's numbers: taken up to `highest`, durable up to `durable`; `tail` is the last append on its way."""

    highest: int
    durable: int
    tail: Future[Accepted] | None = None


class Inbox:
    """One partition of a source's journal, open to senders. Any thread may call.

    Promise: what is acknowledged is in the journal, once, in the order of its sender's numbers.
    """

    def __init__(
        self,
        description: Description,
        partition: int,
        settings: Settings,
        *,
        clock: Clock | None = None,
        capacity: Capacity | None = None,
        upstreams: Iterable[str] = (),
        wait_s: float = 0.0,
    ) -> None:
        self.partition = partition
        self.name = f"{settings.source}/{partition}"
        self._description = description
        self._rules = settings.rules
        self._clock = clock or SystemClock()
        self._capacity = capacity or Capacity()
        self._guard = threading.RLock()
        self._journal = journal_at(description.path)
        self._writer = self._journal.writer(partition, clock=self._clock, timeout=wait_s)
        self._ends = Ends(frozenset(upstreams), frozenset(self._journal.ended_senders(partition)))
        self._senders: dict[str, _Sender] = {}
        self._waiting_rows = self._waiting_bytes = self._waiting_requests = 0
        self._error: str | None = None
        self._reopen_at = 0.0
        self._closed = self._paused = False
        self._ending: Future[Accepted] | None = None
        self._rows = self._repeated = self._refused = 0
        self._rows_at_us = self._clock.now_us()
        #: Called when rows, or the end, are durable.
        self.on_rows: Callable[[], None] = lambda: None
        #: Called whenever more is durable, whatever it is.
        self.on_durable: Callable[[], None] = lambda: None
        self._writer.on_durable = self._durable

    def _durable(self) -> None:
        self.on_durable()

    # asking

    def described(self, version: int = 0) -> Description:
        """Return what the journal holds; columns may have been added since it was opened."""
        if version > self._description.version:
            self._description = self._journal.describe()
        return self._description

    @property
    def free(self) -> int:
        """How many more rows may come: as many as can wait for the disk, none while the inbox is paused."""
        return 0 if self._paused else self._space

    @property
    def _space(self) -> int:
        if self._error is not None or self._waiting_bytes >= self._capacity.bytes:
            return 0
        if self._waiting_requests >= self._capacity.requests:
            return 0
        return max(0, self._capacity.rows - self._waiting_rows)

    def statistics(self) -> InboxStatistics:
        """Return the numbers as they are now."""
        with self._guard:
            return InboxStatistics(
                name=self.name,
                rows=self._rows,
                repeated=self._repeated,
                refused=self._refused,
                waiting=self._waiting_rows,
                free=self.free,
                senders=len(self._senders),
                error=self._error,
            )

    def progress(self) -> Progress:
        """Return how far the partition is written, for those who look for idle ones."""
        writer = self._writer
        return Progress(
            self.partition, writer.running_max, writer.floor, writer.ended, self._rows_at_us
        )

    def highest(self, sender: str) -> int:
        """Return the highest number that is durable of a sender, or -1."""
        with self._guard:
            known = self._opened(sender)
            return NOTHING if known is None else known.durable

    # taking

    def enqueue(
        self, sender: str, numbers: Numbers, batch: pa.RecordBatch, *, after: int = NOTHING
    ) -> int:
        """Take rows, and return how many were taken from the front once they are durable.

        Fewer than were given: the inbox is full, send the rest again later. Rows that are there
        already count as taken.
        """
        return self.enqueue_nowait(sender, numbers, batch, after=after).result().taken

    def enqueue_nowait(
        self,
        sender: str,
        numbers: Numbers,
        batch: pa.RecordBatch,
        *,
        after: int = NOTHING,
        message: pa.Buffer | None = None,
    ) -> Future[Taken]:
        """Take rows as `enqueue` does; the future resolves when they are durable.

        `message` is the batch as an Arrow IPC message: if it is taken whole it is stored as it is.
        """
        with self._guard:
            known = self._opened(sender)
            if known is None:
                return self._answer(0, self._senders.get(sender))
            admission = admit(known.highest, after, numbers, self._room(batch))
            self._repeated += admission.repeated
            begin, end = admission.repeated, admission.taken
            refused: int | None = 0
            if admission.fresh:
                whole = admission.fresh == batch.num_rows
                rows = Numbered(batch[begin:end], array(numbers[begin:end]))
                refused = self._trying(
                    lambda: self._store(sender, known, rows, message if whole else None)
                )
            if refused is None:
                return _resolved(Taken(0, known.durable, 0))
            if end == 0:
                return self._answer(0, known)
            return self._when_durable(known, int(numbers[end - 1]), admission, refused)

    def instruct_nowait(
        self,
        sender: str,
        number: int,
        kind: Kind,
        floor: int | None = None,
        *,
        after: int = NOTHING,
    ) -> Future[Taken]:
        """Take an instruction; the future resolves when it is durable. One that was taken before changes nothing."""
        with self._guard:
            known = self._opened(sender)
            if known is None:
                return self._answer(0, self._senders.get(sender))
            admission = admit(known.highest, after, [number], self.free)
            if admission.taken == 0:
                return self._answer(0, known)
            if (
                admission.fresh
                and self._trying(lambda: self._instruct(sender, known, number, kind, floor)) is None
            ):
                return _resolved(Taken(0, known.durable, 0))
            return self._when_durable(known, number, admission, 0)

    def bury(self, sender: str, refused: Iterable[Refused], *, wait_s: float = 30.0) -> int:
        """Keep records that a sender could not make rows of as dead letters, each once; return how many were new."""
        with self._journal.dead_letters(clock=self._clock, timeout=wait_s) as dead:
            new = dead.put_all([DeadLetter(sender, r.number, r.reason, r.record) for r in refused])
        self._refused += new
        return new

    # epochs of groups elsewhere

    def stage(self, sender: str, epoch: int, batches: Iterable[pa.RecordBatch]) -> list[Staged]:
        """Keep rows aside for an epoch that may be published; they are synced when this returns.

        Rows that the source does not take are kept too, to become dead letters if it is: the clock
        of this moment decides, however often the epoch is published. Nothing is staged for an epoch
        that is there.
        """
        if epoch <= self.highest(sender):
            return []
        description, now = self._journal.describe(), self._clock.now_us()
        given = [numbered(conform(batch, description.schema), 0) for batch in batches]
        found = [check(rows, self._rules, now) for rows in given]
        refused = [(one.reason, one.record) for rows in found for one in rows.refused]
        return self._journal.stage_arrival(
            self.partition, sender, epoch, [rows.batch for rows in found], refused
        )

    def publish(self, sender: str, epoch: int, staged: Sequence[Staged]) -> int:
        """Put what was staged into the journal as a whole, unless this epoch of the sender is there.

        It is durable when this returns how many rows were new. It may be repeated.

        Raises:
            CorruptStaging: A staged file is gone or damaged, or was not staged for this epoch.
            WriterBroken: The disk refuses; ask again.
        """
        rows, refused = self._journal.checked_arrival(staged, self.partition, sender, epoch)
        if epoch > self._queued(sender):
            # Before the rows: where they are, even if only on their way, the letters are.
            self._bury_staged(sender, epoch, self._journal.read_refused(refused))
        stored = self._arrive(sender, epoch, rows) if rows else 0
        # Without an entry nothing tells a repetition that the epoch was here: its files stay until
        # the next one.
        self._journal.discard_arrival(self.partition, sender, epoch if rows else epoch - 1)
        return stored

    def _queued(self, sender: str) -> int:
        with self._guard:
            self._opened_or_raise(sender)
            return self._writer.highest(sender)

    def _opened_or_raise(self, sender: str) -> _Sender:
        known = self._opened(sender)
        if known is None:
            raise WriterBroken(
                f'inbox "{self.name}" takes nothing: {self._error}', hint="ask again"
            )
        return known

    def _bury_staged(self, sender: str, epoch: int, refused: Sequence[Reasoned]) -> None:
        if refused:
            first = epoch << 32
            letters = [
                DeadLetter(sender, first + number, reason, record, self.partition)
                for number, (reason, record) in enumerate(refused)
            ]
            with self._journal.dead_letters(clock=self._clock) as dead:
                self._refused += dead.put_all(letters)

    def _arrive(self, sender: str, epoch: int, staged: Sequence[Staged]) -> int:
        rows, size = sum(item.rows for item in staged), sum(item.bytes for item in staged)
        with self._guard:
            known = self._opened_or_raise(sender)
            if epoch <= self._writer.highest(sender):
                self._repeated += rows
                rows = size = 0
            # Counted before it is appended, which is done without the guard: the writer may make us
            # wait for those before, who need the guard to be told. Until then others find no room,
            # and nobody opens it anew.
            self._hold(rows, size)
            writer = self._writer
        try:
            pending = writer.append_staged(sender, epoch, staged)
        except BaseException as error:
            self._let_go(rows, size, error)
            raise
        with self._guard:
            known.highest = max(known.highest, epoch)
            self._watch(known, rows, size, epoch, pending)
        return pending.result().stored

    def _let_go(self, rows: int, size: int, error: BaseException) -> None:
        with self._guard:
            self._hold(-rows, -size, requests=-1)
            if isinstance(error, WriterBroken | OSError):
                self._broke(error)

    # idling

    def level(self, floor: int) -> None:
        """Say that this partition is idle and nothing before `floor` will come."""
        with self._guard:
            # With no room the call would wait for the disk, with the guard held.
            if not self._closed and self._space > 0 and not self._writer.ended:
                with contextlib.suppress(WriterBroken):  # its senders find out
                    self._writer.instruct_nowait(Kind.IDLE, floor)

    def level_at(self, floor: int, position: int) -> bool:
        """Say the same for one who has seen the partition up to `position`; False if it goes further by now."""
        with self._guard:
            if self._closed or not self.settled or self._writer.end != position:
                return False
            self.level(floor)
            return self._error is None

    # what its host decides

    def pause(self) -> None:
        """Take nothing more: senders are told that there is no room, and wait."""
        with self._guard:
            self._paused = True

    def resume(self) -> None:
        """Take events again."""
        with self._guard:
            self._paused = False
            # Those who waited are heard before the partition can be called idle.
            self._rows_at_us = self._clock.now_us()

    @property
    def paused(self) -> bool:
        return self._paused

    @property
    def settled(self) -> bool:
        """Whether all that was taken is durable, or its sender knows that it is not."""
        return self._waiting_requests == 0

    def end(self, sender: str) -> bool:
        """End the partition, whoever may still want to send; return whether it has ended. If not, call again."""
        with self._guard:
            if self._closed or not self.working():
                return False
            if self._ending is None and self._writer.ended and self.settled:
                return True
            if self._ending is None:
                return self._trying_to_end(sender)
            if not self._ending.done():
                return False
            error, self._ending = self._ending.exception(), None
            if error is not None:
                self._broke(error)
            return error is None

    def _trying_to_end(self, sender: str) -> bool:
        try:
            self._ending = self._writer.instruct_nowait(
                Kind.END_OF_STREAM, None, sender=sender, seq=0
            )
        except (JournalError, OSError) as error:
            self._broke(error)
        return False

    def working(self) -> bool:
        """Tell whether the disk takes events; tries again if it has refused, and that is a moment ago."""
        with self._guard:
            return self._error is None or (not self._closed and self._reopened())

    # storing

    def _sender(self, name: str) -> _Sender:
        if name not in self._senders:
            highest = self._writer.highest(name)
            self._senders[name] = _Sender(highest, highest)
        return self._senders[name]

    def _opened(self, sender: str) -> _Sender | None:
        """Return the sender's numbers; None while the disk refuses."""
        if self._closed:
            raise LinkClosed(f'inbox "{self.name}" is closed')
        if self._error is not None and not self._reopened():
            return None
        return self._sender(sender)

    def _room(self, batch: pa.RecordBatch) -> int:
        if self._paused:
            return 0
        free = min(self.free, MOST_ROWS)
        each = max(1, int(batch.nbytes) // int(batch.num_rows))
        fitting = min(free, (self._capacity.bytes - self._waiting_bytes) // each)
        # One that is larger than all there is passes alone.
        return max(fitting, 1 if self._waiting_requests == 0 and self._error is None else 0)

    def _trying(self, store: Callable[[], int | None]) -> int | None:
        """Return what `store` returns; None if the disk refuses, or others are busy with the dead letters."""
        try:
            return store()
        except AlreadyWriting as error:
            _log.warning("inbox %s takes nothing for a moment: %s", self.name, error)
        except (WriterBroken, OSError) as error:
            self._broke(error)
        return None

    def _store(self, sender: str, known: _Sender, rows: Numbered, message: pa.Buffer | None) -> int:
        """Append the rows that keep to the rules, bury the others, and return how many those are."""
        last = int(rows.numbers[-1])
        good = check(rows, self._rules, self._clock.now_us())
        if good.refused:
            message = None
            self.bury(sender, good.refused, wait_s=_DEAD_LETTERS_S)
        if len(good):
            # One entry, numbered backwards from its last row: the highest number is right, whatever
            # lies between.
            first = int(good.numbers[-1]) - len(good) + 1
            self._append(
                known,
                len(good),
                good.batch.nbytes,
                last,
                self._writer.append_nowait(sender, first, good.batch, message=message),
            )
        elif known.tail is None:
            known.durable = max(known.durable, last)
        known.highest = last
        return len(good.refused)

    def _instruct(
        self, sender: str, known: _Sender, number: int, kind: Kind, floor: int | None
    ) -> int | None:
        if kind is Kind.END_OF_STREAM:
            ends = self._ends.after(sender)
            if not ends.complete:
                if known.tail is not None:
                    return None  # noted before its rows are safe, the end could outlive them
                self._journal.end_sender(self.partition, sender)
                self._ends = ends
                known.highest = known.durable = number
                return 1
            self._ends = ends
        self._append(
            known,
            0,
            0,
            number,
            self._writer.instruct_nowait(kind, floor, sender=sender, seq=number),
        )
        known.highest = number
        return 1

    def _append(
        self, known: _Sender, rows: int, size: int, last: int, pending: Future[Accepted]
    ) -> None:
        self._hold(rows, size)
        self._watch(known, rows, size, last, pending)

    def _hold(self, rows: int, size: int, *, requests: int = 1) -> None:
        self._waiting_rows += rows
        self._waiting_bytes += size
        self._waiting_requests += requests

    def _watch(
        self, known: _Sender, rows: int, size: int, last: int, pending: Future[Accepted]
    ) -> None:
        known.tail = pending
        if rows:
            self._rows_at_us = self._clock.now_us()

        def settled(done: Future[Accepted]) -> None:
            self._settle(known, rows, size, last, done)

        pending.add_done_callback(settled)

    def _settle(
        self, known: _Sender, rows: int, size: int, last: int, done: Future[Accepted]
    ) -> None:
        with self._guard:
            self._hold(-rows, -size, requests=-1)
            if known.tail is done:
                known.tail = None
            error = done.exception()
            if error is None:
                self._rows += rows
                known.durable = max(
                    known.durable, last, known.highest if known.tail is None else NOTHING
                )
            elif not isinstance(error, WriterClosed):
                self._broke(error)
        if rows or self._writer.ended:
            self.on_rows()

    # answering

    def _when_durable(
        self, known: _Sender, number: int, admission: Admission, refused: int
    ) -> Future[Taken]:
        taken, repeated = admission.taken, admission.repeated
        if number <= known.durable or known.tail is None:
            return self._answer(taken, known, repeated, refused)
        answer: Future[Taken] = Future()
        answer.set_running_or_notify_cancel()

        def settled(done: Future[Accepted]) -> None:
            if done.exception() is not None:
                answer.set_result(Taken(0, known.durable, 0))
            else:
                answer.set_result(
                    Taken(taken, max(number, known.durable), self.free, repeated, refused)
                )

        # After its own callback in `_append`: callbacks run in the order in which they were added.
        known.tail.add_done_callback(settled)
        return answer

    def _answer(
        self, taken: int, known: _Sender | None, repeated: int = 0, refused: int = 0
    ) -> Future[Taken]:
        highest = NOTHING if known is None else known.durable
        return _resolved(Taken(taken, highest, self.free, repeated, refused))

    # a disk that refuses

    def _broke(self, error: BaseException) -> None:
        if self._error is None:
            _log.error("inbox %s takes nothing: %s", self.name, error)
        self._error = str(error)
        self._reopen_at = time.monotonic() + _REOPEN_EVERY_S

    def _reopened(self) -> bool:
        # Those whose rows are lost must have been told: they need the guard that is held here.
        if time.monotonic() < self._reopen_at or self._waiting_requests:
            return False
        self._reopen_at = time.monotonic() + _REOPEN_EVERY_S
        try:
            self._writer.abort()
            self._writer = self._journal.writer(self.partition, clock=self._clock)
            self._writer.on_durable = self._durable
        except (OSError, JournalError) as error:
            self._error = str(error)
            return False
        _log.warning("inbox %s takes events again", self.name)
        self.on_durable()  # the recovery may have found more than was acknowledged
        self._error = None
        # What was queued is gone: the numbers and the ends are those that the recovery has found.
        self._senders.clear()
        ended = frozenset(self._journal.ended_senders(self.partition))
        self._ends = replace(self._ends, ended=ended)
        return True

    def close(self) -> None:
        """Write what was taken and let go of the partition."""
        with self._guard:
            self._closed = True
        self._writer.close()

    def abort(self) -> None:
        """Let go of the partition without writing what waits."""
        with self._guard:
            self._closed = True
        self._writer.abort()


def _resolved(taken: Taken) -> Future[Taken]:
    answer: Future[Taken] = Future()
    answer.set_result(taken)
    return answer
