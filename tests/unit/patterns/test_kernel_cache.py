"""The kernel is compiled once, and whoever would wait for it knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.patterns import kernel_cache


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


@pytest.mark.slow
def test_the_process_that_compiles_leaves_the_kernel_ready(cache: Path) -> None:
    compiling = kernel_cache.begin()
    assert compiling is not None
    assert compiling.wait(600) == 0
    assert kernel_cache.ready()
    assert list(kernel_cache.folder().glob("*.nbi"))
