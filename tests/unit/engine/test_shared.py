"""Answers that are shared by all who ask."""

from __future__ import annotations

import threading

import pytest

from millstream.engine.http.shared import LEAST_S, TIMES, Shared


class Slow:
    """Counts how often it is read, and how long that takes by a clock of its own."""

    def __init__(self, takes: float) -> None:
        self.now, self.takes, self.read = 100.0, takes, 0

    def __call__(self) -> int:
        self.now += self.takes
        self.read += 1
        return self.read


@pytest.mark.parametrize(("takes", "lasts"), [(0.0, LEAST_S), (0.1, LEAST_S), (2.0, TIMES * 2.0)])
def test_an_answer_counts_for_as_long_as_it_was_costly(takes: float, lasts: float) -> None:
    slow = Slow(takes)
    shared = Shared(lambda: slow.now)
    assert [shared.get("a", slow), shared.get("a", slow)] == [1, 1]
    assert shared.get("b", slow) == 2
    slow.now += lasts - takes - 0.01
    assert shared.get("a", slow) == 1
    slow.now += 0.02
    assert shared.get("a", slow) == 3


def test_what_fails_is_asked_again() -> None:
    shared = Shared()
    with pytest.raises(ZeroDivisionError):
        shared.get("a", lambda: 1 // 0)
    assert shared.get("a", lambda: 1) == 1


def test_those_who_ask_at_once_wait_for_one_reading() -> None:
    shared, begun, go, read = Shared(), threading.Event(), threading.Event(), []

    def slowly() -> int:
        begun.set()
        assert go.wait(30)
        read.append(1)
        return len(read)

    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(shared.get("a", slowly))) for _ in range(8)
    ]
    for one in threads:
        one.start()
    assert begun.wait(30)
    go.set()
    for one in threads:
        one.join(30)
    assert found == [1] * 8
