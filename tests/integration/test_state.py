"""What stages keep for each key, read beside a flow that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import millstream as ms
from millstream.cli import state as command
from millstream.cli.app import commands
from millstream.errors import (
    AlreadyRunning,
    MillstreamError,
    NotThere,
    RunError,
    SchemaConflict,
)
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.inspection.exporting import export_states
from millstream.spark.inspection.importing import import_states
from millstream.spark.inspection.key_states import read_states
from millstream.spark.inspection.opened import opened
from millstream.spark.inspection.place import JobPlace, stopped
from millstream.spark.inspection.stages import find_stage, listed
from millstream.spark.inspection.verify import verify
from millstream.testing import flow_test
from millstream.testing.under_test import FlowTest

pytestmark = pytest.mark.spark

START = datetime(2020, 1, 1, 10, tzinfo=UTC)


def add(state: dict[str, Any], row: dict[str, Any]) -> tuple[dict[str, Any], None]:
    seen = {"first": state["seen"]["first"] or row["v"], "last": row["v"]}
    return {"n": state["n"] + 1, "total": state["total"] + row["v"], "seen": seen}, None


def flow_with_state() -> ms.Flow:
    flow = ms.Flow("kept")
    source = flow.source("events", ms.inbox("k string, v long, at timestamp"), time="at", key="k")
    once = source.distinct("once", by=["k", "v"], within="1 hour")
    initial = {"n": 0, "total": 0, "seen": {"first": None, "last": None}}
    summed = once.fold("summed", add, initial=initial, output="k string, at timestamp")
    summed.window("hourly", every="1 hour", n="count(*)").sink("out", ms.memory())
    return flow


def events(begin: int, count: int) -> list[dict[str, Any]]:
    return [
        {"k": f"k{n % 3}", "v": n, "at": START + timedelta(seconds=n)}
        for n in range(begin, begin + count)
        for _ in range(2)  # one of which `distinct` drops
    ]


def expected(count: int) -> list[dict[str, Any]]:
    rows = []
    for key in range(3):
        own = range(key, count, 3)
        seen = {"first": own[0] or own[1], "last": own[-1]}
        rows.append({"k": f"k{key}", "n": len(own), "total": sum(own), "seen": seen})
    return rows


def test_state_is_read_by_key_beside_a_running_flow_as_of_one_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with flow_test(flow_with_state()) as test:
        place = JobPlace("kept", test._data / "kept")
        test.send("events", events(0, 30))
        test.advance_to(START + timedelta(seconds=100))
        test.results("out")
        found, _ = find_stage(place, "summed")
        before = read_states(spark, found, "summed")
        assert before.plain(10) == expected(30)
        test.send("events", events(100, 3))
        test.advance_to(START + timedelta(seconds=200))
        test.results("out")
        # The flow went on, and what was read before is there still.
        after = read_states(spark, found, "summed")
        assert after.plain(10, "k1")[0]["n"] == 11
        assert after.batch > before.batch
        assert read_states(spark, found, "summed", before.batch).plain(10) == expected(30)
        once = read_states(spark, found, "once")
        assert once.plain(1, "k0,0") == [
            {"k": "k0", "v": 0, "first_at": "2020-01-01T10:00:00+00:00"}
        ]
        assert once.keys == 33
        kinds = [(one.stage, one.kind, one.keys) for one in listed(place.again(), lambda: spark)]
        assert kinds == [
            ("hourly", "window", None),
            ("summed", "fold", 3),
            ("once", "distinct", 33),
        ]
        with pytest.raises(NotThere, match=r"stage \"hourly\" \(window\) cannot be shown by key"):
            read_states(spark, found, "hourly")
        assert verify(opened(place, "out"), tmp_path).faults == ()
        _check_commands(test._data, tmp_path / "kept.parquet", spark, monkeypatch)


def _check_commands(
    data: Path, file: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def reading(_: str | None) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(command, "reading_spark", reading)

    def invoke(*words: str) -> str:
        arguments = ["state", *words, "--data", str(data)]
        result = CliRunner().invoke(commands({"state"}), arguments)
        if isinstance(result.exception, MillstreamError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.stdout

    rows = [json.loads(line) for line in invoke("show", "kept", "summed", "--json").splitlines()]
    assert [row["n"] for row in rows] == [11, 11, 11]
    assert "k2" in invoke("show", "kept", "out.summed", "--key", "k2")
    invoke("export", "kept", "summed", "--to", str(file))
    found = pq.read_table(file)
    assert found.schema.names == ["k", "n", "total", "seen"]
    assert sorted(found.to_pylist(), key=lambda row: str(row["k"])) == rows
    assert [one["stage"] for one in json.loads(invoke("ls", "kept", "--json"))] == [
        "hourly",
        "summed",
        "once",
    ]
    invoke("export", "kept", "summed", "--to", str(file.with_suffix(".jsonl")))
    lines = file.with_suffix(".jsonl").read_text().splitlines()
    assert sorted(map(json.loads, lines), key=lambda row: str(row["k"])) == rows
    with pytest.raises(RunError, match="no file of state by its name"):
        invoke("export", "kept", "summed", "--to", str(file.with_suffix(".xlsx")))
    with pytest.raises(RunError, match='CSV cannot hold column "seen"'):
        invoke("export", "kept", "summed", "--to", str(file.with_suffix(".csv")))
    assert not file.with_suffix(".csv").exists()
    with pytest.raises(NotThere, match='job "kept" has no stage "sum" with state'):
        invoke("show", "kept", "sum")


class Staying(FlowTest):
    """A flow under test whose data stays."""

    def __init__(self, flow: ms.Flow, data: Path, spark: SparkSession) -> None:
        super().__init__(flow)
        self._data, self._spark = data, spark

    def __enter__(self) -> FlowTest:
        self._sent = len(list(self._data.glob("kept/groups/out/*/commits/*"))) * 100
        self._run = FlowRun(self._spark, self.flow, Options(self._data, self._root))
        self._run.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._run.stop()


@pytest.mark.long
def test_an_edited_export_is_imported_and_the_flow_goes_on_with_it_also_in_another_folder(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow, data, file = flow_with_state(), tmp_path / "data", tmp_path / "kept.parquet"
    place = JobPlace("kept", data / "kept")
    with Staying(flow, data, spark) as test:
        test.send("events", events(0, 30))
        test.advance_to(START + timedelta(seconds=100))
        test.results("out")
        found, _ = find_stage(place, "summed")
        with pytest.raises(AlreadyRunning), stopped(place):
            pass
    export_states(read_states(spark, found, "summed"), file, "kept")
    rows = {row["k"]: row for row in pq.read_table(file).to_pylist()}
    rows["k1"]["total"] = 1_000
    del rows["k2"]
    rows["k9"] = {"k": "k9", "n": 7, "total": 70, "seen": {"first": 1, "last": 2}}
    schema = pq.read_schema(file)
    bare = pa.Table.from_pylist(list(rows.values()), schema=schema).drop_columns(["n"])
    pq.write_table(bare, tmp_path / "bare.parquet")
    with pytest.raises(SchemaConflict, match='column "n" is missing'):
        import_states(spark, found, "summed", tmp_path / "bare.parquet")
    pq.write_table(pa.Table.from_pylist(list(rows.values()), schema=schema), file)
    with stopped(place):
        done = import_states(spark, found, "summed", file)
    assert (done.keys, done.new, done.gone) == (3, 1, 1)
    expected_rows = sorted(rows.values(), key=lambda row: str(row["k"]))
    assert read_states(spark, found, "summed").plain(10) == expected_rows
    assert read_states(spark, found, "summed", done.batch).plain(10, "k9") == []
    for turn in (1, 2):  # what is taken over is taken over once
        data = data.rename(tmp_path / f"data {turn}")
        with Staying(flow, data, spark) as test:
            more = [{"k": k, "v": 100 * turn, "at": START} for k in ("k1", "k2", "k9")]
            at = START + timedelta(seconds=100 * turn + 50)
            test.send("events", [{**row, "at": at} for row in more])
            test.advance_to(START + timedelta(seconds=100 * turn + 100))
            test.results("out")
    found, _ = find_stage(JobPlace("kept", data / "kept"), "summed")
    assert verify(found, tmp_path, lambda: spark).faults == ()
    after = {row["k"]: row for row in read_states(spark, found, "summed").plain(10)}
    assert after["k0"] == rows["k0"]
    assert (after["k1"]["n"], after["k1"]["total"]) == (12, 1_300)
    assert (after["k2"]["n"], after["k2"]["total"]) == (2, 300)
    assert (after["k9"]["n"], after["k9"]["total"]) == (9, 370)


@pytest.mark.soak
def test_a_new_flow_begins_with_exported_state_before_its_first_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow, data, file = flow_with_state(), tmp_path / "data", tmp_path / "kept.parquet"
    place = JobPlace("kept", data / "kept")
    with Staying(flow, data, spark):
        pass
    found, _ = find_stage(place, "summed")
    kept = {"k": "k1", "n": 7, "total": 70, "seen": {"first": 1, "last": 2}}
    pq.write_table(pa.Table.from_pylist([kept]), file)
    with stopped(place):
        done = import_states(spark, found, "summed", file)
    assert (done.batch, done.keys, done.new, done.gone) == (-1, 1, 1, 0)
    with Staying(flow, data, spark) as test:
        test.send("events", events(0, 30))
        test.advance_to(START + timedelta(seconds=100))
        test.results("out")
    assert found.committed() is not None
    after = {row["k"]: row for row in read_states(spark, found, "summed").plain(10)}
    assert after["k0"] == expected(30)[0]
    assert after["k1"]["n"] == 7 + expected(30)[1]["n"]
    assert after["k1"]["seen"]["first"] == 1
