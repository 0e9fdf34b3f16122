"""A switch that changes the lateness: every row is a dead letter or in the results, never both."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.clock import micros
from millstream.journal import journal_at
from millstream.spark.flow_run import FlowRun
from support.lives import Life, Switches, written
from support.recording import DDL, SECOND, Recording, Row
from support.switched import adder
from support.undisturbed import iso

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def build(version: str) -> ms.Flow:
    """Return a version: the second is stricter than the others."""
    flow = ms.Flow("switched", switch_every="10 s")
    lateness = "1 s" if version == "2" else "3 s"
    options: dict[str, Any] = {"key": "k", "partitions": 3, "idle": "1 day"}
    events = flow.source("events", ms.inbox(DDL), time="at", lateness=lateness, **options)
    events.sql("some", f"SELECT * FROM events WHERE v > -{version}").sink("rows", ms.jsonl("rows"))
    # Windows across the cut are owned by their end: they hold rows from before it.
    windows = events.window("wide", every="5 s", size="15 s", seen="collect_list(struct(k, v, at))")
    windows.sql(
        "ended", f"SELECT seen, window_time FROM wide WHERE window_time > '200{version}'"
    ).sink("seen", ms.jsonl("seen"))
    # Its state goes over, at a position.
    output = "k string, at timestamp, total long"
    events.fold("summed", adder(), initial=0, output=output).sink("totals", ms.jsonl("totals"))
    return flow


@pytest.mark.long
def test_a_row_that_is_late_for_one_version_only_is_a_dead_letter_or_a_result(
    spark: SparkSession, tmp_path: Path
) -> None:
    life = Life(tmp_path, build, Recording(5))
    run = life.lived(spark, Switches((1, 14)))
    letters = Counter(dead(run))
    rows = everything(life.recording, life.turns)
    assert letters == Counter(name(row) for row, late in judged(rows, cuts_of(run)) if late)
    taken = Counter(name(row) for row, late in judged(rows, cuts_of(run)) if not late)
    assert Counter(key(one) for one in written(tmp_path, "rows")) == taken
    assert Counter((k, at) for k, _, at in taken.elements()) == Counter(
        (one["k"], one["at"]) for one in written(tmp_path, "totals")
    )
    windowed = Counter(key(row) for one in written(tmp_path, "seen") for row in one["seen"])
    assert windowed == Counter({row: 3 * count for row, count in taken.items()})


def judged(rows: list[tuple[int, Any]], cuts: list[int]) -> Iterator[tuple[Row, bool]]:
    """Yield the rows of each partition, and whether they are late by the lateness of their time."""
    highest, floor = Counter[int](), Counter[int]()
    for partition, what in rows:
        if isinstance(what, tuple):
            floor[partition] = what[1]
            continue
        for row in what:
            version = sum(cut <= row[2] for cut in cuts) + 1
            lateness = (1 if version == 2 else 3) * SECOND
            yield row, row[2] < max(highest[partition] - lateness, floor[partition])
            highest[partition] = max(highest[partition], row[2])


def name(row: Row) -> tuple[str, int, str]:
    return row[0], row[1], iso(row[2])


def key(row: dict[str, Any]) -> tuple[str, int, str]:
    return row["k"], row["v"], row["at"]


def cuts_of(run: FlowRun) -> list[int]:
    found = [re.match(r"cut at (\d+) us", one.text) for one in run.history()]
    return [int(one[1]) for one in found if one]


def dead(run: FlowRun) -> list[tuple[str, int, str]]:
    reader = journal_at(run.journal("events") / "dead").reader().partition(0)
    parts = [part.batch for part in reader.read(reader.begin, reader.end)]
    found = [one for batch in parts if batch is not None for one in batch.to_pylist()]
    assert {one["reason"] for one in found} == {"late"}
    letters = [json.loads(one["record"]) for one in found]
    return [(one["k"], one["v"], iso(micros(datetime.fromisoformat(one["at"])))) for one in letters]


def everything(recording: Recording, turns: int) -> list[tuple[int, Any]]:
    """Return what came into the source, by partition."""
    found = [one for turn in range(turns) for one in recording.turn(turn)]
    return [(partition, what) for journal, partition, what in found if journal == "events"]
