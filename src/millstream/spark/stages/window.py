"""`window` on Spark: its own windows of event time."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millstream.flow import expressions
from millstream.flow.stages import Window
from millstream.spark.stages.build import Builder
from millstream.spark.stages.columns import interval, marked
from millstream.spark.stages.keyed import unkeyed
from millstream.spark.stages.kind import SparkKind


def build(stage: Window, builder: Builder) -> DataFrame:
    time = F.col(f"`{builder.time(stage.input)}`")
    if stage.shape == "session":
        span = F.session_window(time, interval(stage.gap))
    else:
        span = F.window(time, interval(stage.size), interval(stage.every))
    texts = [text for name, text in stage.by if text != expressions.column(name)]
    origin, reason = unkeyed(stage.name, texts)
    rows = builder.sifted(stage, builder.frame(stage.input), texts, origin, reason)
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
    results = found.agg(*(F.expr(expression).alias(name) for name, expression in stage.aggregates))
    return results.select(
        *(F.col(f"`{name}`") for name, _ in stage.by),
        F.col("__window.start").alias("window_start"),
        F.col("__window.end").alias("window_end"),
        F.window_time("__window").alias("window_time"),
        *(F.col(f"`{name}`") for name, _ in stage.aggregates),
    )


KIND = SparkKind(build, sifts=True)
