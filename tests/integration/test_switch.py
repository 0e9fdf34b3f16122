"""The same recorded input, with no switch and with one at some moment, gives the same results, each once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.errors import SwitchImpossible, SwitchRefused
from millstream.journal import committed
from millstream.spark.run import FlowRun
from support.switched import DDL, END, LARGE, large, lived, options, outcome, perform, piece, replayed

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


@pytest.mark.timeout(900)
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


def tiny(version: str) -> ms.Flow:
    flow = ms.Flow("switched", window="10 s")
    events = flow.source("events", ms.inbox(DDL), time="at", lateness="3 s", key="k", partitions=3, idle="1 day")
    events.sql("some", f"SELECT k, v, at FROM events WHERE v > -{version}").sink("rows", ms.jsonl("rows"))
    return flow


def until(run: FlowRun, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 900
    while not condition():
        assert time.monotonic() < deadline, run.history()
        run.poll()
        time.sleep(0.02)


@pytest.mark.timeout(1800)
def test_a_switch_that_is_given_up_leaves_the_old_version_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    run = FlowRun(spark, tiny("1"), options(tmp_path))
    run.start()
    try:
        perform(run, piece(5, 0), 0)
        run.switch(tiny("2"), "2")
        with pytest.raises(SwitchRefused, match='from version "1" to "2" is preparing'):
            run.switch(tiny("3"), "3")
        until(run, lambda: (run.folder / "groups" / "rows@2" / "group.json").exists())
        run.give_up()
        until(run, lambda: run.switching() is None)
        assert run.version == "1"
        assert [path.name for path in (run.folder / "groups").iterdir()] == ["rows"]
        assert {one.reader for one in committed(run.journal("events"))} == {"switched.rows"}
        assert "it was asked to end" in " ".join(entry.text for entry in run.history())
        perform(run, END, 1)
        assert run.wait(timeout=900)
    finally:
        run.stop()
    replayed(spark, tmp_path, tmp_path / "alone", tiny)
    assert outcome(tmp_path, ("rows",)) == outcome(tmp_path / "alone", ("rows",))
