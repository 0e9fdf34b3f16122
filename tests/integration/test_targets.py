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
from millstream.journal import Kind, journal_at
from millstream.journal.kinds.files.layout import dead_folder
from millstream.spark import failpoints
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.io.targets import Epoch, SinkContext

pytestmark = pytest.mark.spark

FIRST = Epoch("job", "group", "abc", 0, None)


def sink(root: Path, name: str = "sink") -> SinkContext:
    return SinkContext("flow", name, root, root)


def frame(spark: SparkSession, *rows: tuple[int, str | None]) -> Any:
    return spark.createDataFrame(list(rows), "n int, text string")


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv"])
def test_files_hold_a_repeated_epoch_once(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    target = FilesTarget(tmp_path, kind, sink(tmp_path, "sink"))
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
    target = FilesTarget(tmp_path, "parquet", sink(tmp_path, "sink"))
    target.recover()
    target.write(frame(spark, (1, "a")), FIRST)
    published = next(tmp_path.glob("*.parquet"))
    # As if the process had died between the decision and the renaming, with another attempt's
    # rubbish beside it.
    staged = tmp_path / "_millstream" / "flow.sink" / "staged"
    published.rename(staged / published.name)
    shutil.copy(staged / published.name, staged / "rubbish.parquet")
    FilesTarget(tmp_path, "parquet", sink(tmp_path, "sink")).recover()
    assert pq.read_table(tmp_path).to_pylist() == [{"n": 1, "text": "a"}]
    assert list(staged.iterdir()) == []


def test_two_sinks_in_one_folder_leave_each_other_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    one, two = (
        FilesTarget(tmp_path, "parquet", sink(tmp_path, "one")),
        FilesTarget(tmp_path, "parquet", sink(tmp_path, "two")),
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
    target = FilesTarget(tmp_path, "jsonl", sink(tmp_path, "sink"))
    target.recover()
    target.write(
        spark.sql("SELECT 1 AS n, array(1, 2) AS many, named_struct('x', 'y') AS one"), FIRST
    )
    line = next(tmp_path.glob("*.jsonl")).read_text()
    assert json.loads(line) == {"n": 1, "many": [1, 2], "one": {"x": "y"}}


def test_memory_keeps_an_epoch_once(spark: SparkSession) -> None:
    target = MemoryTarget(sink(Path()))
    target.write(frame(spark, (1, "a")), FIRST)
    target.write(frame(spark, (1, "a")), FIRST)
    assert target.rows() == [{"n": 1, "text": "a"}]


@pytest.mark.postgres
def test_postgresql_takes_a_repeated_epoch_once(spark: SparkSession, postgres: str) -> None:
    import psycopg

    target = PostgresTarget(Postgres(postgres, "results"), sink(Path(), "out"))
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
        target = PostgresTarget(Postgres(postgres, table), sink(Path(), table))
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
    target = PostgresTarget(Postgres(postgres, "before"), sink(Path(), "out"))
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

    target = PostgresTarget(Postgres(postgres, "moments"), sink(Path(), "out"))
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
    target = PostgresTarget(Postgres(postgres, "checked"), sink(Path(), "out"))
    target.recover()
    epoch = replace(FIRST, group="checked")
    with pytest.raises(RunError, match='sink "out": new row for relation "checked"'):
        target.write(frame(spark, (1, "a"), (11, "b")), epoch)
    assert target.write(frame(spark, (1, "a"), (2, "b")), epoch) == 2


def test_a_postgresql_that_is_not_there_is_named() -> None:
    with pytest.raises(RunError, match="PostgreSQL cannot be reached"):
        PostgresTarget(
            Postgres("postgresql://nobody@127.0.0.1:1/none", "x"), sink(Path(), "out")
        ).recover()


def letters(path: Path) -> list[dict[str, Any]]:
    view = journal_at(dead_folder(path)).reader().partition(0)
    parts = [part.batch for part in view.read(view.begin, view.end) if part.batch is not None]
    return [row for batch in parts for row in batch.to_pylist()]


@pytest.mark.postgres
def test_what_a_table_does_not_take_becomes_dead_letters_with_column_and_reason(
    spark: SparkSession, postgres: str, tmp_path: Path
) -> None:
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE narrow (n int PRIMARY KEY, text varchar(3), amount numeric(5,2), "
            "small smallint NOT NULL, tags text[])"
        )
    rows = spark.sql(
        "SELECT n, text, cast(amount AS decimal(20,4)) AS amount, small, tags FROM VALUES "
        "(1, 'one', 1.5, 1L, array(array('a'))), (2, 'four', 1, 2L, null), (3, 'a', 12345.678, 3L, null), "
        "(4, 'b', 1, 70000L, null), (5, 'c', 1, null, null), (6, 'd', 1, 6L, array(array('a'), array())), "
        "(7, 'e', 1, 7L, null), (7, 'e', 1, 7L, null), (8, concat('x', char(0)), 1, 8L, null) "
        "AS t(n, text, amount, small, tags)"
    ).repartition(1)
    journal = tmp_path / "journal"
    journal_at(journal).create(pa.schema([("n", pa.int64())]), partitions=1, time=None)
    context = replace(sink(tmp_path, "out"), letters=journal)
    target = PostgresTarget(Postgres(postgres, "narrow"), context)
    target.recover()
    epoch = replace(FIRST, group="narrow")
    assert target.write(rows, epoch) == 2
    assert target.write(rows, epoch) == 0, "it is there"
    with psycopg.connect(postgres) as connection:
        assert connection.execute("SELECT n FROM narrow ORDER BY n").fetchall() == [(1,), (7,)]
    found = {json.loads(one["record"])["n"]: one["reason"] for one in letters(journal)}
    assert found[2] == 'sink "out": column "text": value too long for type character varying(3)'
    assert found[3] == 'sink "out": column "amount": numeric field overflow'
    assert found[4].startswith('sink "out": column "small": value "70000" is out of range')
    assert found[5].startswith('sink "out": column "small": null value in column "small"')
    assert found[6].startswith('sink "out": column "tags": malformed array literal')
    assert found[7].startswith('sink "out": duplicate key value violates unique constraint')
    assert found[8].startswith('sink "out": column "text": PostgreSQL\'s texts cannot hold')
    assert len(found) == len(letters(journal)) == 7


@pytest.mark.postgres
def test_a_table_that_lacks_a_column_stops_the_flow_and_is_named(
    spark: SparkSession, postgres: str
) -> None:
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE lacking (n int)")
    target = PostgresTarget(Postgres(postgres, "lacking"), sink(Path(), "out"))
    target.recover()
    with pytest.raises(RunError, match='"lacking" does not take the results: column "text"'):
        target.write(frame(spark, (1, "a")), replace(FIRST, group="lacking"))


@pytest.mark.postgres
def test_a_nul_in_a_text_stops_no_flow_and_is_a_dead_letter_of_its_source_once(
    spark: SparkSession, postgres: str, tmp_path: Path
) -> None:
    import psycopg

    (tmp_path / "in.jsonl").write_text(
        "\n".join(json.dumps({"n": n, "text": "a\0b" if n == 3 else "ok"}) for n in range(10))
    )
    flow = ms.Flow("nul")
    rows = flow.source("rows", ms.files("in.jsonl", "n long, text string"))
    rows.sink("table", ms.postgres(postgres, table="nul_rows"))
    rows.sink("beside", ms.memory())
    died = False

    def dies_once(point: str) -> None:
        nonlocal died
        if point == "refused" and not died:
            died = True
            raise OSError("the process is gone")

    for fails in (True, False):
        run = FlowRun(spark, flow, Options(tmp_path / "data", tmp_path))
        run.start()
        try:
            with (
                failpoints.watched(dies_once),
                pytest.raises(GroupFailed) if fails else nullcontext(),
            ):
                assert run.wait(timeout=300)
        finally:
            run.stop()
    with psycopg.connect(postgres) as connection:
        found = connection.execute("SELECT n FROM nul_rows ORDER BY n").fetchall()
    assert found == [(n,) for n in range(10) if n != 3]
    (letter,) = letters(tmp_path / "data/nul/journals/rows")
    assert letter["origin"] == "sink:table"
    assert 'sink "table": column "text": ' in letter["reason"]
    assert json.loads(letter["record"]) == {"n": 3, "text": "a\0b"}
