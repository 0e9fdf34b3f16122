"""Groups that share a query give what queries of their own give, whatever dies, and are switched by themselves."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Final

import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.spark import failpoints
from millstream.spark.flow_run import FlowRun
from millstream.spark.run.version import up_to_date
from support.lives import LIMIT_S, Life, Switches, compare, outcome
from support.recording import Recording
from support.switched import begun
from support.undisturbed import iso, line, rows_of

pytestmark = pytest.mark.spark

SINKS: Final = ("all", "even", "large", "named")


def wide(changing: tuple[str, ...] = ()) -> object:
    """Return what makes versions of a flow with four sinks, of which some change."""

    def build(version: str) -> ms.Flow:
        flow, events = begun()

        def above(sink: str) -> str:
            return f"v > -{version}" if sink in changing else "v > -1"  # all values are above it

        events.sql("everything", f"SELECT * FROM events WHERE {above('all')}").sink(
            "all", ms.jsonl("all")
        )
        halves = events.sql(
            "halves", f"SELECT k, v div 2 AS half, v, at FROM events WHERE {above('even')}"
        )
        even = halves.sql("evens", "SELECT k, half, at FROM halves WHERE v % 2 = 0")
        even.sink("even", ms.jsonl("even"))
        events.sql("greater", f"SELECT v, at FROM events WHERE v >= 50 AND {above('large')}").sink(
            "large", ms.jsonl("large")
        )
        names = f"SELECT upper(k) AS name, at, 1000 div v AS part FROM events WHERE v > 0 AND {above('named')}"
        events.sql("names", names).sink("named", ms.jsonl("named"))
        return flow

    return build


def wide_results(life: Life) -> dict[str, Counter[str]]:
    """Return what the flow gives, in plain Python."""
    rows = rows_of(life.recording, life.turns)
    found = {
        "all": [{"k": k, "v": v, "at": iso(at)} for k, v, at in rows],
        "even": [{"k": k, "half": v // 2, "at": iso(at)} for k, v, at in rows if v % 2 == 0],
        "large": [{"v": v, "at": iso(at)} for _, v, at in rows if v >= 50],
        "named": [{"name": k.upper(), "at": iso(at), "part": 1000 // v} for k, v, at in rows if v],
    }
    return {sink: Counter(map(line, values)) for sink, values in found.items()}


def sharing(run: FlowRun) -> set[str]:
    """Return the groups that share a query."""
    return {name for name, query in run.queries.items() if query.shared is not None}


def check(life: Life, run: FlowRun) -> None:
    compare(run, outcome(life.root, SINKS), wide_results(life))


def test_groups_share_a_query_and_go_on_sharing_it_after_a_stop(
    spark: SparkSession, tmp_path: Path
) -> None:
    life = Life(tmp_path / "life", wide(), Recording(7))
    with life.running(spark) as run:
        assert sharing(run) == {*SINKS}
        life.until(run, lambda: life.turns > 2)
    with life.running(spark) as run:
        assert sharing(run) == {*SINKS}
        life.until(run, lambda: life.turns > 4)
        life.end(run)
    check(life, run)


#: Between two writes of a batch: of the first member, and of one in the middle.
POINTS: Final = (
    "member-logs:6",
    "logged:2",
    "staged:2",
    "decided:2",
    "published:7",
    "member-commits:6",
)


class BatchFailed(Exception):
    """A batch has come to a point at which it fails."""


@contextmanager
def failing(point: str) -> Iterator[Event]:
    """Let a batch fail the so-many-th time that one passes a point, and note that it has."""
    name, _, count = point.partition(":")
    passed: Counter[str] = Counter()
    failed = Event()

    def seen(found: str) -> None:
        passed[found] += 1
        if found == name and passed[name] == int(count):
            failed.set()
            raise BatchFailed(point)

    with failpoints.watched(seen):
        yield failed


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_members_stand_at_one_place_again_after_any_death(
    spark: SparkSession, tmp_path: Path
) -> None:
    life = Life(tmp_path / "life", wide(), Recording(8))
    for point in POINTS:
        # Nobody polls: the run learns nothing of the failure, as if it had died there.
        with failing(point) as failed, life.running(spark) as run:
            while not failed.is_set():
                life.take_a_turn(run)
                wait_for_rows(run, failed)
    with life.running(spark) as run:
        assert sharing(run) == {*SINKS}
        life.until(run, lambda: life.turns > 20)
        life.end(run)
    check(life, run)


def wait_for_rows(run: FlowRun, failed: Event) -> None:
    """Wait until all that is there is read, or a batch has failed."""
    deadline = time.monotonic() + LIMIT_S
    while not failed.is_set() and not all(map(up_to_date, run.queries.values())):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.long
def test_members_whose_batch_fails_go_on_by_themselves(spark: SparkSession, tmp_path: Path) -> None:
    life = Life(tmp_path / "life", wide(), Recording(9))
    with failing("decided:6"), life.running(spark) as run:
        life.until(run, lambda: not sharing(run))
        life.until(run, lambda: life.turns > 20)
        life.end(run)
    check(life, run)


@pytest.mark.long
@pytest.mark.parametrize("changing", [("even",), pytest.param(SINKS, marks=pytest.mark.soak)])
def test_members_are_switched_by_themselves(
    spark: SparkSession, tmp_path: Path, changing: tuple[str, ...]
) -> None:
    life, switches = Life(tmp_path / "life", wide(changing), Recording(10)), Switches((1,))
    with life.running(spark) as run:
        assert sharing(run) == {*SINKS}
        life.until(run, lambda: run.switching() is not None, switches)
        assert sharing(run) == {*SINKS} - {*changing}
        life.until(run, lambda: switches.fulfilled(run, life.turns), switches)
    with life.running(spark) as run:
        assert sharing(run) == {*SINKS}, (
            "all share again, also those that own what is after the cut"
        )
        life.until(run, lambda: life.turns > 40)
        life.end(run)
    assert run.version == "2"
    check(life, run)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_driver_that_dies_in_a_switch_of_members_changes_no_result(
    spark: SparkSession, tmp_path: Path
) -> None:
    life = Life(tmp_path / "life", wide(("even", "large")), Recording(11))
    deaths = ("switch-started:1", "switch-asked:2", "switch-write-overlapping", "switch-closed:1")
    run = life.lived_through(spark, Switches((1,)), deaths)
    assert run.version == "2"
    check(life, run)
