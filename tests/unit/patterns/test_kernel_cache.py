"""The kernel is compiled once, and whoever would wait for it knows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from millstream.patterns import kernel_cache
from millstream.patterns.kernel.compiled import Locator
from millstream.patterns.kernel.forking import match_forking


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_the_kernel_is_ready_once_it_was_compiled(cache: Path) -> None:
    assert not kernel_cache.ready()
    kernel_cache.mark_ready()
    assert kernel_cache.ready()
    assert kernel_cache.begin() is None
    assert kernel_cache.folder().parent == cache / "millstream"


def test_another_kernel_machine_or_compiler_is_not_ready(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_cache.mark_ready()
    for name, value in (
        ("digest", lambda *_: "other"),
        ("version", lambda _: "9.9"),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(kernel_cache, name, value)
            assert not kernel_cache.ready()
    monkeypatch.setattr(kernel_cache.platform, "node", lambda: "elsewhere")
    assert not kernel_cache.ready()


def test_without_the_compiler_there_is_nothing_to_wait_for(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise kernel_cache.PackageNotFoundError(name)

    monkeypatch.setattr(kernel_cache, "version", missing)
    assert kernel_cache.begin() is None


def test_the_kernel_is_kept_by_content_where_numba_is_told_to(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache / "given"))
    located = Locator.from_function(
        match_forking.py_func, match_forking.py_func.__code__.co_filename
    )
    assert located is not None
    assert Path(located.get_cache_path()) == kernel_cache.folder()
    assert (
        kernel_cache.folder() == cache / "given" / "millstream" / f"kernel-{kernel_cache.digest()}"
    )


LOADED = """
from millstream.patterns.kernel.forking import match_forking
from millstream.patterns.warm import warm
warm()
print(sum(match_forking.stats.cache_hits.values()), sum(match_forking.stats.cache_misses.values()))
"""


@pytest.mark.slow
def test_a_kernel_that_is_ready_is_loaded_and_not_compiled_again() -> None:
    if (compiling := kernel_cache.begin()) is not None:
        assert compiling.wait(280) == 0
    assert kernel_cache.ready()
    other = subprocess.run([sys.executable, "-c", LOADED], stdout=subprocess.PIPE, check=True)
    assert other.stdout.split() == [b"1", b"0"]


@pytest.mark.soak
def test_the_process_that_compiles_leaves_the_kernel_ready_for_others(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache / "given"))
    compiling = kernel_cache.begin()
    assert compiling is not None
    assert compiling.wait(600) == 0
    assert kernel_cache.ready()
    assert list(kernel_cache.folder().glob("*.nbi"))
    other = subprocess.run([sys.executable, "-c", LOADED], stdout=subprocess.PIPE, check=True)
    assert other.stdout.split() == [b"1", b"0"]
