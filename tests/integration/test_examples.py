"""The examples, run to the end of their data, against the same results worked out by hand in Python; the tests of the guide."""

from __future__ import annotations

import csv
import json
import shutil
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from millstream import load
from millstream.journal.kinds.files.dead import dead_counts
from millstream.spark.flow_run import FlowRun, Options, RunStatistics
from millstream.testing import flow_test
from unit.docs.blocks import DOCS, blocks

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[2] / "examples"
Row = dict[str, Any]


def run(spark: SparkSession, folder: Path, file: str) -> tuple[FlowRun, RunStatistics]:
    """Run a flow as `millstream run --until-end` does, twice: the second run has nothing left to do."""
    for attempt in ("first", "second"):
        running = FlowRun(spark, load(folder / file), Options(folder / ".millstream", folder))
        running.start()
        try:
            assert running.wait(timeout=400), f"the {attempt} run did not end"
            numbers = running.statistics()
        finally:
            running.stop()
        if attempt == "first":
            found = numbers
    assert [group.rows_out for group in numbers.groups] == [0] * len(numbers.groups)
    return running, found


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of an example: results lie beside the flow."""
    name: str = request.param
    ignored = shutil.ignore_patterns("out", ".millstream", "__pycache__")
    return Path(shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=ignored))


def lines(folder: Path) -> list[Row]:
    return [
        json.loads(line)
        for file in folder.glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]


def records(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.read_text().splitlines()))


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=None)


@pytest.mark.parametrize("folder", ["sensors"], indirect=True)
def test_sensors_counts_each_reading_once_and_leaves_out_what_is_late(
    spark: SparkSession, folder: Path
) -> None:
    _, numbers = run(spark, folder, "flow.yaml")
    readings, late = _readings(folder)
    assert (numbers.late, numbers.dead, len(late)) == (1, 1, 1)

    quarters: dict[tuple[str, datetime], list[float]] = defaultdict(list)
    for sensor, value, at in readings:
        quarters[sensor, at.replace(minute=at.minute // 15 * 15, second=0)].append(value)
    found = {
        (row["sensor"], moment(row["window_start"])): row
        for row in lines(folder / "out" / "quarters")
    }
    assert {key: row["readings"] for key, row in found.items()} == {
        key: len(all_) for key, all_ in quarters.items()
    }
    for key, values in quarters.items():
        assert found[key]["mean"] == pytest.approx(sum(values) / len(values), abs=0.051)

    rooms = {row["sensor"]: row for row in records(folder / "rooms.csv")}
    high = [
        (rooms[sensor]["room"], value)
        for sensor, value, _ in readings
        if value > float(rooms[sensor]["limit"])
    ]
    results = [row for file in (folder / "out" / "high").glob("*.csv") for row in records(file)]
    assert sorted((row["room"], float(row["value"])) for row in results) == sorted(high)


def _readings(folder: Path) -> tuple[list[tuple[str, float, datetime]], list[str]]:
    """Return the distinct readings that are not late, and the late ones."""
    kept: dict[tuple[str, datetime], float] = {}
    late, highest = [], moment("1970-01-01")
    for row in records(folder / "data" / "readings.csv"):
        if row["value"] == "broken":
            continue
        at = moment(row["at"])
        if at < highest - timedelta(minutes=2):
            late.append(row["at"])
            continue
        highest = max(highest, at)
        kept.setdefault((row["sensor"], at), float(row["value"]))
    return [(sensor, value, at) for (sensor, at), value in kept.items()], late


@pytest.mark.parametrize("folder", ["orders"], indirect=True)
def test_orders_adds_up_what_each_customer_has_paid_in_time(
    spark: SparkSession, folder: Path
) -> None:
    run(spark, folder, "flow.py")
    paid_at = {row["order"]: moment(row["paid_at"]) for row in _input(folder, "payments.jsonl")}
    near = timedelta(minutes=30)
    paid = [
        row
        for row in _input(folder, "orders.jsonl")
        if row["order"] in paid_at and abs(paid_at[row["order"]] - moment(row["at"])) <= near
    ]
    spent: dict[str, int] = defaultdict(int)
    expected = {}
    for row in sorted(paid, key=lambda row: row["at"]):
        spent[row["customer"]] += row["amount"]
        expected[row["order"]] = (row["customer"], spent[row["customer"]])
    assert 0 < len(expected) < 60
    found = lines(folder / "out" / "spent")
    assert {row["order"]: (row["customer"], row["spent"]) for row in found} == expected
    assert len(found) == len(expected)
    hours = pq.read_table(folder / "out" / "hourly").to_pylist()
    assert sum(row["orders"] for row in hours) == len(paid)
    assert sum(row["amount"] for row in hours) == sum(row["amount"] for row in paid)


def _input(folder: Path, name: str) -> list[Row]:
    return [json.loads(line) for line in (folder / "data" / name).read_text().splitlines()]


@pytest.mark.parametrize("folder", ["retries"], indirect=True)
def test_retries_goes_round_until_a_parcel_is_delivered_or_was_tried_three_times(
    spark: SparkSession, folder: Path
) -> None:
    running, _ = run(spark, folder, "flow.py")
    expected = [
        (row["parcel"], min(row["absent"] + 1, 3), row["absent"] < 3)
        for row in _input(folder, "deliveries.jsonl")
    ]
    found = [
        (row["parcel"], row["attempt"], row["delivered"])
        for row in lines(folder / "out" / "outcomes")
    ]
    assert sorted(found) == sorted(expected)
    assert dead_counts(running.journal("deliveries")) == {}


def test_the_tests_of_the_guide_pass(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = {
        block.file or " ".join(block.words): block.text
        for block in blocks(DOCS / "guide" / "testing.md")
    }
    Path("flow.py").write_text(page["flow.py"])
    names: dict[str, Any] = {}
    exec(compile(page["test"], "test_flow.py", "exec"), names)
    tests = [test for name, test in names.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test(flow_test)
