"""Records what a release leaves when it is stopped in the middle; a test lets later ones go on from it.

    PYTHONPATH=<the release's src>:tests python -m upgrade.running.record saved_1.tar.xz

It uses commands, HTTP and the flows beside this file: words that do not change from one release
to the next. What is recorded, in one archive without a path of this machine:

    events.jsonl          all events, a few of them late, one that cannot be read
    run/                  `millstream run`, stopped after some batches
    engine/               an engine, killed in the middle of the second switch of its job
    expected/<flow>.json  the results of a run that was not disturbed, by sink
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import IO, Any

from upgrade.running.archive import results, save

HERE = Path(__file__).parent
START = datetime(2026, 1, 1, tzinfo=UTC)
TURNS = 80
#: How many turns a run gets before it is stopped, and the most that an engine may.
STOPPED, MOST = 30, 60
MILLSTREAM = (sys.executable, "-m", "millstream")
ENGINE = ("engine", "--port", "0", "--master", "local[2]", "--json")
LIMIT_S = 600.0


def events() -> Iterator[list[str]]:
    """Yield the lines of each turn: three seconds of events, some of them late."""
    chance = random.Random(7)
    for turn in range(TURNS):
        lines = []
        for _ in range(10):
            at = START + timedelta(seconds=3 * turn + 3 - chance.choice([0, 0, 1, 2, 2.9, 5]))
            row = {"k": f"k{chance.randrange(5)}", "v": chance.randrange(100), "at": at.isoformat()}
            lines.append(json.dumps(row))
        if turn == 2:
            lines.append('{"k": "bad", "v": "many"}')
        yield lines


def millstream(folder: Path, *arguments: str, lines: list[str] | None = None, **more: str) -> str:
    """Run a command to its end."""
    done = subprocess.run(
        [*MILLSTREAM, *arguments],
        cwd=folder,
        env={**os.environ, **more},
        input=None if lines is None else "".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{arguments}: {done.stdout}{done.stderr}")
    return done.stdout


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Let a command run, and kill it in the end."""
    with (folder / "errors.txt").open("a") as log:
        process = subprocess.Popen(
            [*MILLSTREAM, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def waiting(true: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not true():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} took too long")
        time.sleep(0.5)


def undisturbed(folder: Path, flow: str, lines: list[str]) -> dict[str, list[str]]:
    """Return the results of a flow that gets all events and comes to its end."""
    shutil.copytree(HERE / "flows", folder)
    millstream(folder, "send", f"{flow}.events", "--flow", f"{flow}.py", "--end", lines=lines)
    millstream(folder, "run", f"{flow}.py", "--until-end")
    return results(folder)


def stopped(folder: Path, turns: list[list[str]]) -> None:
    """Run a flow while some events come in, and stop it."""
    shutil.copytree(HERE / "flows", folder)
    send = ("send", "every.events", "--flow", "every.py", "--sender", "recording")
    arguments = ("run", "every.py", "--rows-per-batch", "40", "--json")
    begun = 10
    millstream(folder, *send, lines=[*chain(*turns[:begun])])
    with running(folder, *arguments) as process:
        _caught_up(process.stdout)
        for turn in range(begun + 10, STOPPED + 1, 10):
            millstream(folder, *send, lines=[*chain(*turns[:turn])])
            _caught_up(process.stdout)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)


def _caught_up(output: IO[str] | None) -> None:
    """Read the numbers of a run until all groups have read all, and go on for a moment."""
    assert output is not None
    still = 0
    for line in output:
        groups = json.loads(line)["groups"]
        busy = not groups or any(one["lag_rows"] or not one["rows_in"] for one in groups)
        still = 0 if busy else still + 1
        if still > 5:
            return
    raise SystemExit("the run has ended")


def killed(folder: Path, turns: list[list[str]]) -> None:
    """Switch a job on an engine twice while events come in, and kill the engine after the second cut."""
    shutil.copytree(HERE / "flows", folder)
    text = (folder / "switched.py").read_text()
    sent = 0
    with running(folder, *ENGINE) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]

        def job() -> dict[str, Any]:
            with urllib.request.urlopen(f"{url}/jobs/switched", timeout=LIMIT_S) as answer:
                found: dict[str, Any] = json.load(answer)
                return found

        def send_until(true: Callable[[], Any]) -> None:
            nonlocal sent
            while not true():
                sent += 1
                assert sent < MOST, job()
                lines = [*chain(*turns[:sent])]
                millstream(folder, *send, lines=lines)
                waiting(lambda: job()["groups"] and not job()["unprocessed"], "processing")

        send = ("send", "switched.events", "--engine", url, "--sender", "recording")
        _version(folder, text, 1)
        millstream(folder, "deploy", "switched.py", "--engine", url)
        send_until(lambda: sent > 4)
        for version in (2, 3):
            _version(folder, text, version)
            millstream(folder, "switch", "switched", "switched.py", "--detach", "--engine", url)
            over = "cut" if version == 3 else "done"
            send_until(
                lambda over=over: (
                    job()["switch"]["state"] == "done" if over == "done" else job()["switch"]["cut"]
                )
            )
        assert job()["switch"]["state"] != "done", "the switch is under way"
        print(f"killed after {sent} turns, {job()['switch']}")


def _version(folder: Path, text: str, version: int) -> None:
    (folder / "switched.py").write_text(text.replace("VERSION = 1", f"VERSION = {version}"))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("archive", type=Path)
    target = arguments.parse_args().archive.resolve()
    turns = list(events())
    lines = [*chain(*turns)]
    with tempfile.TemporaryDirectory() as temporary:
        work, saved = Path(temporary), Path(temporary) / "saved"
        (saved / "expected").mkdir(parents=True)
        (saved / "events.jsonl").write_text("".join(f"{line}\n" for line in lines))
        for flow in ("every", "switched"):
            expected = undisturbed(work / flow, flow, lines)
            (saved / "expected" / f"{flow}.json").write_text(json.dumps(expected, indent=0))
        stopped(saved / "run", turns)
        killed(saved / "engine", turns)
        time.sleep(5)  # drivers end with their engine
        save(saved, target)


if __name__ == "__main__":
    main()
