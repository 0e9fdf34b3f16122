from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import msgspec
import pytest
import typer

from millstream.cli import switch as command
from millstream.cli.app import app
from millstream.cli.switch import line, moment, phases
from millstream.engine.jobs.status import Happening, SwitchStatus
from millstream.engine.jobs.switch_record import SwitchState
from millstream.errors import (
    InvalidDuration,
    InvalidOption,
    SwitchImpossible,
    SwitchRefused,
    UnknownColumn,
)
from millstream.switch.progress import SwitchProgress, SwitchStep
from support.served import Served, serving

FLOW = """
import millstream as ms

flow = ms.Flow("f", window="1 hour")
events = flow.source("s", ms.inbox("origin string, n long, at timestamp"), time="at", key="origin", lateness="5 min")
some = events.sql("some", "SELECT * FROM s WHERE n > 1")
some.window("counted", every="1 hour", by="origin", n="count(*)").sink("counted", ms.memory())
events.sink("all", ms.jsonl("all"))
"""

Run = Callable[..., str]
BEGAN = 1_767_268_800.0


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with serving(tmp_path / "engine") as found:
        monkeypatch.setenv("MILLSTREAM_ENGINE", found.server.url)
        monkeypatch.delenv("MILLSTREAM_TOKEN", raising=False)
        found.deploy()
        yield found


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return written(tmp_path / "old" / "old_of_switch.py", FLOW)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return written(tmp_path / "new" / "new_of_switch.py", FLOW.replace("n > 1", "n > 2"))


def written(file: Path, text: str) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command, and return what it has printed."""

    def command(*words: str, status: int = 0) -> str:
        ended = app(["switch", *words], standalone_mode=False) or 0
        assert ended == status
        return capsys.readouterr().out

    return command


# plans


def test_two_files_are_compared_without_an_engine(old: Path, new: Path, run: Run) -> None:
    shown = run(str(old), str(new), "--plan").splitlines()
    assert [row.split()[:3] for row in shown[1:4]] == [
        ["counted", "some", "replaced"],
        ["counted", "counted", "kept"],
        ["all", "all", "kept"],
    ]
    assert shown[5] == "both versions of counted run side by side for about 5 min"
    plan = json.loads(run(str(old), str(new), "--plan", "--json"))
    assert (plan["possible"], plan["overlap"], plan["units"][0]["groups"]) == (
        True,
        300.0,
        ["counted"],
    )
    assert "nothing to switch" in run(str(old), str(old), "--plan")


def test_a_switch_that_is_impossible_is_shown_with_the_reason_and_a_status(
    old: Path, new: Path, run: Run
) -> None:
    new.write_text(FLOW.replace('ms.Flow("f"', 'ms.Flow("g"'))
    shown = run(str(old), str(new), "--plan", status=1)
    assert 'impossible: the new version is of flow "g"' in shown
    assert "  hint: " in shown


def test_a_file_is_not_a_job(old: Path, new: Path, run: Run) -> None:
    with pytest.raises(InvalidOption, match="is a flow, not a job"):
        run(str(old), str(new))


def test_the_plan_of_a_job_comes_from_its_driver(served: Served, new: Path, run: Run) -> None:
    assert run("f", str(new), "--plan") == " group  stage  change\n all    all    replaced\n"
    assert json.loads(run("f", str(new), "--plan", "--json"))["possible"] is True
    assert served.engine.status("f").switch is None


def test_a_mistake_is_told_with_its_line_before_anything_is_sent(
    served: Served, new: Path, run: Run
) -> None:
    new.write_text(FLOW.replace("count(*)", "sum(m)"))
    with pytest.raises(UnknownColumn) as caught:
        run("f", str(new))
    assert any("new_of_switch.py:7" in note for note in caught.value.__notes__)
    assert served.engine.status("f").switch is None


# switching


def steps(*phases: tuple[float, str]) -> tuple[SwitchStep, ...]:
    return tuple(SwitchStep(BEGAN + at, phase, phase) for at, phase in phases)


STEPS = steps(
    (0, "preparing"),
    (6, "asking"),
    (6.1, "confirming"),
    (6.2, "cutting"),
    (6.5, "overlapping"),
    (30, "retiring"),
)


def test_a_switch_is_waited_for_and_told_with_its_times(
    served: Served, new: Path, run: Run
) -> None:
    def goes_on(name: str) -> None:
        cut = int(BEGAN * 1e6)
        served.engine.reported(
            name, SwitchProgress("2", "overlapping", cut_us=cut, steps=STEPS[:-1])
        )
        served.engine.reported(
            name,
            SwitchProgress("2", "running", steps=(*STEPS, *steps((31, "running"))), ended="done"),
        )

    served.engine.after_switch = goes_on
    begun, ended = run(
        *("f", str(new), "--limit", "90 s", "--consent", "a", "--consent", "b"),
        *("--state", "old=new", "--state", "s.a=s.b"),
    ).splitlines()
    assert begun == "switching f from version 1 to 2"
    assert ended == (
        "f runs version 2; cut at 2026-01-01T12:00:00.000Z   "
        "preparing 6.0 s   cutting 500 ms   overlap 23.5 s   retiring 1.0 s"
    )
    wanted = served.engine.wanted
    assert wanted is not None
    assert (wanted.timeout, wanted.consent, wanted.trial) == (
        timedelta(seconds=90),
        ("a", "b"),
        None,
    )
    assert wanted.states == {"old": "new", "s.a": "s.b"}
    assert wanted.root == str(new.parent)


def test_a_switch_that_is_aborted_or_refused_has_a_status_of_its_own(
    served: Served, new: Path, run: Run
) -> None:
    for number, why, state, status in (
        ("2", "it took too long", "aborted", 6),
        ("3", "it has run", "refused", 1),
    ):
        ended = "given up" if state == "aborted" else state
        told = SwitchProgress(number, ended=ended, why=why)
        served.engine.after_switch = partial(served.engine.reported, progress=told)
        shown = run("f", str(new), status=status).splitlines()[-1]
        assert shown == f"the switch was {state}: {why}; version 1 runs on"


def test_one_switch_at_a_time_which_can_be_aborted(served: Served, new: Path, run: Run) -> None:
    run("f", str(new), "--detach")
    with pytest.raises(SwitchRefused, match="going on"):
        run("f", str(new))
    assert run("f", "--abort").startswith("the switch of f is being aborted")
    with pytest.raises(SwitchRefused, match="no switch"):
        run("f", "--give-up")


def test_a_share_is_waited_for_raised_and_given_back(served: Served, new: Path, run: Run) -> None:
    def has(share: int, wanted: int) -> Callable[[str], None]:
        told = SwitchProgress(
            "2", "sharing", cut_us=1_767_268_800_000_000, share=share, wanted=wanted
        )
        return partial(served.engine.reported, progress=told)

    served.engine.after_switch = has(1000, 1000)
    begun, shown = run("f", str(new), "--share", "10%").splitlines()
    assert begun == "version 2 of f is to have 10% of the keys"
    assert shown == "version 2 of f has 10% of the keys; cut at 2026-01-01T12:00:00.000Z"
    served.engine.after_switch = has(5000, 5000)
    assert (
        run("f", "--share", "50%").splitlines()[1].startswith("version 2 of f has 50% of the keys")
    )
    stays = SwitchProgress("2", "sharing", steps=steps((0, "sharing")), share=5000, wanted=5000)
    served.engine.after_switch = partial(served.engine.reported, progress=stays)
    assert "has 50% of the keys" in run("f", "--share", "75%", status=6)
    ended = SwitchProgress("2", ended="given up", why="the old version has all keys again")
    served.engine.after_switch = partial(served.engine.reported, progress=ended)
    begun, shown = run("f", "--back").splitlines()
    assert begun == "version 1 of f is to have all keys again"
    assert shown == "the switch was aborted: the old version has all keys again; version 1 runs on"


@pytest.mark.parametrize(
    "words", [["--share", "10"], ["--share", "0%"], ["--share", "x%"], ["--share", "5%", "--back"]]
)
def test_a_share_is_a_percentage_and_not_the_way_back(
    served: Served, run: Run, words: list[str]
) -> None:
    with pytest.raises(typer.BadParameter):
        run("f", *words)


def test_the_plan_of_a_share_says_by_which_key(old: Path, new: Path, run: Run) -> None:
    shown = run(str(old), str(new), "--plan", "--share", "10%").splitlines()
    assert shown[2].endswith("owned by key from the cut, by start before")
    assert shown[5:] == [
        "both versions of counted run side by side while they share the keys, and for about 5 min more",
        'results of group "counted" are shared out by "origin"',
    ]


def test_waiting_ends_with_the_time_limit_and_the_switch_goes_on(
    served: Served, new: Path, run: Run
) -> None:
    shown = run("f", str(new), "--timeout", "0", status=4)
    assert shown.splitlines()[-1] == "the switch of f to version 2 is asked"


def test_ctrl_c_leaves_the_switch_and_says_how_to_look_and_to_abort(
    served: Served,
    new: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sleep = time.sleep

    def interrupted(seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        sleep(seconds)  # the engine's own threads

    monkeypatch.setattr("millstream.cluster.switches.time.sleep", interrupted)
    assert app(["switch", "f", str(new)], standalone_mode=False) == 130
    said = capsys.readouterr().err
    assert said == (
        "the switch goes on: millstream status f shows it, millstream switch f --abort ends it until its cut\n"
    )
    switch = served.engine.status("f").switch
    assert switch is not None
    assert switch.state == "asked"


def test_a_way_back_and_a_probation_are_asked_for(served: Served, new: Path, run: Run) -> None:
    with pytest.raises(SwitchRefused, match="no version before 1"):
        run("f", "--back")
    words = ("--probation", "10 min", "--on-failure", "back", "--dead-letters", "5", "--detach")
    run("f", str(new), *words)
    assert served.engine.wanted is not None
    trial = served.engine.wanted.trial
    assert trial is not None
    assert (trial.seconds, trial.back, trial.limits.dead_letters) == (600.0, True, 5)
    served.engine.reported("f", SwitchProgress("2", ended="done"))
    assert "on probation until 2026-01-01T12:11:00.000Z" in command.outcome(
        served.engine.status("f")
    )
    run("f", "--back", "--detach")
    assert served.engine.wanted.package is None
    assert [one.version for one in served.engine.versions("f")] == ["1", "2", "3"]


def test_what_is_impossible_is_an_error(
    served: Served, new: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.cluster.switches.pack", lambda _: b"bad")
    with pytest.raises(SwitchImpossible, match="it is another flow"):
        run("f", str(new))
    assert "impossible: it is another flow" in run("f", str(new), "--plan", status=1)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--back", "--abort"),
        ("--back", "--give-up"),
        ("--give-up", "--plan"),
        ("--back", "--on-failure", "back"),
        ("--back", "--probation", "1 min", "--on-failure", "panic"),
    ],
)
def test_words_that_make_no_sense_together_are_refused(run: Run, words: tuple[str, ...]) -> None:
    with pytest.raises(typer.BadParameter):
        run("f", *words)


def test_a_moment_is_so_long_ago_or_a_timestamp() -> None:
    now = datetime(2026, 3, 8, 12, tzinfo=UTC)
    assert moment("2 hours ago", now) == now - timedelta(hours=2)
    assert moment(" 1 h 30 min ago ", now) == now - timedelta(minutes=90)
    assert moment("2026-03-08T10:00", now) == now - timedelta(hours=2)
    assert moment("2026-03-08T10:00+01:00", now) == now - timedelta(hours=3)
    with pytest.raises(InvalidOption, match="is not a moment"):
        moment("yesterday", now)
    with pytest.raises(InvalidOption, match="in the future"):
        moment("2026-03-09", now)
    with pytest.raises(InvalidDuration):
        moment("long ago", now)


def test_what_is_out_is_replaced_from_a_moment_on(
    served: Served, old: Path, new: Path, run: Run
) -> None:
    shown = run(str(old), str(new), "--plan", "--from", "2026-03-08T12:20").splitlines()
    assert shown[4:] == [
        "counted begins again at 2026-03-08 12:00:00 UTC",
        "what is out since then is removed from counted, and comes again as it is read",
    ]
    run("f", str(new), "--from", "2026-03-08T12:20", "--detach")
    assert served.engine.wanted is not None
    assert served.engine.wanted.since == datetime(2026, 3, 8, 12, 20, tzinfo=UTC)


def test_lengths_of_time_are_written_as_in_flows(run: Run) -> None:
    with pytest.raises(InvalidDuration):
        run("f", "--back", "--probation", "soon")


# what is shown


def shown(phase: str, *steps: tuple[float, str], left: float | None = None) -> SwitchStatus:
    at = [Happening(f"2026-01-01T12:00:{second:06.3f}Z", what) for second, what in steps]
    asked = "2026-01-01T12:00:00.000Z"
    return SwitchStatus(
        version="2",
        previous="1",
        state=SwitchState.GOING_ON,
        phase=phase,
        asked_at=asked,
        left_s=left,
        steps=tuple(at),
    )


def test_a_line_shows_what_is_over_and_what_goes_on() -> None:
    assert line(shown("asked"), BEGAN, 0) == "planning"
    assert line(shown("preparing", (1, "preparing")), BEGAN + 4, 0) == "preparing 3.0 s"
    half = shown("overlapping", (0, "preparing"), (6, "asking"), (6.5, "overlapping"), left=15.0)
    assert (
        line(half, BEGAN + 30, 60.0)
        == "preparing ✓ 6.0 s   cutting ✓ 500 ms   overlap ████████░░ 75% 23.5 s"
    )
    assert phases(half)[2:] == [("overlap", None), ("retiring", None)]
    waiting = msgspec.structs.replace(half, waits='events of source "s"')
    assert line(waiting, BEGAN + 30, 60.0).endswith('23.5 s   waits for events of source "s"')


def test_a_switch_that_goes_on_is_to_end_when_its_sources_are_quiet(
    served: Served, new: Path, run: Run
) -> None:
    run("f", str(new), "--detach")
    progress = SwitchProgress("2", "overlapping", waits='events of source "s"')
    served.engine.reported("f", progress)
    run("f", "--until-quiet", "--detach")
    assert served.engine.quiet == "f"
    waiting = command.outcome(served.engine.status("f"))
    assert waiting.startswith("the switch of f to version 2 is overlapping: it waits for events")
    assert waiting.endswith("millstream switch f --until-quiet ends it when the sources are idle")
