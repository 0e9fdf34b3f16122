"""Benchmarks run rarely: what they use of ours must be there meanwhile."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from benchmarks.run import RUNS

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def imported(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the names that a file takes from modules of ours."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("millstream"):
            assert node.module is not None
            yield from ((node.module, one.name) for one in node.names)


@pytest.mark.parametrize(
    "file",
    sorted(BENCHMARKS.rglob("*.py")),
    ids=lambda file: file.relative_to(BENCHMARKS).as_posix(),
)
def test_what_a_benchmark_imports_of_ours_is_there(file: Path) -> None:
    for module, name in imported(file):
        there = hasattr(import_module(module), name) or find_spec(f"{module}.{name}")
        assert there, f"{module} has no {name}"


def test_one_command_runs_all_that_keep_results() -> None:
    keeping = {
        file.parent.name if file.name == "__main__.py" else file.stem
        for file in BENCHMARKS.rglob("*.py")
        if "save(" in file.read_text() and file.stem != "common"
    }
    assert {name.partition("-")[0] for name in RUNS} >= keeping
