"""The record and the history of switches on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import ControlBroken, TakenOver
from millstream.joblog import JobLog
from millstream.spark.switching.switch_log import SwitchLog
from millstream.storage import Folder
from millstream.switch import machine
from millstream.switch.machine import Entry
from millstream.switch.record import Homes, Phase, Record


def entry(number: int) -> Entry:
    return Entry(number, 1, Phase.RUNNING, f"step {number}")


def test_a_flow_that_was_never_switched_has_neither(tmp_path: Path) -> None:
    book = SwitchLog(tmp_path / "switch")
    assert book.read() is None
    assert book.history() == ()


def test_the_last_record_is_the_one_that_is_read(tmp_path: Path) -> None:
    book = SwitchLog(tmp_path / "switch")
    homes = {"1": Homes({"out": ""}, {"kept": "1"})}
    for number in (1, 2):
        book.write(Record(number, Phase.RUNNING, "1", machine.begun("1").owners, homes=homes))
    found = SwitchLog(tmp_path / "switch").read()
    assert found is not None
    assert (found.number, found.homes) == (2, homes)


def test_a_damaged_record_is_refused(tmp_path: Path) -> None:
    book = SwitchLog(tmp_path)
    book.write(Record(1, Phase.RUNNING, "1", machine.begun("1").owners))
    file = tmp_path / "record"
    file.write_bytes(file.read_bytes().replace(b"running", b"ranning"))
    with pytest.raises(ControlBroken):
        book.read()


def test_a_torn_line_of_the_history_takes_no_other_with_it(tmp_path: Path) -> None:
    book = SwitchLog(tmp_path)
    book.note(entry(1))
    with (tmp_path / "history").open("ab") as file:
        file.write(b'{"at_us": 2, "num')
    book.note(entry(3))
    assert book.history() == (entry(1), entry(3))


def claimed(folder: Path) -> JobLog:
    log = JobLog(Folder(folder))
    log.claim(wait=lambda _: None)
    return log


def record(number: int) -> Record:
    return Record(number, Phase.RUNNING, "1", machine.begun("1").owners)


def test_the_next_host_finds_the_record_in_the_log_of_the_job(tmp_path: Path) -> None:
    log = claimed(tmp_path / "job")
    SwitchLog(tmp_path / "here", lambda: log).write(record(7))
    next_log = claimed(tmp_path / "job")
    assert SwitchLog(tmp_path / "there", lambda: next_log).read() == record(7)


def test_a_host_that_comes_back_believes_the_log_and_not_its_old_file(tmp_path: Path) -> None:
    here = claimed(tmp_path / "job")
    SwitchLog(tmp_path / "here", lambda: here).write(record(1))
    there = claimed(tmp_path / "job")
    SwitchLog(tmp_path / "there", lambda: there).write(record(2))
    again = claimed(tmp_path / "job")
    assert SwitchLog(tmp_path / "here", lambda: again).read() == record(2)


def test_a_job_that_gets_a_log_goes_on_with_the_record_of_its_folder(tmp_path: Path) -> None:
    SwitchLog(tmp_path / "here").write(record(3))
    log = claimed(tmp_path / "job")
    assert SwitchLog(tmp_path / "here", lambda: log).read() == record(3)


def test_a_driver_that_was_replaced_takes_no_step(tmp_path: Path) -> None:
    log = claimed(tmp_path / "job")
    book = SwitchLog(tmp_path / "here", lambda: log)
    book.write(record(1))
    later = claimed(tmp_path / "job")
    with pytest.raises(TakenOver):
        book.write(record(2))
    assert SwitchLog(tmp_path / "here").read() == record(1)
    assert SwitchLog(tmp_path / "there", lambda: later).read() == record(1)
