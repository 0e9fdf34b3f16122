from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import millstream as ms
from millstream import ingest
from millstream.clock import ManualClock, micros
from millstream.journal import Kind
from millstream.journal.kinds.files.reader import Reader
from millstream.links.host import Host, declared_inboxes
from support.ingest import kinds_of, source

NOON = datetime(2013, 3, 8, 12, tzinfo=UTC)
STEP_US = 11_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(micros(NOON))


def test_idle_partitions_of_an_inbox_are_brought_level_with_the_others(
    tmp_path: Path, clock: ManualClock
) -> None:
    journal = tmp_path / "f/journals/events"
    description, _ = ingest.declare(source(ms.inbox("n long, at timestamp"), partitions=2), journal)
    host = Host(tmp_path / "f", declared_inboxes(tmp_path / "f"), clock=clock)
    batch = pa.RecordBatch.from_pylist([{"n": 0, "at": NOON}], schema=description.schema)
    assert host.inbox("events", 0).enqueue("me", range(1), batch) == 1
    assert host.level() is not None
    assert kinds_of(journal, 1) == []
    clock.advance_us(STEP_US)
    host.level()
    assert host.level() is None, "all are idle and level: there is nothing to wake up for"
    host.close()
    assert kinds_of(journal, 1) == [Kind.IDLE]
    (entry,) = Reader(journal).partition(1).entries(0, 1)
    assert entry.floor_after == micros(NOON) - 60_000_000


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_source_that_is_waited_for_passes_its_time_on_when_it_is_idle(
    tmp_path: Path, clock: ManualClock, partitions: int
) -> None:
    journal = tmp_path / "f/journals/events"
    description, _ = ingest.declare(
        source(ms.inbox("n long, at timestamp"), partitions=partitions), journal
    )
    host = Host(tmp_path / "f", declared_inboxes(tmp_path / "f"), clock=clock)
    batch = pa.RecordBatch.from_pylist([{"n": 0, "at": NOON}], schema=description.schema)
    assert host.inbox("events", 0).enqueue("me", range(1), batch) == 1
    later = micros(NOON) + 3_600_000_000
    host.lift("events", later)
    host.level()
    assert Kind.IDLE not in kinds_of(journal, 0), "it has just had rows"
    clock.advance_us(STEP_US)
    host.level()
    host.level()
    host.close()
    for number in range(partitions):
        view = Reader(journal).partition(number)
        assert view.state_at(view.end).floor == later
        assert kinds_of(journal, number).count(Kind.IDLE) == 1


def test_a_clock_that_is_set_forward_makes_no_partition_idle(
    tmp_path: Path, clock: ManualClock
) -> None:
    journal = tmp_path / "f/journals/events"
    description, _ = ingest.declare(source(ms.inbox("n long, at timestamp"), partitions=2), journal)
    host = Host(tmp_path / "f", declared_inboxes(tmp_path / "f"), clock=clock)
    batch = pa.RecordBatch.from_pylist([{"n": 0, "at": NOON}], schema=description.schema)
    assert host.inbox("events", 0).enqueue("me", range(1), batch) == 1
    clock.jump_us(3_600_000_000)
    host.level()
    assert kinds_of(journal, 1) == []
    clock.jump_us(-7_200_000_000)
    clock.advance_us(STEP_US)
    host.level()
    host.close()
    assert kinds_of(journal, 1) == [Kind.IDLE], "nor does one that is set back keep it awake"
