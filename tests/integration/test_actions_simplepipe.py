"""The simplepipe while its runtimes are killed: no number missing, first arrivals in order."""

from __future__ import annotations

import importlib.util
import random
import shutil
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
        pytest.skip("no go")
    simplepipe.build()
    return EXAMPLE / "filter" / "filter"


@pytest.fixture
def pipe(go_filter, tmp_path):
    """The example's scheme, at ports of its own and with its files in a folder of its own."""
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
    one.start()
    yield one
    one.close()


def complete(tmp_path: Path, seconds: float = 90.0) -> None:
    until = time.monotonic() + seconds
    evens, sixes = tmp_path / "out" / "printer2", tmp_path / "out" / "printer6"
    while len(simplepipe.first_arrivals(sixes)) < 500 or len(simplepipe.first_arrivals(evens)) < 1500:
        assert time.monotonic() < until, [p.read_text()[-500:] for p in (tmp_path / "runtimes").glob("*.log")]
        time.sleep(0.2)
    assert simplepipe.first_arrivals(evens) == list(range(2, 3001, 2))
    assert simplepipe.first_arrivals(sixes) == list(range(6, 3001, 6))


def some_arrived(tmp_path: Path, more: int) -> None:
    until, file = time.monotonic() + 40, tmp_path / "out" / "printer2"
    start = len(file.read_text()) if file.exists() else 0
    while not file.exists() or len(file.read_text()) < start + more:
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
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
