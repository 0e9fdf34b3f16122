"""The same recorded input, with no switch and with one at some moment, gives the same results, each once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.errors import SwitchImpossible, SwitchRefused
from millstream.journal import committed
from millstream.spark.run import FlowRun
from support.switched import LARGE, large, lived, options, outcome, replayed

pytestmark = pytest.mark.spark


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_switch_changes_no_result_of_any_kind_of_stage(spark: SparkSession, tmp_path: Path) -> None:
    build = large(tmp_path / "twice")
    run = lived(spark, tmp_path / "both", build, 5, [2])
    assert run.version == "2"
    replayed(spark, tmp_path / "both", tmp_path / "alone", build)
    alone, both = outcome(tmp_path / "alone", LARGE), outcome(tmp_path / "both", LARGE)
    for sink in LARGE:
        assert both[sink] == alone[sink], (sink, run.history())
        assert alone[sink].total() > 20
    # What the old version had is gone, and so are its readers; what did not change is where it was.
    changed = ("acted", "joined", "noted", "outer", "risen", "sessions")
    groups = sorted(path.name for path in (run.folder / "groups").iterdir())
    assert groups == sorted(["kept", "totals", "apart", *(f"{name}@2" for name in changed)])
    readers = {one.reader for one in committed(run.journal("events"))}
    assert readers == {"switched.totals", "switched.apart", *(f"switched.{name}@2" for name in changed)}
    assert {one.reader for one in committed(run.journal("noted"))} == {"switched.kept"}


def test_a_switch_that_cannot_be_done_touches_nothing(spark: SparkSession, tmp_path: Path) -> None:
    build = large(tmp_path / "twice")
    run = FlowRun(spark, build("1"), options(tmp_path))
    other = build("2")
    other.source("more", ms.inbox("k string, at timestamp"), time="at").sink("more", ms.jsonl("more"))
    assert [group.name for group in run.plan_switch(other).changed if group.change == "new"] == ["more"]
    with pytest.raises(SwitchRefused, match="has run already"):
        run.switch(build("2"), "1")
    with pytest.raises(SwitchRefused, match="cannot be called"):
        run.switch(build("2"), "a/b")
    renamed = ms.Flow("other")
    renamed.source("more", ms.inbox("k string, at timestamp"), time="at").sink("more", ms.jsonl("more"))
    with pytest.raises(SwitchImpossible, match='of flow "other"'):
        run.switch(renamed, "2")
    with pytest.raises(SwitchRefused, match="nothing to abort"):
        run.give_up()
    assert run.switching() is None
    assert run.history() == ()
    assert not run.folder.exists()
