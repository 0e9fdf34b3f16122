"""A version that processes again from a moment in the past: what is out since then is replaced, once, also after crashes."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.errors import SwitchImpossible
from millstream.journal import Kind
from millstream.spark.flow_run import FlowRun
from millstream.switch.request import SwitchRequest
from support.lives import LIMIT_S, Died, dying, options, until, written
from support.recording import DDL, END, SECOND, START, Recorded, perform

pytestmark = pytest.mark.spark

BEGAN = datetime.fromtimestamp(START / SECOND, UTC)
#: A row each second, and where it is processed again from: in the middle of a step of the cut.
ROWS, SINCE = 60, BEGAN + timedelta(seconds=33)
CUT = 30


def built(version: str) -> ms.Flow:
    """Return a version: from the second on values are ten times what they were."""
    factor = 1 if version == "1" else 10
    flow = ms.Flow("again", window="10 s")
    events = flow.source(
        "events", ms.inbox(DDL), time="at", lateness="1 s", key="k", partitions=3, idle="1 day"
    )
    events.sink("kept", ms.jsonl("kept"))
    rows = events.sql("some", f"SELECT k, v * {factor} AS v, at FROM events")
    rows.sink("rows", ms.csv("rows"))
    sums = rows.window("sums", every="5 s", by="k", total="sum(v)").journal(
        "noted", key="k", partitions=int(version)
    )
    # It does not change, and reads what does.
    sums.window("tens", every="10 s", by="k", total="sum(total)").sink("tens", ms.jsonl("tens"))
    pair = ms.Pattern().begin("a", f"v % {2 * factor} = {factor}").next("b", "v > 0").within("5 s")
    rows.match("pairs", pair, by="k", emit="k, a.v AS low, b.v AS high").sink(
        "pairs", ms.parquet("pairs")
    )
    return flow


def script() -> Recorded:
    rows = [("k", n, START + n * SECOND) for n in range(ROWS)]
    idle = (Kind.IDLE, START + ROWS * SECOND)
    return [("events", 0, rows), ("events", 1, idle), ("events", 2, idle)]


def value(n: int, at: int) -> int:
    """Return the value of row `n` in a result that starts at a second."""
    return n * (10 if at >= CUT else 1)


def expected() -> dict[str, Counter[Any]]:
    tens = {at: sum(value(n, at) for n in range(at, at + 10)) for at in range(0, ROWS, 10)}
    # A match is replaced by its end, which it is put out with; one begins right before the cut and
    # ends at it.
    pairs = [(value(n, n + 1), value(n + 1, n + 1), n + 1) for n in range(1, ROWS - 1, 2)]
    return {
        "kept": Counter((n, n) for n in range(ROWS)),
        "rows": Counter((value(n, n), n) for n in range(ROWS)),
        "tens": Counter((total, at) for at, total in tens.items()),
        "pairs": Counter(pairs),
    }


def second(moment: str | datetime) -> int:
    at = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return round((at - BEGAN).total_seconds())


def found(root: Path) -> dict[str, Counter[Any]]:
    rows = [
        row
        for file in (root / "rows").glob("*.csv")
        for row in csv.DictReader(file.read_text().splitlines())
    ]
    pairs = [
        row
        for file in (root / "pairs").glob("*.parquet")
        for row in pq.ParquetFile(file).read().to_pylist()
    ]
    return {
        "kept": Counter((row["v"], second(row["at"])) for row in written(root, "kept")),
        "rows": Counter((int(row["v"]), second(row["at"])) for row in rows),
        "tens": Counter(
            (row["total"], second(row["window_start"])) for row in written(root, "tens")
        ),
        "pairs": Counter((row["low"], row["high"], second(row["at"])) for row in pairs),
    }


def lived(spark: SparkSession, root: Path, whole: Callable[[FlowRun], None]) -> None:
    run = FlowRun(spark, built("1"), options(root), versions=built, version="1")
    try:
        run.start()
        whole(run)
    finally:
        run.stop()


def ask(run: FlowRun) -> None:
    """Switch from a moment in the past, unless a switch is on its way; one that was given up is asked for again."""
    if run.version == "1" and run.switching() is None:
        perform(run, script(), 0)
        until(
            run,
            lambda: (
                run.caught_up()
                and not run.plan_switch(built("2"), SwitchRequest(since=SINCE)).obstacles
            ),
        )
        with pytest.raises(SwitchImpossible, match="is not all out"):
            run.switch(built("2"), "2", SwitchRequest(since=BEGAN + timedelta(minutes=2)))
        run.switch(built("2"), "2", SwitchRequest(since=SINCE))
    until(run, lambda: run.switching() is None)


def end(run: FlowRun) -> None:
    ask(run)
    assert run.version == "2"
    perform(run, END, 1)
    assert run.wait(timeout=LIMIT_S), run.history()


def check(spark: SparkSession, root: Path, deaths: tuple[str, ...]) -> None:
    """Let a flow be switched to the past whose driver dies at these points, one after the other."""
    for point in deaths:
        with dying(point), pytest.raises(Died):
            lived(spark, root, ask)
    lived(spark, root, end)
    assert found(root) == expected()


@pytest.mark.slow
@pytest.mark.long
def test_what_is_out_is_replaced_and_a_driver_that_dies_in_between_finishes_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    deaths = (
        "switch-write-overlapping",
        "withdrawn-file",
        "before-switch-write-retiring",
        "switch-write-retiring",
    )
    check(spark, tmp_path, deaths)


#: The other points of a switch to the past.
POINTS = (
    "switch-write-preparing",
    "switch-started:2",
    "before-switch-write-overlapping",
    "switch-entry:4",
    "switch-shut",
    "withdrawn-file:2",
    "switch-withdrawn:1",
    "switch-withdrawn:2",
    "switch-withdraw",
    "switch-ordered:2",
    "switch-makeready",
    "switch-write-retiring",
    "switch-release",
    "switch-removed-group",
    "switch-removed-journal",
    "switch-forgotten",
    "switch-retire",
    "switch-write-running",
)


@pytest.mark.soak
def test_a_driver_may_die_at_every_step_of_a_switch_to_the_past(
    spark: SparkSession, tmp_path: Path
) -> None:
    check(spark, tmp_path, POINTS)
