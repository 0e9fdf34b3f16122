"""The commands, as a user types them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

FLOW = """
import millstream as ms

flow = ms.Flow("typed")
events = flow.source("events", ms.inbox("k string, v long, at timestamp"), time="at", key="k")
events.window("minutes", every="1 minute", n="count(*)", total="sum(v)").sink("minutes", ms.jsonl("out"))
"""


def millstream(folder: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millstream", *arguments]
    return subprocess.run(
        command, cwd=folder, input=given, capture_output=True, text=True, timeout=300, check=False
    )


def eventually(holds: Callable[[], bool], seconds: float = 300) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.2)
    return False


def results(folder: Path) -> list[tuple[str, int, int]]:
    lines = [
        json.loads(line)
        for path in folder.glob("out/*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return sorted((line["window_start"][11:16], line["n"], line["total"]) for line in lines)


def counted(told: Path) -> tuple[int, int]:
    """Return the rows and the dead letters that a run has told of last."""
    whole = told.read_text().split("\n")[:-1]
    numbers = json.loads(whole[-1]) if whole else {"groups": [{"rows_in": 0}], "dead": 0}
    return numbers["groups"][0]["rows_in"], numbers["dead"]


def event(v: int, minute: int) -> str:
    return json.dumps({"k": "a", "v": v, "at": f"2020-01-01T10:{minute:02}:00Z"}) + "\n"


def test_a_flow_is_run_fed_stopped_and_run_again(tmp_path: Path) -> None:
    tmp_path /= "it's a folder"  # Java reads its options as a shell would
    tmp_path.mkdir()
    (tmp_path / "flow.py").write_text(FLOW)
    command = [sys.executable, "-m", "millstream", "run", "flow.py", "--json"]
    with (tmp_path / "told").open("wb") as told, (tmp_path / "errors").open("wb") as errors:
        running = subprocess.Popen(
            command, cwd=tmp_path, stdout=told, stderr=errors, start_new_session=True
        )
    try:
        assert eventually(
            lambda: (tmp_path / ".millstream/typed/journals/events/journal.json").exists()
        )
        sent = millstream(
            tmp_path,
            "send",
            "typed.events",
            given=event(1, 0) + event(2, 0) + "{oops\n" + event(4, 1),
        )
        assert sent.returncode == 0, sent.stderr
        assert sent.stdout.startswith("sent 3 events in ")
        assert "1 refused, see millstream journal cat typed.events.dead" in sent.stdout
        assert eventually(lambda: results(tmp_path) == [("10:00", 2, 3)])
        again = millstream(tmp_path, "run", "flow.py")
        assert again.returncode == 1
        assert f'flow "typed" is running already, in process {running.pid}' in again.stderr
        assert eventually(lambda: counted(tmp_path / "told") == (3, 1))
        os.killpg(running.pid, signal.SIGTERM)  # Spark's process gets it too, as from systemd
        assert running.wait(240) == 0, (tmp_path / "errors").read_text()
        assert "Traceback" not in (tmp_path / "errors").read_text()
    finally:
        running.kill()

    late = event(16, 1)
    sent = millstream(tmp_path, "send", "typed.events", "--end", given=event(8, 2) + late)
    assert sent.returncode == 0, sent.stderr
    done = millstream(tmp_path, "run", "flow.py", "--until-end")
    assert done.returncode == 0, done.stderr
    assert "typed ended" in done.stdout
    notice = '1 of 5 rows were late; the lateness of source "events" is 0'
    assert notice in " ".join(done.stdout.split())
    assert results(tmp_path) == [("10:00", 2, 3), ("10:01", 1, 4), ("10:02", 1, 8)]

    (tmp_path / "flow.py").write_text(FLOW.replace("1 minute", "5 minutes"))
    refused = millstream(tmp_path, "run", "flow.py", "--until-end")
    assert refused.returncode == 1
    assert 'group "minutes" has changed since its checkpoint was made' in refused.stderr
    assert "5 min" in refused.stderr
    assert "Traceback" not in refused.stderr

    shown = millstream(tmp_path, "checkpoint", "show", "typed.minutes")
    assert "watermark             ended" in shown.stdout, shown.stderr


def test_a_mistake_is_shown_with_its_line_and_a_hint(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW.replace("sum(v)", "sum(w)"))
    said = millstream(tmp_path, "plan", "flow.py")
    assert said.returncode == 1
    assert said.stdout == ""
    first, place, hint = said.stderr.strip().splitlines()
    assert first.startswith('error: stage "minutes" of flow "typed"')
    assert '"w"' in first
    assert place.strip().startswith("flow.py:6   events.window(")
    assert hint.strip().startswith("hint: ")


def test_a_plan_is_printed_drawn_and_told_to_machines(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    said = millstream(tmp_path, "plan", "flow.py", "--quick", "--svg", "plan.svg")
    assert said.returncode == 0, said.stderr
    assert "minutes" in said.stdout
    assert (tmp_path / "plan.svg").read_text().startswith("<svg")
    told = json.loads(millstream(tmp_path, "plan", "flow.py", "--quick", "--json").stdout)
    assert [group["name"] for group in told["groups"]] == ["minutes"]


def test_the_process_leaves_nothing_behind_when_it_is_killed(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    process = subprocess.Popen(
        [sys.executable, "-m", "millstream", "run", "flow.py", "--json"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert eventually(lambda: _marked(tmp_path) > 1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert eventually(lambda: _marked(tmp_path) == 0, 120), (
        "Java and the Python workers end with the driver"
    )


def _marked(folder: Path) -> int:
    """Count processes whose working folder this is."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            count += path.readlink() == folder
        except OSError:
            continue
    return count


ENDING = """
import millstream as ms

flow = ms.Flow("typed")
events = flow.source("events", ms.files("in", "k string, v long, at timestamp", format="jsonl"), time="at")
windows = events.window("minutes", every="1 minute", n="count(*)", total="sum(v)")
windows.sink("minutes", ms.jsonl("out"))
windows.journal("kept")
"""


@pytest.mark.long
def test_a_run_with_nothing_to_do_ends_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flow.py").write_text(ENDING)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text(event(1, 0) + event(2, 0) + event(4, 1))
    first = millstream(tmp_path, "run", "flow.py", "--until-end")
    assert first.returncode == 0, first.stderr
    assert first.stdout.endswith("typed ended\n")
    found = results(tmp_path)
    assert found == [("10:00", 2, 3), ("10:01", 1, 4)]
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no java"))
    again = millstream(tmp_path, "run", "flow.py", "--until-end")
    assert again.returncode == 0, again.stderr
    assert again.stdout.endswith("typed ended\n")
    numbers = json.loads(millstream(tmp_path, "run", "flow.py", "--until-end", "--json").stdout)
    assert numbers["ended"]
    assert [group["rows_in"] for group in numbers["groups"]] == [0] * len(numbers["groups"])
    assert results(tmp_path) == found
    # With another source nothing is certain: Spark would find out, and cannot be started.
    (tmp_path / "flow.py").write_text(ENDING.replace('time="at"', 'time="at", keep_for="9 days"'))
    changed = millstream(tmp_path, "run", "flow.py", "--until-end")
    assert changed.returncode != 0
    assert "ended" not in changed.stdout
