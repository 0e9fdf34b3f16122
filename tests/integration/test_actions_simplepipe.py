"""The simplepipe while its runtimes are killed: no number missing, first arrivals in order."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from millstream.actions.scheme import load
from support.actions import ROOT
from support.runtimes import free_port

EXAMPLE = ROOT / "examples" / "simplepipe"
_spec = importlib.util.spec_from_file_location("simplepipe_run", EXAMPLE / "run.py")
assert _spec is not None
assert _spec.loader is not None
simplepipe = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(simplepipe)


@pytest.fixture(scope="module")
def go_filter():
    if shutil.which("go") is None:
        pytest.skip("cannot here: no go")
    simplepipe.build()
    return EXAMPLE / "filter" / "filter"


@pytest.fixture
def idle_pipe(go_filter, tmp_path):
    """The example's scheme, at ports of its own and with its files in a folder of its own; not started."""
    tree = yaml.safe_load((EXAMPLE / "scheme.yaml").read_text())
    for node in tree["nodes"]:
        node["action"] = str((EXAMPLE / node["action"]).resolve())
        node["addresses"] = [free_port() for _ in range(3)]
        if node["name"].startswith("printer"):
            node["args"] = [str(tmp_path / "out" / node["name"])]
    tree["nodes"][0]["args"] = ["3000", "0.02"]
    file = tmp_path / "scheme.yaml"
    file.write_text(yaml.safe_dump(tree))
    one = simplepipe.Pipe(load(file), tmp_path / "runtimes", tmp_path)
    yield one
    one.close()


@pytest.fixture
def pipe(idle_pipe):
    idle_pipe.start()
    return idle_pipe


def complete(tmp_path: Path, seconds: float = 200.0) -> None:
    until = time.monotonic() + seconds
    evens, sixes = tmp_path / "out" / "printer2", tmp_path / "out" / "printer6"
    while (
        len(simplepipe.first_arrivals(sixes)) < 500 or len(simplepipe.first_arrivals(evens)) < 1500
    ):
        assert time.monotonic() < until, [
            p.read_text()[-500:] for p in (tmp_path / "runtimes").glob("*.log")
        ]
        time.sleep(0.2)
    assert simplepipe.first_arrivals(evens) == list(range(2, 3001, 2))
    assert simplepipe.first_arrivals(sixes) == list(range(6, 3001, 6))


def some_arrived(tmp_path: Path, more: int) -> None:
    """Wait until more has arrived, or everything: on a slow machine all numbers may be through before the next kill."""
    until, file = time.monotonic() + 400, tmp_path / "out" / "printer2"
    start = len(file.read_text()) if file.exists() else 0
    while not file.exists() or (
        len(file.read_text()) < start + more and "\n3000\n" not in file.read_text()
    ):
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.long
def test_killing_each_node_in_a_loop(pipe, tmp_path):
    chance = random.Random(1)
    for name in ("filter2", "printer6", "filter3", "numgen", "printer2", "filter2", "filter3"):
        time.sleep(chance.uniform(0.2, 1.0))
        pipe.kill(name)
        pipe.start(name)
    complete(tmp_path)


@pytest.mark.slow
def test_killing_all_of_them_at_once(pipe, tmp_path):
    for _ in range(2):
        some_arrived(tmp_path, 20)
        pipe.kill()
        pipe.start()
    complete(tmp_path)


@pytest.mark.slow
def test_losing_machines_with_their_queues(pipe, tmp_path):
    for name in ("filter2", "filter3", "filter2"):
        some_arrived(tmp_path, 20)
        pipe.move(name)
    complete(tmp_path)
    assert pipe.generations["filter2"] == 3


@pytest.mark.soak  # it is about who answers within a second: on a busy machine others are replaced as well
def test_a_runtime_that_is_cut_off_is_replaced_and_cannot_come_back(
    idle_pipe, tmp_path, monkeypatch
):
    monkeypatch.setattr("millstream.actions.supervision.PING_EVERY_S", 1.0)
    supervisor = simplepipe.Supervisor(idle_pipe)
    printed, until = tmp_path / "out" / "printer2", time.monotonic() + 300
    while (
        not all(life.answered for life in supervisor.state.lives.values()) or not printed.exists()
    ):
        assert time.monotonic() < until
        supervisor.step()
        time.sleep(0.2)
    old = idle_pipe.processes["filter2"]
    supervisor.cut_off["filter2"] = old
    os.kill(old.pid, signal.SIGSTOP)  # it neither answers nor dies
    try:
        while idle_pipe.generations["filter2"] == 1:
            assert time.monotonic() < until
            supervisor.step()
            time.sleep(0.2)
        while supervisor.state.changes or not supervisor.state.lives["filter2"].answered:
            assert time.monotonic() < until
            supervisor.step()
            time.sleep(0.2)
        some_arrived(tmp_path, 20)
        os.kill(old.pid, signal.SIGCONT)
        complete(tmp_path)
        log, until = tmp_path / "runtimes" / "printer2.log", time.monotonic() + 300
        while "was replaced by generation 2" not in log.read_text():
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.2)
    finally:
        old.kill()
        old.wait()


def test_the_scheme_of_the_example_is_checked():
    done = subprocess.run(
        [sys.executable, "-m", "millstream", "scheme", "check", str(EXAMPLE / "scheme.yaml")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "numgen    source" in done.stdout
    assert "filter2   processor" in done.stdout
    assert "-> printer2, filter3" in done.stdout


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.spark
def test_on_spark_each_number_arrives_once_though_the_run_is_killed(go_filter, tmp_path):
    (tmp_path / "filter").mkdir()
    shutil.copy(go_filter, tmp_path / "filter" / "filter")
    text = (
        (EXAMPLE / "flow.py")
        .read_text()
        .replace("ms.rate(5000, rows=20_000)", "ms.rate(300, rows=3_000)")
    )
    (tmp_path / "flow.py").write_text(text)
    command = [sys.executable, "-m", "millstream", "run", "flow.py", "--until-end"]
    with (tmp_path / "log").open("wb") as log:
        first = subprocess.Popen(
            command, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True
        )
        until = time.monotonic() + 400
        while len(numbers(tmp_path, "printer2")) < 100:
            assert time.monotonic() < until, (tmp_path / "log").read_text()[-3000:]
            assert first.poll() is None, (tmp_path / "log").read_text()[-3000:]
            time.sleep(0.1)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        subprocess.run(command, cwd=tmp_path, stdout=log, stderr=log, check=True, timeout=600)
    assert sorted(numbers(tmp_path, "printer2")) == list(range(2, 3001, 2))
    assert sorted(numbers(tmp_path, "printer6")) == list(range(6, 3001, 6))


def numbers(folder: Path, sink: str) -> list[int]:
    files = (folder / "out" / f"flow-{sink}").glob("*.jsonl")
    return [json.loads(line)["number"] for file in files for line in file.read_text().splitlines()]
