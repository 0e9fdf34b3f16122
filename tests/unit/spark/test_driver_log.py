"""A job goes on where it began, or is refused."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest

from millstream.clock import SystemClock
from millstream.errors import InvalidStorage, TakenOver
from millstream.joblog import JobLog, Lease, Renewal
from millstream.joblog.protocol import Log
from millstream.spark.io.checkpoint import Checkpoint
from millstream.spark.run.driver_log import (
    check_place,
    release_job,
    renew_job,
    take_job,
    take_time,
)
from millstream.spark.run.version import RunContext
from millstream.storage import storage_at
from support.links import wait_for


def driven(folder: Path, storage: str | None) -> RunContext:
    ground = RunContext(cast("Any", None), folder, folder, 1)
    take_job(ground, storage, folder.name, SystemClock())
    release_job(ground)
    return ground


def test_a_new_job_begins_anywhere(tmp_path: Path) -> None:
    check_place(tmp_path / "shop", None)
    assert driven(tmp_path / "shop", None).address is None
    there = str(tmp_path / "there")
    for _ in range(2):
        assert driven(tmp_path / "shop", f"{there}/").address == f"{there}/shop"
    assert driven(tmp_path / "another host" / "shop", there).address == f"{there}/shop"


def test_a_job_that_runs_with_a_storage_does_not_begin_again_without_it(tmp_path: Path) -> None:
    there = str(tmp_path / "there")
    driven(tmp_path / "shop", there)
    for other in (None, str(tmp_path / "elsewhere")):
        with pytest.raises(InvalidStorage, match=f"checkpoints in {there}") as found:
            driven(tmp_path / "shop", other)
        assert f"--storage {there}" in str(found.value.hint)


def test_a_job_that_runs_without_a_storage_does_not_begin_again_with_one(tmp_path: Path) -> None:
    Checkpoint(tmp_path / "shop" / "groups" / "sums", "sums", "abc", {}).begin()
    driven(tmp_path / "shop", None)
    with pytest.raises(InvalidStorage, match="has its checkpoints in") as found:
        driven(tmp_path / "shop", str(tmp_path / "there"))
    assert "leave --storage out" in str(found.value.hint)
    assert not (tmp_path / "there").exists(), "nothing is claimed"


def test_a_driver_follows_the_claim_of_its_engine_and_renews_while_it_starts(
    tmp_path: Path,
) -> None:
    place = storage_at(str(tmp_path / "there" / "shop"))
    engine = JobLog(place, engine="first")
    lease = Lease(str(tmp_path / "there"), "first", engine.claim(), 0.05)
    ground = RunContext(cast("Any", None), tmp_path / "shop", tmp_path, 1)
    take_job(ground, lease.storage, "shop", SystemClock(), lease)
    assert ground.log is not None
    with pytest.raises(TakenOver, match="has taken over the job"):
        engine.renew(now=True)
    seen = JobLog(place).glance(Log())
    assert seen.state.holder is not None
    assert seen.state.holder.engine == "first"
    wait_for(lambda: JobLog(place).glance(seen).end > seen.end + 2)
    release_job(ground)
    wait_for(lambda: not [one for one in threading.enumerate() if one.name == "lease"])
    assert not JobLog(place).glance(Log()).state.released, "that is its engine's to do"


def test_a_driver_that_hangs_renews_no_more_until_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Renewal.go_on, "__defaults__", (0.1,))
    place = storage_at(str(tmp_path / "there" / "shop"))
    lease = Lease(str(tmp_path / "there"), "first", JobLog(place, engine="first").claim(), 0.02)
    ground = RunContext(cast("Any", None), tmp_path / "shop", tmp_path, 1)
    take_job(ground, lease.storage, "shop", SystemClock(), lease)

    def end() -> int:
        return JobLog(place).glance(Log()).end

    def appends(for_s: float) -> bool:
        before = end()
        time.sleep(for_s)
        return end() > before

    renew_job(ground)
    wait_for(lambda: not appends(0.3))
    take_time(ground)
    assert appends(0.3), "what it does now may take a while"
    renew_job(ground)
    wait_for(lambda: not appends(0.3))
    release_job(ground)


def test_a_driver_whose_engine_has_lost_the_job_gets_no_claim(tmp_path: Path) -> None:
    place = storage_at(str(tmp_path / "there" / "shop"))
    lease = Lease(str(tmp_path / "there"), "first", JobLog(place, engine="first").claim(), 5.0)
    seen = JobLog(place).glance(Log())
    JobLog(place, engine="second").claim_if(lambda log: log.end == seen.end)
    ground = RunContext(cast("Any", None), tmp_path / "shop", tmp_path, 1)
    with pytest.raises(TakenOver):
        take_job(ground, lease.storage, "shop", SystemClock(), lease)
    assert ground.log is None
    found = JobLog(place).glance(Log()).state.holder
    assert found is not None
    assert found.engine == "second"
