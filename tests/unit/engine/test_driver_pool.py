"""Drivers in reserve, in real processes without Spark."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from millstream.engine.driver import process as drivers
from millstream.engine.driver.process import DriverPool
from support.engines import wait_until, without_spark


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DriverPool]:
    without_spark(monkeypatch)
    found = DriverPool(
        tmp_path, on_report=lambda *_: None, on_exit=lambda _: None, master="local[2]", spares=1
    )
    yield found
    found.close()


def warm(pool: DriverPool) -> bool:
    pool.fill()
    return pool.warm == 1


def test_who_only_reads_a_flow_leaves_the_spares_to_those_who_run_one(pool: DriverPool) -> None:
    wait_until(lambda: warm(pool))
    reads = pool.start(to_run=False)
    assert (reads.warm, pool.warm) == (False, 1)
    runs = pool.start()
    assert (runs.warm, pool.warm) == (True, 0)
    for one in (reads, runs):
        one.kill()
        assert one.wait(10)


def test_a_spare_is_replaced_when_the_flow_that_took_it_runs_or_has_failed(
    pool: DriverPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_until(lambda: warm(pool))
    taken = pool.start()
    pool.fill()
    assert not pool._spares, "it has the cores for its start"
    monkeypatch.setattr(drivers, "_FIRST_BATCHES_S", 0.0)
    taken.ready_at = 0.0
    wait_until(lambda: warm(pool))
    again = pool.start()
    pool.fill()
    assert not pool._spares
    for one in (taken, again):
        one.kill()
        assert one.wait(10)
    wait_until(lambda: warm(pool))


def test_a_driver_that_will_need_spark_starts_java_while_it_reads_the_flow(
    pool: DriverPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[bool] = []
    monkeypatch.setattr(pool, "_new", lambda **how: begun.append(how["begin"]))
    pool.start(spark=True)
    pool.start(to_run=False, spark=True)
    pool.start()
    assert begun == [True, False, False]


def test_a_driver_that_is_expected_is_taken_or_ended_unless_there_is_a_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_spark(monkeypatch)
    pool = DriverPool(tmp_path, on_report=lambda *_: None, on_exit=lambda _: None)
    pool.expect()
    pool.expect()
    (expected,) = pool._spares
    other = pool.start()
    assert other is not expected
    other.kill()
    assert pool.start(spark=True) is expected
    expected.kill()
    pool.expect()
    (left,) = pool._spares
    pool.fill()
    assert pool._spares == [left]
    monkeypatch.setattr(pool, "_expected_until", 0.0)
    pool.fill()
    assert not pool._spares
    assert left.wait(10)
    assert expected.wait(10)
    assert other.wait(10)
    pool.close()


def test_nobody_waits_for_a_process_that_has_ended_and_whose_parent_does_not_ask_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drivers, "_KILLED_S", 600.0)
    with subprocess.Popen(["sh", "-c", "sleep 600 & exec sleep 600"]) as parent:
        wait_until(lambda: len(psutil.Process(parent.pid).children()) == 1)
        (child,) = psutil.Process(parent.pid).children()
        wait_until(lambda: psutil.Process(parent.pid).name() == "sleep")
        assert drivers.end_all([child]) == 1
        assert child.status() == psutil.STATUS_ZOMBIE
        parent.kill()
