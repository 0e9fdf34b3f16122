"""A source that a client sends to: numbers rows, and gathers single ones into batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

import pyarrow as pa

from millstream.errors import LinkClosed, LinkError, NoAnswer, RowsRefused
from millstream.links import envelope
from millstream.links.admission import Numbers, checked
from millstream.links.frame import MOST_BYTES
from millstream.links.link import Instruction, schema_of
from millstream.links.outbox import Ticket
from millstream.links.promise import Group, Promise
from millstream.links.router import Event, Router, too_large
from millstream.links.rows import to_batch

GATHERED: Final = 2048
_LEAST_PAUSE_S: Final = 0.005

_Ready = tuple[Any, Group]  # a record batch, which has no types, and those who wait for its rows


class Room(threading.Condition):
    """Where senders wait for room; news between a look and a wait are not missed."""

    news = 0

    def notify_all(self) -> None:
        self.news += 1
        super().notify_all()

    def wait_beyond(self, news: int, deadline: float) -> bool:
        """Wait until there is more news than that; False if it takes too long."""
        with self:
            return self.wait_for(lambda: self.news != news, max(0.0, deadline - time.monotonic()))


class Target:
    """A source that a client sends to."""

    def __init__(
        self,
        info: envelope.SourceInfo,
        router: Router,
        linger_s: float,
        room: Room,
        ring: Callable[[], None],
        incarnation: int = 0,
    ) -> None:
        """Hand rows to `router`, waiting in `room` for it; `ring` wakes the thread that sends."""
        self.info = info
        self.schema = schema_of(info)
        self.router = router
        self.incarnation = incarnation
        self._room = room
        self._ring = ring
        self._linger_s = linger_s
        #: How long to leave alone what finds no room, or whose turn it is not.
        self._pause_s = max(linger_s, _LEAST_PAUSE_S)
        self._next = 0
        #: Held while rows get their numbers: their order is the order of the calls.
        self._turn = threading.Lock()
        self._gathered: list[tuple[Any, Promise]] = []
        self._group = Group()
        #: Gathered and converted, but there was no room.
        self._ready: _Ready | None = None
        self.due: float | None = None
        self._closed = False

    # handing over

    def put(
        self, events: list[Event], ticket: Ticket, deadline: float, numbers: Numbers | None = None
    ) -> None:
        """Number events that have no numbers, and hand them to the router, waiting for room."""
        if numbers is not None and events:
            numbers = checked(numbers, events[0].num_rows)
        with self._turn:
            self._flush(deadline)
            self._hand_over(events, ticket, deadline, numbers)

    def _hand_over(
        self, events: list[Event], ticket: Ticket, deadline: float, given: Numbers | None = None
    ) -> None:
        try:
            for event in events:
                self._hand_over_one(event, ticket, deadline, given)
        except BaseException as error:
            ticket.fail(error)
            raise
        ticket.done()

    def _hand_over_one(
        self, event: Event, ticket: Ticket, deadline: float, given: Numbers | None
    ) -> None:
        size = 1 if isinstance(event, Instruction) else event.num_rows
        numbers = range(self._next, self._next + size) if given is None else given
        if numbers[0] < self._next:
            hint = "numbers only rise"
            raise LinkError(f"a row numbered {numbers[0]} comes after {self._next - 1}", hint=hint)
        self._next = int(numbers[-1]) + 1
        done = 0
        while done < size:
            news = self._room.news
            count = self.router.enqueue(
                numbers[done:], [event if done == 0 else event[done:]], ticket
            )
            done += count
            if count:
                self._ring()
            elif not self._room.wait_beyond(news, deadline):
                raise self.no_room()

    def no_room(self) -> NoAnswer:
        """Return what to say of inboxes that take nothing, with the reason if they gave one."""
        whys = (one.why for one in self.router.outboxes if not one.empty)
        return no_room(self.info.source, next((why for why in whys if why is not None), None))

    # gathering

    def gather(self, row: Any, deadline: float) -> Future[int]:
        """Keep a row until there are enough for a batch, or the linger time is over."""
        with self._turn:
            if self._closed:
                raise LinkClosed("the client is closed")
            promise = Promise(self._group)
            self._gathered.append((row, promise))
            if len(self._gathered) >= GATHERED:
                self._flush(deadline)
            elif self.due is None:
                self.due = time.monotonic() + self._linger_s
                self._ring()
        return promise

    def flush(self, deadline: float) -> None:
        """Send what is gathered."""
        with self._turn:
            self._flush(deadline)

    def flush_if_due(self, now: float) -> float | None:
        """Send what was gathered long enough, unless another thread does; for the loop's thread."""
        if self.due is None or now < self.due:
            return self.due
        if not self._turn.acquire(blocking=False):
            return now + self._pause_s
        try:
            self._flush(deadline=None)
        finally:
            self._turn.release()
        return self.due

    def _flush(self, deadline: float | None) -> None:
        """Send what is gathered. Without a deadline it does not wait: what finds no room stays."""
        while (ready := self._ready or self._converted()) is not None:
            batch, group = ready
            if deadline is None and not self._fits(batch):
                self._ready, self.due = ready, time.monotonic() + self._pause_s
                return
            self._ready = None
            ticket = Ticket(batch.num_rows)
            ticket.future.add_done_callback(group.settle)
            self._hand_over([batch], ticket, deadline or 0.0)
        self.due = None

    def _fits(self, batch: pa.RecordBatch) -> bool:
        each = int(batch.nbytes) // batch.num_rows
        return all(outbox.room(each) >= batch.num_rows for outbox in self.router.outboxes)

    def _converted(self) -> _Ready | None:
        """Return what is gathered as a batch; the future of a row that does not fit says so."""
        gathered, self._gathered = self._gathered, []
        if not gathered:
            return None
        group, self._group = self._group, Group()
        try:
            return self._batch([row for row, _ in gathered]), group
        except Exception:  # noqa: BLE001 (whichever it is belongs to one of the rows: found below)
            batches = self._good(gathered)
        return (pa.concat_batches(batches), group) if batches else None

    def _good(self, gathered: list[tuple[Any, Promise]]) -> list[pa.RecordBatch]:
        batches = []
        for row, promise in gathered:
            try:
                batches.append(self._batch([row]))
            except Exception as error:  # noqa: BLE001 (it belongs to whoever waits for this row)
                promise.set_exception(error)
        return batches

    def _batch(self, rows: list[Any]) -> pa.RecordBatch:
        return fitting(rows, self.schema, self.info.source)

    def abandon(self, error: BaseException) -> None:
        """Take no more; those whose rows are still gathered get `error`."""
        with self._turn:
            self._closed = True
            groups = [self._group, *([] if self._ready is None else [self._ready[1]])]
            self._gathered, self._ready, self.due = [], None, None
        for group in groups:
            group.fail(error)


def no_room(source: str, why: str | None = None) -> NoAnswer:
    """Return what to say of inboxes that take nothing."""
    if why is not None:
        hint = "the rows are sent as soon as there is room, while the client is open"
        return NoAnswer(f'"{source}" takes nothing: {why}', hint=hint)
    hint = "is the flow or the engine running?"
    return NoAnswer(f'the inboxes of "{source}" have taken nothing for too long', hint=hint)


def fitting(rows: Any, schema: pa.Schema, source: str) -> pa.RecordBatch:
    """Return rows as a batch of a source's columns, each of which can be sent.

    Raises:
        RowsRefused: They do not fit, or one is too large.
    """
    batch = to_batch(rows, schema, source=source)
    row = too_large(batch)
    if row is not None:
        limit = MOST_BYTES >> 20
        msg = f'row {row} for "{source}" is larger than the {limit} MB that can be sent at once'
        raise RowsRefused(msg, hint="keep it in a file, and send where it is")
    return batch
