"""`sql` on Spark: the query over a view that has the stream's name."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from millstream.flow.stages import Sql
from millstream.spark.stages.build import Builder
from millstream.spark.stages.kind import SparkKind
from millstream.spark.stages.sql_tests import Chosen, chosen
from millstream.spark.stages.stateless import check_stateless


def build(stage: Sql, builder: Builder) -> DataFrame:
    # The query is resolved at once, so the view may go again at once.
    builder.frame(stage.input).createOrReplaceTempView(f"`{stage.input}`")
    try:
        return builder.one_time(builder.spark.sql(stage.query), stage.name)
    finally:
        builder.spark.catalog.dropTempView(stage.input)


def _chooses(stage: Sql, columns: StructType) -> Chosen | None:
    return chosen(stage.query, stage.input, columns)


KIND = SparkKind(build, check=check_stateless, chooses=_chooses)
