"""Two versions take turns at a sink."""

from __future__ import annotations

import threading

from millstream.spark.io.sink_order import SinkOrder

PATIENCE_S = 60.0


def waiting(turns: SinkOrder, version: str, reached: int | None) -> threading.Thread:
    thread = threading.Thread(target=turns.wait, args=(version, reached), daemon=True)
    thread.start()
    return thread


def turns(limit_s: float = PATIENCE_S) -> SinkOrder:
    return SinkOrder("hourly", "old", "new", 100_000, limit_s=limit_s)


def test_the_old_version_waits_for_nobody_until_it_has_passed_the_cut() -> None:
    turns().wait("old", 90_000)
    turns().wait("old", None)


def test_the_version_that_is_ahead_waits_until_the_other_has_caught_up() -> None:
    mine = turns()
    mine.wait("old", 90_000)
    ahead = waiting(mine, "new", 200_000)
    ahead.join(0.2)
    assert ahead.is_alive()
    # The one behind may go, and having got as far lets the other go too.
    mine.wait("old", 100_000)
    assert ahead.is_alive()
    after = waiting(mine, "old", 200_000)
    ahead.join(PATIENCE_S)
    after.join(PATIENCE_S)
    assert not ahead.is_alive()
    assert not after.is_alive()


def test_of_two_that_are_ready_one_may_always_go() -> None:
    mine = turns()
    first, second = waiting(mine, "new", 300_000), waiting(mine, "old", 400_000)
    first.join(PATIENCE_S)
    assert not first.is_alive()
    mine.end()
    second.join(PATIENCE_S)
    assert not second.is_alive()


def test_after_the_limit_nobody_waits_any_more(caplog) -> None:
    mine = turns(limit_s=0.05)
    mine.wait("new", 500_000)
    assert "out of order" in caplog.text
    mine.wait("new", 600_000)
    mine.wait("old", 900_000)


def test_after_another_cut_the_order_matters_again() -> None:
    mine = turns(limit_s=0.01)
    mine.wait("old", 90_000)
    mine.wait("new", 200_000)  # given up
    mine.cut_at(300_000)
    mine.wait("old", 300_000)
    ahead = waiting(mine, "new", 400_000)
    ahead.join(PATIENCE_S)
    assert not ahead.is_alive()
