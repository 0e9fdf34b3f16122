"""`source`, `reads` and `journal`: where groups begin."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millstream.flow.stages import EntryPoint
from millstream.spark.io.source import DELAY, MARKER
from millstream.spark.stages.build import Builder
from millstream.spark.stages.kind import SparkKind


def build(stage: EntryPoint, builder: Builder) -> DataFrame:
    return timed(builder.entry(stage.name), stage.name, builder.flow.stream(stage.name).time)


def timed(frame: DataFrame, entry: str, time: str | None) -> DataFrame:
    """Let the markers in `frame` move the watermark, count the other rows, and drop the markers."""
    if time is None:
        return frame.observe(counter(entry), F.count(F.lit(1)).alias("rows"))
    # Spark moves filters below withWatermark, where they would take the markers
    # away too early (a marker has no values that could meet them). It does not
    # move them below a count of rows, so the count is also the barrier.
    rows = F.count_if(~F.col(MARKER)).alias("rows")
    counted = frame.withWatermark(time, DELAY).observe(counter(entry), rows)
    return counted.where(f"NOT ({MARKER} AND `{time}` IS NOT NULL)").drop(MARKER)


def counter(entry: str) -> str:
    """Return the name under which Spark reports how many rows an entry point handed out."""
    return f"rows of {entry}"


KIND = SparkKind(build)
