"""Sinks write an epoch once, also when it is repeated."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.connectors.files.target import FilesTarget
from millstream.connectors.memory.target import MemoryTarget
from millstream.connectors.postgres import Postgres
from millstream.connectors.postgres.target import PostgresTarget
from millstream.errors import GroupFailed, RunError
from millstream.journal import Kind
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.io.targets import Epoch

pytestmark = pytest.mark.spark

FIRST = Epoch("job", "group", "abc", 0, None)


def frame(spark: SparkSession, *rows: tuple[int, str | None]) -> Any:
    return spark.createDataFrame(list(rows), "n int, text string")


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv"])
def test_files_hold_a_repeated_epoch_once(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    target = FilesTarget(tmp_path, kind, "flow.sink")
    target.recover()
    assert target.write(frame(spark, (1, 'a "quoted", text'), (2, None)), FIRST) == 2
    target.write(frame(spark, (1, 'a "quoted", text'), (2, None)), FIRST)
    target.write(frame(spark, (3, "c")), replace(FIRST, batch=1))
    target.write(frame(spark), replace(FIRST, batch=2))
    assert (
        spark.read.format({"jsonl": "json"}.get(kind, kind))
        .option("header", True)
        .option("escape", '"')
        .load(str(tmp_path))
        .count()
        == 3
    )


def test_files_that_were_decided_before_a_crash_are_published_after_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    target = FilesTarget(tmp_path, "parquet", "flow.sink")
    target.recover()
    target.write(frame(spark, (1, "a")), FIRST)
    published = next(tmp_path.glob("*.parquet"))
    # As if the process had died between the decision and the renaming, with another attempt's
    # rubbish beside it.
    staged = tmp_path / "_millstream" / "flow.sink" / "staged"
    published.rename(staged / published.name)
    shutil.copy(staged / published.name, staged / "rubbish.parquet")
    FilesTarget(tmp_path, "parquet", "flow.sink").recover()
    assert pq.read_table(tmp_path).to_pylist() == [{"n": 1, "text": "a"}]
    assert list(staged.iterdir()) == []


def test_two_sinks_in_one_folder_leave_each_other_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    one, two = (
        FilesTarget(tmp_path, "parquet", "flow.one"),
        FilesTarget(tmp_path, "parquet", "flow.two"),
    )
    one.recover()
    (tmp_path / "_millstream" / "flow.one" / "staged" / "under way").touch()
    two.recover()
    one.write(frame(spark, (1, "a")), FIRST)
    two.write(frame(spark, (2, "b")), FIRST)
    assert sorted(row["n"] for row in pq.read_table(tmp_path).to_pylist()) == [1, 2]
    assert (tmp_path / "_millstream" / "flow.one" / "staged" / "under way").exists()


def test_a_stage_with_state_goes_on_after_its_only_sink_had_decided(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = ms.Flow("again")
    ticks = flow.source("ticks", ms.rate(1_000_000, rows=100), time="at")
    ticks.window("all", every="1 hour", n="count(*)").sink("out", ms.jsonl("out"))
    options = Options(tmp_path / "data", tmp_path)

    def dying(point: str) -> None:
        if point == "before-commit" and list((tmp_path / "out").glob("*.jsonl")):
            monkeypatch.undo()
            raise OSError("the process is gone")

    monkeypatch.setattr("millstream.spark.io.sink.passing", dying)
    for fails in (True, False):
        run = FlowRun(spark, flow, options)
        run.start()
        try:
            with pytest.raises(GroupFailed) if fails else nullcontext():
                assert run.wait(timeout=300)
        finally:
            run.stop()
    lines = [
        json.loads(line)
        for file in (tmp_path / "out").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert sum(line["n"] for line in lines) == 100


def test_a_run_starts_after_one_that_died_while_it_logged_its_first_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = ms.Flow("first")
    events = flow.source("events", ms.inbox("n long, at timestamp"), time="at")
    events.window("all", every="1 hour", n="count(*)").sink("out", ms.jsonl("out"))
    options = Options(tmp_path / "data", tmp_path)
    run = FlowRun(spark, flow, options)
    run.start()
    run.stop()
    (checkpoint,) = (
        path for path in (tmp_path / "data/first/groups/out").iterdir() if path.is_dir()
    )
    (checkpoint / "offsets").mkdir(exist_ok=True)
    for left in (checkpoint / "offsets").iterdir():
        left.unlink()
    (checkpoint / "offsets" / ".0.8c7e7a8a-7a8f-4d2b-9b7e-000000000000.tmp").write_bytes(b"")
    run = FlowRun(spark, flow, options)
    run.start()
    try:
        inbox = run.host.inbox("events")
        batch = pa.RecordBatch.from_pylist(
            [{"n": 1, "at": datetime(2024, 5, 4, tzinfo=UTC)}], schema=inbox.described().schema
        )
        inbox.enqueue("me", range(1), batch)
        inbox.instruct_nowait("me", 1, Kind.END_OF_STREAM).result()
        assert run.wait(timeout=300)
    finally:
        run.stop()
    (line,) = [
        line
        for file in (tmp_path / "out").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert json.loads(line)["n"] == 1


def test_json_lines_keep_nulls_out_and_nested_values_in(
    spark: SparkSession, tmp_path: Path
) -> None:
    target = FilesTarget(tmp_path, "jsonl", "flow.sink")
    target.recover()
    target.write(
        spark.sql("SELECT 1 AS n, array(1, 2) AS many, named_struct('x', 'y') AS one"), FIRST
    )
    line = next(tmp_path.glob("*.jsonl")).read_text()
    assert json.loads(line) == {"n": 1, "many": [1, 2], "one": {"x": "y"}}


def test_memory_keeps_an_epoch_once(spark: SparkSession) -> None:
    target = MemoryTarget()
    target.write(frame(spark, (1, "a")), FIRST)
    target.write(frame(spark, (1, "a")), FIRST)
    assert target.rows() == [{"n": 1, "text": "a"}]


@pytest.mark.postgres
def test_postgresql_takes_a_repeated_epoch_once(spark: SparkSession, postgres: str) -> None:
    import psycopg

    target = PostgresTarget(Postgres(postgres, "results"), "out")
    rows = spark.sql(
        "SELECT 1 AS n, 'ä\\t\\\\' AS text, timestamp '2020-01-01' AS at, 1.5D AS x, array('a', 'b') AS many, "
        "cast(2.25 AS decimal(9,2)) AS money, cast(null AS string) AS nothing, true AS yes, date '2020-02-02' AS day"
    )
    target.recover()
    target.prepare(rows.schema)
    assert target.write(rows, FIRST) == 1
    assert target.write(rows, FIRST) == 0
    assert target.write(rows, replace(FIRST, checkpoint="new version")) == 1
    target.prepare(rows.schema)
    with psycopg.connect(postgres) as connection:
        found = connection.execute(
            "SELECT n, text, x, many, money, nothing, yes FROM results"
        ).fetchall()
    assert len(found) == 2
    assert found[0][:4] == (1, "ä\t\\", 1.5, ["a", "b"])


@pytest.mark.postgres
def test_two_sinks_of_a_group_in_one_database_both_get_an_epoch(
    spark: SparkSession, postgres: str
) -> None:
    import psycopg

    rows, epoch = frame(spark, (1, "a"), (2, "b")), replace(FIRST, group="two")
    for table in ("first", "second"):
        target = PostgresTarget(Postgres(postgres, table), table)
        target.recover()
        target.prepare(rows.schema)
        assert target.write(rows, epoch) == 2
    with psycopg.connect(postgres) as connection:
        assert connection.execute("SELECT count(*) FROM second").fetchall() == [(2,)]


@pytest.mark.postgres
def test_postgresql_knows_an_epoch_that_the_version_before_has_written(
    spark: SparkSession, postgres: str
) -> None:
    import psycopg

    epoch = replace(FIRST, group="before")
    target = PostgresTarget(Postgres(postgres, "before"), "out")
    target.recover()
    target.prepare(frame(spark).schema)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO millstream_epochs (job, flow_group, checkpoint, batch) "
            "VALUES ('job', 'before', 'abc', 0)"
        )
    assert target.write(frame(spark, (1, "a")), epoch) == 0
    assert target.write(frame(spark, (2, "b")), replace(epoch, batch=1)) == 1


@pytest.mark.postgres
def test_postgresql_takes_results_back_from_a_moment_on(spark: SparkSession, postgres: str) -> None:
    import psycopg

    target = PostgresTarget(Postgres(postgres, "moments"), "out")
    rows = spark.sql(
        "SELECT n, timestamp_seconds(n) AS `at` FROM VALUES (1), (2), (3), (4) AS t(n)"
    )
    target.recover()
    target.prepare(rows.schema)
    assert target.write(rows, replace(FIRST, group="moments")) == 4
    for _ in range(2):  # again, as after a crash
        target.withdraw("at", 3_000_000)
        with psycopg.connect(postgres) as connection:
            assert connection.execute("SELECT n FROM moments ORDER BY n").fetchall() == [(1,), (2,)]


@pytest.mark.postgres
def test_an_epoch_that_fails_halfway_leaves_nothing_in_postgresql(
    spark: SparkSession, postgres: str
) -> None:
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE checked (n int CHECK (n < 10), text text)")
    target = PostgresTarget(Postgres(postgres, "checked"), "out")
    target.recover()
    epoch = replace(FIRST, group="checked")
    with pytest.raises(psycopg.errors.CheckViolation):
        target.write(frame(spark, (1, "a"), (11, "b")), epoch)
    assert target.write(frame(spark, (1, "a"), (2, "b")), epoch) == 2


def test_a_postgresql_that_is_not_there_is_named() -> None:
    with pytest.raises(RunError, match="PostgreSQL cannot be reached"):
        PostgresTarget(Postgres("postgresql://nobody@127.0.0.1:1/none", "x"), "out").recover()
