"""An outbox keeps rows until its inbox has them, and believes every answer, whenever it comes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from millstream.errors import LinkClosed, MillstreamError, NotAllowed, NotThere
from millstream.journal import Kind
from millstream.links import outbox as module
from millstream.links import window
from millstream.links.admission import NOTHING, TakenRows
from millstream.links.link import Instruction, Route
from millstream.links.network import Transport
from millstream.links.outbox import Outbox, Ticket
from support.links import batch

LIMITS = window.Limits(requests=3, timeout=10.0, pause_s=0.5)


class Wire:
    """A link whose other side is the test."""

    transport = Transport.TCP

    def __init__(self) -> None:
        self.sent: list[tuple[window.Send, Callable[[TakenRows | MillstreamError], None]]] = []
        self.renewed = 0
        self.lost: Callable[[MillstreamError | None], None] = lambda _: None

    def enqueue(
        self,
        _way: Route,
        order: window.Send,
        on_answer: Callable[[TakenRows | MillstreamError], None],
    ) -> None:
        self.sent.append((order, on_answer))

    def on_lost(self, told: Callable[[MillstreamError | None], None]) -> None:
        self.lost = told

    def renew(self) -> None:
        self.renewed += 1

    def numbers(self) -> list[list[int]]:
        return [[int(n) for n in order.piece.numbers] for order, _ in self.sent]

    def answer(self, index: int, taken: int, highest: int, free: int = 1000) -> None:
        self.sent[index][1](TakenRows(taken, highest, free))


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def box(wire: Wire) -> Outbox:
    return Outbox(wire, Route("f.s", 0, "a", 0), LIMITS, threading.Condition())  # type: ignore[arg-type]


def put(box: Outbox, begin: int, end: int) -> Ticket:
    ticket, rows = Ticket(end - begin), batch(begin, end)
    box.put(range(begin, end), rows, int(rows.nbytes), ticket)
    ticket.done()
    return ticket


def test_rows_are_kept_until_they_are_acknowledged(box: Outbox, wire: Wire) -> None:
    ticket = put(box, 0, 5)
    assert box.step(0.0) == 10.0
    assert wire.numbers() == [[0, 1, 2, 3, 4]]
    assert (box.empty, ticket.future.done(), box.statistics().waiting) == (False, False, 5)
    wire.answer(0, 5, 4)
    assert (box.empty, ticket.future.result(0)) == (True, 5)
    assert (box.statistics().waiting, box.statistics().acknowledged) == (0, 5)
    assert box.step(0.0) is None


def test_what_gathers_while_others_are_on_their_way_goes_together(box: Outbox, wire: Wire) -> None:
    tickets = [put(box, n, n + 1) for n in range(10)]
    box.step(0.0)
    assert wire.numbers() == [list(range(10))]
    wire.answer(0, 10, 9)
    assert all(ticket.future.done() for ticket in tickets)


def test_numbers_with_gaps_go_together_as_they_are(box: Outbox, wire: Wire) -> None:
    for numbers in ([0, 3], [4, 9], [12]):
        rows = batch(0, len(numbers))
        box.put(np.array(numbers), rows, int(rows.nbytes), Ticket(len(numbers)))
    box.step(0.0)
    assert wire.numbers() == [[0, 3, 4, 9, 12]]
    assert wire.sent[0][0].piece.payload.column("n").to_pylist() == [0, 1, 0, 1, 0]


def test_what_goes_together_is_bounded(
    box: Outbox, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 2 * int(batch(0, 5).nbytes))
    for n in range(0, 25, 5):
        put(box, n, n + 5)
    box.step(0.0)
    wire.answer(0, 10, 9)
    box.step(0.0)
    assert [(numbers[0], len(numbers)) for numbers in wire.numbers()] == [
        (0, 10),
        (10, 10),
        (20, 5),
    ]


def test_an_instruction_stays_in_its_place(box: Outbox, wire: Wire) -> None:
    put(box, 0, 2)
    box.put(range(2, 3), Instruction(Kind.WATERMARK, 5), 0, Ticket(1))
    put(box, 3, 5)
    box.step(0.0)
    assert wire.numbers() == [[0, 1], [2], [3, 4]]


def test_a_late_answer_is_harmless(box: Outbox, wire: Wire) -> None:
    """One that came after its request was given up once disabled an outbox for good."""
    first = put(box, 0, 3)
    box.step(0.0)
    box.step(10.0)
    assert wire.renewed == 1
    box.step(12.0)
    assert wire.numbers() == [[0, 1, 2]] * 2
    wire.answer(0, 3, 2)  # to the request of before
    assert first.future.done()
    wire.answer(1, 3, 2)
    second = put(box, 3, 4)
    box.step(12.0)
    wire.answer(2, 1, 3)
    assert second.future.done()
    assert box.statistics().sent_again == 1


def test_a_part_is_sent_again_from_where_it_ended(box: Outbox, wire: Wire) -> None:
    ticket = put(box, 0, 6)
    box.step(0.0)
    wire.answer(0, 4, 3)
    box.step(1e9)
    assert wire.numbers()[1] == [4, 5]
    assert not ticket.future.done()
    wire.answer(1, 2, 5)
    assert ticket.future.done()


def test_a_lost_link_sends_again_after_a_pause(box: Outbox, wire: Wire) -> None:
    put(box, 0, 3)
    box.step(0.0)
    wire.lost(None)
    assert box.statistics().sent_again == 1
    box.step(1e9)
    assert wire.numbers() == [[0, 1, 2]] * 2


def test_a_refusal_tells_all_who_wait(box: Outbox, wire: Wire) -> None:
    tickets = [put(box, 0, 3), put(box, 3, 5)]
    box.step(0.0)
    late = put(box, 5, 6)
    wire.sent[0][1](NotThere("gone"))
    for ticket in [*tickets, late]:
        with pytest.raises(NotThere):
            ticket.future.result(0)
    assert (box.empty, box.room(1)) == (True, module.ROWS)
    after = put(box, 6, 7)
    box.step(0.0)
    assert wire.numbers()[-1] == [6]
    assert wire.sent[-1][0].after == NOTHING
    wire.answer(len(wire.sent) - 1, 1, 6)
    assert after.future.done()


def test_a_link_that_turns_us_away_tells_all_who_wait(box: Outbox, wire: Wire) -> None:
    ticket = put(box, 0, 3)
    wire.lost(NotAllowed("no"))
    with pytest.raises(NotAllowed):
        ticket.future.result(0)


def test_a_closed_outbox_takes_no_more(box: Outbox) -> None:
    ticket = put(box, 0, 3)
    box.close(LinkClosed("closed"))
    with pytest.raises(LinkClosed):
        ticket.future.result(0)
    with pytest.raises(LinkClosed):
        put(box, 3, 4)


def test_room_is_bounded_in_rows_and_bytes(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", 10)
    monkeypatch.setattr(module, "BYTES", 10_000)
    assert box.room(5000) == 10  # the first passes whatever its size
    put(box, 0, 4)
    assert box.room(1) == 6
    assert box.room(5000) == 1
    assert box.room(50_000) == 0


def test_what_the_inbox_had_is_counted_once(box: Outbox, wire: Wire) -> None:
    put(box, 0, 3)
    box.step(0.0)
    wire.sent[0][1](TakenRows(3, 2, 100, repeated=3))
    assert box.statistics().repeated == 3
    put(box, 3, 5)
    box.step(0.0)
    wire.lost(None)
    box.step(1e9)
    wire.sent[2][1](TakenRows(2, 4, 100, repeated=2))  # we ourselves sent them again: no news
    assert box.statistics().repeated == 3


def test_a_ticket_that_failed_stays_failed() -> None:
    ticket = Ticket(2)
    ticket.hold()
    ticket.fail(NotThere("gone"))
    ticket.done()
    ticket.done()
    with pytest.raises(NotThere):
        ticket.future.result(0)


def test_types_are_those_of_links(box: Outbox, wire: Any) -> None:
    assert box.statistics().inbox == "f.s/0"
    assert box.statistics().transport == "tcp"
    assert not box.local
