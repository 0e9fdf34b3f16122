from __future__ import annotations

import dataclasses
import errno
import threading
from io import BytesIO
from pathlib import Path

import msgspec
import pytest

import millstream as ms
from millstream.connectors.memory import memory
from millstream.engine.driver import protocol
from millstream.engine.driver.driver import described
from millstream.engine.driver.process import Log
from millstream.engine.driver.protocol import Command, Described, Report, error_of, failure
from millstream.engine.jobs.status import GroupStatus, SourceStatus
from millstream.errors import DriverFailed, FlowError, GroupChanged, InvalidName, RunError, Where
from millstream.flow.flow import Flow
from millstream.flow.rewire import renamed
from millstream.ingest import IngestStatistics
from millstream.spark.run.query import GroupStatistics


def test_the_numbers_of_a_job_are_those_that_its_driver_reports() -> None:
    for ours, theirs in ((GroupStatus, GroupStatistics), (SourceStatus, IngestStatistics)):
        names = [field.name for field in msgspec.structs.fields(ours)]
        assert names == [field.name for field in dataclasses.fields(theirs)]


def test_commands_and_reports_are_tagged_with_their_names() -> None:
    drain, failed = protocol.Drain(flush=True), protocol.Failed("RunError", "it failed", "fix it")
    assert msgspec.json.encode(drain) == b'{"type":"Drain","flush":true}'
    assert msgspec.json.encode(protocol.Ready()) == b'{"type":"Ready"}'
    assert msgspec.json.decode(msgspec.json.encode(drain), type=Command) == drain
    assert msgspec.json.decode(msgspec.json.encode(failed), type=Report) == failed


def test_an_error_of_a_driver_is_told_as_it_was_raised() -> None:
    told = failure(InvalidName("a name", hint="another", where=Where("f.py", 3, "flow = 1")))
    assert told.hopeless
    error = error_of(told)
    assert isinstance(error, InvalidName)
    assert error.message.startswith("a name\n")
    assert "f.py:3" in error.message
    assert error.hint == "another"
    assert failure(GroupChanged("it changed")).hopeless
    assert failure(SystemExit(3)).hopeless
    assert not failure(RunError("it failed")).hopeless
    foreign = error_of(failure(ZeroDivisionError("division by zero")))
    assert isinstance(foreign, DriverFailed)
    assert foreign.message == "ZeroDivisionError: division by zero"


def flow() -> Flow:
    one = Flow("f")
    one.source("events", ms.inbox("n long"), partitions=3).sink("rows", memory())
    one.source("ticks", ms.rate(1)).sink("ticks", memory())
    return one


def test_a_flow_is_described_by_its_inboxes_under_the_name_that_it_is_given() -> None:
    assert described(renamed(flow(), "other")) == Described(
        "other", {"events": 3}, unplaced=("events", "ticks")
    )
    assert flow() != renamed(flow(), "other")
    with pytest.raises(FlowError):
        described(Flow("empty"))
    with pytest.raises(InvalidName):
        renamed(flow(), "a/b")


def test_a_driver_ends_when_the_line_to_its_engine_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(protocol, "end_at_once", ended.set)
    line = protocol.Line(BytesIO(b'{"type":"Stop"}\n'), BytesIO())
    assert line.next(5) == protocol.Stop()
    assert line.next(0.01) is None
    assert ended.wait(120)


def test_a_log_keeps_what_comes_before_it_has_a_place_and_turns_its_page(tmp_path: Path) -> None:
    log, file = Log(most_bytes=30), tmp_path / "jobs/run.log"
    log.write(b"early\n")
    log.open(file)
    for n in range(7):
        log.write(b"line %d....\n" % n)
    log.close()
    log.write(b"too late\n")
    assert log.last() == "too late"
    assert file.with_name("run.log.1").read_text() == "line 3....\nline 4....\nline 5....\n"
    assert file.read_text() == "line 6....\n"


def test_a_disk_that_was_full_is_recognised_through_what_was_made_of_it() -> None:
    error = RunError("group a failed")
    error.__cause__ = OSError(errno.ENOSPC, "no more")
    assert failure(error).full
    assert failure(RuntimeError("java.io.IOException: No space left on device")).full
    assert not failure(OSError(errno.EACCES, "not yours")).full
    assert not failure(RunError("group a failed")).full
