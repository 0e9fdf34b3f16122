"""Producers with quotas wait, and nothing of theirs is lost."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from millstream.errors import LinkBroken, SenderReplaced
from millstream.links import envelope
from millstream.links.admission import TakenRows
from millstream.links.grants import Grant
from millstream.links.metering import Metering
from millstream.links.quotas import Quota
from millstream.links.standing import OWN, Peer, Standing


def producer(**quota: int) -> Peer:
    return Peer(Standing.PRODUCER, "till", Grant(quota=Quota(**quota)))


def request(rows: int) -> envelope.Rows:
    return envelope.Rows(0, "f.s", 0, "till", -1, 0, rows, 0)


class Taking:
    """An inbox with room for much, which has some of the rows already."""

    def __init__(self, repeated: int = 0) -> None:
        self.most: list[int | None] = []
        self.repeated = repeated

    def __call__(self, most: int | None) -> Future[TakenRows]:
        self.most.append(most)
        answer: Future[TakenRows] = Future()
        answer.set_result(TakenRows((most or 0) + self.repeated, 7, 5000, self.repeated))
        return answer


def _none(_name: str) -> int:
    return 0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_rows_are_taken_up_to_the_quota_and_the_sender_hears_why_it_waits() -> None:
    clock, inbox, peer = Clock(), Taking(), producer(rows_per_second=10)
    metering = Metering(_none, clock)
    first = metering.rows(peer, request(25), 100, inbox).result()
    assert (first.taken, first.free, inbox.most) == (10, 0, [10])
    second = metering.rows(peer, request(15), 60, inbox).result()
    assert (second.taken, second.free) == (0, 0)
    assert second.why == 'producer "till" may send 10 rows a second'
    clock.now = 0.5
    assert metering.rows(peer, request(15), 60, inbox).result().taken == 5
    (found,) = metering.statistics()
    assert (found.name, found.rows, found.waits, found.sources) == ("till", 15, 3, {"f.s"})


def test_bytes_are_counted_too_and_a_large_row_passes_alone() -> None:
    clock, inbox, peer = Clock(), Taking(), producer(bytes_per_second=100)
    metering = Metering(_none, clock)
    assert metering.rows(peer, request(4), 200, inbox).result().taken == 2
    clock.now = 1.0
    assert metering.rows(peer, request(1), 500, inbox).result().taken == 1
    for clock.now, taken in ((2.0, 0), (5.0, 0), (5.1, 1)):
        assert metering.rows(peer, request(1), 1, inbox).result().taken == taken


def test_what_was_there_already_or_is_refused_costs_nothing() -> None:
    clock, peer = Clock(), producer(rows_per_second=10)
    metering = Metering(_none, clock)

    def known(_most: int | None) -> Future[TakenRows]:
        answer: Future[TakenRows] = Future()
        answer.set_result(TakenRows(10, 7, 5000, repeated=10))
        return answer

    def refused(_most: int | None) -> Future[TakenRows]:
        raise SenderReplaced("another client")

    assert metering.rows(peer, request(10), 10, known).result().free == 10
    with pytest.raises(SenderReplaced):
        metering.rows(peer, request(10), 10, refused)
    assert metering.rows(peer, request(10), 10, Taking()).result().taken == 10


def test_what_is_not_divided_is_taken_whole_and_owed() -> None:
    clock, peer = Clock(), producer(rows_per_second=10)
    metering = Metering(_none, clock)
    letters = envelope.PutDeadLetter(0, "f.s", 0, "till", [])
    metering.whole(peer, letters, 30, 100)
    clock.now = 1.9
    with pytest.raises(LinkBroken, match="may send 10 rows a second"):
        metering.whole(peer, letters, 1, 1)
    clock.now = 2.2
    metering.whole(peer, letters, 1, 1)


def test_who_has_no_quota_is_not_counted() -> None:
    inbox, metering = Taking(), Metering(_none)
    metering.rows(OWN, request(5), 5, inbox)
    metering.rows(producer(), request(5), 5, inbox)
    assert (inbox.most, metering.statistics()) == ([None, None], ())


def test_another_quota_counts_at_once() -> None:
    inbox, metering = Taking(), Metering(_none, Clock())
    metering.rows(producer(rows_per_second=10), request(10), 5, inbox)
    assert metering.rows(producer(rows_per_second=40), request(90), 5, inbox).result().taken == 40
