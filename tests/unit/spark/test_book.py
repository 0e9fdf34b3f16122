"""The record and the history of switches on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import ControlBroken
from millstream.spark.switching.switch_log import SwitchLog
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
