from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream import cli
from millstream.cli.app import app
from millstream.engine.jobs import lifecycle as life
from millstream.engine.jobs.lifecycle import JobState
from millstream.errors import JobBusy, NoSuchJob, TokenRefused, UnknownColumn
from support.served import Served, serving

FLOW = """
import millstream as ms

flow = ms.Flow("f")
events = flow.source("s", ms.inbox("origin string, n long, at timestamp"), time="at", key="origin")
events.sink("all", ms.memory())
"""

Run = Callable[..., str]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with serving(tmp_path / "engine") as found:
        monkeypatch.setenv("MILLSTREAM_ENGINE", found.server.url)
        monkeypatch.delenv("MILLSTREAM_TOKEN", raising=False)
        yield found


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    file = tmp_path / "flow_of_jobs" / "f_of_jobs.py"
    file.parent.mkdir()
    file.write_text(FLOW)
    return file


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command, and return what it has printed."""

    def command(*words: str, status: int = 0) -> str:
        ended = app(list(words), standalone_mode=False) or 0
        assert ended == status
        return capsys.readouterr().out

    return command


def test_a_job_is_deployed_and_told_where_it_is(served: Served, flow: Path, run: Run) -> None:
    assert run("deploy", str(flow)) == f"deployed f (job f-1)   {served.server.url}/jobs/f-1\n"
    told = json.loads(run("deploy", str(flow), "--name", "g", "--json"))
    assert (told["id"], told["state"]) == ("g-1", "running")


def test_a_mistake_is_told_with_its_line_before_anything_is_sent(
    served: Served, flow: Path, run: Run
) -> None:
    flow.write_text(
        FLOW + 'events.window("w", every="1 hour", n="sum(m)").sink("w", ms.memory())\n'
    )
    with pytest.raises(UnknownColumn) as caught:
        run("deploy", str(flow))
    assert any("f_of_jobs.py:7" in note for note in caught.value.__notes__)
    assert served.engine.jobs() == []


def test_jobs_are_listed_and_shown(served: Served, flow: Path, run: Run) -> None:
    assert run("jobs") == "there are no jobs\n"
    run("deploy", str(flow))
    head, line = run("jobs").splitlines()
    assert head.split() == [
        "job",
        "id",
        "state",
        "since",
        "not",
        "processed",
        "late",
        "dead",
        "letters",
        "restarts",
        "reason",
    ]
    assert line.split() == ["f", "f-1", "running", "2026-01-01", "12:00:00", "7", "1", "2", "0"]
    shown = run("status", "f-1")
    assert shown.startswith("f (job f-1)  running since 2026-01-01 12:00:00   driver 4711\n")
    assert "all    120   12  0.5 s  7 (0.2 s)  2026-01-01 12:00:00      9" in shown
    assert "inbox s/0  tcp://127.0.0.1:" in shown
    assert "late 1   dead letters 2   letters waiting 3   not processed 7" in shown
    assert json.loads(run("status", "f", "--json"))["pid"] == 4711
    assert [job["name"] for job in json.loads(run("jobs", "--json"))] == ["f"]


def test_logs_are_shown_and_followed(
    served: Served,
    flow: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("deploy", str(flow))
    assert run("logs", "f", "-n", "2") == "f line 18\nf line 19\n"
    assert json.loads(run("logs", "f", "-n", "1", "--json")) == {"lines": ["f line 19"]}
    log = served.data / "jobs" / "f" / "run.log"
    slept: list[float] = []
    real = time.sleep

    def sleep(seconds: float) -> None:
        if threading.current_thread() is not threading.main_thread():
            real(seconds)  # of another thread, such as one of Spark's
            return
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt
        with log.open("a") as more:
            more.write("news\n")

    monkeypatch.setattr("millstream.cluster.cluster.time.sleep", sleep)
    assert run("logs", "f", "-n", "1", "-f") == "f line 19\nnews\n"


def test_a_wait_ends_with_the_state_of_the_job(served: Served, flow: Path, run: Run) -> None:
    run("deploy", str(flow))
    assert run("wait", "f", "--timeout", "0", status=4) == "f is still running\n"
    threading.Timer(0.2, lambda: served.engine.tell("f", life.Finished())).start()
    assert run("wait", "f", "--timeout", "30") == "f has finished\n"


def test_a_job_that_fails_while_somebody_waits_is_told_with_its_reason(
    served: Served, flow: Path, run: Run
) -> None:
    run("deploy", str(flow))
    served.engine.tell("f", life.DriverDied("no such table", hopeless=True))
    assert run("wait", "f", status=5) == "f has failed: no such table\n"
    assert json.loads(run("wait", "f", "--json", status=5))["reason"] == "no such table"


def test_a_job_is_drained_resumed_and_undeployed(served: Served, flow: Path, run: Run) -> None:
    run("deploy", str(flow))
    served.engine.tell_once("f", JobState.DRAINING, life.Drained())
    assert run("drain", "f") == "f is drained; millstream resume continues it\n"
    assert run("resume", "f") == "resumed f (job f-1)\n"
    assert run("drain", "f", "--flush", "--timeout", "0", status=4) == "f is still draining\n"
    served.engine.tell("f", life.Finished())
    assert run("undeploy", "f") == "undeployed f (job f-1); its journals stay\n"


def test_force_says_what_is_lost(
    served: Served, flow: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run("deploy", str(flow))
    with pytest.raises(JobBusy, match='job "f" is running; 7 events are not processed yet'):
        run("undeploy", "f")
    app(["undeploy", "f", "--force", "--purge"], standalone_mode=False)
    said = capsys.readouterr()
    assert (
        said.err
        == 'warning: 7 events of job "f" are not processed yet, and are lost with its journals\n'
    )
    assert said.out == "undeployed f (job f-1); nothing of it is left\n"
    run("deploy", str(flow))
    app(["undeploy", "f", "--force"], standalone_mode=False)
    assert "they stay in its journals" in capsys.readouterr().err


def test_an_engine_is_stopped_and_waited_for(
    served: Served, flow: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run("deploy", str(flow))

    def closed() -> None:
        served.server.stopped.wait(120)
        served.server.close()

    closing = threading.Thread(target=closed)
    closing.start()
    app(["stop", "--force"], standalone_mode=False)
    closing.join()
    said = capsys.readouterr()
    assert said.out == f"stopped {served.server.url}\n"
    assert (
        said.err
        == "warning: f stop taking events until an engine is started again; nothing is lost\n"
    )


def test_events_are_sent_to_the_engine_that_the_environment_names(
    served: Served, flow: Path, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run("deploy", str(flow))
    events = tmp_path / "events.jsonl"
    events.write_text('{"origin": "JFK", "n": 1, "at": "2024-05-04 09:00"}\n')
    with events.open() as lines:
        monkeypatch.setattr("sys.stdin", lines)
        assert run("send", "f.s").startswith("sent 1 event")
    assert json.loads(run("status", "f", "--json"))["sources"]["s"]["rows"] == 1


def test_a_token_comes_from_the_environment_or_a_file(
    served: Served, flow: Path, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MILLSTREAM_TOKEN", "not the token of that engine")
    with pytest.raises(TokenRefused):
        run("deploy", str(flow))
    run("deploy", str(flow), "--token-file", str(served.data / "token"))
    monkeypatch.setenv("MILLSTREAM_TOKEN", served.server.token)
    served.engine.tell("f", life.Finished())
    run("undeploy", "f")
    with pytest.raises(TokenRefused, match="cannot be read"):
        run("jobs", "--token-file", str(tmp_path / "none"))


def test_an_engine_that_is_away_ends_a_command_with_a_status_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["millstream", "jobs", "--engine", "http://127.0.0.1:9"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 3
    assert capsys.readouterr().err.startswith(
        "error: the engine at http://127.0.0.1:9 cannot be reached"
    )


def test_an_engine_of_several_that_is_away_is_told_and_the_others_are_shown(
    tmp_path: Path, flow: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        serving(tmp_path / "node0", node=0, of=2) as one,
        serving(tmp_path / "node1", node=1, of=2) as two,
    ):
        both = ["--engine", two.server.url, "--engine", one.server.url]
        run("deploy", str(flow), *both)
        two.server.close()
        app(["status", "f", *both], standalone_mode=False)
        said = capsys.readouterr()
        assert said.out.startswith("f (job f-1)  running")
        away = (
            f"warning: the engine at {two.server.url} does not answer; what it has is not counted\n"
        )
        assert said.err == away


def test_no_state_of_a_job_is_without_words() -> None:
    from millstream.cli.jobs import _STATES

    assert set(_STATES) == set(JobState)


def test_the_journals_of_jobs_are_listed_over_http(served: Served, flow: Path, run: Run) -> None:
    run("deploy", str(flow))
    run("deploy", str(flow), "--name", "g")
    asked = ("journal", "ls", "--engine", served.server.url)
    found = {one["name"]: one["rows"] for one in json.loads(run(*asked, "--json"))}
    assert found == {"f.s": 0, "g.s": 0}
    assert [one["name"] for one in json.loads(run(*asked, "--job", "g", "--json"))] == ["g.s"]
    assert "g.s" in run(*asked)
    with pytest.raises(NoSuchJob):
        run(*asked, "--job", "h")
    assert "f.s" in run("journal", "ls", "--data", str(served.engine.data))
