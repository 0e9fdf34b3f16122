"""The rows of an entry point, with the markers that move the watermark: see `io/source.py`."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millstream.spark.io.packed import SHARD
from millstream.spark.io.shard_rows import COUNT, ROWS
from millstream.spark.io.source import DELAY, MARKER


def timed(frame: DataFrame, entry: str, time: str | None) -> DataFrame:
    """Let the markers in `frame` move the watermark, count the other rows, and drop the markers."""
    if time is None:
        return frame.observe(counter(entry), F.count(F.lit(1)).alias("rows"))
    return _counted(frame, entry, time, F.count_if(~F.col(MARKER))).drop(MARKER)


def added(frame: DataFrame, entry: str, time: str) -> DataFrame:
    """Do the same for sums of rows."""
    return _counted(frame, entry, time, _rows()).drop(MARKER)


def unpacked(frame: DataFrame, entry: str, time: str) -> DataFrame:
    """Do the same for rows that are packed for the shards of a stage, and return the messages."""
    return _counted(frame, entry, time, _rows()).select(SHARD, F.col(ROWS).alias("rows"))


def _rows() -> Column:
    """Return how many rows messages or sums stand for."""
    return F.coalesce(F.sum(COUNT), F.lit(0))


def _counted(frame: DataFrame, entry: str, time: str, rows: Column) -> DataFrame:
    # Spark moves filters below withWatermark, where they would take the markers
    # away too early (a marker has no values that could meet them). It does not
    # move them below a count of rows, so the count is also the barrier.
    counted = frame.withWatermark(time, DELAY).observe(counter(entry), rows.alias("rows"))
    return counted.where(f"NOT ({MARKER} AND `{time}` IS NOT NULL)")


def counter(entry: str) -> str:
    """Return the name under which Spark reports how many rows an entry point handed out."""
    return f"rows of {entry}"
