"""Caches that nobody uses are removed by whoever writes a new one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.patterns import kernel_cache
from millstream.patterns.kernel.compiled import Locator
from millstream.patterns.kernel.forking import match_forking
from millstream.spark.session import home
from millstream.storage import caches

DAY = 86_400.0
FORTNIGHT = 14 * DAY


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    held: dict[Path, int] = {}
    monkeypatch.setattr(caches, "_held", held)
    (tmp_path / "millstream").mkdir()
    yield tmp_path / "millstream"
    for fd in held.values():
        os.close(fd)


def kept(path: Path, days: float, *, folder: bool = False) -> Path:
    """Make something that was last used `days` ago."""
    if folder:
        path.mkdir()
        (path / "part").write_text("part")
    else:
        path.write_text("whole")
    used_at = time.time() - days * DAY
    os.utime(path, (used_at, used_at))
    return path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@given(st.integers(0, 2**31), st.integers(-1000, 4 * 10**6))
def test_things_expire_two_weeks_after_their_last_use(used_at: int, age: int) -> None:
    assert caches.expired(used_at, used_at + age) == (age > FORTNIGHT)


def test_what_was_not_used_for_two_weeks_is_removed_with_what_belongs_to_it(cache: Path) -> None:
    for days in (13, 15):
        kept(cache / f"spark-4.3.0-{days}", days, folder=True)
        kept(cache / f"kernel-{days}", days, folder=True)
        kept(cache / f"spark-4.3.0-{days}-a.jsa", days)
        kept(cache / f"spark-4.3.0-{days}-a.json", days=40)  # only the archive is marked
        kept(cache / f"spark-4.3.0-{days}-alone.json", days)
        kept(cache / f".spark-{days}", days, folder=True)  # its process was killed
        kept(cache / f"tmp{days}", days, folder=True)
    stay = {"jars", "versitygw-v1.8.0", "archive.lock"}
    kept(cache / "jars", 99, folder=True)
    kept(cache / "versitygw-v1.8.0", 99)
    kept(cache / "archive.lock", 99)
    caches.tidy(cache)
    young = {"spark-4.3.0-13", "kernel-13", ".spark-13", "tmp13"}
    archives = {"spark-4.3.0-13-a.jsa", "spark-4.3.0-13-a.json", "spark-4.3.0-13-alone.json"}
    assert names(cache) == stay | young | archives


def test_what_is_used_is_marked_and_stays(cache: Path) -> None:
    archive = kept(cache / "spark-a.jsa", days=20)
    caches.hold(archive)
    assert archive.stat().st_mtime > time.time() - DAY
    assert caches.tidy(cache) == []


HOLDER = """
import sys
from pathlib import Path
from millstream.storage import caches
caches.hold(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_process_keeps_what_it_holds_until_it_dies(cache: Path) -> None:
    archive = kept(cache / "spark-a.jsa", days=20)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(archive)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            later = time.time() + 20 * DAY
            assert caches.tidy(cache, later) == []
        finally:
            process.kill()
    assert caches.tidy(cache, later) == [archive]
    assert names(cache) == set()


def test_one_that_was_replaced_is_held_by_its_new_file(cache: Path) -> None:
    archive = kept(cache / "spark-a.jsa", days=20)
    caches.hold(archive)
    kept(cache / "spark-new", days=20).rename(archive)
    caches.hold(archive)
    assert caches.tidy(cache, time.time() + 20 * DAY) == []
    assert len(caches._held) == 1


def test_what_cannot_be_held_is_no_error(cache: Path) -> None:
    caches.hold(cache / "nothing")
    assert caches.tidy(cache / "nothing") == []


# Who writes a new one


def test_a_new_folder_of_links_removes_old_ones(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    kept(cache / "spark-4.3.0-old", days=20, folder=True)
    made = home.light()
    assert made is not None
    assert names(cache) == {made.name}
    assert home.light() == made
    assert caches.tidy(cache, time.time() + 20 * DAY) == []  # this process holds it


def test_a_new_archive_removes_old_ones(cache: Path) -> None:
    kept(cache / "spark-old.jsa", days=20)
    home.seal(kept(cache / "fresh", days=0), cache / "spark-new.jsa")
    assert names(cache) == {"spark-new.jsa", "spark-new.json"}
    assert home.usable(cache / "spark-new.jsa")


def test_an_archive_that_is_looked_at_is_used(cache: Path) -> None:
    archive = cache / "spark-a.jsa"
    home.seal(kept(cache / "fresh", days=20), archive)
    os.utime(archive, (1, 1))
    assert home.usable(archive)
    assert archive.stat().st_mtime > time.time() - DAY


def test_a_new_kernel_removes_old_ones(cache: Path) -> None:
    kept(cache / "kernel-old", days=20, folder=True)
    kernel_cache.mark_ready()
    assert names(cache) == {kernel_cache.folder().name}


def test_a_kernel_that_is_loaded_is_used(cache: Path) -> None:
    folder = kernel_cache.folder()
    kept(folder, days=20, folder=True)
    function = match_forking.py_func
    assert Locator.from_function(function, function.__code__.co_filename) is not None
    assert folder.stat().st_mtime > time.time() - DAY
    assert caches.tidy(cache, time.time() + 20 * DAY) == []
