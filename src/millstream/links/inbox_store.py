"""The journal partition behind an inbox: what waits for its disk, and the numbers of its senders.

If the disk refuses, nothing is taken until the partition can be opened again, which is tried every
now and then. What was queued is lost then, and its senders know; the numbers are those that the
recovery finds.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from millstream.clock import Clock
from millstream.errors import (
    AlreadyWriting,
    BrokerError,
    JournalError,
    LinkClosed,
    WriterBroken,
    WriterClosed,
)
from millstream.journal import Kind, journal_at
from millstream.journal.base import Accepted
from millstream.links.admission import NOTHING, Ends
from millstream.links.claims import Claims
from millstream.links.envelope import MOST_ROWS

_log = logging.getLogger(__name__)
_REOPEN_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much may wait for the disk: less than what a journal's writer takes without blocking."""

    rows: int = 1 << 18
    bytes: int = 24 << 20
    requests: int = 4000
    #: By how much a sender's numbers may rise at once; a year in nanoseconds is less.
    jump: int = 1 << 56


@dataclass(slots=True)
class Sender:
    """A sender's numbers: taken up to `highest`, durable up to `durable`.

    `tail` is its last append that is not durable yet.
    """

    highest: int
    durable: int
    tail: Future[Accepted] | None = None
    #: Who sent last, since the inbox was opened.
    incarnation: int | None = None


class InboxStore:
    """A partition that is open. Callers hold `guard`, unless a method says that it takes it."""

    def __init__(
        self,
        name: str,
        path: Path,
        partition: int,
        *,
        clock: Clock,
        capacity: Capacity,
        upstreams: Iterable[str],
        timeout: float,
        on_rows: Callable[[], None],
        on_durable: Callable[[], None],
    ) -> None:
        self.name, self.partition, self.clock = name, partition, clock
        self.journal = journal_at(path)
        self.guard = threading.RLock()
        self.writer = self.journal.writer(partition, clock=clock, timeout=timeout)
        self.senders: dict[str, Sender] = {}
        self.claims = Claims(self.journal.claims(partition))
        self.error: str | None = None
        #: The same, until something was written again: a disk that is full can still be opened.
        self.trouble: str | None = None
        self.closed = False
        self.rows = self.repeated = self.refused = self.waiting_rows = 0
        #: When the last rows came.
        self.rows_at_us = clock.elapsed_us()
        self._on_rows, self._on_durable = on_rows, on_durable
        self.writer.on_durable = on_durable
        self.capacity = capacity
        self._waiting_bytes = self._waiting_requests = 0
        self._reopen_at = 0.0
        self._ending: Future[Accepted] | None = None
        self.ends = Ends(frozenset(upstreams), frozenset(self.journal.ended_senders(partition)))

    # room

    @property
    def space(self) -> int:
        """How many more rows can wait for the disk."""
        if self.error is not None or self._waiting_bytes >= self.capacity.bytes:
            return 0
        if self._waiting_requests >= self.capacity.requests:
            return 0
        return max(0, self.capacity.rows - self.waiting_rows)

    def room(self, batch: pa.RecordBatch, most: int | None = None) -> int:
        """Return how many of these rows can wait for the disk, at most `most`."""
        each = max(1, int(batch.nbytes) // int(batch.num_rows))
        left = (self.capacity.bytes - self._waiting_bytes) // each
        # One that is larger than all there is passes alone.
        alone = 1 if self.settled and self.error is None else 0
        return min(
            max(min(self.space, MOST_ROWS, left), alone), MOST_ROWS if most is None else most
        )

    @property
    def settled(self) -> bool:
        """Whether all that was taken is durable, or its sender knows that it is not."""
        return self._waiting_requests == 0

    # senders

    def opened(self, sender: str) -> Sender | None:
        """Return the sender's numbers; None while the disk refuses."""
        if self.closed:
            raise LinkClosed(f'inbox "{self.name}" is closed')
        if self.error is not None and not self._reopened():
            return None
        if sender not in self.senders:
            highest = self.writer.highest(sender)
            self.senders[sender] = Sender(highest, highest)
        return self.senders[sender]

    def opened_or_raise(self, sender: str) -> Sender:
        known = self.opened(sender)
        if known is None:
            raise WriterBroken(f'inbox "{self.name}" takes nothing: {self.error}', hint="ask again")
        return known

    def highest(self, sender: str) -> int:
        """Return the highest number that is durable of a sender, or -1; takes the guard."""
        with self.guard:
            known = self.opened(sender)
            return NOTHING if known is None else known.durable

    def tried(self, store: Callable[[], int | None]) -> int | None:
        """Return what `store` returns; None if disk or broker refuse, or the dead letters are busy."""
        try:
            return store()
        except (AlreadyWriting, BrokerError) as error:
            _log.warning("inbox %s takes nothing for a moment: %s", self.name, error)
        except (WriterBroken, OSError) as error:
            self.broke(error)
        return None

    def note_end(self, sender: str) -> None:
        """Keep that a sender has ended, while others have not."""
        self.journal.end_sender(self.partition, sender)
        self.ends = self.ends.after(sender)

    def end(self, sender: str) -> bool:
        """End the partition for all senders; return whether it has ended. If not, call again."""
        if self.closed or not self.working():
            return False
        if self._ending is None:
            if self.writer.ended and self.settled:
                return True
            try:
                self._ending = self.writer.instruct_nowait(
                    Kind.END_OF_STREAM, None, sender=sender, seq=0
                )
            except (JournalError, OSError) as error:
                self.broke(error)
            return False
        if not self._ending.done():
            return False
        failure, self._ending = self._ending.exception(), None
        if failure is not None:
            self.broke(failure)
        return failure is None

    def level(self, floor: int) -> None:
        """Say that this partition is idle and nothing before `floor` will come."""
        # With no room the call would wait for the disk, with the guard held.
        if not self.closed and self.space > 0 and not self.writer.ended:
            with contextlib.suppress(WriterBroken):  # its senders find out
                self.writer.instruct_nowait(Kind.IDLE, floor)

    def level_at(self, floor: int, position: int) -> bool:
        """Do the same for one who has seen it up to `position`; False if it goes further by now."""
        if self.closed or not self.settled or self.writer.end != position:
            return False
        self.level(floor)
        return self.error is None

    # appends

    def append(
        self, known: Sender, rows: int, size: int, last: int, pending: Future[Accepted]
    ) -> None:
        """Count an append that was queued; `last` is its last number."""
        self.hold(rows, size)
        self.watch(known, rows, size, last, pending)

    def hold(self, rows: int, size: int) -> None:
        self._count(rows, size, 1)

    def release(self, rows: int, size: int, error: BaseException) -> None:
        """Take back a `hold` for an append that was refused; takes the guard."""
        with self.guard:
            self._count(-rows, -size, -1)
            if isinstance(error, WriterBroken | OSError):
                self.broke(error)

    def _count(self, rows: int, size: int, requests: int) -> None:
        self.waiting_rows += rows
        self._waiting_bytes += size
        self._waiting_requests += requests

    def watch(
        self, known: Sender, rows: int, size: int, last: int, pending: Future[Accepted]
    ) -> None:
        """Settle an append that is held once it is durable, or has failed."""
        known.tail = pending
        if rows:
            self.rows_at_us = self.clock.elapsed_us()
        pending.add_done_callback(lambda done: self._settle(known, rows, size, last, done))

    def _settle(
        self, known: Sender, rows: int, size: int, last: int, done: Future[Accepted]
    ) -> None:
        with self.guard:
            self._count(-rows, -size, -1)
            if known.tail is done:
                known.tail = None
            error = done.exception()
            if error is None:
                if self.trouble is not None:
                    _log.warning("inbox %s takes events again", self.name)
                    self.trouble = None
                self.rows += rows
                all_of_it = known.highest if known.tail is None else NOTHING
                known.durable = max(known.durable, last, all_of_it)
            elif not isinstance(error, WriterClosed):
                self.broke(error)
        if rows or self.writer.ended:
            self._on_rows()

    # a disk that refuses

    def broke(self, error: BaseException) -> None:
        """Take nothing until the partition can be opened again."""
        if self.trouble is None:
            _log.error("inbox %s takes nothing: %s", self.name, error)
        self.error = self.trouble = str(error)
        self._reopen_at = time.monotonic() + _REOPEN_EVERY_S

    def working(self) -> bool:
        """Tell whether the disk takes events; tries again if it refused a while ago."""
        return self.error is None or (not self.closed and self._reopened())

    def _reopened(self) -> bool:
        # Those whose rows are lost must have been told: they need the guard that is held here.
        if time.monotonic() < self._reopen_at or self._waiting_requests:
            return False
        self._reopen_at = time.monotonic() + _REOPEN_EVERY_S
        try:
            self.writer.abort()
            self.writer = self.journal.writer(self.partition, clock=self.clock)
            self.writer.on_durable = self._on_durable
            claims = Claims(self.journal.claims(self.partition))
            ended = frozenset(self.journal.ended_senders(self.partition))
        except (OSError, JournalError, BrokerError) as error:
            self.error = self.trouble = str(error)
            return False
        self._on_durable()  # the recovery may have found more than was acknowledged
        self.error = None
        # What was queued is gone: numbers, names and ends are those that the recovery has found.
        self.senders.clear()
        self.claims, self.ends = claims, replace(self.ends, ended=ended)
        return True

    def close(self) -> None:
        """Write what was taken and release the partition; takes the guard."""
        with self.guard:
            self.closed = True
        self.writer.close()

    def abort(self) -> None:
        """Release the partition without writing what waits; takes the guard."""
        with self.guard:
            self.closed = True
        self.writer.abort()
