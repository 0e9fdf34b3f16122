"""Switches of jobs, with real processes, files and sockets around drivers that run no Spark."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from millstream.engine import probation_watch
from millstream.engine.engine import Engine
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.package import pack
from millstream.engine.jobs.status import SwitchStatus
from millstream.engine.jobs.switch_record import SwitchState
from millstream.errors import (
    InvalidTransition,
    NotThere,
    SwitchImpossible,
    SwitchRefused,
    UnknownColumn,
)
from millstream.switch.probation import Limits, Trial
from millstream.switch.request import SwitchRequest
from support.engines import drivers_of, flow_file, rows, until, wait_until, without_spark

ORDERS = 'flow.source("orders", ms.inbox("k string, n long, at timestamp"), time="at").sink("orders", ms.jsonl("orders"))\n'
FILTERED = (
    'events.sql("some", "SELECT * FROM events WHERE n > {least}").sink("some", ms.jsonl("some"))\n'
)
DONE, GIVEN_UP = SwitchState.DONE, SwitchState.ABORTED


@pytest.fixture(autouse=True)
def sparkless(monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "flow"


@pytest.fixture
def engine(tmp_path: Path, root: Path) -> Iterator[Engine]:
    one = Engine(tmp_path / "data")
    one.start()
    one.deploy(pack(flow_file(root)), root=str(root))
    until(one, "counts", JobState.RUNNING)
    yield one
    one.close()
    assert drivers_of(tmp_path / "data") == []


def version(root: Path, least: int = 1, more: str = "") -> SwitchRequest:
    file = root / "flow.py"
    file.write_text(flow_file(root).read_text() + FILTERED.format(least=least) + more)
    return SwitchRequest(package=pack(file), root=str(root))


def switched(engine: Engine, *states: SwitchState) -> SwitchStatus:
    """Wait until the last switch has come so far."""

    def last() -> SwitchStatus:
        found = engine.status("counts").switch
        assert found is not None
        return found

    wait_until(lambda: last().state in states, limit_s=120, what=f"{states}")
    return last()


def let(root: Path, *names: str) -> None:
    for name in names:
        (root / name).touch()


def forbid(root: Path, *names: str) -> None:
    for name in names:
        (root / name).unlink()


def test_a_switch_is_planned_begun_followed_and_gone_back_from(
    engine: Engine, root: Path, tmp_path: Path
) -> None:
    planned = engine.plan_switch("counts", version(root))
    assert (planned.plan["possible"], [group["change"] for group in planned.plan["groups"]]) == (
        True,
        ["kept", "new"],
    )
    assert len(list((tmp_path / "data/packages").iterdir())) == 1, "a plan leaves nothing"
    engine.switch("counts", version(root))
    with pytest.raises(SwitchRefused, match="is going on from version 1 to 2"):
        engine.switch("counts", version(root, 5))
    let(root, "cut", "drained")
    done = switched(engine, DONE)
    assert (done.version, done.previous, done.cut) == ("2", "1", "2026-01-01T12:00:00.000Z")
    assert [step.what for step in done.steps] == ["preparing", "overlapping", "running"]
    assert engine.status("counts").version == "2"
    happened = [one.what for one in engine.history("counts") if one.what.startswith("switch")]
    assert happened == [
        "switch asked",
        "switch preparing",
        "switch overlapping",
        "switch running",
        "switch done",
    ]
    with pytest.raises(SwitchRefused, match="means the same"):
        engine.switch("counts", version(root))
    engine.switch("counts", SwitchRequest())
    assert switched(engine, DONE).version == "3"
    assert [(one.version, one.running, one.back_to) for one in engine.versions("counts")] == [
        ("1", False, None),
        ("2", False, None),
        ("3", True, "1"),
    ]
    engine.undeploy("counts", force=True)
    assert list((tmp_path / "data/packages").iterdir()) == []


def test_inboxes_come_and_go_with_the_version_that_has_them(engine: Engine, root: Path) -> None:
    assert engine.send("counts.events", rows(0, 5)) == 5
    with pytest.raises(NotThere):
        engine.send("counts.orders", rows(0, 1), timeout=120)
    engine.switch("counts", version(root, more=ORDERS))
    switched(engine, SwitchState.GOING_ON)
    wait_until(
        lambda: {one.source for one in engine.status("counts").inboxes} == {"events", "orders"}
    )
    assert engine.send("counts.orders", rows(0, 3)) == 3
    let(root, "cut", "drained")
    switched(engine, DONE)
    assert engine.send("counts.events", rows(5, 9)) == 4
    engine.switch("counts", SwitchRequest())
    switched(engine, DONE)
    wait_until(lambda: {one.source for one in engine.status("counts").inboxes} == {"events"})
    with pytest.raises(NotThere):
        engine.send("counts.orders", rows(3, 4), timeout=120)


def test_a_switch_that_is_given_up_leaves_the_old_version_as_it_was(
    engine: Engine, root: Path, tmp_path: Path
) -> None:
    with pytest.raises(SwitchRefused, match="no switch"):
        engine.abort_switch("counts")
    engine.switch("counts", version(root, more=ORDERS))
    switched(engine, SwitchState.GOING_ON)
    engine.abort_switch("counts")
    ended = switched(engine, GIVEN_UP)
    assert (ended.why, engine.status("counts").version) == ("it was asked to end", "1")
    wait_until(lambda: {one.source for one in engine.status("counts").inboxes} == {"events"})
    wait_until(lambda: len(list((tmp_path / "data/packages").iterdir())) == 1)
    let(root, "cut")
    engine.switch("counts", version(root))
    wait_until(lambda: switched(engine, SwitchState.GOING_ON).cut)
    with pytest.raises(SwitchRefused, match="past its cut"):
        engine.abort_switch("counts")


def test_a_version_runs_in_the_shadow_and_never_becomes_the_current_one(
    engine: Engine, root: Path, tmp_path: Path
) -> None:
    shadow = replace(version(root), shadow=True, duration=timedelta(seconds=60))
    engine.switch("counts", shadow)
    going = switched(engine, SwitchState.GOING_ON)
    wait_until(lambda: switched(engine, SwitchState.GOING_ON).phase == "shadowing")
    assert (going.version, going.cut) == ("2", None)
    # A driver that dies ends it.
    kill_driver(engine)
    assert switched(engine, GIVEN_UP).why == "the driver ended"
    engine.switch("counts", shadow)
    wait_until(lambda: switched(engine, SwitchState.GOING_ON).phase == "shadowing")
    engine.abort_switch("counts")
    ended = switched(engine, SwitchState.COMPARED)
    assert (ended.version, engine.status("counts").version) == ("2", "1")
    assert ended.shadow is not None
    assert (ended.shadow.counted, ended.shadow.same) == (5, True)
    wait_until(lambda: len(list((tmp_path / "data/packages").iterdir())) == 1)
    let(root, "cut", "drained")
    engine.switch("counts", version(root))
    assert switched(engine, DONE).version == "2"
    assert [one.version for one in engine.versions("counts")] == ["1", "2"]


def test_what_cannot_be_switched_is_refused_before_anything_is_touched(
    engine: Engine, root: Path
) -> None:
    flow_file(root, "other")
    with pytest.raises(SwitchImpossible, match='is of flow "other"'):
        engine.switch("counts", SwitchRequest(package=pack(root / "flow.py")))
    (root / "flow.py").write_text(
        flow_file(root).read_text() + 'events.window("w", every="1 h", m="sum(x)")\n'
    )
    with pytest.raises(UnknownColumn):
        engine.switch("counts", SwitchRequest(package=pack(root / "flow.py")))
    with pytest.raises(SwitchRefused, match="no version before 1"):
        engine.switch("counts", SwitchRequest())
    assert len(engine.versions("counts")) == 1
    engine.drain("counts")
    engine.wait("counts", 240)
    with pytest.raises(InvalidTransition, match="only one that runs can be switched"):
        engine.switch("counts", version(root))


def kill_driver(engine: Engine) -> None:
    before = engine.status("counts").restarts
    pid = engine.status("counts").pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: engine.status("counts").restarts == before + 1)
    until(engine, "counts", JobState.RUNNING)


def test_a_driver_that_dies_goes_on_by_the_record(engine: Engine, root: Path) -> None:
    engine.switch("counts", version(root))
    switched(engine, SwitchState.GOING_ON)
    kill_driver(engine)
    assert switched(engine, GIVEN_UP).why == "the driver ended before the cut"
    let(root, "cut")
    engine.switch("counts", version(root))
    wait_until(lambda: switched(engine, SwitchState.GOING_ON).cut)
    kill_driver(engine)
    assert switched(engine, SwitchState.GOING_ON).version == "3"
    let(root, "drained")
    switched(engine, DONE)
    kill_driver(engine)
    assert engine.status("counts").version == "3"


def keyed(root: Path, least: int, key: str | None = "k") -> bytes:
    file = root / "flow.py"
    some = f'events.key_by({key!r}).sql("some", "SELECT * FROM events WHERE n > {least}").sink("some", ms.jsonl("some"))\n'
    file.write_text(flow_file(root).read_text() + some)
    return pack(file)


def test_keys_are_shared_out_raised_and_given_back(engine: Engine, root: Path) -> None:
    let(root, "cut", "drained")
    engine.switch("counts", SwitchRequest(package=keyed(root, 1)))
    switched(engine, DONE)
    with pytest.raises(SwitchRefused, match='no keys of job "counts" are shared out'):
        engine.switch("counts", SwitchRequest(share=5000))
    with pytest.raises(SwitchImpossible, match='stage "some" in group "some" have no key'):
        engine.switch("counts", SwitchRequest(package=keyed(root, 7, None), share=1000))
    engine.switch("counts", SwitchRequest(package=keyed(root, 2), share=1000))
    wait_until(lambda: switched(engine, SwitchState.GOING_ON).share == 0.1)
    kill_driver(engine)
    assert engine.switch("counts", SwitchRequest(share=5000)).switch.wanted == 0.5
    shared = switched(engine, SwitchState.GOING_ON)
    assert (shared.phase, shared.share, engine.status("counts").version) == ("sharing", 0.5, "2")
    with pytest.raises(SwitchRefused, match="50% of the keys were asked for"):
        engine.switch("counts", SwitchRequest(share=5000))
    with pytest.raises(SwitchRefused, match="share its keys"):
        engine.drain("counts", flush=True)
    with pytest.raises(SwitchRefused, match="is going on from version 2 to 3"):
        engine.switch("counts", SwitchRequest(package=keyed(root, 3)))
    engine.switch("counts", SwitchRequest())
    assert switched(engine, GIVEN_UP).why == "the old version has all keys again"
    assert engine.status("counts").version == "2"
    engine.switch("counts", SwitchRequest(package=keyed(root, 2), share=1000))
    wait_until(lambda: switched(engine, SwitchState.GOING_ON).share == 0.1)
    engine.switch("counts", SwitchRequest(share=10_000))
    assert (switched(engine, DONE).version, engine.status("counts").version) == ("4", "4")


def test_an_engine_that_is_started_again_in_the_middle_finishes_a_switch(
    tmp_path: Path, root: Path
) -> None:
    first = Engine(tmp_path / "data")
    first.start()
    try:
        first.deploy(pack(flow_file(root)), root=str(root))
        until(first, "counts", JobState.RUNNING)
        let(root, "cut")
        first.switch("counts", version(root, more=ORDERS))
        wait_until(lambda: switched(first, SwitchState.GOING_ON).cut)
    finally:
        first.close()
    second = Engine(tmp_path / "data")
    second.start()
    try:
        assert {one.source for one in second.status("counts").inboxes} == {"events", "orders"}
        let(root, "drained")
        assert switched(second, DONE).version == "2"
        until(second, "counts", JobState.RUNNING)
        assert second.status("counts").version == "2"
    finally:
        second.close()


def test_a_version_that_fails_its_probation_is_replaced_by_the_one_before(
    engine: Engine, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probation_watch, "SAMPLE_S", 0.1)
    let(root, "cut", "drained")
    well = SwitchRequest(
        package=version(root).package, trial=Trial(1.0, Limits(dead_letters=3), back=True)
    )
    engine.switch("counts", well)
    switched(engine, DONE)
    wait_until(lambda: switched(engine, DONE).probation == "passed")
    unwell = SwitchRequest(
        package=version(root, 5).package, trial=Trial(3_600.0, Limits(dead_letters=3), back=True)
    )
    engine.switch("counts", unwell)
    assert switched(engine, DONE).version == "3"
    wait_until(
        lambda: engine._open.runner.switches._probations._samples.get(("counts-1", 3)),
        what="a first sample",
    )
    (root / "dead").write_text("4")
    wait_until(lambda: engine.status("counts").version == "4", what="the way back")
    back = engine.versions("counts")
    assert (back[-1].back_to, back[2].switch.probation if back[2].switch else None) == (
        "2",
        "it has made 4 dead letters, and 3 are allowed",
    )
    told = [one.detail for one in engine.history("counts") if one.what == "probation"]
    assert (
        told[-1]
        == "version 3 is unwell, and 2 comes back: it has made 4 dead letters, and 3 are allowed"
    )


def test_a_version_whose_driver_dies_between_the_cut_and_the_end_is_replaced_once_it_is_the_current_one(
    engine: Engine, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probation_watch, "SAMPLE_S", 0.1)
    let(root, "cut")
    engine.switch(
        "counts", SwitchRequest(package=version(root).package, trial=Trial(3_600.0, back=True))
    )
    wait_until(
        lambda: engine._open.runner.switches._probations._samples.get(("counts-1", 2)),
        what="a first sample",
    )
    pid = engine.status("counts").pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: (
            engine.status("counts").restarts == 1
            and engine.status("counts").state == JobState.RUNNING
        )
    )
    let(root, "drained")
    wait_until(lambda: engine.status("counts").version == "3", what="the way back")
    assert engine.versions("counts")[-1].back_to == "1"
    told = [one.detail for one in engine.history("counts") if one.what == "probation"]
    assert told == [
        "version 2 is unwell, and 1 comes back: its driver has died 1 time, and 0 are allowed"
    ]


def test_a_job_of_another_name_is_switched_and_one_that_is_deployed_again_goes_on_with_its_version(
    engine: Engine, root: Path
) -> None:
    first = pack(flow_file(root))
    engine.deploy(first, name="till", root=str(root))
    until(engine, "till", JobState.RUNNING)
    let(root, "cut", "drained")
    second = version(root)
    engine.switch("till", second)
    wait_until(lambda: engine.status("till").version == "2", limit_s=120)
    engine.undeploy("till", force=True)
    assert second.package is not None
    engine.deploy(second.package, name="till", root=str(root))
    until(engine, "till", JobState.RUNNING)
    assert engine.status("till").version == "2", "its checkpoints are those of version 2"
    engine.switch("till", SwitchRequest(package=first))
    wait_until(lambda: engine.status("till").version == "3", limit_s=120)
    engine.undeploy("till", force=True, purge=True)
    engine.deploy(first, name="till", root=str(root))
    assert engine.status("till").version == "1"
