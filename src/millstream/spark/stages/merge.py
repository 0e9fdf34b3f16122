"""`merge` on Spark: a union by name."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millstream.flow.stages import Merge
from millstream.spark.io.source import PLACE
from millstream.spark.stages.build import Builder
from millstream.spark.stages.kind import SparkKind


def build(stage: Merge, builder: Builder) -> DataFrame:
    first, *others = (builder.frame(name) for name in stage.inputs)
    placed = all(PLACE in other.columns for other in others)
    names = [F.col(f"`{name}`") for name in first.columns if name != PLACE or placed]
    merged = first.select(*names)
    for other in others:
        merged = merged.unionByName(other.select(*names))
    return merged


KIND = SparkKind(build)
