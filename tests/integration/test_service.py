"""An engine as a user has it: a process, commands, curl; the pages about it show what happens."""

from __future__ import annotations

import doctest
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import millstream as ms
from millstream.spark.session.session import JAVA_OPTIONS
from support.links import wait_for
from unit.docs.blocks import DOCS, Block, blocks

pytestmark = pytest.mark.spark

SHOWN = "http://127.0.0.1:8340"
_SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Service:
    """An engine in a folder, and a shell beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "millstream", "engine", "--port", "0"]
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment(),
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        self.url, self.inbox = self.said.split()[1], self.said.split()[3]

    @staticmethod
    def _environment(**more: str) -> dict[str, str]:
        here = Path(sys.executable).parent
        ours = {name for name in os.environ if name.startswith("MILLSTREAM_")} - {JAVA_OPTIONS}
        clean = {name: value for name, value in os.environ.items() if name not in ours}
        return {**clean, "PATH": f"{here}:{os.environ['PATH']}", **more}

    def shell(self, text: str, status: int = 0) -> str:
        """Run commands as they are in a page, on this engine, and return what they print."""
        done = subprocess.run(
            ["bash", "-c", text.replace(SHOWN, self.url)],
            cwd=self.folder,
            env=self._environment(MILLSTREAM_ENGINE=self.url),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == status, f"{text}\n{done.stdout}{done.stderr}"
        return (done.stderr + done.stdout).replace(self.url, SHOWN)

    def end(self) -> None:
        """Have it stopped as systemd does."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(300) == 0

    def ended(self) -> None:
        assert self.process.wait(300) == 0, self.errors()

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()


@contextmanager
def service(folder: Path) -> Iterator[Service]:
    running = Service(folder)
    children = psutil.Process(running.process.pid)
    try:
        yield running
    finally:
        left = children.children(recursive=True) if children.is_running() else []
        running.process.kill()
        running.process.wait()
        for stream in (running.process.stdout, running.process.stderr):
            assert stream is not None
            stream.close()
        gone, alive = psutil.wait_procs(left, timeout=120)
        for process in alive:
            process.kill()
        assert not alive, "processes that outlive their engine"
        assert len(gone) == len(left)


def same(block: Block, shown: str, found: str) -> None:
    if not doctest.OutputChecker().check_output(shown, found, _SAME):
        pytest.fail(f"{block.page}:{block.line} shows\n{shown}\nand it is\n{found}", pytrace=False)


def write_files(page: Path, folder: Path) -> None:
    for block in blocks(page):
        if block.file is not None:
            (folder / block.file).write_text(block.text)


def results(folder: Path) -> dict[tuple[str, str], float]:
    lines = [
        json.loads(line)
        for file in folder.glob("out/hourly/*.jsonl")
        for line in file.read_text().splitlines()
    ]
    found = {(line["shop"], line["window_start"][11:16]): line["amount"] for line in lines}
    assert len(found) == len(lines), "a result is there twice"
    return found


def job(engine: Service) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{engine.url}/jobs/till", timeout=240).json()
    return found


@pytest.mark.long
def test_the_page_about_the_service_shows_what_happens(tmp_path: Path) -> None:
    page = DOCS / "guide" / "service.md"
    write_files(page, tmp_path)
    with service(tmp_path) as engine:
        for block in blocks(page):
            if "service" not in block.words:
                continue
            for command, shown in block.commands:
                if command.startswith("millstream engine"):
                    same(block, shown, engine.said.replace(engine.url, SHOWN))
                    continue
                # The events of the page about HTTP make some of this page late.
                same(block, shown, re.sub(r".* rows were late;.*\n", "", engine.shell(command)))
                if command.startswith("millstream deploy"):
                    run_http(engine)
        engine.ended()
        assert engine.errors() == ""
    # The page of HTTP has sent the same events twice, before those of this page: they are late
    # then, except the last.
    assert results(tmp_path) == {("north", "09:00"): 7.0, ("south", "09:00"): 3.0}


def run_http(engine: Service) -> None:
    """Do what the page about HTTP does, and compare what it shows."""
    if shutil.which("curl") is None:
        pytest.skip("cannot here: there is no curl")
    before, found = "", ""
    for block in blocks(DOCS / "http.md"):
        if "http" not in block.words:
            continue
        if block.language == "json":
            same(block, block.text, found)
        elif "curl" in block.text:
            found = engine.shell(before + block.text)
        else:
            before += block.text


@pytest.mark.long
def test_a_job_goes_on_after_its_engine_was_stopped_and_started_again(tmp_path: Path) -> None:
    write_files(DOCS / "guide" / "service.md", tmp_path)

    def row(shop: str, n: int, hour: int) -> str:
        return json.dumps(
            {"shop": shop, "amount": float(n), "at": f"2024-05-04 {hour:02}:{n % 60:02}"}
        )

    first = "\n".join(row("north", n, 9) for n in range(50))
    with service(tmp_path) as engine:
        assert (
            json.loads(engine.shell("millstream deploy flow.py --name till --json"))["id"]
            == "till-1"
        )
        token = (tmp_path / ".millstream-engine" / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-ndjson"}
        named = {**headers, "Millstream-Sender": "pos", "Millstream-First-Number": "0"}
        taken = httpx.post(
            f"{engine.url}/jobs/till/sources/sales/events",
            content=first,
            headers=named,
            timeout=240,
        )
        assert taken.json()["taken"] == 50
        with ms.connect(engine.inbox) as client:
            client.send(
                "till.sales", [{"shop": "south", "amount": 1.0, "at": "2024-05-04 09:55"}] * 10
            )
        refused = engine.shell("millstream undeploy till", status=1)
        assert 'error: job "till" is ' in refused
        assert "hint: millstream drain till && millstream undeploy till, or --force" in refused
        assert "error: 1 job runs: till" in engine.shell("millstream stop", status=1)
        wait_for(
            lambda: job(engine)["groups"] and job(engine)["groups"][0]["rows_in"] == 60, limit_s=240
        )
        engine.end()
    with service(tmp_path) as engine:
        again = httpx.post(
            f"{engine.url}/jobs/till/sources/sales/events",
            content=first,
            headers=named,
            timeout=240,
        )
        assert (again.json()["taken"], again.json()["repeated"]) == (0, 50)
        assert "till is still" in engine.shell("millstream wait till --timeout 1", status=4)
        (tmp_path / "more.jsonl").write_text(row("north", 1, 11) + "\n")
        engine.shell(f"millstream send till.sales --engine {engine.url} < more.jsonl")
        assert engine.shell("millstream drain till --flush") == "till has finished\n"
        history = httpx.get(f"{engine.url}/jobs/till/history").json()
        assert [one["what"] for one in history].count("finished") == 1
        journals = httpx.get(f"{engine.url}/jobs/till/journals").json()
        assert sum(one["rows"] for one in journals) == 61
        engine.shell("millstream undeploy till --purge")
        assert not (tmp_path / ".millstream-engine" / "jobs" / "till" / "till").exists()
        assert engine.shell("millstream stop") == f"stopped {SHOWN}\n"
        engine.ended()
    expected = {
        ("north", "09:00"): float(sum(range(50))),
        ("south", "09:00"): 10.0,
        ("north", "11:00"): 1.0,
    }
    assert results(tmp_path) == expected


SCORED = """
import millstream as ms

flow = ms.Flow("shop")
orders = flow.source("orders", ms.inbox("amount double, at timestamp"), time="at")
scored = orders.action("scored", ["score@latest"], input="amount", output="score double")
scored.sink("scores", ms.jsonl("out"))
"""
SCORE = """#!/usr/bin/env python3
import json, struct, sys
while head := sys.stdin.buffer.read(4):
    amount = json.loads(sys.stdin.buffer.read(*struct.unpack(">I", head)))["amount"]
    answer = json.dumps({"score": amount * FACTOR}).encode()
    sys.stdout.buffer.write(struct.pack(">I", len(answer)) + answer)
    sys.stdout.buffer.flush()
"""


@pytest.mark.soak
def test_a_job_runs_the_program_that_its_engine_keeps(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(SCORED)
    (tmp_path / "events.jsonl").write_text('{"amount": 2.5, "at": "2024-05-04 09:00"}\n')
    with service(tmp_path) as engine:
        for factor in (2, 3):
            (tmp_path / "score").write_text(SCORE.replace("FACTOR", str(factor)))
            assert engine.shell("millstream actions add score score").startswith(
                f"added score@{factor - 1} "
            )
            if factor == 2:
                engine.shell("millstream deploy flow.py")
        refused = engine.shell("millstream actions rm score@1", status=1)
        assert 'error: version 1 of action "score" is in use by job "shop"' in refused
        engine.shell(f"millstream send shop.orders --engine {engine.url} < events.jsonl")
        assert engine.shell("millstream drain shop --flush") == "shop has finished\n"
        engine.shell("millstream undeploy shop")
        assert engine.shell("millstream actions rm score") == "removed score@1, score@2\n"
        engine.shell("millstream stop")
        engine.ended()
    (line,) = [
        line for file in tmp_path.glob("out/*.jsonl") for line in file.read_text().splitlines()
    ]
    assert json.loads(line)["score"] == 5.0
