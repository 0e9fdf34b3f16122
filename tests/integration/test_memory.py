"""What a run gives back while it rests, and that nothing misses it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from millstream.spark.session.memory import end_planners, give_memory_back
from support.lives import Life, Switches, compare, outcome, until
from support.recording import Recording
from support.switched import tiny
from support.undisturbed import small_results

pytestmark = pytest.mark.spark


def planners() -> set[str]:
    """Return the modules of Python processes in which Spark plans queries."""
    found = set()
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            found.update(word for word in one.cmdline() if word.startswith("pyspark.sql.worker."))
    return found


def test_queries_run_on_without_what_has_planned_them_and_others_are_planned_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    life = Life(tmp_path, tiny, Recording(5))
    with life.running(spark) as run:
        life.until(run, lambda: life.turns > 2)
        assert "pyspark.sql.worker.plan_data_source_read" in planners()
        give_memory_back(spark)
        end_planners(spark)
        until(run, lambda: not planners())
        life.until(run, lambda: life.turns > 4)
        assert not planners()
        wishes = Switches((4,))
        life.until(run, lambda: wishes.fulfilled(run, life.turns), wishes)
        life.end(run)
    assert run.version == "2"
    compare(run, outcome(tmp_path, ["rows"]), small_results(life.recording, life.turns))
