"""Patterns that skip, or that nothing limits, change while a flow runs: without consent, loss or repetition."""

from __future__ import annotations

import os
import random
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from integration.test_switch_carry import DEATHS
from millstream.flow.stages import Stage
from millstream.spark.flow_run import FlowRun
from millstream.spark.stages.build import Builder
from millstream.state import StateFiles
from millstream.switch.request import SwitchRequest
from support.carried_patterns import (
    SINKS,
    begun_again,
    begun_again_results,
    patterned,
    patterned_results,
)
from support.lives import LIMIT, Life, Switches, compare, outcome
from support.recording import Recording
from support.switched import Build
from support.undisturbed import rows_of

pytestmark = pytest.mark.spark

#: More of them with `make prove`.
LIVES = int(os.environ.get("PROVE", "1"))


@pytest.fixture(autouse=True)
def state_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every state be in files, however small it is."""
    own = Builder.state_files

    def small(builder: Builder, stage: Stage) -> StateFiles | None:
        found = own(builder, stage)
        return None if found is None else replace(found, inline=1)

    monkeypatch.setattr(Builder, "state_files", small)


def check(life: Life, run: FlowRun, names: tuple[str, ...] = SINKS) -> None:
    texts = [one.text for one in run.history()]
    cuts = [int(found[1]) for text in texts if (found := re.match(r"cut at (\d+) us", text))]
    assert len(cuts) == int(run.version) - 1
    assert any("runs carried over" in text for text in texts)
    rows = rows_of(life.recording, life.turns)
    compare(run, outcome(life.root, names), patterned_results(names, rows, cuts))


@pytest.mark.soak
def test_changed_patterns_go_on_with_their_runs_at_the_cut(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = ("tested", "left")
    life = Life(tmp_path, patterned(*names), Recording(11))
    run = life.lived_through(spark, Switches((4,)), ["switch-carried-shard:2"])
    check(life, run, names)


@dataclass(frozen=True, slots=True)
class Losing(Switches):
    """Some runs may be lost."""

    what: str

    def ask(self, run: FlowRun, build: Build, turns: int) -> None:
        done = int(run.version) - 1
        if done < len(self.after) and turns > self.after[done] and run.switching() is None:
            request = SwitchRequest(timeout=LIMIT, consent=(f"drop:{self.what}",))
            run.switch(build(str(done + 2)), str(done + 2), request)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_runs_without_a_limit_may_be_dropped_at_the_cut(
    spark: SparkSession, tmp_path: Path
) -> None:
    life = Life(tmp_path, begun_again, Recording(12))
    run = life.lived(spark, Losing((12,), "endless"))
    texts = [one.text for one in run.history()]
    (cut,) = (int(found[1]) for text in texts if (found := re.match(r"cut at (\d+) us", text)))
    rows = rows_of(life.recording, life.turns)
    compare(run, outcome(life.root, ["endless"]), begun_again_results(rows, cut))


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(700, 700 + LIVES))
def test_random_changes_and_deaths_change_no_match(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    moments = tuple(2 + 15 * number + chance.randrange(8) for number in range(chance.randint(2, 4)))
    life = Life(tmp_path, patterned(*SINKS), Recording(seed), rows=chance.choice([20, 60, 500]))
    deaths = chance.sample(DEATHS, chance.randint(0, 3))
    # Every other version has a block more, with which runs end.
    run = life.lived_through(spark, Losing(moments, "endless.more"), deaths)
    assert run.version == str(len(moments) + 1)
    check(life, run)
