"""What a group elsewhere has staged and never published is removed, and nothing that somebody may still come for."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.clock import ManualClock, micros
from millstream.errors import CorruptStaging, InvalidDuration
from millstream.links import leftovers
from millstream.links.inbox import Inbox
from support.links import NOON, batch, declare, journal, stored

HOUR = 3_600_000_000
DAY = timedelta(days=1)


@given(st.lists(st.tuples(st.integers(1, 10), st.sets(st.sampled_from("abcd")))))
def test_nothing_is_due_before_it_was_there_all_the_time(steps: list[tuple[int, set[str]]]) -> None:
    now, known = 0, dict[str, int]()
    history: list[tuple[int, set[str]]] = []
    for pause, left in steps:
        now += pause
        history.append((now, left))
        known = leftovers.noticed(known, left, now)
        for name in "abcd":
            gone = max((at for at, there in history if name not in there), default=-1)
            since = min((at for at, there in history if at > gone and name in there), default=None)
            old = since is not None and now - since >= 12
            assert (name in leftovers.due(known, now, timedelta(microseconds=12))) == old


class Bench:
    """An inbox, and a clock for it."""

    def __init__(self, data: Path) -> None:
        self.data, self.clock = data, ManualClock(micros(NOON))
        self.open()

    def open(self) -> None:
        description, settings = declare(self.data)
        self.inbox = Inbox(description, 0, settings, clock=self.clock)

    def after(self, hours: int, *, paused: bool = False) -> int:
        """Look every half hour, and return how many files are left."""
        for _ in range(2 * hours):
            self.clock.advance_us(HOUR // 2)
            self.inbox.epochs.expire(paused=paused)
        return len(list((journal(self.data) / "staged").iterdir()))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_what_nobody_comes_for_is_removed_after_a_day(bench: Bench) -> None:
    staged = bench.inbox.epochs.stage("shops/hourly", 1, [batch(0, 5)])
    assert bench.after(47) == 1  # a day without its sender, and then almost a day
    assert bench.after(3) == 0
    assert bench.inbox.epochs.expired == 1
    with pytest.raises(CorruptStaging):
        bench.inbox.epochs.publish("shops/hourly", 1, staged)
    again = bench.inbox.epochs.stage("shops/hourly", 1, [batch(0, 5)])
    assert bench.inbox.epochs.publish("shops/hourly", 1, again) == 5
    bench.inbox.close()
    assert stored(bench.data) == [[0, 1, 2, 3, 4]]


def test_a_sender_that_comes_keeps_what_it_has_staged(bench: Bench) -> None:
    first = bench.inbox.epochs.stage("shops/hourly", 1, [batch(0, 5)])
    for _ in range(5):
        bench.inbox.epochs.stage("shops/hourly", 2, [batch(0, 5)])
        assert bench.after(20) >= 2
    assert bench.inbox.epochs.publish("shops/hourly", 1, first) == 5


def test_time_does_not_count_while_the_inbox_is_paused_or_closed(bench: Bench) -> None:
    staged = bench.inbox.epochs.stage("shops/hourly", 1, [batch(0, 5)])
    assert bench.after(40) == 1
    assert bench.after(24 * 14, paused=True) == 1
    assert bench.after(20) == 1
    bench.inbox.close()
    bench.clock.advance_us(24 * 14 * HOUR)
    bench.open()
    assert bench.after(20) == 1
    assert bench.inbox.epochs.publish("shops/hourly", 1, staged) == 5


def test_other_partitions_and_epochs_of_our_own_are_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (journal(tmp_path) / "staged").mkdir(exist_ok=True)
    for name in (f"{'0' * 32}-1-0-{'0' * 32}-0001.arrow", "0-of-a-group.arrow"):
        (journal(tmp_path) / "staged" / name).touch()
    assert bench.after(100) == 2


def test_how_long_they_are_kept_is_the_users_choice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_KEEP_STAGED", "3 days")
    assert leftovers.kept_for() == 3 * DAY
    bench.inbox.close()
    bench.open()
    bench.inbox.epochs.stage("shops/hourly", 1, [batch(0, 5)])
    assert bench.after(24 * 5) == 1
    assert bench.after(24 * 2) == 0
    monkeypatch.setenv("MILLSTREAM_KEEP_STAGED", "soon")
    with pytest.raises(InvalidDuration):
        leftovers.kept_for()
