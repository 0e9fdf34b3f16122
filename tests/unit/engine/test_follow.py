"""Partitions of one job on two engines: real inboxes, listeners and followers, no drivers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import millstream as ms
from millstream import ingest
from millstream.clock import SystemClock
from millstream.engine.inboxes.inboxes import Inboxes
from millstream.engine.jobs.status import Place
from millstream.errors import EngineAway
from millstream.flow.flow import Flow
from millstream.flow.stages import Source
from millstream.journal import Kind
from millstream.journal.kinds.files.reader import Reader
from millstream.links.host import Listening
from millstream.links.inbox import Inbox
from property.test_mirror import compare_partition
from support.links import SCHEMA, batch, wait_for


def declare(folder: Path, partitions: int, idle: str = "300 ms") -> Path:
    """Make the journal of a job's source, as deploying it does."""
    flow = Flow("f")
    flow.source("s", ms.inbox(SCHEMA), time="at", key="origin", partitions=partitions, idle=idle)
    stage = flow.stages["s"]
    assert isinstance(stage, Source)
    ingest.declare(stage, folder / "f" / "journals" / "s")
    return folder / "f"


class Pair:
    """Two engines' inboxes; the driver of job "f" would be on the first."""

    def __init__(self, folder: Path, partitions: int) -> None:
        self.folders = [declare(folder / str(node), partitions) for node in (0, 1)]
        self.inboxes = [
            Inboxes(folder / str(node), Listening(), node=node, of=2, clock=SystemClock())
            for node in (0, 1)
        ]
        self.places = {"s": [self._place(partition % 2) for partition in range(partitions)]}

    def _place(self, node: int) -> Place:
        return self.inboxes[node].place

    def open(self, node: int) -> None:
        self.inboxes[node].open("f", self.folders[node], self.places, driver=node == 0)
        self.inboxes[node].start()

    def inbox(self, partition: int) -> Inbox:
        listener = self.inboxes[partition % 2]._listener
        return listener.sources.inbox("f.s", partition)

    def journal(self, node: int) -> Path:
        return self.folders[node] / "journals" / "s"

    def kinds(self, node: int, partition: int) -> list[Kind]:
        reader = Reader(self.journal(node)).partition(partition)
        return [entry.kind for entry in reader.entries(0, reader.end)]

    def close(self) -> None:
        for inboxes in self.inboxes:
            inboxes.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    found = Pair(tmp_path, 2)
    yield found
    found.close()


def test_where_the_driver_is_all_partitions_are(pair: Pair) -> None:
    pair.open(1)
    pair.open(0)
    pair.inboxes[0].job("f").meet(10)
    for partition in (0, 1):
        assert pair.inbox(partition).enqueue("p", range(100), batch(0, 100)) == 100
    pair.inboxes[0].job("f").catch_up()
    assert [Reader(pair.journal(0)).partition(number).end for number in (0, 1)] == [100, 100]
    compare_partition(pair.journal(1), pair.journal(0), 1)
    assert [found.partition for found in pair.inboxes[0].job("f").followed()] == [1]
    assert pair.inboxes[1].job("f").followed() == ()
    [copy] = pair.inboxes[0].job("f").copies()
    assert (copy.source, copy.partition, copy.original) == ("s", 1, str(pair.inboxes[1].address))
    assert (copy.rows, copy.behind_bytes, copy.live, copy.error) == (100, 0, True, None)
    assert Reader(pair.journal(1)).partition(0).end == 0
    assert pair.inboxes[0].job("f").missing() is None
    pair.inboxes[1].close()
    wait_for(
        lambda: "partition 1 of f.s is not followed" in str(pair.inboxes[0].job("f").missing())
    )
    pair.inboxes[0].close_job("f")
    assert pair.inboxes[0].job("f").followed() == ()


def test_a_job_begins_when_the_others_have_been_reached_once(pair: Pair) -> None:
    pair.open(0)
    with pytest.raises(EngineAway, match=r'partition 1 of "f.s" at tcp://.* was not reached yet'):
        pair.inboxes[0].job("f").meet(0.05)
    pair.open(1)
    pair.inboxes[0].job("f").meet(20)


def test_a_partition_that_is_idle_on_another_engine_is_brought_level(pair: Pair) -> None:
    pair.open(1)
    pair.open(0)
    assert pair.inbox(0).enqueue("p", range(100), batch(0, 100)) == 100
    wait_for(lambda: Kind.IDLE in pair.kinds(1, 1))
    wait_for(lambda: pair.kinds(0, 1) == pair.kinds(1, 1))
    assert (
        Reader(pair.journal(0)).partition(1).state_at(1).floor
        == Reader(pair.journal(0)).partition(0).state_at(100).running_max
    )


def test_an_engine_without_the_driver_levels_nothing_by_itself(tmp_path: Path) -> None:
    pair = Pair(tmp_path, 4)
    try:
        pair.open(1)
        assert pair.inbox(3).enqueue("p", range(100), batch(0, 100)) == 100
        with pytest.raises(AssertionError):
            wait_for(lambda: Kind.IDLE in pair.kinds(1, 1), limit_s=2.5)
        pair.open(0)
        wait_for(lambda: Kind.IDLE in pair.kinds(1, 1))
    finally:
        pair.close()
