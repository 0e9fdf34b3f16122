from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import typer

from millstream.cli.app import app
from millstream.cli.shadow import line
from millstream.engine.jobs.status import SwitchStatus
from millstream.engine.jobs.switch_record import SwitchState
from millstream.errors import SwitchRefused
from millstream.switch.changes import Change
from millstream.switch.comparison import Compared, Comparison
from millstream.switch.progress import SwitchProgress
from support.served import Served, serving

FLOW = """
import millstream as ms

flow = ms.Flow("f", window="1 hour")
events = flow.source("s", ms.inbox("origin string, n long, at timestamp"), time="at", key="origin")
named = events.action("named", ["./name"], input="origin", output="name string")
named.sql("some", "SELECT * FROM named WHERE n > 1").sink("some", ms.jsonl("some"))
"""
SINCE = "2026-01-01T12:00:00Z"
SAME = Comparison(SINCE, None, (Compared("some", Change.REPLACED, equal=5),))
OTHER = Comparison(SINCE, None, (Compared("some", Change.REPLACED, equal=5, missing=2, waiting=1),))

Run = Callable[..., str]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with serving(tmp_path / "engine") as found:
        monkeypatch.setenv("MILLSTREAM_ENGINE", found.server.url)
        monkeypatch.delenv("MILLSTREAM_TOKEN", raising=False)
        found.deploy()
        yield found


@pytest.fixture
def new(tmp_path: Path) -> Path:
    file = tmp_path / "new_of_shadow.py"
    file.write_text(FLOW)
    return file


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command, and return what it has printed."""

    def command(*words: str, status: int = 0) -> str:
        ended = app(["switch", *words], standalone_mode=False) or 0
        assert ended == status
        return capsys.readouterr().out

    return command


def ends(served: Served, told: SwitchProgress) -> None:
    served.engine.after_switch = lambda name: served.engine.reported(name, told)


def test_a_shadow_is_waited_for_and_its_status_tells_whether_the_versions_differ(
    served: Served, new: Path, run: Run
) -> None:
    ends(served, SwitchProgress("2", "running", ended="compared", shadow=SAME))
    said = run("f", str(new), "--shadow", "--for", "90 s", "--consent", "a")
    assert served.engine.wanted is not None
    assert (served.engine.wanted.duration, served.engine.wanted.consent) == (
        timedelta(seconds=90),
        ("a",),
    )
    assert said.splitlines() == [
        "version 2 of f runs in the shadow of version 1",
        " sink  equal  missing  extra  different  waiting",
        " some      5        0      0          0        0",
        f"compared: results that start from {SINCE} on",
        "the 5 results that were compared are the same; version 1 of f runs on",
    ]
    ends(served, SwitchProgress("3", "running", ended="compared", shadow=OTHER))
    found = json.loads(run("f", str(new), "--shadow", "--json", status=7))
    assert found["switch"]["shadow"]["outputs"][0]["missing"] == 2
    assert found["version"] == "1"


def test_a_shadow_that_broke_off_or_compared_nothing_has_a_status_of_its_own(
    served: Served, new: Path, run: Run
) -> None:
    broken = Comparison(SINCE, None, SAME.outputs, broken="it failed")
    ends(served, SwitchProgress("2", "running", ended="given up", why="it failed", shadow=broken))
    said = run("f", str(new), "--shadow", status=6)
    assert "the shadow broke off: it failed" in said
    assert "the shadow ended early: it failed; version 1 of f runs on" in said
    ends(served, SwitchProgress("3", "running", ended="compared", shadow=Comparison(SINCE)))
    assert f"nothing was compared: no result that starts from {SINCE} on" in run(
        "f", str(new), "--shadow", status=6
    )
    ends(served, SwitchProgress("4", ended="refused", why="it has no time"))
    assert "the shadow was refused: it has no time" in run("f", str(new), "--shadow", status=1)


def test_a_shadow_is_ended_from_elsewhere_and_says_what_there_is(
    served: Served, new: Path, run: Run
) -> None:
    with pytest.raises(SwitchRefused, match="no version of f runs in a shadow"):
        run("f", "--shadow", "--end")
    ends(served, SwitchProgress("2", "shadowing", shadow=OTHER))
    assert run("f", str(new), "--shadow", "--detach").splitlines() == [
        "version 2 of f runs in the shadow of version 1"
    ]
    said = run("f", "--shadow", "--end", status=6)
    assert " some      5        2      0          0        1" in said.splitlines()


@pytest.mark.parametrize(
    "words",
    [
        ("f", "new.py", "--for", "1 min"),
        ("f", "new.py", "--end"),
        ("f", "--end"),
        ("f", "new.py", "--shadow", "--end"),
        ("f", "new.py", "--shadow", "--probation", "1 min"),
    ],
)
def test_words_that_make_no_sense_together_are_refused(run: Run, words: tuple[str, ...]) -> None:
    with pytest.raises(typer.BadParameter):
        run(*words)


def test_the_plan_of_a_shadow_says_which_programs_run_in_both(
    tmp_path: Path, new: Path, run: Run
) -> None:
    old = tmp_path / "old_of_shadow.py"
    old.write_text(FLOW.replace("n > 1", "n > 2"))
    note = '"named" of group "some" runs in both versions, with whatever it does besides answering'
    assert note in run(str(old), str(new), "--plan", "--shadow").splitlines()
    assert note not in run(str(old), str(new), "--plan").splitlines()
    more = tmp_path / "more_of_shadow.py"
    more.write_text(FLOW.replace("n long,", "n long, m long,"))
    said = run(str(old), str(more), "--plan", "--shadow", status=1)
    assert (
        'impossible: source "s" has other columns, which no event has before a switch'
        in said.splitlines()
    )


def test_a_line_shows_how_a_shadow_goes() -> None:
    going = SwitchStatus(
        version="2",
        previous="1",
        state=SwitchState.GOING_ON,
        phase="shadowing",
        asked_at=SINCE,
        shadow=OTHER,
    )
    assert line(going, 65.0) == "shadowing 1:05   5 equal   2 missing   1 waiting   Ctrl-C ends it"
