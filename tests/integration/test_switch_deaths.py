"""A driver that dies at any step of a switch: whatever it leaves, the results are those of an undisturbed run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millstream.spark.run import FlowRun
from support.lives import lived, lived_through, outcome, turns_of
from support.switched import SMALL, small
from support.undisturbed import small_results

pytestmark = [pytest.mark.spark, pytest.mark.soak]

HERE = Path(__file__).parents[1]
#: The points between two durable actions until the cut. A driver that comes back gives the switch up, and may die while it does.
UNTIL_THE_CUT = (
    "switch-write-preparing",
    "switch-stopped",
    "switch-remove",
    "switch-entry:4",
    "switch-startheld",
    "switch-journals",
    "switch-removed-journal",
    "switch-registered",
    "switch-forgotten",
    "switch-ordered:1",
    "before-switch-write-running",
    "switch-started:1",
    "switch-removed-group",
    "switch-ordered:2",
    "switch-started:2",
    "switch-write-running",
    "switch-ordered:3",
    "switch-started:3",
    "switch-asked:1",
    "switch-asked:3",
    "switch-askwindows",
    "switch-asked:4",
    "switch-asked:6",
    "switch-askconfirm",
    "before-switch-write-overlapping",
)
#: Those from the cut on. A driver that comes back goes on; what was done is done again where that does no harm.
FROM_THE_CUT = (
    "switch-write-overlapping",
    "switch-ordered:1",
    "switch-ordered:1",
    "switch-ordered:2",
    "switch-ordered:2",
    "switch-ordered:2",
    "switch-release:2",
    "switch-still",
    "switch-handed-over",
    "switch-close:1",
    "switch-closed:1",
    "switch-closed:2",
    "switch-write-retiring",
    "switch-removed-group:1",
    "switch-removed-group:3",
    "switch-removed-journal",
    "switch-forgotten",
    "switch-retire",
    "before-switch-write-running",
    "switch-write-running",
    # In the next switch: these come with others of which a driver has died here already.
    "switch-settled",
    "switch-stopped",
)
#: Points of batches; those of both versions are among the first hundred.
BATCHES = ("logged", "staged", "decided", "published", "before-commit")
#: More of them with `make prove`.
LIVES = int(os.environ.get("PROVE", "3"))


def start(root: Path, seed: int, wishes: list[int], fail_at: str) -> int:
    """Let a flow live in a process of its own until it dies at a point; return its exit code."""
    root.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "support.lives", str(root), str(seed), *map(str, wishes)]
    environment = {**os.environ, "MILLSTREAM_FAIL_AT": fail_at, "PYTHONPATH": _path()}
    with (root / "output.txt").open("ab") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        return process.wait(900)
    finally:
        _sweep(process)


def _path() -> str:
    return os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])


def _sweep(process: subprocess.Popen[bytes]) -> None:
    """Kill what a process that died by itself has left: its Java."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def check(run: FlowRun, root: Path, seed: int, wishes: list[int]) -> None:
    """Compare a life that has ended with what it should have given."""
    assert run.version == str(len(wishes) + 1)
    right, found = small_results(seed, turns_of(root)), outcome(root, SMALL)
    for sink in SMALL:
        assert found[sink] == right[sink], (sink, found[sink] - right[sink], right[sink] - found[sink], run.history())
        assert right[sink].total() > 20
    groups = sorted(path.name for path in (root / "data" / "switched" / "groups").iterdir())
    assert groups == ["kept", *(f"{name}@{run.version}" for name in ("most", "noted", "rows")), "totals"]


@pytest.mark.timeout(2000)
def test_switches_in_a_row_and_deaths_at_their_turning_points_change_no_result(
    spark: SparkSession, tmp_path: Path
) -> None:
    wishes, deaths = [1, 2], ["switch-asked:3", "switch-write-overlapping", "switch-handed-over", "switch-retire"]
    check(lived_through(spark, tmp_path, small, 11, wishes, deaths), tmp_path, 11, wishes)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("deaths", [UNTIL_THE_CUT, FROM_THE_CUT], ids=["until the cut", "from the cut"])
def test_a_driver_may_die_at_every_step(spark: SparkSession, tmp_path: Path, deaths: tuple[str, ...]) -> None:
    check(lived_through(spark, tmp_path, small, 5, [1, 2], deaths), tmp_path, 5, [1, 2])


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(LIVES))
def test_random_lives_with_switches_and_deaths(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    wishes = [2 + 12 * number + chance.randrange(6) for number in range(chance.randint(1, 3))]
    steps = sorted({point.partition(":")[0] for point in (*UNTIL_THE_CUT, *FROM_THE_CUT)})
    for _ in range(chance.randint(0, 4)):
        point, most = chance.choice([*((name, 6) for name in steps), *((name, 100) for name in BATCHES)])
        if start(tmp_path, seed, wishes, f"{point}:{chance.randint(1, most)}") == 0:
            break
    check(lived(spark, tmp_path, small, seed, wishes), tmp_path, seed, wishes)
