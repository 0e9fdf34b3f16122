"""State that is carried over at the cut: what comes out is what plain Python says, whatever the batches and deaths."""

from __future__ import annotations

import os
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millstream.flow.stages import Stage
from millstream.spark.flow_run import FlowRun
from millstream.spark.stages.build import Builder
from millstream.state import StateFiles
from support.carried import SINKS, CarryingSwitches, carried, carried_results
from support.lives import Life, compare, outcome
from support.recording import Recording
from support.undisturbed import rows_of

pytestmark = pytest.mark.spark

#: More of them with `make prove`.
LIVES = int(os.environ.get("PROVE", "1"))
#: Points at which a driver may die while state is carried over.
DEATHS = (
    "switch-promised",
    "switch-carried-shard:2",
    "switch-carried",
    "before-switch-write-retiring",
)


@pytest.fixture(autouse=True)
def state_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every state be in files, however small it is."""
    own = Builder.state_files

    def small(builder: Builder, stage: Stage) -> StateFiles | None:
        found = own(builder, stage)
        return None if found is None else replace(found, inline=1)

    monkeypatch.setattr(Builder, "state_files", small)


def check(life: Life, run: FlowRun) -> None:
    texts = [one.text for one in run.history()]
    cuts = [int(found[1]) for text in texts if (found := re.match(r"cut at (\d+) us", text))]
    assert len(cuts) == int(run.version) - 1
    rows = rows_of(life.recording, life.turns)
    compare(run, outcome(life.root, SINKS), carried_results(rows, cuts))
    own = {f"{name}@{run.version}" for name in SINKS}
    assert {path.name for path in (run.folder / "groups").iterdir()} == own
    for cut in cuts:
        before = [row for row in rows if row[2] < cut]
        assert before, "state was there at the cut"
        assert before != rows, "and rows came behind it"


@pytest.mark.long
def test_changed_folds_go_on_with_their_state_at_the_cut(
    spark: SparkSession, tmp_path: Path
) -> None:
    life = Life(tmp_path, carried, Recording(7))
    run = life.lived_through(spark, CarryingSwitches((4,)), ["switch-carried-shard:2"])
    check(life, run)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(300, 300 + LIVES))
def test_random_changes_and_deaths_change_no_result(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    moments = tuple(2 + 15 * number + chance.randrange(8) for number in range(chance.randint(2, 4)))
    life = Life(tmp_path, carried, Recording(seed), rows=chance.choice([20, 60, 500]))
    deaths = chance.sample(DEATHS, chance.randint(0, 3))
    run = life.lived_through(spark, CarryingSwitches(moments), deaths)
    assert run.version == str(len(moments) + 1)
    check(life, run)
