"""`millstream tasks`: which engine runs which job, and moving jobs away."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from millstream.cli.app import app
from millstream.cluster import Cluster
from millstream.engine.jobs import lifecycle as life
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.status import JobStatus
from millstream.engine.leases.loads import EngineLoad
from millstream.engine.leases.tasks import MoveStatus, Tasks, TaskStatus
from millstream.errors import EnginesDiffer, InvalidTransition, NoSuchJob
from support.served import Served, serving

Run = Callable[..., str]
HERE = TaskStatus(
    job="shop",
    state="running",
    engine="a-1",
    url="http://a",
    since="2026-01-01T12:00:00Z",
    generation=4,
    next="b-2",
    here=True,
)
THERE = TaskStatus(job="shop", state="running", engine="b-2", generation=7, next="a-1")


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with serving(tmp_path / "engine") as found:
        monkeypatch.setenv("MILLSTREAM_ENGINE", found.server.url)
        monkeypatch.delenv("MILLSTREAM_TOKEN", raising=False)
        yield found


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "140")

    def command(*words: str) -> str:
        assert not app(list(words), standalone_mode=False)
        return capsys.readouterr().out

    return command


def test_tasks_show_who_runs_what_since_when_and_who_is_next(served: Served, run: Run) -> None:
    assert run("tasks") == "there are no jobs\n"
    served.engine.known = [Tasks("a-1", False, (HERE,))]
    (row,) = [line for line in run("tasks").splitlines() if "shop" in line]
    assert row.split() == ["shop", "running", "a-1", "(here)", "2026-01-01", "12:00:00", "4", "b-2"]
    told = json.loads(run("tasks", "--json"))
    assert (told["engine"], told["tasks"][0]["generation"]) == ("a-1", 4)


def test_tasks_show_how_busy_engines_are_and_what_is_unknown_of_them(
    served: Served, run: Run
) -> None:
    numbers = {"disk_free": 12_300_000_000, "disk_size": 50_000_000_000, "rows_in": 1_234.5}
    busy = EngineLoad(state="away", url="http://b", jobs=3, cores=4, load=2.25, age_s=90, **numbers)
    earlier = EngineLoad(state="up", url="http://a", jobs=0, cores=8)
    loads = {"b-2": busy, "a-1": earlier}
    served.engine.known = [Tasks("a-1", False, (), loads=loads)]
    first, _, head, here, there = run("tasks").splitlines()
    assert first == "there are no jobs"
    assert head.split()[:4] == ["engine", "state", "url", "jobs"]
    assert here.split() == [
        *("a-1", "(here)", "up", "http://a", "0", "unknown", "8"),
        *["unknown"] * 2,
    ]
    assert there.split() == [
        *("b-2", "away", "http://b", "3", "2.2", "4", "12.3", "of", "50.0", "GB"),
        *("1,234.5", "1", "min", "30", "s", "ago"),
    ]


def test_draining_waits_until_the_jobs_run_elsewhere_and_shows_the_pauses(
    served: Served, run: Run
) -> None:
    moving, moved = MoveStatus("shop", "moving"), MoveStatus("shop", "moved", "b-2", 4.2)
    served.engine.known = [
        Tasks("a-1", True, (HERE,)),
        Tasks("a-1", True, (HERE,), (moving,)),
        Tasks("a-1", True, (THERE,), (moving,)),
        Tasks("a-1", True, (THERE,), (moved,)),
    ]
    shown = run("tasks", "--drain")
    assert "shop moved to b-2, not running for 4.2 s" in shown
    assert "b-2" in shown


def test_commands_go_to_the_engine_that_runs_a_job(
    served: Served, run: Run, tmp_path: Path
) -> None:
    with serving(tmp_path / "other") as other:
        other.deploy()
        there = TaskStatus(job="f", state="running", engine="b-2", url=other.server.url)
        with pytest.raises(NoSuchJob):
            run("status", "f")
        served.engine.known = [Tasks("a-1", False, (there,))]
        assert run("status", "f").startswith("f (job f-1)  running")
        with Cluster([served.server.url]) as found:
            assert found.drain("f-1").state is JobState.DRAINING
        other.engine.tell("f", life.Drained())
        with Cluster([served.server.url]) as found:
            assert found.resume("f").state is JobState.STARTING
        assert run("undeploy", "f", "--force").startswith("undeployed f")
        assert other.engine.jobs() == []


def test_several_engines_that_share_jobs_are_named_and_the_one_with_the_job_is_asked(
    served: Served, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "other") as other, serving(tmp_path / "gone") as gone:
        urls = gone.server.url, served.server.url, other.server.url
        monkeypatch.setenv("MILLSTREAM_ENGINE", ",".join(urls))
        served.engine.known = [Tasks("a-1", False, ())]
        with pytest.raises(EnginesDiffer, match=f"{gone.server.url} shares no jobs"):
            run("jobs")
        gone.server.close()
        other.engine.known = [Tasks("b-2", False, ())]
        other.deploy()
        assert "running" in run("jobs")
        there = TaskStatus(job="f", state="running", engine="b-2", url=other.server.url)
        served.engine.known = [Tasks("a-1", False, (there,))]
        assert run("status", "f").startswith("f (job f-1)  running")
        assert run("undeploy", "f-1", "--force").startswith("undeployed f")
        assert other.engine.jobs() == []


@pytest.mark.parametrize("end", ["is gone", "has lost it"])
def test_waiting_follows_a_job_to_the_engine_that_takes_it_over(tmp_path: Path, end: str) -> None:
    with serving(tmp_path / "one") as one, serving(tmp_path / "other") as other:
        one.deploy()
        one.engine.known = [Tasks("a-1", False, (), engines={"b-2": other.server.url})]
        seen: list[str] = []

        def progress(status: JobStatus) -> None:
            seen.append(status.state)
            if len(seen) == 1:
                there = TaskStatus(job="f", state="running", engine="b-2", here=True)
                other.engine.known = [Tasks("b-2", False, (there,))]
                other.deploy()
                if end == "is gone":
                    one.server.close()
                else:
                    one.engine.known = [
                        Tasks("a-1", False, (replace(there, here=False, url=other.server.url),))
                    ]
                    one.engine.undeploy("f", force=True)
            elif status.state is JobState.RUNNING:
                other.engine.tell("f", life.DriverDied("it failed", hopeless=True))

        with Cluster([one.server.url]) as found:
            assert found.wait("f", 60, progress=progress).state is JobState.FAILED
            assert found.urls == (other.server.url,)
            assert found.versions("f")


def test_an_engine_that_shares_nothing_cannot_be_drained(served: Served, run: Run) -> None:
    with pytest.raises(InvalidTransition, match="shares its jobs with no other"):
        run("tasks", "--drain")
    assert served.engine.tasks().tasks == ()


def test_tasks_are_numbers_for_prometheus(served: Served) -> None:
    assert "millstream_task" not in served.http.get("/metrics").text
    served.engine.known = [Tasks("a-1", True, (HERE,), (MoveStatus("x", "moved", "b-2", 4.2),))]
    text = served.http.get("/metrics").text
    assert 'millstream_task_here{job="shop"} 1.0' in text
    assert 'millstream_task_generation{job="shop"} 4.0' in text
    assert 'millstream_task_move_seconds{job="x"} 4.2' in text
