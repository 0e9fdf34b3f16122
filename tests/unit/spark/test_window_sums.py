"""Which windows take sums of rows, and what they compute of these."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import millstream as ms
from millstream.flow.stages import Window
from millstream.spark.io.checkpoint import Checkpoint
from millstream.spark.io.row_tests import Always, Compare, Missing, Not
from millstream.spark.io.summed_rows import Merged, Met
from millstream.spark.stages.build import Sifted
from millstream.spark.stages.sql_tests import Chosen, chosen
from millstream.spark.stages.window_sums import Summing, summing_of

TYPES: dict[str, DataType] = {
    "k": StringType(),
    "n": IntegerType(),
    "x": DoubleType(),
    "b": BooleanType(),
    "d": DecimalType(9, 2),
    "f": FloatType(),
    "group by": LongType(),
    "at": TimestampType(),
}
DDL = ", ".join(f"`{name}` {kind.simpleString()}" for name, kind in TYPES.items())
COLUMNS = StructType([StructField(name, kind) for name, kind in TYPES.items()])


def summing(
    aggregate: str = "count(*)", by: str | dict[str, str] = "k", **lengths: str
) -> Summing | None:
    flow = ms.Flow("sums")
    events = flow.source("events", ms.inbox(DDL), time="at")
    events.window("w", **(lengths or {"every": "1 minute"}), by=by, found=aggregate)  # type: ignore[arg-type]
    stage = flow.stages["w"]
    assert isinstance(stage, Window)
    return summing_of(stage, COLUMNS, "at")


@pytest.mark.parametrize(
    ("text", "over_sums"),
    [
        ("count(*)", "coalesce(sum(__count), 0L)"),
        ("COUNT(1)", "coalesce(sum(__count), 0L)"),
        ("count(n)", "coalesce(sum(__sum0), 0L)"),
        ("count_if(x > 1)", "coalesce(sum(__sum0), 0L)"),
        ("sum(n)", "sum(__sum0)"),
        ("max(x)", "max(__sum0)"),
        ("min(`group by`)", "min(__sum0)"),
        ("avg(n)", "try_divide(sum(__sum0), sum(__sum1))"),
        ("round(sum(x), 2) /* ${ä} */", "round(sum(__sum0), 2) /* ${ä} */"),
        ("concat('it''s ', count( * ))", "concat('it''s ', coalesce(sum(__count), 0L))"),
        ("-128Y * nvl(SUM(n), 0)", "-128Y * nvl(sum(__sum0), 0)"),
        (
            "count(*) * interval 1 day 2 hours",
            "coalesce(sum(__count), 0L) * interval 1 day 2 hours",
        ),
        ("max(n) - min(n) + max( n )", "max(__sum0) - min(__sum1) + max(__sum0)"),
        ("sum(n) / count(*)", "sum(__sum0) / coalesce(sum(__count), 0L)"),
        ("concat('sum(x)', sum(x), k)", "concat('sum(x)', sum(__sum0), k)"),
    ],
)
def test_aggregates_that_are_computed_of_sums(text: str, over_sums: str) -> None:
    found = summing(text)
    assert found is not None
    assert found.aggregates == (("found", over_sums),)


@pytest.mark.parametrize(
    "text",
    [
        *("collect_set(n)", "max_by(n, x)", "first(n)", "approx_count_distinct(k)", "stddev(x)"),
        *("sum(n + 1)", "max(k)", "sum(d)", "sum(f)", "count(n, x)", "mean(n)", "try_sum(n)"),
        *("count_if(x > n)", "sum(n) FILTER (WHERE b)", "my_sum(k) + count(*)"),
        *("soundex(k) || count(*)", "`my-agg`(k) + count(*)", "count_if(k = 'it''s')"),
        *("count_if(k = '${x}')", "sum(if(b, n, 0))", "bool_or(b)", "percentile(x, 0.5)"),
    ],
)
def test_aggregates_that_need_the_rows(text: str) -> None:
    assert summing(text) is None


def test_how_an_aggregate_is_spelled_decides_nothing() -> None:
    # A checkpoint that takes sums goes on under a text that means the same.
    spelled = ("count_if(k = 'A')", "COUNT_IF( k = '\\u0041' ) -- ${x}", "count_if(k = r'A')")
    found = [summing(text) for text in spelled]
    sums = [(one.sums, one.schema) for one in found if one is not None]
    assert sums == [sums[0]] * 3


def test_parts_are_taken_once() -> None:
    found = summing("sum(x) / count(x) + avg(x) + count_if(x IS NOT NULL)")
    assert found is not None
    assert found.sums.parts == (Merged("__sum0", "sum", "x"), Met("__sum1", Not(Missing("x"))))
    # A sum of whole numbers and that of their average are two.
    found = summing("sum(n) + avg(n)")
    assert found is not None
    assert [type(one) for one in found.sums.parts] == [Merged, Merged, Met]
    assert [one.dataType.simpleString() for one in found.schema] == [
        *("timestamp", "string", "bigint", "bigint", "double", "bigint")
    ]


def test_what_a_source_reads() -> None:
    found = summing("count_if(n > 3)", by={"shop": "upper(k)", "b": "b"})
    assert found is not None
    assert found.sums.keys == ("k", "b")
    assert found.sums.parts == (Met("__sum0", Compare("n", ">", 3)),)
    assert found.sums.needed == {"at", "k", "b", "n"}


@pytest.mark.parametrize("by", ["x", "d", "at", {"hour": "date_trunc('hour', at)"}])
def test_keys_that_need_the_rows(by: str | dict[str, str]) -> None:
    # Fractions have two zeros and many NaN; sums have not the time of their rows.
    assert summing(by=by) is None


def test_a_pane_is_cut_by_no_window() -> None:
    sliding = summing(size="10 seconds", every="4 seconds")
    assert sliding is not None
    assert sliding.sums.pane == 2_000_000
    assert summing(gap="10 seconds") is None


NESTED = StructType(
    [
        StructField("kind", IntegerType()),
        StructField("bid", StructType([StructField("price", LongType()), *COLUMNS.fields[:2]])),
        StructField("at", TimestampType()),
    ]
)


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT at, kind AS sort FROM rows", {"at": ("at",), "sort": ("kind",)}),
        (
            "SELECT bid.*, at FROM rows",
            {"price": ("bid", "price"), "k": ("bid", "k"), "n": ("bid", "n"), "at": ("at",)},
        ),
        ("SELECT BID.Price AS p, at FROM rows", {"p": ("bid", "price"), "at": ("at",)}),
        ("SELECT kind + 1 AS kind, at FROM rows", {"at": ("at",)}),
        ("SELECT *, kind AS x FROM rows", {one: (one,) for one in NESTED.names} | {"x": ("kind",)}),
    ],
)
def test_columns_that_a_query_only_chooses(query: str, columns: dict[str, tuple[str, ...]]) -> None:
    found = chosen(query, "rows", NESTED)
    assert found == Chosen(Always(True), columns)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT rows.at FROM rows",
        "SELECT rows.* FROM rows",
        "SELECT * EXCEPT (kind) FROM rows",
        "SELECT at, kind, bid.k AS KIND FROM rows",
        "SELECT bid.nothing, at FROM rows",
        "SELECT kind.price, at FROM rows",
        "SELECT at FROM rows WHERE bid.k = 'a'",
    ],
)
def test_queries_that_only_spark_understands(query: str) -> None:
    assert chosen(query, "rows", NESTED) is None


def test_what_stages_choose_one_below_the_other() -> None:
    source = Sifted("rows", ("rows",))
    test = Compare("kind", "=", 2)
    bids = source.below("bids", Chosen(test, {"k": ("bid", "k"), "at": ("at",), "bid": ("bid",)}))
    assert bids == Sifted("rows", ("rows", "bids"), (test,), bids.columns if bids else None)
    assert bids.whole is None
    assert source.below("some", Chosen(test)) == Sifted("rows", ("rows", "some"), (test,))
    # A test under other names than the source's stays with Spark.
    assert bids.below("some", Chosen(Compare("k", "=", "a"))) is None
    assert bids.below("all", Chosen(Always(True))) == bids._replace(stages=("rows", "bids", "all"))
    named = bids.below("named", Chosen(Always(True), {"x": ("bid", "price"), "y": ("z",)}))
    assert named is not None
    assert named.columns == {"x": ("bid", "price")}


EMPTY = {"format": 1, "group": "group", "stages": {}, "output": {}, "functions": {}}


def test_a_checkpoint_knows_whether_its_windows_take_sums(tmp_path: Path) -> None:
    made = Checkpoint.open(tmp_path, "group", dict(EMPTY)).begin()
    found = Checkpoint.open(tmp_path, "group", dict(EMPTY))
    assert made.sums
    assert found == made
    assert found.handed_to(dict(EMPTY)).sums
    assert Checkpoint.open(tmp_path, "group", dict(EMPTY)).sums


def test_windows_of_a_checkpoint_of_an_earlier_release_take_rows(tmp_path: Path) -> None:
    record = tmp_path / "group.json"
    earlier = {"checkpoint": "abc", "description": EMPTY}
    record.write_text(json.dumps(earlier))
    found = Checkpoint.open(tmp_path, "group", dict(EMPTY))
    assert not found.handed_to(dict(EMPTY)).sums
    assert json.loads(record.read_text()) == earlier
