"""Which inputs of a worker are done."""

from __future__ import annotations

import pytest

from millstream.links.acks import Ledger


def vector(downstreams: str = "a") -> Ledger:
    """Inputs recorded as 1->1 output, 1->0, 1->3, then an output that belongs to no input, 2->3."""
    ledger = Ledger(downstreams, capacity=100)
    for inputs, outputs in ((1, 1), (1, 0), (1, 3), (0, 1), (2, 3)):
        assert ledger.record(inputs, outputs) == 0
    return ledger


def test_the_vector() -> None:
    ledger, done = vector(), []
    for delivered in range(9):
        ledger.delivered("a", delivered)
        done.append(ledger.done)
    assert done == [0, 2, 2, 2, 3, 3, 3, 3, 5]
    assert ledger.empty


@pytest.mark.parametrize("delivered", range(9))
def test_the_vector_at_once(delivered: int) -> None:
    assert vector().delivered("a", delivered) == [0, 2, 2, 2, 3, 3, 3, 3, 5][delivered]


def test_the_slowest_downstream_decides() -> None:
    ledger = vector("ab")
    steps = [("a", 8), ("b", 1), ("b", 3), ("b", 4), ("b", 8)]
    assert [ledger.delivered(*step) for step in steps] == [0, 2, 0, 1, 2]


def test_turns_of_two_downstreams_lose_nothing() -> None:
    """The smallest of their steps would: each step of one is a step of nothing for the other."""
    ledger = Ledger("ab", capacity=100)
    for _ in range(10):
        ledger.record(1, 1)
    for total in range(1, 11):
        ledger.delivered("a", total)
        ledger.delivered("b", total)
    assert ledger.done == 10
    assert ledger.empty


def test_an_old_answer_changes_nothing() -> None:
    ledger = vector()
    assert ledger.delivered("a", 4) == 3
    assert ledger.delivered("a", 1) == 0
    assert ledger.delivered("a", 8) == 2


def test_more_than_was_made_is_not_believed() -> None:
    ledger = vector()
    assert ledger.delivered("a", 1000) == 5
    assert ledger.record(1, 2) == 0
    assert ledger.undelivered == 2


def test_inputs_without_output_are_done_with_those_before_them() -> None:
    ledger = Ledger("a", capacity=10)
    assert ledger.record(3, 0) == 3
    assert ledger.record(1, 1) == 0
    assert ledger.record(2, 0) == 0
    assert ledger.delivered("a", 1) == 3


def test_full_and_all_acknowledged_is_empty() -> None:
    ledger = Ledger("ab", capacity=4)
    for made in range(1, 5):
        ledger.record(1, 1)
        assert ledger.free == 4 - made
    assert ledger.delivered("a", 4) == 0
    assert (ledger.free, ledger.empty) == (0, False)
    assert ledger.delivered("b", 4) == 4
    assert (ledger.free, ledger.undelivered, ledger.empty) == (4, 0, True)


def test_without_downstreams_all_is_done_at_once() -> None:
    ledger = Ledger("", capacity=4)
    assert ledger.record(2, 3) == 2
    assert ledger.empty


def test_a_slow_sink_gets_all_in_order() -> None:
    """100 integers, a queue of 32, a sink that takes half of each batch."""
    ledger, sink, queue, read = Ledger(["sink"], capacity=32), [], [], 0
    acknowledged = 0
    while len(sink) < 100:
        while ledger.free and read < 100:  # a worker reads nothing while there is no room
            acknowledged += ledger.record(1, 1)
            queue.append(read)
            read += 1
        assert len(queue) <= 32
        half = max(1, len(queue) // 2)
        sink += queue[:half]
        queue = queue[half:]
        acknowledged += ledger.delivered("sink", len(sink))
        assert acknowledged == len(sink)
    assert sink == list(range(100))
    assert ledger.empty
