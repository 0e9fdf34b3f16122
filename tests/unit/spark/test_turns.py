"""Two versions take turns at a sink.

After a limit nobody waits any more, and a warning says so: without one, nobody has waited in vain.
"""

from __future__ import annotations

import threading

import pytest

from millstream.spark.io.sink_order import SinkOrder

#: Longer than any of these tests may wait, and a wait that is in vain still ends.
TIMEOUT = 60.0
WARNING = "out of order"


def waiting(turns: SinkOrder, version: str, reached: int | None) -> threading.Thread:
    thread = threading.Thread(target=turns.wait, args=(version, reached), daemon=True)
    thread.start()
    return thread


def turns(timeout: float = TIMEOUT) -> SinkOrder:
    return SinkOrder("hourly", "old", "new", 100_000, timeout=timeout)


def ended(*threads: threading.Thread) -> bool:
    for thread in threads:
        thread.join(2 * TIMEOUT)
    return not any(thread.is_alive() for thread in threads)


def test_the_old_version_waits_for_nobody_until_it_has_passed_the_cut(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turns(0.01).wait("old", 90_000)
    turns(0.01).wait("old", 101_000)
    turns(0.01).wait("old", None)
    assert WARNING not in caplog.text
    turns(0.01).wait("old", 101_001)
    assert WARNING in caplog.text


def test_the_version_that_is_ahead_waits_until_the_other_has_caught_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mine = turns()
    mine.wait("old", 90_000)
    ahead = waiting(mine, "new", 200_000)
    ahead.join(0.2)
    assert ahead.is_alive()
    # The one behind may go, and having got as far lets the other go too.
    mine.wait("old", 100_000)
    assert ahead.is_alive()
    after = waiting(mine, "old", 200_000)
    assert ended(ahead, after)
    assert WARNING not in caplog.text


def test_of_two_that_are_ready_one_may_always_go(caplog: pytest.LogCaptureFixture) -> None:
    mine = turns()
    first, second = waiting(mine, "new", 300_000), waiting(mine, "old", 400_000)
    assert ended(first)
    second.join(0.2)
    assert second.is_alive()
    mine.end()
    assert ended(second)
    assert WARNING not in caplog.text


def test_after_the_limit_nobody_waits_any_more(caplog: pytest.LogCaptureFixture) -> None:
    mine = turns(timeout=0.05)
    mine.wait("new", 500_000)
    assert caplog.text.count(WARNING) == 1
    mine.wait("new", 600_000)
    mine.wait("old", 900_000)
    assert caplog.text.count(WARNING) == 1


def test_after_another_cut_the_order_matters_again(caplog: pytest.LogCaptureFixture) -> None:
    mine = turns(timeout=0.01)
    mine.wait("old", 90_000)
    mine.wait("new", 200_000)
    mine.wait("new", 250_000)
    assert caplog.text.count(WARNING) == 1, "its order was given up, once"
    mine.cut_at(300_000)
    mine.wait("old", 300_000)
    assert caplog.text.count(WARNING) == 1
    mine.wait("new", 400_000)
    assert caplog.text.count(WARNING) == 2, "it has waited again"
