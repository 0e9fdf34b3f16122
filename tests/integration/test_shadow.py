"""A version in the shadow of another is compared with it, and leaves nothing behind but that."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.errors import SwitchImpossible, SwitchRefused
from millstream.journal import committed
from millstream.spark.run import FlowRun
from millstream.switch.comparison import Compared, Comparison
from support.switched import DDL, END, SMALL, WINDOWED, options, outcome, perform, piece, replayed, small

pytestmark = pytest.mark.spark


class Life:
    """A run that is given three seconds of events whenever it has read what it had."""

    def __init__(self, run: FlowRun) -> None:
        self.run, self.turn = run, 0

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 900
        while not condition():
            assert time.monotonic() < deadline, (self.run.history(), self.run.comparison())
            if self.run.caught_up():
                perform(self.run, piece(5, self.turn), self.turn)
                self.turn += 1
            time.sleep(0.02)

    def end(self) -> None:
        perform(self.run, END, self.turn)
        assert self.run.wait(timeout=900), self.run.history()


def shadowing(run: FlowRun) -> bool:
    status = run.switching()
    return status is not None and status.phase == "shadowing"


def outputs(found: Comparison | None) -> dict[str, Compared]:
    assert found is not None
    return {one.name: one for one in found.outputs}


def changed(least: int) -> ms.Flow:
    """Return a version of `small` that lets only large values through, has no fold, and one sink more."""
    flow = ms.Flow("switched", window="10 s")
    events = flow.source("events", ms.inbox(DDL), time="at", lateness="3 s", key="k", partitions=3, idle="1 day")
    rows = events.sql("some", f"SELECT *, 1 AS one FROM events WHERE v >= {least}")
    rows.sink("rows", ms.jsonl("rows"))
    windows = rows.window("windows", every="5 s", size="15 s", **WINDOWED).journal("noted", partitions=2, key="k")
    most = windows.sql("counted", "SELECT k, n, total, window_time FROM noted")
    most.window("most", every="10 s", by="k", most="max(n)").sink("most", ms.jsonl("most"))
    events.window("kept", every="10 s", **WINDOWED).sink("kept", ms.jsonl("kept"))
    rows.window("new", every="10 s", n="count(*)").sink("new", ms.jsonl("new"))
    return flow


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_shadow_tells_what_a_version_would_have_changed_and_changes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = FlowRun(spark, small("1"), options(tmp_path))
    run.start()
    life = Life(run)
    try:
        life.until(lambda: life.turn > 2)
        # One that changes nothing: `rows`, and `most` behind a journal of the version's own, are all equal.
        run.shadow(small("2"), "2")
        with pytest.raises(SwitchRefused, match='from version "1" to "2" is preparing'):
            run.switch(small("3"), "3")
        life.until(lambda: shadowing(run) and min(one.equal for one in outputs(run.comparison()).values()) > 3)
        run.give_up()
        life.until(lambda: run.switching() is None)
        same = run.comparison()
        assert same is not None
        assert (same.same, same.left_out, same.broken) == (True, ("totals",), None), same
        assert set(outputs(same)) == {"rows", "most"}
        assert left_behind(run) == set()
        # One that changes the filter runs until the end of all input.
        run.shadow(changed(50), "3", consent=["summed"])
        life.until(lambda: shadowing(run) and outputs(run.comparison())["rows"].equal > 3)
        life.end()
    finally:
        run.stop()
    assert run.version == "1"
    assert left_behind(run) == set()
    assert "all that comes in has been compared" in " ".join(entry.text for entry in run.history())
    found = run.comparison()
    check_filtered(found, tmp_path)
    # The sinks have what the first version alone puts out, once each.
    replayed(spark, tmp_path, tmp_path / "alone", small)
    assert outcome(tmp_path, SMALL) == outcome(tmp_path / "alone", SMALL)
    assert not (tmp_path / "new").exists()


def check_filtered(found: Comparison | None, root: Path) -> None:
    """Compare what was found with what the sink has."""
    assert found is not None
    values = [line["v"] for line in published(root, "rows", "at", found)]
    rows, most = outputs(found)["rows"], outputs(found)["most"]
    large = len([v for v in values if v >= 50])
    assert (rows.equal, rows.missing, rows.extra, rows.different) == (large, len(values) - large, 0, 0)
    assert (rows.waiting, rows.by, rows.columns_new) == (0, ("k",), ("one",))
    assert [one.old is not None and one.old["v"] < 50 for one in rows.examples] == [True] * 3
    windows = published(root, "most", "window_start", found)
    assert most.equal + most.missing + most.different == len(windows)
    assert (most.different > 0, most.extra, most.by) == (True, 0, ("k",))
    assert outputs(found)["new"].extra > 0
    assert (outputs(found)["totals"].change, found.until, found.same) == ("removed", None, False)


def published(root: Path, sink: str, start: str, found: Comparison) -> list[dict[str, Any]]:
    """Return what a sink has of results that were compared."""
    since = datetime.fromisoformat(found.since or "")
    lines = [json.loads(line) for line in outcome(root, (sink,))[sink].elements()]
    return [line for line in lines if datetime.fromisoformat(line[start]) >= since]


def left_behind(run: FlowRun) -> set[str]:
    """Return what a shadow should not have left, on disk and among the readers."""
    folders = [path.name for part in ("groups", "journals") for path in (run.folder / part).iterdir()]
    readers = [one.reader for one in committed(run.journal("events"))]
    found = {name for name in [*folders, *readers] if "@" in name}
    return found | {path.name for path in (run.folder / "shadow").glob("*")}


def tiny(version: str) -> ms.Flow:
    flow = ms.Flow("switched", window="10 s")
    events = flow.source("events", ms.inbox(DDL), time="at", lateness="3 s", key="k", partitions=3, idle="1 day")
    events.sql("some", f"SELECT k, v, at FROM events WHERE v > -{version}").sink("rows", ms.jsonl("rows"))
    return flow


@pytest.mark.timeout(1800)
def test_a_driver_that_stops_ends_a_shadow_without_harm(spark: SparkSession, tmp_path: Path) -> None:
    run = FlowRun(spark, tiny("1"), options(tmp_path))
    more = tiny("2")
    more.source("more", ms.inbox("k string, at timestamp"), time="at").sink("more", ms.jsonl("more"))
    with pytest.raises(SwitchImpossible, match='source "more" is new'):
        run.shadow(more, "2")
    with pytest.raises(SwitchRefused, match="means the same"):
        run.shadow(tiny("1"), "2")
    assert not run.folder.exists()
    run.start()
    life = Life(run)
    try:
        run.shadow(tiny("2"), "2")
        life.until(lambda: shadowing(run))
    finally:
        run.stop()
    assert (run.folder / "shadow").exists()
    again = FlowRun(spark, tiny("1"), options(tmp_path))
    again.start()
    try:
        assert (again.version, again.switching()) == ("1", None)
        assert left_behind(again) == set()
        assert 'the shadow of version "2" ends: the driver stopped' in " ".join(one.text for one in again.history())
        perform(again, END, life.turn)
        assert again.wait(timeout=900), again.history()
    finally:
        again.stop()
