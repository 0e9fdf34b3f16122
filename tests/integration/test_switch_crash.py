"""A driver that is killed right after the cut of a switch: the results are those of an undisturbed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.switched import SMALL, lived, outcome, replayed, small

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HERE = Path(__file__).parents[1]


def start(root: Path, seed: int, wishes: list[int], fail_at: str) -> int:
    """Let a flow live in a process of its own until it dies at a point; return its exit code."""
    root.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "support.switched", str(root), str(seed), *map(str, wishes)]
    environment = {**os.environ, "MILLSTREAM_FAIL_AT": fail_at, "PYTHONPATH": str(HERE)}
    with (root / "output.txt").open("ab") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        return process.wait(900)
    finally:
        _sweep(process)


def _sweep(process: subprocess.Popen[bytes]) -> None:
    """Kill what a process that died by itself has left: its Java."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def check(spark: SparkSession, root: Path, seed: int, wishes: list[int]) -> None:
    """Let the flow go on to its end, and compare it with the undisturbed run over the same events."""
    run = lived(spark, root, small, seed, wishes)
    assert run.version == str(len(wishes) + 1)
    replayed(spark, root, root / "alone", small)
    alone, both = outcome(root / "alone", SMALL), outcome(root, SMALL)
    for sink in SMALL:
        assert both[sink] == alone[sink], (sink, run.history())
        assert alone[sink].total() > 20
    groups = sorted(path.name for path in (root / "data" / "switched" / "groups").iterdir())
    assert groups == ["kept", *(f"{name}@{run.version}" for name in ("most", "noted", "rows")), "totals"]


@pytest.mark.timeout(2000)
def test_a_driver_that_dies_right_after_the_cut_finishes_the_switch(spark: SparkSession, tmp_path: Path) -> None:
    assert start(tmp_path, 5, [2], "switch-write-overlapping") == 137, (tmp_path / "output.txt").read_text()[-3000:]
    check(spark, tmp_path, 5, [2])
