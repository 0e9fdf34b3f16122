"""`sample` on Spark."""

from __future__ import annotations

from pyspark.sql import DataFrame

from millstream.spark.stages.build import Builder
from millstream.spark.stages.kind import SparkKind
from support.sample_stage import Sample


def build(stage: Sample, builder: Builder) -> DataFrame:
    rows = builder.frame(stage.input)
    return rows.where(f"pmod(xxhash64(cast(`{stage.by}` as string)), {stage.every}) = 0")


KIND = SparkKind(build)
