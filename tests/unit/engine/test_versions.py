from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from millstream.engine.jobs import store as stores
from millstream.engine.jobs.lifecycle import Job
from millstream.engine.jobs.store import JobSettings, Noted, Store, Stored, Version
from millstream.engine.jobs.switch_record import (
    RecoveredState,
    Switch,
    SwitchState,
    apply_report,
    reconcile,
)
from millstream.switch.comparison import Comparison
from millstream.switch.progress import SwitchProgress, SwitchStep

FIRST = JobSettings(flow="f.py", package="one")
SECOND = JobSettings(flow="g.py", package="two", inboxes={"more": 1})


def deployed(store: Store) -> Stored:
    one = Stored(
        id="f-1", name="f", number=1, deployed_at=1.0, settings=FIRST, job=Job("f", since=1.0)
    )
    store.add(
        one,
        [(Version(number=1, added_at=1.0, current_at=1.0, settings=FIRST), b"zip 1")],
        Noted(1.0, "deployed"),
    )
    return one


def asked(**more: object) -> Switch:
    return msgspec.structs.replace(Switch(version=2, previous=1, asked_at=5.0), **more)


def test_every_version_of_a_job_is_a_package_of_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path / "jobs.sqlite")
    one = deployed(store)
    second = Version(number=2, added_at=5.0, settings=SECOND, switch=asked())
    store.add_version(one.id, second, b"zip 2", Noted(5.0, "switch asked"))
    assert [(v.number, v.current_at) for v in store.versions(one.id)] == [(1, 1.0), (2, None)]
    assert store.jobs()[0].settings == FIRST, "it does not run yet"
    runs = msgspec.structs.replace(
        second, current_at=9.0, switch=asked(state=SwitchState.DONE, cut_us=7)
    )
    store.update_version(one.id, runs, [Noted(8.0, "overlapping", "cut"), Noted(9.0, "running")])
    store.close()
    again = Store(tmp_path / "jobs.sqlite")
    assert again.versions(one.id)[1] == runs
    assert again.jobs()[0].settings == SECOND
    assert (again.package(one.id), again.package(one.id, 2), again.package(one.id, 3)) == (
        b"zip 1",
        b"zip 2",
        None,
    )
    assert [one.what for one in again.history("f-1")] == [
        "deployed",
        "switch asked",
        "overlapping",
        "running",
    ]
    again.remove(one.id)
    assert again.versions(one.id) == []
    again.close()


def test_a_store_from_before_there_were_versions_has_one_of_each_job(tmp_path: Path) -> None:
    sql = sqlite3.connect(tmp_path / "jobs.sqlite")
    for statement in stores._JOBS.split(";"):
        sql.execute(statement)
    job = ("f-1", "f", 1, 1.0, 0, msgspec.json.encode(FIRST), msgspec.json.encode(Job("f")))
    sql.execute("INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?)", job)
    sql.execute("INSERT INTO packages VALUES ('f-1', ?)", (b"zip",))
    sql.execute("PRAGMA user_version = 1")
    sql.commit()
    sql.close()
    store = Store(tmp_path / "jobs.sqlite")
    assert store.versions("f-1") == [
        Version(number=1, added_at=1.0, current_at=1.0, settings=FIRST)
    ]
    assert store.package("f-1") == b"zip"
    store.close()


def test_a_switch_becomes_what_its_driver_says() -> None:
    steps = (SwitchStep(6.0, "preparing", "version 2 is prepared"),)
    going = apply_report(asked(), SwitchProgress("2", "preparing", steps=steps), 6.0)
    assert (going.state, going.phase, going.steps, going.ended_at) == (
        SwitchState.GOING_ON,
        "preparing",
        steps,
        None,
    )
    cut = apply_report(
        going, SwitchProgress("2", "overlapping", cut_us=77, steps=(*steps, *steps)), 7.0
    )
    done = apply_report(cut, SwitchProgress("2", "running", ended="done"), 8.0)
    assert (done.state, done.cut_us, done.ended_at, len(done.steps)) == (
        SwitchState.DONE,
        77,
        8.0,
        2,
    )
    assert apply_report(done, SwitchProgress("2", "preparing"), 9.0) is done
    assert apply_report(going, SwitchProgress("3", "preparing"), 9.0) is going
    refused = apply_report(asked(), SwitchProgress("2", ended="refused", why="no room"), 6.0)
    assert (refused.state, refused.why, refused.over) == (SwitchState.REFUSED, "no room", True)


def test_a_driver_that_comes_up_decides_by_the_record() -> None:
    going = asked(state=SwitchState.GOING_ON, phase="overlapping")
    assert reconcile(going, RecoveredState("1", "2"), 9.0) is going
    done = reconcile(going, RecoveredState("2"), 9.0)
    assert (done.state, done.ended_at) == (SwitchState.DONE, 9.0)
    for before in (asked(), going):
        lost = reconcile(before, RecoveredState("1"), 9.0)
        assert (lost.state, lost.why) == (SwitchState.ABORTED, "the driver ended before the cut")
    assert reconcile(lost, RecoveredState("2"), 10.0) is lost
    shadow = reconcile(asked(shadow=Comparison()), RecoveredState("1"), 9.0)
    assert (shadow.state, shadow.why) == (SwitchState.ABORTED, "the driver ended")


def test_a_version_that_only_ran_in_the_shadow_gives_its_number_back(tmp_path: Path) -> None:
    store = Store(tmp_path / "jobs.sqlite")
    one = deployed(store)
    compared = asked(state=SwitchState.COMPARED, shadow=Comparison())
    second = Version(number=2, added_at=5.0, settings=SECOND, switch=compared)
    store.add_version(one.id, second, b"shadow", Noted(5.0, "switch asked"))
    assert second.shadow
    assert not msgspec.structs.replace(second, switch=asked(shadow=Comparison())).shadow
    assert not msgspec.structs.replace(second, switch=asked(state=SwitchState.DONE)).shadow
    again = msgspec.structs.replace(second, added_at=6.0, switch=asked())
    store.add_version(one.id, again, b"zip 2", Noted(6.0, "switch asked"))
    assert store.versions(one.id)[1:] == [again]
    assert store.package(one.id, 2) == b"zip 2"
