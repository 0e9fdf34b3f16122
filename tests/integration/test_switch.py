"""The same recorded input, with no switch and with one at some moment, gives the same results, each once."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.errors import SwitchImpossible, SwitchRefused
from millstream.journal import committed
from millstream.spark.run import FlowRun
from support.switched import (
    DDL,
    END,
    LARGE,
    SECOND,
    large,
    lived,
    options,
    outcome,
    perform,
    piece,
    replayed,
    turns_of,
)
from support.undisturbed import counted, large_results, rows_of, windows_of

pytestmark = pytest.mark.spark


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_switch_changes_no_result_of_any_kind_of_stage(spark: SparkSession, tmp_path: Path) -> None:
    build = large(tmp_path / "twice")
    run = lived(spark, tmp_path / "both", build, 5, [1])
    assert run.version == "2"
    right, found = large_results(5, turns_of(tmp_path / "both")), outcome(tmp_path / "both", LARGE)
    for one in (right, found):
        one["apart"] = without_time(one["apart"])  # such a match is told when no other can take its events
    for sink in LARGE:
        assert found[sink] == right[sink], (sink, found[sink] - right[sink], right[sink] - found[sink], run.history())
        assert right[sink].total() > 20
    check_sizes(run, tmp_path / "both")
    # What the old version had is gone, and so are its readers; what did not change is where it was.
    changed = ("acted", "joined", "noted", "outer", "risen", "sessions", "sized")
    moved = ("totals", "apart", "endless")
    groups = sorted(path.name for path in (run.folder / "groups").iterdir())
    assert groups == sorted(["kept", "timeless", *moved, *(f"{name}@2" for name in changed)])
    readers = {one.reader for one in committed(run.journal("events"))}
    assert readers == {*(f"switched.{name}" for name in moved), *(f"switched.{name}@2" for name in changed)}
    assert {one.reader for one in committed(run.journal("noted"))} == {"switched.kept"}


def without_time(lines: Counter[str]) -> Counter[str]:
    return Counter(re.sub(r'"at": "[^"]*", ', "", line) for line in lines.elements())


def check_sizes(run: FlowRun, root: Path) -> None:
    """Windows of the old size begin before the cut, and those of the new one at the cut or later, one exactly there."""
    (cut,) = [int(found[1]) for one in run.history() if (found := re.match(r"cut at (\d+) us", one.text))]
    rows, right = rows_of(5, turns_of(root)), Counter[str]()
    for size, newer in ((5, False), (10, True)):
        windows = windows_of(rows, size, size)
        right += counted({one: values for one, values in windows.items() if (one[1] >= cut) is newer}, size)
    assert outcome(root, ("sized",))["sized"] == right
    starts = {at for _, at in windows_of(rows, 10, 10)}
    assert min(starts) < cut < max(starts), "both versions have had their part"
    assert {cut - 10 * SECOND, cut} <= starts


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
