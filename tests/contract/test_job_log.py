"""A job's log keeps its promises on every storage."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from millstream.errors import InternalError, LogDamaged, TakenOver
from millstream.joblog import Decided, JobLog
from millstream.joblog.protocol import SUMMARY_EVERY
from millstream.storage import Folder, Storage, storage_at
from support.s3 import Server


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.process)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "folder":
        return Folder(tmp_path)
    return storage_at(cast("Server", request.getfixturevalue("s3")).new_address())


class Waits:
    """Waits that are over at once, and counted."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, _seconds: float) -> None:
        self.count += 1


def claimed(storage: Storage) -> JobLog:
    log = JobLog(storage)
    log.claim(wait=Waits())
    return log


def test_what_is_decided_is_known_to_the_next_driver(storage: Storage) -> None:
    first = claimed(storage)
    first.decide("a", Decided(0, "zero", "offsets"))
    first.note_switch("record")
    first.release()
    second = claimed(storage)
    assert second.generation > 0
    assert second.decided("a") == Decided(0, "zero", "offsets")
    assert second.decided("b") is None
    assert second.state.switch == "record"


def test_a_driver_that_is_taken_over_decides_nothing_more(storage: Storage) -> None:
    first = claimed(storage)
    second = claimed(storage)
    for late in (
        lambda: first.decide("a", Decided(0, "late")),
        lambda: first.note_switch("late"),
        lambda: first.release(),
    ):
        with pytest.raises(TakenOver, match="has taken over the job"):
            late()
    assert second.decided("a") is None
    second.decide("a", Decided(0, "in time"))
    assert claimed(storage).decided("a") == Decided(0, "in time")


def test_a_repeated_epoch_is_what_it_was(storage: Storage) -> None:
    log = claimed(storage)
    assert log.decide("a", Decided(3, "first")) == Decided(3, "first")
    assert log.decide("a", Decided(3, "again")) == Decided(3, "first")
    log.decide("a", Decided(4, "next"))
    assert log.decide("a", Decided(3, "long after")) is None


def test_a_living_driver_is_waited_for_and_a_silent_one_is_not(storage: Storage) -> None:
    first = JobLog(storage, renew_every=0.0)
    first.claim(wait=Waits())
    waits = Waits()

    def wait(_seconds: float) -> None:
        waits(_seconds)
        if waits.count < 5:
            first.renew()

    JobLog(storage).claim(wait=wait)
    assert waits.count == 4 + 3, "three intervals of silence, after the last renewal"
    with pytest.raises(TakenOver):
        first.renew()


def test_a_driver_that_has_stopped_is_not_waited_for(storage: Storage) -> None:
    claimed(storage).release()
    waits = Waits()
    JobLog(storage).claim(wait=waits)
    assert waits.count == 0


def test_the_log_stays_short(storage: Storage) -> None:
    for _ in range(3):
        log = claimed(storage)
        for epoch in range(SUMMARY_EVERY):
            known = log.decided("a")
            log.decide("a", Decided(known.epoch + 1 if known else epoch, "content"))
    assert len(storage.list("log")) < SUMMARY_EVERY + 10
    found = claimed(storage).decided("a")
    assert found is not None
    assert found.epoch == 3 * SUMMARY_EVERY - 1


def test_a_log_with_a_hole_is_an_error(storage: Storage) -> None:
    log = claimed(storage)
    for epoch in range(5):
        log.decide("a", Decided(epoch, ""))
    names = storage.list("log")
    storage.delete(names[-2])
    with pytest.raises(LogDamaged, match="missing"):
        claimed(storage)


def test_nothing_is_decided_without_a_claim(storage: Storage) -> None:
    with pytest.raises(InternalError):
        JobLog(storage).decide("a", Decided(0, ""))
