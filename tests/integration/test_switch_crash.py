"""A driver that is killed at any step of a switch: whatever it leaves, the results are those of an undisturbed run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.switched import SMALL, lived, outcome, replayed, small

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HERE = Path(__file__).parents[1]
#: Every point between two durable actions of a switch, and how often it is passed at least.
POINTS = {
    "switch-write-preparing": 1,
    "switch-entry": 5,
    "switch-startheld": 1,
    "switch-journals": 1,
    "switch-registered": 1,
    "switch-ordered": 9,
    "switch-started": 3,
    "switch-asked": 6,
    "switch-askwindows": 1,
    "switch-askconfirm": 1,
    "before-switch-write-overlapping": 1,
    "switch-write-overlapping": 1,
    "switch-release": 2,
    "switch-still": 1,
    "switch-handed-over": 1,
    "switch-settled": 1,
    "switch-closed": 3,
    "switch-close": 2,
    "switch-write-retiring": 1,
    "switch-stopped": 1,
    "switch-removed-group": 3,
    "switch-removed-journal": 1,
    "switch-forgotten": 1,
    "switch-retire": 1,
    "switch-write-running": 1,
}
#: Points of batches; those of both versions are among the first hundred.
BATCHES = ("logged", "staged", "decided", "published", "before-commit")


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


@pytest.mark.soak
@pytest.mark.timeout(2000)
@pytest.mark.parametrize(
    "fail_at", [f"{point}:{count}" for point, most in POINTS.items() for count in range(1, most + 1)]
)
def test_a_driver_may_die_at_every_step(spark: SparkSession, tmp_path: Path, fail_at: str) -> None:
    assert start(tmp_path, 5, [2], fail_at) == 137, (tmp_path / "output.txt").read_text()[-3000:]
    check(spark, tmp_path, 5, [2])


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(int(os.environ.get("PROVE", "3"))))
def test_random_lives_with_switches_and_deaths(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    wishes = [2 + 12 * number + chance.randrange(6) for number in range(chance.randint(1, 3))]
    for _ in range(chance.randint(0, 4)):
        point, most = chance.choice([*POINTS.items(), *((name, 100) for name in BATCHES)])
        if start(tmp_path, seed, wishes, f"{point}:{chance.randint(1, most)}") == 0:
            break
    check(spark, tmp_path, seed, wishes)
