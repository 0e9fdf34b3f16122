"""The same recorded input, with no switch and with some at any moment, gives the same results, each once."""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.errors import SwitchImpossible, SwitchRefused
from millstream.flow.stages import Stage
from millstream.journal import journal_at
from millstream.journal.kinds.files.retention import committed
from millstream.spark import failpoints
from millstream.spark.flow_run import FlowRun
from millstream.spark.stages.build import Builder
from millstream.state import StateFiles
from support.lives import Life, Switches, compare, options, outcome, until
from support.recording import SECOND, Recording, Row
from support.switched import ADDED, LARGE, MOVED, PARTED, large, size_of, tiny
from support.undisturbed import counted, large_results, rows_of, small_results, windows_of

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


@pytest.mark.slow
@pytest.mark.long
def test_a_switch_changes_no_result_of_any_kind_of_stage(
    spark: SparkSession, tmp_path: Path
) -> None:
    life = Life(tmp_path / "life", large(tmp_path / "twice"), Recording(5))
    run = life.lived(spark, Switches((1,)))
    rows = check(life, run)
    (cut,) = cuts_of(run)
    check_recording(rows, cut)
    assert list((tmp_path / "life").rglob("keys/*/*/*.arrow")), "states were in files"


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(100, 100 + LIVES))
def test_switches_at_random_moments_change_no_result_of_any_kind_of_stage(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    moments = tuple(1 + 15 * number + chance.randrange(8) for number in range(chance.randint(2, 3)))
    life = Life(
        tmp_path / "life",
        large(tmp_path / "twice"),
        Recording(seed),
        rows=chance.choice([20, 60, 500]),
    )
    run = life.lived(spark, Switches(moments))
    assert run.version == str(len(moments) + 1)
    check(life, run)


def check(life: Life, run: FlowRun) -> list[Row]:
    """Compare a life with what it should have given, and look at what it left; return its rows."""
    compare(run, outcome(life.root, LARGE), large_results(life.recording, life.turns))
    rows = rows_of(life.recording, life.turns)
    assert outcome(life.root, ["sized"])["sized"] == sized(rows, cuts_of(run))
    # What old versions had is gone, and so are their readers; what did not change is where it was.
    own = {ADDED, *(f"{name}@{run.version}" for name in PARTED)}
    assert {path.name for path in (run.folder / "groups").iterdir()} == {"kept", *MOVED, *own}
    readers = {f"switched.{name}" for name in {*own, *MOVED} - {"timeless"}}
    assert {one.reader for one in committed(run.journal("events"))} == readers
    assert {one.reader for one in committed(run.journal("noted"))} == {"switched.kept"}
    return rows


def cuts_of(run: FlowRun) -> list[int]:
    """Return where the cuts were."""
    return [
        int(found[1]) for one in run.history() if (found := re.match(r"cut at (\d+) us", one.text))
    ]


def sized(rows: list[Row], cuts: list[int]) -> Counter[str]:
    """Return windows of which those that begin between two cuts have the size of the version there."""
    right: Counter[str] = Counter()
    edges = [0, *cuts, rows[-1][2] + 1]
    for number, (begin, end) in enumerate(pairwise(edges), 1):
        size = size_of(str(number))
        windows = windows_of(rows, size, size)
        right += counted(
            {one: values for one, values in windows.items() if begin <= one[1] < end}, size
        )
    return right


def check_recording(rows: list[Row], cut: int) -> None:
    """Make sure that the recording has what is hard: at the cut, and on both sides of it."""
    keys = {key for key, _, _ in rows}
    starts = {key: {at for name, at in windows_of(rows, 5, 5) if name == key} for key in keys}
    assert any(cut in mine and cut - 5 * SECOND in mine for mine in starts.values()), (
        "windows end and begin there"
    )
    assert any(cut not in mine and min(mine) < cut < max(mine) for mine in starts.values()), (
        "one there is empty"
    )
    assert any(max(mine) < cut for mine in starts.values()), "the old version alone has a key"
    assert any(min(mine) >= cut for mine in starts.values()), "and so has the new one"
    before, after = [row for row in rows if row[2] < cut], [row for row in rows if row[2] >= cut]
    partners = [(one, other) for one in after for other in before if one[0] == other[0]]
    near = [(one, other) for one, other in partners if one[2] - other[2] <= 5 * SECOND]
    assert any(one[1] % 2 == 0 and other[1] % 2 == 1 for one, other in near), (
        "a partner lies before it"
    )
    assert any(row[2] == cut for row in after), "a row is exactly there"


def test_a_switch_that_cannot_be_done_touches_nothing(spark: SparkSession, tmp_path: Path) -> None:
    run = FlowRun(spark, tiny("1"), options(tmp_path))
    other = tiny("2")
    other.source("more", ms.inbox("k string, at timestamp"), time="at").sink(
        "more", ms.jsonl("more")
    )
    assert [group.name for group in run.plan_switch(other).changed if group.change == "new"] == [
        "more"
    ]
    with pytest.raises(SwitchRefused, match="has run already"):
        run.switch(tiny("2"), "1")
    with pytest.raises(SwitchRefused, match="cannot be called"):
        run.switch(tiny("2"), "a/b")
    renamed = ms.Flow("other")
    renamed.source("more", ms.inbox("k string, at timestamp"), time="at").sink(
        "more", ms.jsonl("more")
    )
    with pytest.raises(SwitchImpossible, match='of flow "other"'):
        run.switch(renamed, "2")
    with pytest.raises(SwitchRefused, match="nothing to abort"):
        run.abort()
    assert run.switching() is None
    assert run.history() == ()
    assert not run.folder.exists()


def test_a_switch_that_is_given_up_leaves_the_old_version_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    life = Life(tmp_path, tiny, Recording(5))
    with life.running(spark) as run:
        life.until(run, lambda: life.turns > 3)
        run.switch(tiny("2"), "2")
        with pytest.raises(SwitchRefused, match='from version "1" to "2" is preparing'):
            run.switch(tiny("3"), "3")
        until(run, lambda: (run.folder / "groups" / "rows@2" / "group.json").exists())
        run.abort()
        until(run, lambda: run.switching() is None)
        assert run.version == "1"
        assert [path.name for path in (run.folder / "groups").iterdir()] == ["rows"]
        assert {one.reader for one in committed(run.journal("events"))} == {"switched.rows"}
        assert "it was asked to end" in " ".join(entry.text for entry in run.history())
        life.end(run)
    compare(run, outcome(tmp_path, ["rows"]), small_results(life.recording, life.turns))


def test_a_new_version_lags_from_where_it_begins(spark: SparkSession, tmp_path: Path) -> None:
    life = Life(tmp_path, tiny, Recording(5))
    seen: list[tuple[int, int, int]] = []
    with life.running(spark) as run:

        def look(point: str) -> None:
            query = run.queries.get("rows@2")
            if point not in {"switch-ordered", "switch-release"} or query is None:
                return
            lag = {one.name: one.lag_rows for one in run.statistics().groups}["rows@2"]
            first = query.control.orders().first.get("events")
            reader = journal_at(run.journal("events")).reader()
            views = [reader.partition(number) for number in range(3)]
            before, after = 0, 0
            for number, view in enumerate(views):
                edge = view.end if first is None else first[number]
                before += view.rows(0, edge)
                after += view.rows(edge, view.end)
            seen.append((lag, before, after))

        life.until(run, lambda: life.turns > 6)
        with failpoints.watched(look):
            life.until(
                run,
                lambda: run.version == "2" and run.switching() is None,
                Switches((6,)),
            )
        life.end(run)
    assert seen, "it was looked at before it had read anything"
    for lag, before, after in seen:
        assert before > 50
        assert lag <= after
    compare(run, outcome(tmp_path, ["rows"]), small_results(life.recording, life.turns))
