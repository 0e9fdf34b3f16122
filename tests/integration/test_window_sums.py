"""Windows over sums of rows say what windows over the rows say, whatever the rows are."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.errors import ArithmeticException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

import millstream as ms
from millstream.flow.stages import Window
from millstream.spark.io import summed_rows
from millstream.spark.io.schemas import arrow_schema
from millstream.spark.io.source import MARKER
from millstream.spark.io.summed_rows import summed
from millstream.spark.stages.window_sums import Summing, summing_of
from millstream.testing import flow_test

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DDL = "s string, n long, i int, y tinyint, d double, b boolean, day date, at timestamp"
BEGIN = datetime(2024, 5, 4, tzinfo=UTC)
VALUES: dict[str, list[Any]] = {
    "s": ["", "a", "Zürich", "日本", "a\0", None],
    "n": [0, 1, -1, 2**50 + 1, -(2**40), None],
    "i": [0, 7, -7, 2**31 - 1, -(2**31), None],
    "y": [0, -3, 60, -40, None],
    "d": [0.0, 0.5, -0.25, 1e9, None],
    "b": [True, False, None],
    "day": [date(1970, 1, 1), date(2024, 2, 29), date(1912, 6, 23), None],
}
#: Values that Arrow and Spark treat differently: rows with them go out one by one.
SPECIAL: dict[str, list[Any]] = {
    "d": [math.nan, -0.0, math.inf, -math.inf, 0.0, 1.0, None],
}
AGGREGATES = {
    "rows_in": "count(*)",
    "there": "count(i) + count(s)",
    "met": "count_if(d > 0 AND b)",
    "total": "sum(n)",
    "small": "sum(y)",
    "fractions": "round(sum(d), 3)",
    "lowest": "min(d)",
    "highest": "max(d) + min(y)",
    "ints": "max(i)",
    "mean": "avg(d)",
    "mean_int": "round(avg(i), 6)",
    "spread": "(max(y) - min(y)) / count(*)",
}


def rows(number: int, seed: int, special: bool) -> list[tuple[Any, ...]]:
    """Return random rows; some from before 1970."""
    chance = random.Random(seed)
    values = VALUES | (SPECIAL if special else {})
    moments = [
        (BEGIN if chance.random() < 0.9 else datetime(1969, 12, 31, tzinfo=UTC))
        + timedelta(microseconds=chance.randrange(180_000_000))
        for _ in range(number)
    ]
    return [(*(chance.choice(one) for one in values.values()), at) for at in moments]


def window(by: Any, **lengths: str) -> Window:
    flow = ms.Flow("sums")
    events = flow.source("events", ms.inbox(DDL), time="at")
    events._windowed("w", {"every": None, "size": None, **lengths}, by, AGGREGATES)
    stage = flow.stages["w"]
    assert isinstance(stage, Window)
    return stage


def over(frame: DataFrame, stage: Window, aggregates: Any) -> list[Any]:
    assert stage.size is not None
    assert stage.every is not None
    span = F.window("at", f"{stage.size.seconds} seconds", f"{stage.every.seconds} seconds")
    by = [F.expr(text).alias(name) for name, text in stage.by]
    named = [F.expr(text).alias(name) for name, text in aggregates]
    found = frame.groupBy(span.alias("w"), *by).agg(*named)
    return sorted(repr(tuple(row)) for row in found.collect())


def by_source(spark: SparkSession, found: Summing, batches: list[pa.RecordBatch]) -> DataFrame:
    """Return the sums that a source makes of rows."""
    columns = StructType([*found.schema.fields, StructField(MARKER, BooleanType())])
    sums = replace(found.sums, paths={one: (one,) for one in found.sums.needed})
    made = list(summed(iter(batches), sums, arrow_schema(columns)))
    table = pa.Table.from_batches(made)
    assert not any(table.column(MARKER).to_pylist())
    return spark.createDataFrame(table, columns)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize(
    ("by", "lengths"),
    [
        ("s", {"every": "1 minute"}),
        (["i", "b", "day"], {"every": "7 seconds"}),
        ({"code": "upper(s)", "odd": "n % 2"}, {"size": "10 seconds", "every": "4 seconds"}),
        ([], {"every": "1 minute"}),
    ],
)
def test_sums_give_what_rows_give(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    by: Any,
    lengths: dict[str, str],
    special: bool,
) -> None:
    monkeypatch.setattr(summed_rows, "FEWEST", 2)
    monkeypatch.setattr(summed_rows, "WORTH", 1.0)
    stage = window(by, **lengths)
    columns = StructType.fromDDL(DDL)
    assert isinstance(columns, StructType)
    found = summing_of(stage, columns, "at")
    assert found is not None
    given = rows(600, 7, special)
    arrow = arrow_schema(columns)
    whole = pa.Table.from_pylist([dict(zip(arrow.names, row, strict=True)) for row in given], arrow)
    frame = spark.createDataFrame(whole, columns)
    expected = over(frame, stage, stage.aggregates)
    assert over(frame.selectExpr(*found.single), stage, found.aggregates) == expected
    for size in (1, 50, 600):
        added = by_source(spark, found, whole.to_batches(max_chunksize=size))
        assert over(added, stage, found.aggregates) == expected
        if size == 600 and by in ("s", []):
            assert (added.count() < 100) == (not special), "the rows were summed up"
    # The types are those of windows over rows, to the letter.
    types = [
        frame.groupBy().agg(*(F.expr(text).alias(name) for name, text in aggregates)).schema
        for frame, aggregates in ((frame, stage.aggregates), (added, found.aggregates))
    ]
    assert types[0] == types[1]


def test_a_sum_that_overflows_fails_as_it_does_over_rows(spark: SparkSession) -> None:
    """Arrow would wrap around without a word."""
    stage = window([], every="1 minute")
    columns = StructType.fromDDL(DDL)
    assert isinstance(columns, StructType)
    found = summing_of(stage, columns, "at")
    assert found is not None
    row = dict.fromkeys(columns.names) | {"n": 2**62, "at": BEGIN}
    whole = pa.Table.from_pylist([row] * 10_000, arrow_schema(columns))
    with pytest.raises(ArithmeticException, match="overflow"):
        over(by_source(spark, found, whole.to_batches()), stage, found.aggregates)


EVENTS = "k string, v long, x double, at timestamp"
START = datetime(2020, 1, 1, 10, tzinfo=UTC)


def events(number: int, first: int = 0) -> list[dict[str, Any]]:
    return [
        {"k": f"k{one % 7}", "v": one % 3, "x": one / 4, "at": START + timedelta(milliseconds=one)}
        for one in range(first, first + number)
    ]


def sums_of(given: list[dict[str, Any]], seconds: int) -> dict[tuple[str, datetime], Any]:
    """Return the count, the total and the number of twos of each key and window."""
    found: dict[tuple[str, datetime], Any] = {}
    for one in given:
        begin = START + (one["at"] - START) // timedelta(seconds=seconds) * timedelta(
            seconds=seconds
        )
        count, total, twos = found.get((one["k"], begin), (0, 0.0, 0))
        found[one["k"], begin] = count + 1, total + one["x"], twos + (one["v"] == 2)
    return found


def flow_of(by: Any = "k", keep: str = "true") -> ms.Flow:
    flow = ms.Flow("sums")
    source = flow.source("events", ms.inbox(EVENTS), time="at", key="k", lateness="0 s")
    kept = source.sql("kept", f"SELECT * FROM events WHERE {keep}")
    sums = kept.window(
        *("totals",), every="3 seconds", by=by, n="count(*)", total="sum(x)", twos="count_if(v = 2)"
    )
    sums.sink("out", ms.memory())
    return flow


def found_in(results: list[dict[str, Any]]) -> dict[tuple[str, datetime], Any]:
    return {
        (row["k"], row["window_start"]): (row["n"], row["total"], row.get("twos"))
        for row in results
    }


@pytest.mark.parametrize("by", ["k", {"k": "concat('', k)"}])
def test_a_flow_adds_up_what_its_source_has_summed_up(by: Any) -> None:
    given = events(30_000)
    with flow_test(flow_of(by, "v <> 1")) as t:
        for first in range(0, len(given), 10_000):
            t.send("events", given[first : first + 10_000])
        t.end()
        kept = [one for one in given if one["v"] != 1]
        assert found_in(t.results("out")) == sums_of(kept, 3)
        (numbers,) = t._run.statistics().groups
        assert numbers.rows_in == len(given), "rows that are left out were read, too"


def test_a_flow_adds_up_fields_of_its_rows() -> None:
    """Rows of several kinds in one stream: each has what is its own in a struct."""
    given = events(20_000)
    flow = ms.Flow("sums")
    columns = "kind int, bid struct<shop: string, x: double, v: long>, at timestamp"
    source = flow.source("events", ms.inbox(columns), time="at", lateness="0 s")
    bids = source.sql("bids", "SELECT bid.shop AS k, bid.*, at FROM events WHERE kind = 2")
    bids.sql("same", "SELECT k, x, v, upper(k) AS other, at FROM bids").window(
        *("totals",),
        every="3 seconds",
        by="k",
        n="count(*)",
        total="sum(x)",
        twos="count_if(v = 2)",
    ).sink("out", ms.memory())
    sent = []
    for number, one in enumerate(given):
        bid = {"shop": one["k"], "x": one["x"], "v": one["v"]}
        kind = number % 4
        sent.append({"kind": kind, "bid": bid if kind else None, "at": one["at"]})
    with flow_test(flow) as t:
        t.send("events", sent[:9_000])
        t.send("events", sent[9_000:])
        t.end()
        assert found_in(t.results("out")) == sums_of(given[2::4], 3)
        (numbers,) = t._run.statistics().groups
        assert numbers.rows_in == len(given)


def numbered(known: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return known + 1, {**row, "number": known + 1}


def handed_over(keep: str) -> ms.Flow:
    """Return a flow whose windows hand their state to the next version, as they are above a fold."""
    flow = ms.Flow("handed")
    source = flow.source("events", ms.inbox(EVENTS), time="at", key="k", lateness="0 s")
    kept = source.sql("kept", f"SELECT * FROM events WHERE {keep}")
    mean = "sum(x) / count(x)"
    sums = kept.window(
        *("totals",),
        every="3 seconds",
        by="k",
        n="count(*)",
        total="sum(x)",
        mean="avg(x)",
        same=mean,
    )
    output = "k string, window_start timestamp, window_end timestamp, window_time timestamp, n long, total double, mean double, same double, number int"
    sums.fold("numbers", numbered, initial=0, output=output).sink("out", ms.memory())
    return flow


@pytest.mark.parametrize("before", ["v <> 1", "abs(v) <> 1"])
def test_windows_keep_their_state_when_a_stage_above_them_changes(before: str) -> None:
    """A source can tell which rows meet one of the conditions, and only Spark which meet the other."""
    after = "abs(v) <> 1" if before == "v <> 1" else "v <> 1"
    given = events(12_000)
    for one in given[:5_000]:
        one["x"] = None  # a window that is open at the switch has had no value yet
    with flow_test(handed_over(before)) as t:
        t.send("events", given[:5_000])
        assert len(t.results("out")) == 7
        t._run.switch(handed_over(after), "2")
        t.send("events", given[5_000:])
        t.end()
        assert t.wait()
        assert t._run.version == "2"
        found = found_in(t.results("out"))
        means = {(row["k"], row["window_start"]): row["mean"] for row in t.results("out")}
        assert all(row["same"] == row["mean"] for row in t.results("out"))
    expected: dict[tuple[str, datetime], list[float | None]] = {}
    for one in given:
        if one["v"] != 1:
            second = (one["at"] - START) // timedelta(seconds=3) * 3
            expected.setdefault((one["k"], START + timedelta(seconds=second)), []).append(one["x"])
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        there = [one for one in values if one is not None]
        assert found[key][:2] == (len(values), sum(there) if there else None)
        assert means[key] == (sum(there) / len(there) if there else None)


def test_windows_go_on_row_by_row_where_the_expression_of_a_key_fails() -> None:
    given = events(20_000)
    broken = {"k": "k0", "v": None, "x": 1.0, "at": START + timedelta(seconds=12)}
    key = "if(v IS NULL, raise_error('no v'), k)"
    with flow_test(flow_of({"k": key})) as t:
        t.send("events", given[:10_000])
        assert len(t.results("out")) == 3 * 7
        t.send("events", [*given[10_000:12_000], broken, *given[12_000:]])
        t.end()
        assert found_in(t.results("out")) == sums_of(given, 3)
        assert [one["origin"] for one in t.dead_letters("events")] == ["keyed:totals"]
