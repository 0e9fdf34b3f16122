"""Rows that a source packs go to the shards in which Spark puts them, whatever their key."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from millstream.spark.io.packed import SHARD, Packed, from_bytes
from millstream.spark.io.shard_rows import COUNT, ROWS, Shards, message_schema, messages
from millstream.spark.stages.ordered import _messages

pytestmark = pytest.mark.spark

KEYS: dict[str, list[Any]] = {
    "string": ["", "a", "Zürich", "日本", "a" * 100, "\0", None],
    "long": [0, 1, -1, 2**63 - 1, -(2**63), None],
    "int": [0, 7, -7, 2**31 - 1, None],
    "smallint": [0, -3, 99, None],
    "boolean": [True, False, None],
    "date": [date(1970, 1, 1), date(2024, 2, 29), date(1912, 6, 23), None],
}
BEGIN = datetime(2024, 5, 4, tzinfo=UTC)


def rows(keys: list[Any]) -> list[tuple[Any, ...]]:
    return [
        (key, number, BEGIN + timedelta(seconds=number % 5)) for number, key in enumerate(keys * 40)
    ]


@pytest.mark.parametrize("kind", KEYS)
def test_a_source_packs_rows_for_the_shards_that_spark_packs_them_for(
    spark: SparkSession, kind: str
) -> None:
    ddl = f"k {kind}, n long, at timestamp"
    schema = StructType.fromDDL(ddl)
    given = rows(KEYS[kind])
    arrow = to_arrow_schema(schema, timezone="UTC")
    columns = [pa.array(column, one.type) for column, one in zip(zip(*given), arrow, strict=True)]  # noqa: B905
    batch = pa.RecordBatch.from_arrays(columns, schema=arrow)
    shards = Shards("k", 64, json.dumps(schema.jsonValue()))
    ours = messages(batch, shards, message_schema("at", "__marker"))
    # Through Spark, in one partition: the same messages, byte for byte but for their order.
    frame = spark.createDataFrame(given, schema).coalesce(1)
    theirs = _messages(frame.sortWithinPartitions("n"), ("k",), 64, "at").collect()
    mine = dict(zip(ours.column(SHARD).to_pylist(), ours.column(ROWS).to_pylist(), strict=True))
    assert mine.keys() == {row[SHARD] for row in theirs}
    for row in theirs:
        expected, found = from_bytes(bytes(row["rows"])), from_bytes(mine[row[SHARD]])
        assert found.schema.equals(expected.schema)
        assert found.equals(expected)
    assert sum(ours.column(COUNT).to_pylist()) == len(given)
    for data, due in zip(ours.column(ROWS), ours.column("at"), strict=True):
        lowest = min(from_bytes(data.as_py()).column("at").to_pylist())
        assert due.as_py() == lowest
        assert Packed.of(data.as_py(), "at").lowest == lowest.timestamp() * 1_000_000


def test_the_shard_of_a_key_without_columns_is_the_first(spark: SparkSession) -> None:
    frame = spark.range(10).select("id", F.lit(BEGIN).alias("at"))
    assert {row[SHARD] for row in _messages(frame, (), 64, "at").collect()} == {0}
