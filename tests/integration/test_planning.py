"""Mistakes that only Spark can see are found before anything runs, with the stage and its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millstream as ms
from millstream.errors import (
    FlowError,
    InvalidFunction,
    InvalidSql,
    SchemasDiffer,
    StatefulSql,
    TimeDropped,
)
from millstream.plan.groups import plan
from millstream.spark.stages.analyse import Analysis, analyse

pytestmark = pytest.mark.spark


def events(flow: ms.Flow) -> ms.Stream:
    return flow.source(
        "events", ms.inbox("k string, v long, at timestamp, unused string"), time="at", key="k"
    )


def analysed(spark: SparkSession, flow: ms.Flow) -> Analysis:
    return analyse(spark, plan(flow), Path())


CASES: list[tuple[Any, type[FlowError], str]] = [
    (lambda df: df.groupBy("k").count(), StatefulSql, "an aggregate"),
    (lambda df: df.dropDuplicates(["k"]), StatefulSql, "dropDuplicates"),
    (lambda df: df.limit(3), StatefulSql, "a limit"),
    (lambda df: df.withWatermark("at", "1 hour"), StatefulSql, "withWatermark"),
    (lambda df: df.join(df.select("k"), "k"), StatefulSql, "a join of the stream with itself"),
    (lambda df: df.select("k", "v"), TimeDropped, 'drops the time column "at"'),
    (
        lambda df: df.withColumn("at", F.current_timestamp()),
        TimeDropped,
        "puts something else in place",
    ),
    (lambda df: df.where("dealy > 3"), InvalidSql, "dealy"),
    (lambda df: df.collect(), InvalidSql, "must be executed with writeStream"),
    (lambda _: None, InvalidFunction, "returns NoneType"),
    (lambda df: 1 / 0, InvalidFunction, "division by zero"),
]


@pytest.mark.parametrize(("function", "kind", "said"), CASES)
def test_what_apply_must_not_do_is_refused(
    spark: SparkSession, function: Any, kind: type[FlowError], said: str
) -> None:
    flow = ms.Flow("wrong")
    events(flow).apply("suspect", function).sink("out", ms.memory())
    with pytest.raises(kind) as caught:
        analysed(spark, flow)
    assert 'stage "suspect" of flow "wrong"' in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.where is not None
    assert caught.value.where.file.endswith("test_planning.py")


def test_an_unknown_function_in_an_aggregate_is_named_with_its_stage(spark: SparkSession) -> None:
    flow = ms.Flow("wrong")
    events(flow).window("hourly", every="1 hour", x="percentil(v, 0.5)").sink("out", ms.memory())
    with pytest.raises(InvalidSql, match=r'stage "hourly".*percentil'):
        analysed(spark, flow)


def doubled(frame: DataFrame) -> DataFrame:
    return frame.withColumn("double", F.col("v") * 2)


def test_spark_tells_the_types_that_a_flow_cannot_know(spark: SparkSession) -> None:
    flow = ms.Flow("types")
    events(flow).apply("doubled", doubled).window(
        "hourly", every="1 hour", all="collect_list(double)"
    ).sink("out", ms.memory())
    found = analysed(spark, flow)
    assert found.schemas["doubled"]["double"].dataType.simpleString() == "bigint"
    assert found.schemas["hourly"]["all"].dataType.simpleString() == "array<bigint>"


def test_a_group_reads_only_the_columns_that_it_needs(spark: SparkSession) -> None:
    flow = ms.Flow("narrow")
    source = events(flow)
    source.window("hourly", every="1 hour", n="count(*)").sink("counts", ms.memory())
    source.sql("big", "SELECT v, at FROM events WHERE v > 7").sink("rows", ms.memory())
    source.sink("all", ms.memory())
    found = analysed(spark, flow)
    assert found.columns["counts", "events"] == ("k", "at")
    assert found.columns["rows", "events"] == ("v", "at")
    assert found.columns["all", "events"] == ("k", "v", "at", "unused")


def test_the_schema_that_an_apply_declares_is_checked(spark: SparkSession) -> None:
    flow = ms.Flow("declared")
    declared = events(flow).apply(
        "doubled", doubled, schema="k string, v long, at timestamp, unused string, double string"
    )
    declared.sink("out", ms.memory())
    with pytest.raises(SchemasDiffer, match=r'stage "doubled".*double bigint'):
        analysed(spark, flow)
