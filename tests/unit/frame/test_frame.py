"""The repository's own frame: lock files, and what CI makes of skipped tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


def pinned(lock: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([a-z0-9-]+)==(\S+)", lock.read_text(), flags=re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_file_pins_every_package_with_hashes_and_names_no_host(lock: Path) -> None:
    text = lock.read_text()
    entries = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]
    assert entries
    assert all(re.match(r"\S+==\S+", entry) and "--hash=sha256:" in entry for entry in entries)
    assert not re.search(r"https?:|index-url|find-links|@ file|^-e ", text, flags=re.MULTILINE)


def test_what_is_tested_is_what_is_run() -> None:
    runtime, dev = (pinned(ROOT / "requirements" / name) for name in ("runtime.txt", "dev.txt"))
    assert runtime
    assert {name: dev.get(name) for name in runtime} == runtime


def test_all_folders_with_tests_are_run() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    folders = {path.relative_to(ROOT).parts[1] for path in (ROOT / "tests").rglob("test_*.py")}
    run = settings["ini_options"]["testpaths"]
    assert sorted(run) == sorted(f"tests/{folder}" for folder in folders)


SKIPS = """
import pytest

def test_a_reason_that_counts():
    pytest.skip("cannot here: no PostgreSQL")

def test_another_reason():
    pytest.skip("not today")

def test_a_missing_module():
    pytest.importorskip("no_such_module")

def test_a_known_failure():
    pytest.xfail("known")
"""


FLAKY = """
import pathlib

import pytest

HERE = pathlib.Path(__file__).parent

def tries(name):
    with (HERE / name).open("a") as file:
        file.write("x")
    return len((HERE / name).read_text())

@pytest.mark.process
def test_of_processes_that_fails_once():
    assert tries("once") == 2

@pytest.mark.process
def test_of_processes_that_always_fails():
    assert tries("always") == 0

def test_of_anything_else():
    assert tries("else") == 2
"""


def run_tests(folder: Path, text: str) -> str:
    """Run tests under the conftest of ours, as CI does, and return what pytest prints."""
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    settings = "timeout = 5\ntimeout_method = signal\ntimeout_func_only = true\n"
    (folder / "pytest.ini").write_text(
        f"[pytest]\npythonpath = {ROOT / 'tests'}\n{settings}markers =\n    process: real ones\n"
    )
    (folder / "test_it.py").write_text(text)
    without = ["-p", "no:cacheprovider", "-p", "no:schemathesis"]  # the latter takes long to load
    command = [sys.executable, "-m", "pytest", "-q", "-rA", *without, str(folder)]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    } | {"CI": "true"}
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, check=False, text=True
    ).stdout


def test_in_ci_a_skip_without_a_good_reason_is_a_failure(tmp_path: Path) -> None:
    printed = run_tests(tmp_path, SKIPS)
    assert re.findall(r"^FAILED test_it.py::(\w+)", printed, flags=re.MULTILINE) == [
        "test_another_reason",
        "test_a_missing_module",
    ]
    assert "2 failed, 1 skipped, 1 xfailed" in printed


def test_a_test_of_processes_has_a_second_try_and_is_listed(tmp_path: Path) -> None:
    printed = run_tests(tmp_path, FLAKY)
    assert re.findall(r"^FLAKY test_it.py::(\w+)", printed, flags=re.MULTILINE) == [
        "test_of_processes_that_fails_once"
    ]
    assert re.findall(r"^FAILED test_it.py::(\w+)", printed, flags=re.MULTILINE) == [
        "test_of_processes_that_always_fails",
        "test_of_anything_else",
    ]
    assert (tmp_path / "always").read_text() == "xx"
    assert (tmp_path / "else").read_text() == "x"


HANGS = """
import time
from pathlib import Path

import pytest

@pytest.mark.process
def test_that_hangs_once():
    if not Path("once").exists():
        Path("once").touch()
        time.sleep(600)
"""


def test_a_test_that_hangs_is_ended_and_has_a_second_try(tmp_path: Path) -> None:
    printed = run_tests(tmp_path, HANGS)
    assert "FLAKY test_it.py::test_that_hangs_once" in printed
    assert "1 passed, 1 rerun" in printed
