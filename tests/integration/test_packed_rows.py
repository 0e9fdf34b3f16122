"""Rows that a source packs are those that Spark would pack, in the same shards, whatever their key."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from millstream.spark.io.packed import SHARD, Packed, from_bytes
from millstream.spark.io.row_tests import Masking, meeting
from millstream.spark.io.shard_rows import COUNT, ROWS, Shards, message_schema, shard_messages
from millstream.spark.stages.ordered import _messages
from millstream.spark.stages.sql_tests import NeedsSql, chosen, row_test

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

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
    shards = Shards("k", 64, json.dumps(schema.jsonValue()), "at")
    ours = shard_messages(batch, shards, message_schema("at", "__marker"))
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


TYPES = "s string, n long, i int, y tinyint, d double, b boolean, f float, at timestamp, p struct<n: long>"
VALUES: dict[str, list[Any]] = {
    "s": ["", "A", "B", "a", "Zürich", "日本", "A\0", None],
    "n": [0, 1, -1, 50, 2**53 + 1, 2**63 - 1, -(2**63), None],
    "i": [0, 50, -50, 2**31 - 1, None, 1, 2, 3],
    "y": [127, -128, 0, None, 1, 2, 3, 50],
    "d": [0.0, -0.0, 0.1, 50.0, math.inf, -math.inf, math.nan, None],
    "b": [True, False, None, True, False, None, True, False],
}
SIGNS = ("=", "<>", "!=", "<", "<=", ">", ">=", "==")
BY_ARROW = [
    *(
        f"{column} {sign} {value}"
        for sign in SIGNS
        for column, value in [("s", "'A'"), ("n", "50"), ("d", "50")]
    ),
    *(
        f"{value} {sign} {column}"
        for sign in SIGNS
        for column, value in [("s", "'A'"), ("n", "-1"), ("d", "0.1")]
    ),
    *("d > 0", "d >= -0.0", "d < 1", "NOT d > 50", "d = 0.0", "d <= 123456789.012345", "D > .1"),
    *(
        "n > 999999999999999",
        "y < 1000",
        "y > -129",
        "i = 50",
        "`n` BETWEEN -1 AND 50",
        "d NOT BETWEEN 0 AND 1",
    ),
    *(
        "s IN ('A', 'Zürich')",
        "s NOT IN ('A', '')",
        "n IN (1, -1)",
        "s < 'B'",
        "s >= '日'",
        "s = ''",
    ),
    *("b", "NOT b", "b = true", "false <> b", "true", "false", "n IS NULL", "s IS NOT NULL", "(b)"),
    *(
        "b AND d > 0",
        "b OR d > 0",
        "NOT (b AND s = 'A') OR n IS NULL",
        "s = 'A' AND n > 0 AND d < 1 OR b",
        " OR ".join(f"n = {one}" for one in range(-300, 300)),
    ),
]
BY_SPARK_ALONE = [
    *(
        "s LIKE 'A%'",
        "n > 1.5",
        "d > 1e3",
        "n + 1 > 2",
        "n = i",
        "s = 1",
        "n = '1'",
        "f > 0",
        "p.n > 0",
    ),
    *(
        "s <=> 'A'",
        "s IN ('A', NULL)",
        "s = 'it\\\\s'",
        "s = 'a\\nb'",
        "s = 'it''s'",
        "s = '${env:HOME}'",
        "NOT " * 60 + "b",
        "n > 9999999999999999999",
        "at > '2020-01-01'",
        "b < true",
    ),
    *(
        "upper(s) = 'A'",
        "n IN (1, i)",
        "s = NULL",
        "d > 0.1234567890123456",
        "nothing = 1",
        "CASE WHEN b THEN true END",
    ),
]


@pytest.mark.parametrize("shift", [0, 3])
def test_a_source_finds_the_rows_that_spark_finds(spark: SparkSession, shift: int) -> None:
    schema: Any = StructType.fromDDL(TYPES)
    # Every value beside several of the other columns.
    columns = {
        name: [values[(row * (place + 1) + row // 8) % 8] for row in range(64)]
        for place, (name, values) in enumerate(VALUES.items())
    }
    arrow = to_arrow_schema(schema, timezone="UTC")
    arrays = [pa.array(columns.get(one.name, [None] * 64), one.type) for one in arrow]
    batch = pa.RecordBatch.from_arrays(arrays, schema=arrow)
    tests = tuple(row_test(sql, schema) for sql in BY_ARROW)
    found = [Masking(batch).mask(tests[at : at + 30], shift) for at in range(0, len(tests), 30)]
    frame = spark.createDataFrame(pa.Table.from_batches([batch]))
    theirs = frame.selectExpr(
        *(f"coalesce({sql}, false) AS t{at}" for at, sql in enumerate(BY_ARROW))
    )
    for row, expected in enumerate(theirs.toArrow().to_pylist()):
        for at, sql in enumerate(BY_ARROW):
            bit = int(found[at // 30][row]) >> (at % 30 + shift) & 1
            assert bool(bit) == expected[f"t{at}"], (sql, batch.slice(row, 1).to_pylist())


def test_a_source_keeps_the_rows_of_a_query_that_only_leaves_rows_out() -> None:
    schema: Any = StructType.fromDDL("n long, s string")
    batch = pa.RecordBatch.from_pydict({"n": [1, None, 3, 4], "s": ["a", "b", None, "a"]})
    found = [
        chosen(sql, "rows", schema)
        for sql in ("SELECT * FROM rows WHERE NOT n > 3", "SELECT * FROM rows WHERE s = 'a'")
    ]
    tests = tuple(one.test for one in found if one is not None and one.columns is None)
    assert len(tests) == 2
    assert meeting(batch, tests).to_pylist() == [{"n": 1, "s": "a"}]
    assert chosen("SELECT * FROM rows WHERE abs(n) > 3", "rows", schema) is None
    assert chosen("SELECT * FROM rows WHERE s = 'a\\n'", "rows", schema) is None


@pytest.mark.parametrize("sql", BY_SPARK_ALONE)
def test_what_arrow_might_compute_otherwise_is_left_to_spark(sql: str) -> None:
    schema: Any = StructType.fromDDL(TYPES)
    with pytest.raises(NeedsSql):
        row_test(sql, schema)
