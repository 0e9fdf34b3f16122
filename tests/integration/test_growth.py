"""A switch that gives sources more partitions, under rows that come in from files and from programs: each is there once."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.journal.kinds.files.description import describe
from millstream.journal.kinds.files.reader import Reader
from millstream.spark.flow_run import FlowRun, Options
from support.ingest import all_rows, rows_of
from support.lives import Died, dying

pytestmark = pytest.mark.spark

DDL = "k string, n long, at timestamp"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
#: The rows of a step, a row a second, in any order not late; and when the next step begins.
STEP, APART = 20, 100
PARTITIONS = {"1": 2, "2": 3, "3": 4}


def build(version: str) -> ms.Flow:
    """Return a version of a flow; all give the same results. In the second a group changes, and another is kept."""
    flow = ms.Flow("grown", window="10 s")
    how: dict[str, Any] = {
        "time": "at",
        "key": "k",
        "lateness": "30 s",
        "idle": "500 ms",
        "partitions": PARTITIONS[version],
    }
    read = flow.source("read", ms.files("in", DDL, format="jsonl", follow=True), **how)
    some = read.sql("some", f"SELECT * FROM read WHERE n > -{min(version, '2')}")
    some.window("windows", every="10 s", by="k", rows="count(*)", total="sum(n)").sink(
        "windows", ms.jsonl("windows")
    )
    sent = flow.source("sent", ms.inbox(DDL), **how)
    sent.window("kept", every="10 s", by="k", rows="count(*)", total="sum(n)").sink(
        "kept", ms.jsonl("kept")
    )
    return flow


def events(step: int) -> list[dict[str, Any]]:
    start = NOON + timedelta(seconds=step * APART)
    return [
        {"k": f"k{n % 7}", "n": step * STEP + n, "at": start + timedelta(seconds=n)}
        for n in range(STEP)
    ]


def wanted(steps: int) -> Counter[tuple[str, int, int]]:
    """The results: key, rows and their total of every window."""
    found: dict[tuple[str, int], list[int]] = {}
    for row in (row for step in range(steps) for row in events(step)):
        found.setdefault((row["k"], (row["at"] - NOON) // timedelta(seconds=10)), []).append(
            row["n"]
        )
    return Counter((key, len(numbers), sum(numbers)) for (key, _), numbers in found.items())


def results(root: Path, sink: str) -> Counter[tuple[str, int, int]]:
    rows = [
        json.loads(line)
        for file in (root / sink).glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    return Counter((row["k"], row["rows"], row["total"]) for row in rows)


class Life:
    """A flow that is switched while rows come in from a folder and from programs."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.root = root
        (root / "in").mkdir(exist_ok=True)
        self.run = FlowRun(
            spark, build("1"), Options(root / "data", root), versions=build, version="1"
        )
        self.run.start()

    def write(self, step: int) -> None:
        """Bring the rows of a step; to the inbox the even ones under a name, with all that came before them once more."""
        rows = events(step)
        self.until(lambda: self.run.address is not None)
        even = [row for before in range(step + 1) for row in events(before)][::2]
        with ms.connect(str(self.run.address), sender="named", timeout=600) as client:
            client.send("grown.sent", even, numbers=[row["n"] for row in even])
        with ms.connect(str(self.run.address), timeout=600) as client:
            client.send("grown.sent", rows[1::2])
        file = self.root / "in" / f"{step:03d}.jsonl"
        temporary = file.with_suffix(".tmp")
        temporary.write_text(
            "".join(json.dumps({**row, "at": row["at"].isoformat()}) + "\n" for row in rows)
        )
        temporary.rename(file)

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 900
        while not holds():
            assert time.monotonic() < deadline, self.run.history()
            self.run.poll()
            time.sleep(0.05)

    def switch(self, step: int) -> int:
        """Switch, with rows coming in from `step` on until it is over; return the step after the last."""
        if self.run.version == "1" and self.run.switching() is None:
            self.run.switch(build("2"), "2")
        while self.run.version == "1" or self.run.switching() is not None:
            self.write(step)
            step += 1
            self.until(lambda: self.run.caught_up() or self.run.switching() is None)
        return step

    @property
    def steps(self) -> int:
        """How many steps have been written, by all lives."""
        return len(list((self.root / "in").glob("*.jsonl")))

    def finish(self) -> None:
        """End all sources, once all that was written is in their journals."""
        self.until(lambda: len(all_rows(self.run.journal("read"))) == self.steps * STEP)
        with ms.connect(str(self.run.address), timeout=600) as client:
            client.end("grown.sent")
        self.run.drain(flush=True)
        self.until(self.run.poll)


def check(root: Path, run: FlowRun, steps: int) -> None:
    for source in ("read", "sent"):
        path = run.journal(source)
        found = describe(path)
        assert (found.partitions, found.lasting) == (PARTITIONS[run.version], 2)
        assert all(rows_of(path, number) for number in range(found.partitions)), (
            "what came after the switch is there too"
        )
    assert results(root, "windows") == results(root, "kept") == wanted(steps)
    # The one that has a name stayed where it was.
    reader = Reader(run.journal("sent")).partition(2)
    assert "named" not in {entry.sender for entry in reader.entries(0, reader.end)}


def test_sources_get_more_partitions_in_a_switch(spark: SparkSession, tmp_path: Path) -> None:
    life = Life(spark, tmp_path)
    try:
        life.write(0)
        life.until(life.run.caught_up)
        step = life.switch(1)
        life.write(step)
        # Nothing else changes: nobody has to be asked, and no group is replaced.
        life.run.switch(build("3"), "3")
        life.until(lambda: life.run.version == "3" and life.run.switching() is None)
        for more in range(step + 1, step + 3):
            life.write(more)
        life.finish()
    finally:
        life.run.stop()
    check(tmp_path, life.run, step + 3)


@pytest.mark.soak
@pytest.mark.parametrize(
    "point",
    [
        "switch-write-overlapping",
        "switch-write-retiring",
        "switch-retire",
        "switch-write-running",
        "outgrown:1",
        "source-opened:1",
        "outgrown:2",
        "source-opened:2",
    ],
)
def test_a_driver_that_dies_on_the_way_goes_on(
    spark: SparkSession, tmp_path: Path, point: str
) -> None:
    life = Life(spark, tmp_path)
    try:
        life.write(0)
        life.until(life.run.caught_up)
        with dying(point), pytest.raises(Died):
            life.switch(1)
    finally:
        life.run.stop()
    life = Life(spark, tmp_path)
    try:
        step = life.switch(life.steps)
        for more in range(step, step + 2):
            life.write(more)
        life.finish()
    finally:
        life.run.stop()
    check(tmp_path, life.run, step + 2)
