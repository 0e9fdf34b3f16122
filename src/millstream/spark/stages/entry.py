"""`source`, `reads` and `journal`: where groups begin."""

from __future__ import annotations

from pyspark.sql import DataFrame

from millstream.flow.stages import EntryPoint
from millstream.spark.stages.build import Builder
from millstream.spark.stages.kind import SparkKind
from millstream.spark.stages.marked_rows import timed


def build(stage: EntryPoint, builder: Builder) -> DataFrame:
    return timed(builder.entry(stage.name), stage.name, builder.flow.stream(stage.name).time)


KIND = SparkKind(build)
