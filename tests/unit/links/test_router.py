"""Rows find their outboxes, in pieces that can be sent; instructions find them all."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import LinkError
from millstream.journal import Kind
from millstream.links import outbox as module
from millstream.links import window
from millstream.links.envelope import MOST_ROWS
from millstream.links.frame import MOST_BYTES
from millstream.links.link import Instruction, Route
from millstream.links.network import Transport
from millstream.links.outbox import Outbox, Ticket
from millstream.links.router import Router, too_large
from millstream.links.routing import Policy
from support.links import batch

END = Instruction(Kind.END_OF_STREAM)


class Dead:
    """A link that nobody answers: what is put stays."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def on_lost(self, told: Any) -> None:
        pass


def outboxes(count: int, *, local: int | None = None) -> list[Outbox]:
    changed = threading.Condition()
    ways = [Transport.LOCAL if n == local else Transport.TCP for n in range(count)]
    return [
        Outbox(Dead(way), Route("f.s", n, "a", 0), window.Limits(), changed)  # type: ignore[arg-type]
        for n, way in enumerate(ways)
    ]


def held(router: Router) -> list[list[int]]:
    """The numbers in each outbox."""
    return [
        [int(n) for piece, _ in one._incoming for n in piece.numbers] for one in router.outboxes
    ]


def test_rows_go_by_their_key() -> None:
    router = Router(outboxes(3), Policy.KEY, "origin")
    rows = pa.record_batch(
        [pa.array(["JFK", "LGA", "EWR", None]), pa.array([1, 2, 3, 4])], names=["origin", "n"]
    )
    assert router.enqueue(range(10, 14), [rows], Ticket(4)) == 4
    assert held(router) == [
        [13],
        [11],
        [10, 12],
    ]  # one without a key becomes a dead letter of the first


def test_rows_go_in_turn_by_their_numbers() -> None:
    router = Router(outboxes(3), Policy.IN_TURN, None)
    router.enqueue(range(4, 10), [batch(0, 6)], Ticket(6))
    assert held(router) == [[6, 9], [4, 7], [5, 8]]


def test_the_least_loaded_gets_a_batch_whole() -> None:
    router = Router(outboxes(3), Policy.LEAST_LOADED, "origin")
    for n in range(4):
        router.enqueue(range(10 * n, 10 * n + 10), [batch(0, 10)], Ticket(10))
    assert sorted(len(part) for part in held(router)) == [10, 10, 20]


def test_local_means_this_process() -> None:
    router = Router(outboxes(3, local=1), Policy.LOCAL, "origin")
    router.enqueue(range(10), [batch(0, 10)], Ticket(10))
    assert held(router) == [[], list(range(10)), []]
    with pytest.raises(LinkError, match="no inbox is in this process"):
        Router(outboxes(2), Policy.LOCAL, "origin")


def test_an_instruction_goes_everywhere_after_the_rows_before_it() -> None:
    router = Router(outboxes(3), Policy.KEY, "origin")
    assert router.enqueue(range(15), [batch(0, 10), END, batch(10, 14)], Ticket(15)) == 15
    for part in held(router):
        assert 10 in part
        assert part == sorted(part)
    assert sorted(n for part in held(router) for n in part) == [
        *range(10),
        10,
        10,
        10,
        *range(11, 15),
    ]


def test_an_instruction_goes_nowhere_if_one_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", 4)
    router = Router(outboxes(2), Policy.IN_TURN, None)
    assert router.enqueue(range(8), [batch(0, 8)], Ticket(8)) == 8
    assert router.enqueue(range(8, 9), [END], Ticket(1)) == 0
    assert held(router) == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_what_finds_no_room_is_counted_from_the_front(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", 3)
    router = Router(outboxes(2), Policy.IN_TURN, None)
    router.enqueue(range(2), [batch(0, 2)], Ticket(2))
    assert router.enqueue(range(2, 12), [batch(0, 5), END, batch(5, 9)], Ticket(10)) == 4
    assert held(router) == [[0, 2, 4], [1, 3, 5]]


def test_a_ticket_waits_for_all_pieces() -> None:
    router = Router(outboxes(2), Policy.IN_TURN, None)
    ticket = Ticket(4)
    router.enqueue(range(4), [batch(0, 4)], ticket)
    ticket.done()
    for one in router.outboxes:
        assert not ticket.future.done()
        one._release(10)
    assert ticket.future.result(0) == 4


def sizes(router: Router) -> list[int]:
    return [int(piece.payload.nbytes) for one in router.outboxes for piece, _ in one._incoming]


@pytest.mark.parametrize("policy", [Policy.KEY, Policy.LEAST_LOADED])
def test_no_piece_is_too_large_for_a_frame(policy: Policy) -> None:
    """However unequal the rows are: a frame that is too large is dropped with its connection, and all after it jam."""
    lengths = [10] * 60_000 + [1_000_000] * 90 + [10] * 1000
    body = pa.array(["x" * length for length in lengths])
    rows = pa.record_batch([pa.array(["k"] * len(lengths)), body], names=["origin", "body"])
    router = Router(outboxes(2), policy, "origin")
    done = 0
    while done < len(lengths):
        count = router.enqueue(range(done, len(lengths)), [rows[done:]], Ticket(0))
        assert count > 0
        done += count
        assert max(sizes(router)) <= 5 << 20
        for one in router.outboxes:
            one._release(1 << 40)
            one._incoming.clear()
    assert done == len(lengths)


def test_no_piece_has_too_many_rows() -> None:
    router = Router(outboxes(1), Policy.KEY, "origin")
    ids = pa.record_batch([pa.nulls(200_000, pa.string())], names=["origin"])
    router.enqueue(range(200_000), [ids], Ticket(0))
    assert max(len(piece.numbers) for piece, _ in router.outboxes[0]._incoming) <= MOST_ROWS


def test_a_row_larger_than_a_frame_is_found() -> None:
    def of(*lengths: int) -> pa.RecordBatch:
        return pa.record_batch([pa.array([b"x" * length for length in lengths])], names=["body"])

    assert too_large(of(5, MOST_BYTES // 2, MOST_BYTES // 2 + 5, 7)) is None
    assert too_large(of(5, 5, MOST_BYTES, 7)) == 2
    assert too_large(of(MOST_BYTES)) == 0
