"""Sinks that share a query have the rows, columns and files that a query of their own gives them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millstream as ms
from millstream.journal import Kind
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.io.sink_rows import rows_of
from millstream.spark.stages.composed import Branch, branch_of, composed

pytestmark = pytest.mark.spark

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
ROWS: Final = [
    {"n": n, "word": f'w"{n % 3}, ü' if n % 5 else None, "at": BEGIN + timedelta(seconds=n)}
    for n in range(200)
]
QUERIES: Final = {
    "all": "SELECT * FROM numbers",
    # These fail on other rows: a column is computed for those of its sinks alone.
    "parts": "SELECT 1000 div n AS part, n, at FROM numbers WHERE n > 0",
    "odd": "SELECT upper(word) AS word, 100 div (n % 2) AS n, at FROM numbers WHERE n % 2 = 1",
    "fixed": "SELECT at, 7 AS seven, coalesce(word, '?') AS word FROM numbers WHERE n < 20",
    "none": "SELECT word, at FROM numbers WHERE n > 1000",
}
FORMATS: Final = ("parquet", "jsonl", "csv")


def flow_of(folder: Path, *, apart: bool) -> ms.Flow:
    flow = ms.Flow("formats")
    numbers = flow.source("numbers", ms.inbox("n bigint, word string, at timestamp"), time="at")
    names = []
    for name, query in QUERIES.items():
        rows = numbers.sql(name, query)
        for kind in FORMATS:
            rows.sink(f"{name}_{kind}", getattr(ms, kind)(folder / f"{name}_{kind}"))
        rows.sink(f"{name}_memory", ms.memory())
        sinks = [f"{name}_{kind}" for kind in (*FORMATS, "memory")]
        names += sinks
        if apart:
            flow.group(f"only_{name}", *sinks)
    if not apart:
        flow.group("together", *names)
    return flow


def written(spark: SparkSession, place: Path, *, apart: bool) -> dict[str, Any]:
    """Run the flow; return what each sink has."""
    run = FlowRun(spark, flow_of(place, apart=apart), Options(place / "data", place, 50))
    try:
        run.start()
        assert all((query.shared is None) == apart for query in run.queries.values())
        inbox = run.host.inbox("numbers")
        schema = pa.schema(
            [("n", pa.int64()), ("word", pa.string()), ("at", pa.timestamp("us", "UTC"))]
        )
        inbox.enqueue("me", range(len(ROWS)), pa.RecordBatch.from_pylist(ROWS, schema))
        inbox.instruct_nowait("me", len(ROWS), Kind.END_OF_STREAM).result()
        assert run.wait(timeout=120)
        found: dict[str, Any] = {
            name: sorted(map(repr, sink.rows())) for name, sink in run.memory.items()
        }
    finally:
        run.stop()
    for name in QUERIES:
        tables = [
            pq.read_table(one) for one in sorted((place / f"{name}_parquet").glob("*.parquet"))
        ]
        found[f"{name}_schemas"] = {str(one.schema.remove_metadata()) for one in tables}
        found[f"{name}_parquet"] = sorted(repr(row) for one in tables for row in one.to_pylist())
        for kind in ("jsonl", "csv"):
            texts = [one.read_text() for one in (place / f"{name}_{kind}").glob(f"*.{kind}")]
            found[f"{name}_{kind}"] = sorted({line for text in texts for line in text.splitlines()})
    return found


def test_sinks_of_every_kind_have_what_queries_of_their_own_give_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    places = {True: tmp_path / "apart", False: tmp_path / "together"}
    for place in places.values():
        place.mkdir()
    alone, shared = (written(spark, place, apart=apart) for apart, place in places.items())
    assert len(alone["parts_parquet"]) == 199
    assert len(alone["all_jsonl"]) == 200
    assert alone["none_parquet"] == []
    assert shared == alone


def branches(queries: Sequence[DataFrame]) -> list[Branch]:
    found = [branch_of(one) for one in queries]
    assert None not in found
    return [one for one in found if one is not None]


def test_columns_that_sinks_have_in_common_are_there_once(spark: SparkSession) -> None:
    base = spark.range(10).select("id", F.col("id").alias("same")).observe("o", F.count("*"))
    frames = [
        base.where("id > 2").selectExpr("id AS a", "id + 1 AS b"),
        base.where("id > 5").selectExpr("id + 1 AS c", "id AS d", "same AS e"),
    ]
    frame, sinks = composed(spark, branches(frames))
    assert frame.columns == ["__flags0", "c0", "c1", "c2"]
    assert [one.columns for one in sinks] == [("c0", "c1"), ("c1", "c0", "c2")]
    for own, rows in zip(frames, sinks, strict=True):
        assert rows_of(frame, rows).collect() == own.collect()


def test_more_sinks_than_a_number_has_bits_have_their_own_rows(spark: SparkSession) -> None:
    base = spark.range(150).observe("o", F.count("*"))
    frames = [
        base.where(F.col("id") % 130 == n).selectExpr("id", f"id * {n} AS x") for n in range(130)
    ]
    frame, sinks = composed(spark, branches(frames))
    assert {one.flags for one in sinks} == {"__flags0", "__flags62", "__flags124"}
    for number in (0, 1, 61, 62, 63, 124, 129):
        rows = rows_of(frame, sinks[number])
        expected = [(n, n * number) for n in range(150) if n % 130 == number]
        assert [tuple(row) for row in rows.collect()] == expected
