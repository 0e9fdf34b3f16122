"""`window` on Spark: its own windows of event time."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millstream.flow import expressions
from millstream.flow.stages import Window
from millstream.spark.stages.build import Builder
from millstream.spark.stages.columns import interval, marked
from millstream.spark.stages.keyed import unkeyed
from millstream.spark.stages.kind import SparkKind
from millstream.spark.stages.window_sums import summing_of


def build(stage: Window, builder: Builder) -> DataFrame:
    time = F.col(f"`{builder.time(stage.input)}`")
    if stage.shape == "session":
        span = F.session_window(time, interval(stage.gap))
    else:
        span = F.window(time, interval(stage.size), interval(stage.every))
    rows, aggregates = _rows(stage, builder)
    by = [F.expr(expression).alias(name) for name, expression in stage.by]
    # A key that carries the watermark would let Spark drop state by it instead of by the
    # window's end.
    timed_keys = marked(rows.select(*by)) if by else ()
    by = [
        F.expr(f"timestamp_micros(unix_micros({expression}))").alias(name)
        if name in timed_keys
        else column
        for column, (name, expression) in zip(by, stage.by, strict=True)
    ]
    found = rows.groupBy(span.alias("__window"), *by)
    results = found.agg(*(F.expr(expression).alias(name) for name, expression in aggregates))
    return results.select(
        *(F.col(f"`{name}`") for name, _ in stage.by),
        F.col("__window.start").alias("window_start"),
        F.col("__window.end").alias("window_end"),
        F.window_time("__window").alias("window_time"),
        *(F.col(f"`{name}`") for name, _ in stage.aggregates),
    )


def _rows(stage: Window, builder: Builder) -> tuple[DataFrame, Sequence[tuple[str, str]]]:
    """Return the rows, or sums of them, and the aggregates over these."""
    columns, time = builder.columns(stage.input), builder.time(stage.input)
    summing = summing_of(stage, columns, time) if builder.sums else None
    found = None if summing is None else builder.summed(stage.input, summing.sums, summing.schema)
    if summing is not None and found is not None:
        return found, summing.aggregates
    texts = [text for name, text in stage.by if text != expressions.column(name)]
    plain = builder.frame(stage.input)
    rows = builder.sifted(stage, plain, texts, *unkeyed(stage.name, texts))
    if summing is None:
        return rows, stage.aggregates
    return rows.selectExpr(*summing.single), summing.aggregates


KIND = SparkKind(build, sifts=True)
