"""The outbox: rows for one inbox, kept until it has acknowledged them (rules: window.py).

Any thread puts rows in; everything else happens on the thread of the link's loop.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millstream.errors import LinkClosed, MillstreamError
from millstream.links import window
from millstream.links.admission import NOTHING, TakenRows
from millstream.links.envelope import MOST_ROWS
from millstream.links.link import Link, Route

ROWS: Final = 1 << 18
BYTES: Final = 32 << 20
PIECE_BYTES: Final = 2 << 20
"""What is sent in one request, unless a single row has more."""


class Ticket:
    """The caller's side of rows that it has handed over: `future` resolves when all are durable.

    One who is `waiting` for it hears of a failure there and then; the others hear of it when they
    flush, too.
    """

    def __init__(self, rows: int, *, waiting: bool = False) -> None:
        self.waiting = waiting
        self.future: Future[int] = Future()
        self.future.set_running_or_notify_cancel()
        self.rows = rows
        self._guard = threading.Lock()
        self._pieces = 1  # the caller's hold, until it has put all rows

    def hold(self) -> None:
        with self._guard:
            self._pieces += 1

    def done(self) -> None:
        with self._guard:
            self._pieces -= 1
            last = self._pieces == 0
        if last and not self.future.done():
            self.future.set_result(self.rows)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(frozen=True, slots=True)
class OutboxStatistics:
    """What an outbox is doing."""

    inbox: str
    transport: str
    waiting: int
    acknowledged: int
    repeated: int
    refused: int
    sent_again: int


@dataclass(slots=True)
class _Held:
    last: int
    rows: int
    bytes: int
    ticket: Ticket


class Outbox:
    """Rows for one inbox."""

    def __init__(
        self, link: Link, route: Route, limits: window.Limits, changed: threading.Condition
    ) -> None:
        """Send over `link`; `changed` is notified when there is more room."""
        self._link = link
        self._route = route
        self._limits = limits
        self._changed = changed
        self._window = window.Window()
        #: With their sizes in bytes; an instruction has none.
        self._incoming: deque[tuple[window.Piece, int]] = deque()
        self._held: deque[_Held] = deque()
        self._rows = self._bytes = 0
        self._acknowledged = self._repeated = self._refused = self._rewinds = 0
        self._reached = NOTHING
        #: Why the inbox takes nothing, as it said last.
        self.why: str | None = None
        self._failure: MillstreamError | None = None
        self._closed = False
        link.on_lost(self._lost)

    # any thread

    @property
    def local(self) -> bool:
        return self._link.transport == "local"

    def room(self, each: int) -> int:
        """Return how many more rows, of `each` bytes, can wait here."""
        if self._rows == 0:
            return ROWS
        return max(0, min(ROWS - self._rows, (BYTES - self._bytes) // max(1, each)))

    def put(self, numbers: Any, payload: Any, size: int, ticket: Ticket) -> None:
        """Keep rows of `size` bytes, or an instruction of none, until the inbox has them.

        Numbers rise from call to call.
        """
        ticket.hold()
        with self._changed:
            if self._closed:
                raise LinkClosed("the client is closed")
            self._rows += len(numbers)
            self._bytes += size
            self._held.append(_Held(int(numbers[-1]), len(numbers), size, ticket))
            self._incoming.append((window.Piece(numbers, payload), size))

    @property
    def empty(self) -> bool:
        return not self._held

    def failure(self) -> MillstreamError | None:
        """Return, once, why rows failed that nobody waited for; None: all are durable or here."""
        with self._changed:
            failure, self._failure = self._failure, None
        return failure

    def statistics(self) -> OutboxStatistics:
        """Return the numbers as they are now."""
        return OutboxStatistics(
            inbox=f"{self._route.source}/{self._route.partition}",
            transport=str(self._link.transport),
            waiting=self._rows,
            acknowledged=self._acknowledged,
            repeated=self._repeated,
            refused=self._refused,
            sent_again=self._rewinds,
        )

    # the loop's thread

    def step(self, now: float) -> float | None:
        """Do what is due; return when there is more to do."""
        while (
            len(self._window.pieces) < self._limits.requests and (piece := self._next()) is not None
        ):
            self._window = window.offer(self._window, piece)
        self._release(self._window.acked)
        self._window, overdue = window.expired(self._window, now, self._limits)
        if overdue:
            self._rewinds += 1
            self._link.renew()
        self._window, orders = window.send(self._window, now, self._limits)
        for order in orders:
            self._transmit(order)
        return window.wake_at(self._window)

    def _next(self) -> window.Piece | None:
        """Return what to send next: all that has gathered meanwhile, as one piece."""
        with self._changed:
            parts = self._following()
        return _joined(parts) if len(parts) > 1 else next(iter(parts), None)

    def _following(self) -> list[window.Piece]:
        """Take pieces that make one: an instruction stays alone, and numbers rise."""
        parts: list[window.Piece] = []
        rows = size = 0
        while self._incoming:
            piece, more = self._incoming[0]
            rows, size = rows + len(piece.numbers), size + more
            if parts and (
                more == 0
                or rows > MOST_ROWS
                or size > PIECE_BYTES
                or piece.numbers[0] <= parts[-1].last
            ):
                break
            parts.append(piece)
            self._incoming.popleft()
            if more == 0:
                break
        return parts

    def _transmit(self, order: window.Send) -> None:
        first = order.piece.numbers[0] > self._reached
        self._reached = max(self._reached, order.piece.last)

        def answered(answer: TakenRows | MillstreamError) -> None:
            if first and isinstance(answer, TakenRows):
                # What we ourselves send again is no news.
                self._repeated += answer.repeated
            self._answered(order, answer)

        self._link.enqueue(self._route, order, answered)

    def _answered(self, order: window.Send, answer: TakenRows | MillstreamError) -> None:
        if isinstance(answer, MillstreamError):
            self._fail(answer)
            return
        self._refused += answer.refused
        self.why = answer.why
        found = window.Answer(order.request, answer.taken, answer.highest, answer.free)
        self._window = window.answered(self._window, found, time.monotonic(), self._limits)
        self._release(self._window.acked)

    def _release(self, acked: int) -> None:
        done: list[_Held] = []
        with self._changed:
            while self._held and self._held[0].last <= acked:
                one = self._held.popleft()
                self._rows -= one.rows
                self._bytes -= one.bytes
                self._acknowledged += one.rows
                done.append(one)
            if done:
                self._changed.notify_all()
        for one in done:
            one.ticket.done()

    def _lost(self, error: MillstreamError | None) -> None:
        if error is not None:
            self._fail(error)
            return
        if self._window.flights:
            self._rewinds += 1
        self._window = window.lost(self._window, time.monotonic(), self._limits)

    def _fail(self, error: MillstreamError) -> None:
        """Drop what is here: the other side has refused it permanently."""
        with self._changed:
            held, self._held = list(self._held), deque()
            # Noted while it is locked: who sees that nothing is left must see why.
            if self._failure is None and any(not one.ticket.waiting for one in held):
                self._failure = error
            self._incoming.clear()
            self._rows = self._bytes = 0
            self._window = window.Window(
                acked=self._window.acked, sent=self._window.last, requests=self._window.requests
            )
            self._changed.notify_all()
        for one in held:
            one.ticket.fail(error)

    def close(self, error: MillstreamError) -> None:
        """Take no more; those who still wait get `error`."""
        self._closed = True
        self._fail(error)


def _joined(pieces: Sequence[window.Piece]) -> window.Piece:
    """Return rows that follow each other as one piece."""
    batch = pa.concat_batches([piece.payload for piece in pieces])
    first, last = int(pieces[0].numbers[0]), pieces[-1].last
    if last - first + 1 == batch.num_rows:
        return window.Piece(range(first, last + 1), batch)
    numbers: Any = np.concatenate([np.asarray(piece.numbers, np.int64) for piece in pieces])
    return window.Piece(numbers, batch)
