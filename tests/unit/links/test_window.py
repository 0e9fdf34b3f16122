"""What an outbox sends, and what it sends again."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from millstream.links import window as windows
from millstream.links.admission import NOTHING, admit
from millstream.links.window import UNKNOWN, Answer, Limits, Piece, Send, Window

LIMITS = Limits(requests=3, timeout=10.0, pause_s=0.5, longest_pause_s=4.0)


def piece(begin: int, end: int) -> Piece:
    return Piece(range(begin, end), list(range(begin, end)))


def offered(*pieces: Piece) -> Window:
    window = Window()
    for one in pieces:
        window = windows.offer(window, one)
    return window


def sent(window: Window, now: float = 0.0) -> tuple[Window, list[tuple[int, list[int]]]]:
    window, orders = windows.send(window, now, LIMITS)
    return window, [(order.after, order.piece.payload) for order in orders]


def test_an_inbox_that_is_unknown_is_asked_with_one_piece() -> None:
    window, orders = sent(offered(piece(0, 3), piece(3, 5), piece(7, 9)))
    assert orders == [(NOTHING, [0, 1, 2]), (2, [3, 4]), (4, [7, 8])]
    assert sent(window)[1] == []


def test_each_request_names_the_number_before_it() -> None:
    window = offered(piece(0, 3), piece(5, 9))
    window, _ = sent(window)
    window = windows.answered(window, Answer(0, 3, 2, 2), 0.0, LIMITS)
    assert window.acked == 2
    assert window.rows == 4


def test_only_so_many_requests_are_on_their_way() -> None:
    window = offered(*(piece(n, n + 1) for n in range(6)))
    window, orders = sent(window)
    assert len(orders) == 3
    window = windows.answered(window, Answer(0, 1, 0, 100), 0.0, LIMITS)
    window, orders = sent(window)
    assert orders == [(2, [3])]


def test_the_size_of_a_request_follows_the_room_downstream() -> None:
    window = windows.answered(offered(piece(0, 10)), Answer(99, 0, NOTHING, 4), 0.0, LIMITS)
    window, orders = sent(window)
    assert orders == [(NOTHING, [0, 1, 2, 3])]
    assert sent(window)[1] == []
    window = windows.answered(window, Answer(0, 4, 3, 3), 0.0, LIMITS)
    assert sent(window)[1] == [(NOTHING, [4, 5, 6])]


def test_a_full_inbox_is_asked_with_one_row_after_a_pause() -> None:
    window, _ = sent(offered(piece(0, 10)))
    window = windows.answered(window, Answer(0, 0, NOTHING, 0), 1.0, LIMITS)
    assert sent(window, 1.5)[1] == []
    assert windows.wake_at(window) == pytest.approx(2.0)
    window, orders = sent(window, 2.0)
    assert orders == [(NOTHING, [0])]


def test_pauses_grow_and_end_with_progress() -> None:
    window, now, pauses = offered(piece(0, 10)), 0.0, []
    for request in range(5):
        window, orders = windows.send(window, now, LIMITS)
        assert len(orders) == 1
        window = windows.answered(window, Answer(request, 0, NOTHING, 0), now, LIMITS)
        pauses.append(window.not_before - now)
        now = window.not_before
    assert pauses == [1.0, 2.0, 4.0, 4.0, 4.0]
    window, _ = windows.send(window, now, LIMITS)
    window = windows.answered(window, Answer(5, 1, 0, 5), now, LIMITS)
    assert (window.setbacks, window.acked) == (0, 0)


def test_a_part_that_was_taken_is_not_sent_again() -> None:
    window, _ = sent(offered(piece(0, 6), piece(6, 9)))
    window = windows.answered(window, Answer(0, 4, 3, 50), 0.0, LIMITS)
    assert (window.acked, window.sent, window.flights) == (3, 3, ())
    assert sent(window)[1] == [(NOTHING, [4, 5]), (5, [6, 7, 8])]


def test_a_late_answer_is_harmless_and_good_news() -> None:
    window, _ = sent(offered(piece(0, 3), piece(3, 6)))
    window, overdue = windows.expired(window, 10.0, LIMITS)
    assert overdue
    window, orders = sent(window, 11.0)
    assert orders == [(NOTHING, [0, 1, 2]), (2, [3, 4, 5])]  # the same numbers
    window = windows.answered(
        window, Answer(0, 3, 2, 50), 11.0, LIMITS
    )  # of the request that was given up
    assert (window.acked, len(window.flights), window.rows) == (2, 2, 3)
    window = windows.answered(window, Answer(1, 3, 5, 50), 11.0, LIMITS)
    assert (window.acked, window.rows) == (5, 0)
    window = windows.answered(window, Answer(2, 3, 5, 50), 11.0, LIMITS)
    window = windows.answered(window, Answer(3, 3, 5, 50), 11.0, LIMITS)
    assert (window.acked, window.flights) == (5, ())
    assert sent(windows.offer(window, piece(6, 7)), 11.0)[1] == [
        (NOTHING, [6])
    ]  # it is not disabled for good


def test_an_answer_that_is_older_than_another_changes_nothing() -> None:
    window, _ = sent(offered(piece(0, 3), piece(3, 6)))
    window = windows.answered(window, Answer(1, 3, 5, 50), 0.0, LIMITS)
    window = windows.answered(window, Answer(0, 3, 2, 50), 0.0, LIMITS)
    assert (window.acked, window.sent, window.rows, window.flights) == (5, 5, 0, ())


def test_nothing_is_overdue_before_its_time() -> None:
    window, _ = sent(offered(piece(0, 3)))
    assert windows.expired(window, 9.9, LIMITS) == (window, False)
    assert windows.wake_at(window) == 10.0


def test_a_lost_link_sends_what_was_on_its_way_again() -> None:
    window, _ = sent(offered(piece(0, 3)))
    window = windows.lost(window, 0.0, LIMITS)
    assert window.free == UNKNOWN
    assert sent(window, 5.0)[1] == [(NOTHING, [0, 1, 2])]
    assert windows.lost(Window(), 0.0, LIMITS) == Window()


def test_nobody_is_woken_for_nothing() -> None:
    assert windows.wake_at(Window()) is None
    window, _ = sent(offered(piece(0, 3)))
    window = windows.answered(window, Answer(0, 3, 2, 50), 0.0, LIMITS)
    assert windows.wake_at(window) is None


def test_rows_that_the_inbox_has_of_an_earlier_life_are_not_sent() -> None:
    window, _ = sent(offered(piece(0, 3)))
    window = windows.answered(window, Answer(0, 3, 20, 50), 0.0, LIMITS)
    assert windows.offer(window, piece(3, 10)).rows == 0
    window = windows.offer(window, piece(18, 25))
    assert sent(window)[1] == [(NOTHING, [21, 22, 23, 24])]


@dataclass
class Queue:
    """A real inbox's rules over a list: a queue of so many, of which a consumer takes half."""

    capacity: int
    sink: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    highest: int = NOTHING

    def take(self, order: Send) -> Answer:
        admission = admit(
            self.highest, order.after, order.piece.numbers, self.capacity - len(self.waiting)
        )
        self.waiting += order.piece.payload[admission.repeated : admission.taken]
        if admission.taken:
            self.highest = max(self.highest, int(order.piece.numbers[admission.taken - 1]))
        return Answer(
            order.request, admission.taken, self.highest, self.capacity - len(self.waiting)
        )

    def consume(self) -> None:
        half = max(1, len(self.waiting) // 2)
        self.sink += self.waiting[:half]
        self.waiting = self.waiting[half:]


@pytest.mark.parametrize("step", [1, 7, 100])
@pytest.mark.parametrize("lose", [0, 3, 5])
def test_a_slow_sink_gets_all_in_order(step: int, lose: int) -> None:
    """100 integers, a queue of 32, a consumer that takes half of each batch; some answers never come."""
    window, inbox, now, answers = (
        offered(*(piece(n, min(100, n + step)) for n in range(0, 100, step))),
        Queue(32),
        0.0,
        0,
    )
    while window.rows or inbox.waiting:
        assert now < 10_000, "it jams"
        window, orders = windows.send(window, now, LIMITS)
        for order in orders:
            answers += 1
            answer = inbox.take(order)
            if not lose or answers % lose:
                window = windows.answered(window, answer, now, LIMITS)
        inbox.consume()
        now += 1.0
        window, _ = windows.expired(window, now, LIMITS)
    assert inbox.sink == list(range(100))
