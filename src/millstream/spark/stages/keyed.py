"""`keyed` on Spark: the columns of keys that are expressions."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millstream.flow.stages import Keyed
from millstream.spark.stages.build import Builder
from millstream.spark.stages.kind import SparkKind
from millstream.spark.stages.stateless import check_stateless


def build(stage: Keyed, builder: Builder) -> DataFrame:
    frame = builder.frame(stage.input)
    made = frame.select("*", *(F.expr(text).alias(name) for name, text in stage.columns))
    return builder.one_time(made, stage.name)


KIND = SparkKind(build, check=check_stateless)
