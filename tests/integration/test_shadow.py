"""A version in the shadow of another is compared with it, and leaves nothing behind but that."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.errors import SwitchImpossible, SwitchRefused
from millstream.journal.kinds.files.retention import committed
from millstream.spark.flow_run import FlowRun
from millstream.switch.comparison import Compared, Comparison
from millstream.switch.request import SwitchRequest
from support.lives import LIMIT, Life, compare, options, outcome
from support.recording import SECOND, Recording, Row
from support.switched import SMALL, WINDOWED, adder, begun, small, tiny
from support.undisturbed import most_of, rows_of, small_results

pytestmark = pytest.mark.spark
SHADOW = SwitchRequest(shadow=True, timeout=LIMIT)


def shadowing(run: FlowRun) -> bool:
    status = run.switching()
    return status is not None and status.phase == "shadowing"


def outputs(found: Comparison | None) -> dict[str, Compared]:
    assert found is not None
    return {one.name: one for one in found.outputs}


LEAST = 10


def filtered(version: str) -> ms.Flow:
    """Return a version of `small` that lets fewer values through to most of its sinks, lacks one, and has a new one."""
    flow, events = begun()
    rows = events.sql("few", f"SELECT *, 1 AS one FROM events WHERE v >= {LEAST}")
    rows.sink("rows", ms.jsonl("rows"))
    windows = rows.window("windows", every="5 s", size="15 s", **WINDOWED).journal(
        "noted", partitions=2, key="k"
    )
    most = windows.sql("counted", "SELECT k, n, total, window_time FROM noted")
    most.window("most", every="10 s", by="k", most="max(n)").sink("most", ms.jsonl("most"))
    some = events.sql("some", f"SELECT * FROM events WHERE v > -{version}")
    totals = some.fold(
        "summed", adder(), initial=0, output="k string, at timestamp, total long", by="k"
    )
    totals.sink("totals", ms.parquet("totals"))
    rows.window("new", every="10 s", n="count(*)").sink("new", ms.jsonl("new"))
    return flow


@pytest.mark.slow
@pytest.mark.long
def test_a_shadow_tells_what_a_version_would_have_changed_and_changes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    life = Life(tmp_path, small, Recording(5))
    with life.running(spark) as run:
        life.until(run, lambda: life.turns > 1)
        run.switch(filtered("2"), "2", SHADOW)
        with pytest.raises(SwitchRefused, match='from version "1" to "2" is preparing'):
            run.switch(small("3"), "3")
        life.until(run, lambda: shadowing(run) and outputs(run.comparison())["most"].equal > 3)
        # It runs until the end of all input.
        life.end(run)
    assert run.version == "1"
    assert left_behind(run) == set()
    assert "all that comes in has been compared" in " ".join(entry.text for entry in run.history())
    check_filtered(run.comparison(), rows_of(life.recording, life.turns))
    # The sinks have what the first version alone puts out, once each.
    compare(run, outcome(tmp_path, SMALL), small_results(life.recording, life.turns))
    assert not (tmp_path / "new").exists()


def check_filtered(found: Comparison | None, rows: list[Row]) -> None:
    """Compare what was found with what there was to find."""
    assert found is not None
    since = round(datetime.fromisoformat(found.since or "").timestamp() * SECOND)
    of_rows, of_most = outputs(found)["rows"], outputs(found)["most"]
    values = [value for _, value, at in rows if at >= since]
    large = len([value for value in values if value >= LEAST])
    assert counts(of_rows) == (large, len(values) - large, 0, 0)
    assert (of_rows.waiting, of_rows.by, of_rows.columns_new) == (0, ("k",), ("one",))
    assert [one.old is not None and one.old["v"] < LEAST for one in of_rows.examples] == [True] * 3
    # Behind a journal of the version's own.
    old, new = most_of(rows), most_of([row for row in rows if row[1] >= LEAST])
    both = [(values, new.get(place)) for place, values in old.items() if place[1] >= since]
    equal = len([True for before, after in both if after is not None and max(before) == max(after)])
    missing = len([True for _, after in both if after is None])
    assert counts(of_most) == (equal, missing, 0, len(both) - equal - missing)
    assert (of_most.equal > 3, of_most.different > 0, of_most.by) == (True, True, ("k",))
    assert outputs(found)["new"].extra > 0
    assert (outputs(found)["kept"].change, found.left_out, found.until) == (
        "removed",
        ("totals",),
        None,
    )
    assert (found.same, found.broken) == (False, None)


def counts(one: Compared) -> tuple[int, int, int, int]:
    return one.equal, one.missing, one.extra, one.different


def left_behind(run: FlowRun) -> set[str]:
    """Return what a shadow should not have left, on disk and among the readers."""
    folders = [
        path.name for part in ("groups", "journals") for path in (run.folder / part).iterdir()
    ]
    readers = [one.reader for one in committed(run.journal("events"))]
    found = {name for name in [*folders, *readers] if "@" in name}
    return found | {path.name for path in (run.folder / "shadow").glob("*")}


def test_a_shadow_that_is_aborted_or_whose_driver_stops_leaves_nothing_behind(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = FlowRun(spark, tiny("1"), options(tmp_path))
    more = tiny("2")
    more.source("more", ms.inbox("k string, at timestamp"), time="at").sink(
        "more", ms.jsonl("more")
    )
    with pytest.raises(SwitchImpossible, match='source "more" is new'):
        run.switch(more, "2", SHADOW)
    with pytest.raises(SwitchRefused, match="means the same"):
        run.switch(tiny("1"), "2", SHADOW)
    assert not run.folder.exists()
    life = Life(tmp_path, tiny, Recording(5))
    with life.running(spark) as run:
        run.switch(tiny("2"), "2", SHADOW)
        life.until(run, lambda: shadowing(run) and outputs(run.comparison())["rows"].equal > 3)
        run.abort()
        life.until(run, lambda: run.switching() is None)
        same = run.comparison()
        assert same is not None
        assert (same.same, same.left_out, same.broken) == (True, (), None), same
        assert left_behind(run) == set()
        run.switch(tiny("3"), "3", SHADOW)
        life.until(run, lambda: shadowing(run))
    assert (run.folder / "shadow").exists()
    with life.running(spark) as again:
        assert (again.version, again.switching()) == ("1", None)
        assert left_behind(again) == set()
        assert 'the shadow of version "3" ends: the driver stopped' in " ".join(
            one.text for one in again.history()
        )
        life.end(again)
    compare(again, outcome(tmp_path, ["rows"]), small_results(life.recording, life.turns))
