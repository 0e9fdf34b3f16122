from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from millstream.engine.jobs import store as stores
from millstream.engine.jobs.lifecycle import Job, JobState
from millstream.engine.jobs.status import Place
from millstream.engine.jobs.store import JobSettings, Noted, Store, Stored, Version
from millstream.errors import StoreBroken

SETTINGS = JobSettings(flow="f.py", package="abc", options={"state": "memory"}, inboxes={"s": 2})


def stored(store: Store, name: str = "f", at: float = 1.0) -> Stored:
    its_id, number = store.next_id(name)
    one = Stored(
        id=its_id,
        name=name,
        number=number,
        deployed_at=at,
        settings=SETTINGS,
        job=Job(name, since=at),
    )
    store.add(
        one,
        [(Version(number=1, added_at=at, current_at=at, settings=SETTINGS), b"zip")],
        Noted(at, "deployed"),
    )
    return one


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path / "jobs.sqlite")
    one = stored(store)
    running = replace(one.job, state=JobState.RUNNING, missed=("node 1",), ready_at=2.5)
    settings = JobSettings(flow="f.py", package="abc", places={"s": [Place("127.0.0.1", 7)]})
    store.update(one.id, running, Noted(2.0, "running", "well"), settings)
    store.close()
    again = Store(tmp_path / "jobs.sqlite")
    assert again.jobs() == [
        Stored(id="f-1", name="f", number=1, deployed_at=1.0, settings=settings, job=running)
    ]
    assert again.history("f-1") == [Noted(1.0, "deployed"), Noted(2.0, "running", "well")]
    assert again.package("f-1") == b"zip"
    again.close()


def test_a_name_has_one_job_and_its_numbers_rise_for_good(tmp_path: Path) -> None:
    store = Store(tmp_path / "jobs.sqlite")
    one = stored(store)
    with pytest.raises(StoreBroken):
        stored(store)
    store.remove(one.id)
    assert store.jobs() == []
    assert store.job("f-1") is not None
    assert store.package("f-1") is None
    assert stored(store).id == "f-3"
    store.close()


def test_old_history_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "MOST_UNDEPLOYED", 2)
    monkeypatch.setattr(stores, "MOST_HAPPENINGS", 3)
    store = Store(tmp_path / "jobs.sqlite")
    for _ in range(4):
        one = stored(store)
        for n in range(5):
            store.note(one.id, Noted(float(n), f"thing {n}"))
        assert [noted.what for noted in store.history(one.id)] == ["thing 2", "thing 3", "thing 4"]
        store.remove(one.id)
    assert [store.job(f"f-{n}") is not None for n in range(1, 5)] == [False, False, True, True]
    assert store.history("f-1") == []
    store.close()


def test_a_fact_stays_what_it_was_first(tmp_path: Path) -> None:
    store = Store(tmp_path / "jobs.sqlite")
    assert store.fact("node", "0 of 1") == "0 of 1"
    assert store.fact("node", "1 of 2") == "0 of 1"
    store.close()


def test_a_store_that_refuses_says_so_and_changes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "jobs.sqlite")
    one = stored(store)
    store._sql.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreBroken, match="the engine's store refuses"):
        store.update(one.id, replace(one.job, state=JobState.RUNNING))
    store._sql.execute("PRAGMA query_only = OFF")
    assert store.jobs()[0].job.state is JobState.DEPLOYED
    store.close()
