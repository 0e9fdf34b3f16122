"""What an outbox has to send to its inbox, and what it must send again: pure rules.

    offered ──▶ waiting ──send──▶ in flight ──answered──▶ acknowledged, forgotten
                   ▲                  │
                   └──── rewound ◀────┘   it took too long, or the inbox did not take all of it

Rows that were once offered to an outbox stay with it until its inbox has acknowledged them, so that
rows whose fate is unknown are never sent anywhere else. Every answer names the highest number that
the inbox has made durable, so any answer is good news whenever it comes: one that is late, or the
answer to a request that has timed out, acknowledges what it acknowledges and disturbs nothing.

After a rewind the answers to what is still on its way count only for what they acknowledge: the
inbox takes nothing that comes after a gap, and the rows are on their way again already.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from millstream.links.admission import NOTHING, Numbers

UNKNOWN: Final = -1
"""The free room of an inbox that has not answered yet."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be on its way, how long to wait for an answer, and after a full inbox."""

    requests: int = 8
    timeout: float = 10.0
    pause_s: float = 0.002
    longest_pause_s: float = 0.5


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows to be sent in one request. The payload can be cut with `[k:]`."""

    numbers: Numbers
    payload: Any  # a record batch, an instruction; a list in tests

    @property
    def last(self) -> int:
        return int(self.numbers[-1])

    def part(self, begin: int, end: int) -> Piece:
        if begin == 0 and end == len(self.numbers):
            return self
        return Piece(self.numbers[begin:end], self.payload[begin:end])


@dataclass(frozen=True, slots=True)
class Send:
    """An order: send these rows under this number of a request."""

    request: int
    after: int
    piece: Piece


@dataclass(frozen=True, slots=True)
class Answer:
    """An inbox's answer: rows taken, the highest number that is durable, free room in rows."""

    request: int
    taken: int
    highest: int
    free: int


@dataclass(frozen=True, slots=True)
class Flight:
    """A request on its way."""

    request: int
    rows: int
    deadline: float


@dataclass(frozen=True, slots=True)
class Window:
    """All that an outbox knows; `acked` and `sent` are numbers, `sent` goes back at a rewind."""

    pieces: tuple[Piece, ...] = ()
    acked: int = NOTHING
    sent: int = NOTHING
    flights: tuple[Flight, ...] = ()
    requests: int = 0
    free: int = UNKNOWN
    setbacks: int = 0
    not_before: float = 0.0

    @property
    def rows(self) -> int:
        """The rows that are not acknowledged."""
        return sum(len(piece.numbers) for piece in self.pieces)

    @property
    def last(self) -> int:
        """The highest number ever offered, as far as it matters."""
        return self.pieces[-1].last if self.pieces else max(self.acked, self.sent)


def offer(window: Window, piece: Piece) -> Window:
    """Add rows; their numbers are above all those before them.

    A sender that begins again offers rows that its inbox has of an earlier life: they need not be
    sent.
    """
    known = bisect_right(piece.numbers, window.acked)
    if known == len(piece.numbers):
        return window
    assert piece.numbers[known] > window.last, (
        f"{piece.numbers[known]} was offered after {window.last}"
    )
    return replace(window, pieces=(*window.pieces, piece.part(known, len(piece.numbers))))


def send(window: Window, now: float, limits: Limits) -> tuple[Window, list[Send]]:
    """Return what to send now."""
    if now < window.not_before:
        return window, []
    if window.not_before > 0.0:  # the pause is over: nobody need be woken for it
        window = replace(window, not_before=0.0)
    orders: list[Send] = []
    flights, sent, request = list(window.flights), window.sent, window.requests
    room = _room(window)
    for number, piece in enumerate(window.pieces):
        if piece.last <= sent:
            continue
        if len(flights) >= limits.requests or room <= 0:
            break
        begin = bisect_right(piece.numbers, sent)
        part = piece.part(begin, min(len(piece.numbers), begin + room))
        orders.append(Send(request, _before(window.pieces, number, begin), part))
        flights.append(Flight(request, len(part.numbers), now + limits.timeout))
        room -= len(part.numbers)
        sent = part.last
        request += 1
        if sent < piece.last:
            break
    if not orders:
        return window, []
    return replace(window, flights=tuple(flights), sent=sent, requests=request), orders


def _room(window: Window) -> int:
    """Return how many rows may be sent; a full or unknown inbox gets a single request."""
    flying = sum(flight.rows for flight in window.flights)
    if window.free == UNKNOWN:
        return 0 if flying else 1 << 30
    if window.free <= 0:
        return 0 if flying else 1
    return window.free - flying


def _before(pieces: Sequence[Piece], number: int, begin: int) -> int:
    if begin > 0:
        return int(pieces[number].numbers[begin - 1])
    return pieces[number - 1].last if number else NOTHING


def answered(window: Window, answer: Answer, now: float, limits: Limits) -> Window:
    """Take an answer into account, whenever it comes."""
    flight = next((one for one in window.flights if one.request == answer.request), None)
    progress = answer.highest > window.acked
    window = _acknowledged(window, answer.highest)
    if progress:
        window = replace(window, setbacks=0)
    window = replace(window, free=answer.free)
    if flight is None:
        return window
    window = replace(window, flights=tuple(one for one in window.flights if one is not flight))
    if answer.taken >= flight.rows:
        return window
    return _rewound(window, now, limits, pause=answer.free <= 0)


def expired(window: Window, now: float, limits: Limits) -> tuple[Window, bool]:
    """Return the window, rewound if an answer is overdue, and whether to renew the link."""
    if not any(flight.deadline <= now for flight in window.flights):
        return window, False
    # What the inbox has room for is news of an earlier life.
    return _rewound(replace(window, free=UNKNOWN), now, limits, pause=True), True


def lost(window: Window, now: float, limits: Limits) -> Window:
    """Return the window after its link broke: what was on its way may never arrive."""
    if not window.flights:
        return window
    return _rewound(replace(window, free=UNKNOWN), now, limits, pause=True)


def wake_at(window: Window) -> float | None:
    """Return when there is something to do although nothing happens."""
    deadlines = [flight.deadline for flight in window.flights]
    unsent = bool(window.pieces) and window.pieces[-1].last > window.sent
    if unsent and window.not_before > 0.0:
        deadlines.append(window.not_before)
    return min(deadlines, default=None)


def _acknowledged(window: Window, highest: int) -> Window:
    if highest <= window.acked:
        return window
    kept = [piece for piece in window.pieces if piece.last > highest]
    if kept and (done := bisect_right(kept[0].numbers, highest)):
        kept[0] = kept[0].part(done, len(kept[0].numbers))
    return replace(window, pieces=tuple(kept), acked=highest, sent=max(window.sent, highest))


def _rewound(window: Window, now: float, limits: Limits, *, pause: bool) -> Window:
    setbacks = window.setbacks + 1 if pause else window.setbacks
    wait = min(limits.pause_s * 2.0 ** min(setbacks, 16), limits.longest_pause_s) if pause else 0.0
    return replace(window, flights=(), sent=window.acked, setbacks=setbacks, not_before=now + wait)
