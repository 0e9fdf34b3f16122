"""The inbox: the one way into a journal partition for events from outside.

    envelope -> admit (admission.py) -> check (ingest) -> append, sync -> answer
                                          |
                                          +--> dead letters, with the reason

An event is in the journal, synced, before it is acknowledged. What waits for the disk is bounded in
rows, bytes and requests; an envelope that finds no room is taken in part or not at all, and the
answer says so: the sender holds the rest.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from millstream.clock import Clock, SystemClock
from millstream.errors import LinkError
from millstream.flow import durations
from millstream.ingest import Progress, Refused, SourceSettings
from millstream.ingest import Rows as Numbered
from millstream.ingest.checks import moment
from millstream.journal import DeadLetter, Description, Kind
from millstream.journal.base import Accepted
from millstream.links.admission import NOTHING, Admission, Numbers, TakenRows, admit, array
from millstream.links.claims import Turn
from millstream.links.inbox_appends import InboxAppends
from millstream.links.inbox_epochs import InboxEpochs
from millstream.links.inbox_idleness import InboxIdleness
from millstream.links.inbox_rights import InboxRights
from millstream.links.inbox_store import Capacity, InboxStore, Sender

_log = logging.getLogger(__name__)
_NO_LIMIT = sys.maxsize


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


class Inbox:
    """One partition of a source's journal, open to senders. Any thread may call.

    Promise: what is acknowledged is in the journal, once, in the order of its sender's numbers.
    """

    def __init__(
        self,
        description: Description,
        partition: int,
        settings: SourceSettings,
        *,
        clock: Clock | None = None,
        capacity: Capacity | None = None,
        upstreams: Iterable[str] = (),
        timeout: float = 0.0,
    ) -> None:
        self.partition = partition
        self.name = f"{settings.source}/{partition}"
        self._description = description
        self._rules = settings.rules
        self._clock = clock or SystemClock()
        self._store = InboxStore(
            self.name,
            description.path,
            partition,
            clock=self._clock,
            capacity=capacity or Capacity(),
            upstreams=upstreams,
            timeout=timeout,
            on_rows=self._rows_are_durable,
            on_durable=self._more_is_durable,
        )
        self._guard = self._store.guard
        #: Called when rows, or the end, are durable.
        self.on_rows: Callable[[], None] = lambda: None
        #: Called whenever more is durable, whatever it is.
        self.on_durable: Callable[[], None] = lambda: None
        #: What groups elsewhere stage and publish.
        self.epochs = InboxEpochs(self._store, self._rules)
        #: When it is idle, for those elsewhere who ask.
        self.idleness = InboxIdleness(self._store, settings.idle)
        #: Who may send under which name.
        self.rights = InboxRights(self.name, self._store)
        self._appends = InboxAppends(self._store, self._rules, self._clock, self.put_dead_letters)
        self._paused, self._allowed = False, _NO_LIMIT
        self._paused_why: Callable[[], str | None] = lambda: None

    def _rows_are_durable(self) -> None:
        self.on_rows()

    def _more_is_durable(self) -> None:
        self.on_durable()

    # asking

    def described(self, version: int = 0) -> Description:
        """Return what the journal holds; columns may have been added since it was opened."""
        if version > self._description.version:
            self._description = self._store.journal.describe()
        return self._description

    @property
    def free(self) -> int:
        """How many more rows may come: none while the inbox is paused."""
        return 0 if self._paused else min(self._store.space, self._allowed)

    def statistics(self) -> InboxStatistics:
        """Return the numbers as they are now."""
        with self._guard:
            return InboxStatistics(
                name=self.name,
                rows=self._store.rows,
                repeated=self._store.repeated,
                refused=self._store.refused,
                waiting=self._store.waiting_rows,
                free=self.free,
                senders=len(self._store.senders),
                error=self._store.trouble,
            )

    def progress(self) -> Progress:
        """Return how far the partition is written; one whose senders must wait is not idle."""
        writer = self._store.writer
        at = self._clock.elapsed_us() if self._allowed == 0 else self._store.rows_at_us
        return Progress(self.partition, writer.running_max, writer.floor, writer.ended, at)

    def highest(self, sender: str) -> int:
        """Return the highest number that is durable of a sender, or -1."""
        return self._store.highest(sender)

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
        incarnation: int = 0,
        most: int | None = None,
    ) -> Future[TakenRows]:
        """Take rows as `enqueue` does; the future resolves when they are durable.

        `message` is the batch as an Arrow IPC message: if it is taken whole it is stored as it is.
        Of rows that are new, no more than `most` are taken.

        Raises:
            SenderReplaced: A newer incarnation has the sender's name.
        """
        with self._guard:
            turn = self._store.claims.turn(sender, incarnation)
            known = self._store.opened(sender)
            if known is None:
                return self._answer(0, self._store.senders.get(sender))
            room = 0 if self._paused else min(self._store.room(batch, most), self._allowed)
            self.rights.check_jump(sender, known, incarnation, int(numbers[0]))
            admission = admit(known.highest, after, numbers, room)
            if not self._claimed(sender, incarnation, turn, admission):
                return self._nothing(known)
            self._store.repeated += admission.repeated
            begin, end = admission.repeated, admission.taken
            refused: int | None = 0
            if admission.fresh:
                whole = admission.fresh == batch.num_rows
                rows = Numbered(batch[begin:end], array(numbers[begin:end]))
                refused = self._store.tried(
                    lambda: self._appends.append(sender, known, rows, message if whole else None)
                )
            if refused is None:
                return self._nothing(known)
            self._allowed -= admission.fresh
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
        incarnation: int = 0,
    ) -> Future[TakenRows]:
        """Take an instruction, once; the future resolves when it is durable.

        Raises:
            LinkError: Its floor is further ahead than a row's time may be.
        """
        if floor is not None and floor > self._clock.now_us() + self._rules.ahead_us:
            raise LinkError(
                f"a watermark of {moment(floor)} is more than "
                f"{durations.format(self._rules.ahead)} ahead",
                hint="set ahead= of the source if its clock is that far from ours",
            )
        with self._guard:
            turn = self._store.claims.turn(sender, incarnation)
            known = self._store.opened(sender)
            if known is None:
                return self._answer(0, self._store.senders.get(sender))
            admission = admit(known.highest, after, [number], self.free)
            if not self._claimed(sender, incarnation, turn, admission) or admission.taken == 0:
                return self._answer(0, known)
            instruct = partial(self._appends.instruct, sender, known, number, kind, floor)
            if admission.fresh and self._store.tried(instruct) is None:
                return self._nothing(known)
            return self._when_durable(known, number, admission, 0)

    def _claimed(self, sender: str, incarnation: int, turn: Turn, admission: Admission) -> bool:
        """Give a name to whom sends something new under it; False if the disk refuses."""
        if turn is Turn.ITS_OWN or not admission.fresh:
            return True
        return self._store.tried(lambda: self._store.claims.take(sender, incarnation)) is not None

    def put_dead_letters(
        self,
        sender: str,
        refused: Iterable[Refused],
        *,
        timeout: float = 30.0,
        incarnation: int | None = None,
    ) -> int:
        """Keep records that are no rows as dead letters, each once; return how many were new."""
        if incarnation:
            with self._guard:
                self._store.claims.turn(sender, incarnation)
        with self._store.journal.dead_letters(clock=self._clock, timeout=timeout) as dead:
            new = dead.put_all([DeadLetter(sender, r.number, r.reason, r.record) for r in refused])
        self._store.refused += new
        return new

    def level(self, floor: int) -> None:
        """Say that this partition is idle and nothing before `floor` will come."""
        with self._guard:
            self._store.level(floor)

    # what its host says

    def pause(self, why: Callable[[], str | None] = lambda: None) -> None:
        """Take nothing more: senders see that there is no room, and `why`, and wait."""
        with self._guard:
            self._paused, self._paused_why = True, why

    def resume(self) -> None:
        """Take events again."""
        with self._guard:
            self._paused = False
            # Those who waited get their turn before the partition can be called idle.
            self._store.rows_at_us = self._clock.elapsed_us()

    def allow(self, rows: int | None) -> None:
        """Take so many more rows, then let senders wait until the next call; None: no limit."""
        with self._guard:
            self._allowed = _NO_LIMIT if rows is None else rows

    @property
    def paused(self) -> bool:
        return self._paused

    @property
    def settled(self) -> bool:
        """Whether all that was taken is durable, or its sender knows that it is not."""
        return self._store.settled

    def end(self, sender: str) -> bool:
        """End the partition for all senders; return whether it has ended. If not, call again."""
        with self._guard:
            return self._store.end(sender)

    def working(self) -> bool:
        """Tell whether the disk takes events; tries again if it refused a while ago."""
        with self._guard:
            return self._store.working()

    # answering

    def _when_durable(
        self, known: Sender, number: int, admission: Admission, refused: int
    ) -> Future[TakenRows]:
        taken, repeated = admission.taken, admission.repeated
        if number <= known.durable:
            return self._answer(taken, known, repeated, refused)
        if known.tail is None:  # the disk has refused it already
            return self._nothing(known)
        answer: Future[TakenRows] = Future()
        answer.set_running_or_notify_cancel()

        def settled(done: Future[Accepted]) -> None:
            if done.exception() is not None:
                answer.set_result(TakenRows(0, known.durable, 0, why=self.why))
            else:
                highest = max(number, known.durable)
                answer.set_result(TakenRows(taken, highest, self.free, repeated, refused))

        # After its own callback in `append`: callbacks run in the order in which they were added.
        known.tail.add_done_callback(settled)
        return answer

    def _answer(
        self, taken: int, known: Sender | None, repeated: int = 0, refused: int = 0
    ) -> Future[TakenRows]:
        highest = NOTHING if known is None else known.durable
        free = self.free
        why = self.why if free == 0 else None
        return _resolved(TakenRows(taken, highest, free, repeated, refused, why))

    def _nothing(self, known: Sender) -> Future[TakenRows]:
        return _resolved(TakenRows(0, known.durable, 0, why=self.why))

    @property
    def why(self) -> str | None:
        """Why nothing is taken: the disk refuses, or the inbox is paused."""
        if self._store.trouble is not None:
            return f"its disk refuses: {self._store.trouble}"
        return self._paused_why() if self._paused else None

    def close(self) -> None:
        """Write what was taken and release the partition."""
        self._store.close()

    def abort(self) -> None:
        """Release the partition without writing what waits."""
        self._store.abort()


def _resolved(taken: TakenRows) -> Future[TakenRows]:
    answer: Future[TakenRows] = Future()
    answer.set_result(taken)
    return answer
