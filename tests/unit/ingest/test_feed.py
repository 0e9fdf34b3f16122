"""Feeds whose origins choose the partition, and note what made no row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.clock import ManualClock
from millstream.ingest.checks import Rules
from millstream.ingest.feed import Idleness, JournalFeed
from millstream.ingest.rows import Refused, Rows, numbered
from millstream.journal import journal_at
from millstream.journal.base import Kind

SCHEMA = pa.schema([("key", pa.string())])
Open = Callable[[], JournalFeed]


@pytest.fixture
def opened(journal: Path, clock: ManualClock) -> Iterator[Open]:
    kind = journal_at(journal)
    kind.create(SCHEMA, partitions=3)
    with ExitStack() as stack:

        def make() -> JournalFeed:
            stack.close()
            writers = [kind.writer(number, clock=clock) for number in range(3)]
            feed = JournalFeed(writers, Rules(key="key"), clock)
            stack.callback(feed.close)
            return feed

        yield make


def rows(count: int, first: int = 0) -> Rows:
    keys = [f"k{n}" for n in range(first, first + count)]
    return numbered(pa.RecordBatch.from_pydict({"key": keys}, schema=SCHEMA), first)


def contents(journal: Path) -> list[int]:
    reader = journal_at(journal).reader()
    return [reader.partition(number).rows(0, 99) for number in range(3)]


def test_all_rows_of_a_sender_go_to_the_partition_that_is_named(
    journal: Path, opened: Open
) -> None:
    opened().take("a", rows(4), 1)
    feed = opened()
    feed.take("a", rows(6), 1)
    feed.flush()
    assert contents(journal) == [0, 6, 0]
    assert (feed.highest("a", 1), feed.highest("a", 0), feed.repeated) == (5, -1, 4)


def test_progress_is_known_to_the_next_feed(journal: Path, opened: Open) -> None:
    feed = opened()
    feed.take("a", rows(2), 1)
    feed.take("a", Rows(rows(0).batch, rows(0).numbers, (Refused(2, "bad", "x"),)), 1)
    feed.progress("a", 7, 1)
    feed.progress("a", 3, 1)
    feed = opened()
    assert (feed.highest("a", 1), feed.highest("a")) == (7, -1)
    entries = journal_at(journal).reader().partition(1).entries(0, 99)
    assert [entry.kind for entry in entries] == [Kind.ROWS, Kind.PROGRESS]


def test_progress_in_all_partitions_is_that_of_rows_that_are_spread(opened: Open) -> None:
    feed = opened()
    feed.take("a", rows(1))
    assert feed.highest("a") == -1, "two partitions have no row of it"
    feed.progress("a", 0)
    assert opened().highest("a") == 0


def test_while_its_system_is_away_no_partition_of_a_source_is_idle(
    journal: Path, clock: ManualClock
) -> None:
    kind = journal_at(journal)
    kind.create(pa.schema([("at", pa.timestamp("us", "UTC"))]), partitions=2, time="at")
    writers = [kind.writer(number, clock=clock) for number in range(2)]
    idleness = Idleness(timedelta(seconds=10), timedelta(0))
    feed = JournalFeed(writers, Rules(time="at"), clock, idleness)
    ahead = pa.RecordBatch.from_pydict({"at": [clock.now_us()]}, kind.describe().schema)
    feed.take("a", numbered(ahead, 0), 0)
    feed.flush()
    feed.waiting = "no broker answers"
    for _ in range(30):
        clock.advance_us(1_000_000)
        feed.tick()
    feed.waiting = None
    clock.advance_us(9_000_000)
    feed.tick()
    assert writers[1].floor is None
    clock.advance_us(2_000_000)
    feed.tick()
    assert writers[1].floor == writers[0].running_max
    feed.close()
