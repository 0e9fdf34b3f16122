"""What stages keep for each key, read beside a flow that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import millstream as ms
from millstream.cli import state as command
from millstream.cli.app import commands
from millstream.errors import MillstreamError, NotThere
from millstream.spark.inspection.key_states import read_states
from millstream.spark.inspection.opened import opened
from millstream.spark.inspection.place import JobPlace
from millstream.spark.inspection.stages import find_stage, listed
from millstream.spark.inspection.verify import verify
from millstream.testing import flow_test

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

    monkeypatch.setattr(command, "_reading", reading)

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
    with pytest.raises(NotThere, match='job "kept" has no stage "sum" with state'):
        invoke("show", "kept", "sum")
