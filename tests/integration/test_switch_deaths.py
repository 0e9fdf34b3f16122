"""A driver that dies at any step of a switch: whatever it leaves, the results are those of an undisturbed run."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millstream.spark.flow_run import FlowRun
from support.killed import killed
from support.lives import Life, Switches, compare, outcome
from support.recording import Recording
from support.switched import SMALL, small
from support.undisturbed import small_results

pytestmark = pytest.mark.spark

#: The points between two durable actions until the cut. A driver that comes back gives the switch up, and may die while it does.
HELD = (
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
)
ASKED = (
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
RELEASED = (
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
)
RETIRED = (
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
CHAINS = {"held": HELD, "asked": ASKED, "released": RELEASED, "retired": RETIRED}
#: Points of batches; those of both versions are among the first hundred.
BATCHES = ("logged", "staged", "decided", "published", "before-commit")
#: More of them with `make prove`.
LIVES = int(os.environ.get("PROVE", "3"))


def check(life: Life, run: FlowRun, wishes: Switches) -> None:
    """Compare a life that has ended with what it should have given."""
    assert run.version == wishes.last
    compare(run, outcome(life.root, SMALL), small_results(life.recording, life.turns))
    groups = sorted(path.name for path in (run.folder / "groups").iterdir())
    assert groups == [
        "kept",
        *(f"{name}@{run.version}" for name in ("most", "noted", "rows")),
        "totals",
    ]


@pytest.mark.slow
@pytest.mark.long
def test_a_driver_that_dies_after_the_cut_and_when_state_has_gone_over_finishes_the_switch(
    spark: SparkSession, tmp_path: Path
) -> None:
    life, wishes = Life(tmp_path, small, Recording(5)), Switches((1,))
    check(
        life,
        life.lived_through(spark, wishes, ["switch-write-overlapping", "switch-handed-over"]),
        wishes,
    )


@pytest.mark.soak
def test_a_driver_that_is_killed_right_after_the_cut_finishes_the_switch(
    spark: SparkSession, tmp_path: Path
) -> None:
    life, wishes = Life(tmp_path, small, Recording(6)), Switches((2,))
    assert killed(life, wishes, "switch-write-overlapping")
    check(life, life.lived(spark, wishes), wishes)


@pytest.mark.soak
@pytest.mark.parametrize("phase", ["preparing", "asking", "confirming", "overlapping"])
def test_input_that_ends_in_the_middle_of_a_switch_changes_no_result(
    spark: SparkSession, tmp_path: Path, phase: str
) -> None:
    life, wishes = Life(tmp_path, small, Recording(9)), Switches((9,))
    with life.running(spark) as run:
        life.until(run, lambda: phase_of(run) == phase, wishes)
        life.end(run)
    check(life, run, wishes)


def phase_of(run: FlowRun) -> str | None:
    status = run.switching()
    return None if status is None else status.phase


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("deaths", CHAINS)
def test_a_driver_may_die_at_every_step(spark: SparkSession, tmp_path: Path, deaths: str) -> None:
    life, wishes = Life(tmp_path, small, Recording(7), rows=60), Switches((1, 2))
    check(life, life.lived_through(spark, wishes, CHAINS[deaths]), wishes)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(LIVES))
def test_random_lives_with_switches_and_kills(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    wishes = Switches(
        tuple(2 + 12 * number + chance.randrange(6) for number in range(chance.randint(1, 3)))
    )
    life = Life(tmp_path, small, Recording(seed), rows=chance.choice([20, 60, 500]))
    steps = sorted({point.partition(":")[0] for chain in CHAINS.values() for point in chain})
    for _ in range(chance.randint(1, 4)):
        point, most = chance.choice(
            [*((name, 6) for name in steps), *((name, 100) for name in BATCHES)]
        )
        if not killed(life, wishes, f"{point}:{chance.randint(1, most)}"):
            break
    check(life, life.lived(spark, wishes), wishes)
