"""`lookup` on Spark: a join with a table that every executor has."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millstream.flow.stages import Lookup
from millstream.flow.targets import Table
from millstream.spark.stages.build import Builder
from millstream.spark.stages.columns import parsed
from millstream.spark.stages.kind import SparkKind


def build(stage: Lookup, builder: Builder) -> DataFrame:
    table = _read(builder.spark, stage.table, builder.root)
    frame = builder.frame(stage.input)
    joined = frame.join(F.broadcast(table), list(stage.on), stage.how)
    added = [name for name in table.columns if name not in stage.on]
    return joined.select(*(F.col(f"`{name}`") for name in [*frame.columns, *added]))


def _read(spark: SparkSession, table: Table, root: Path) -> DataFrame:
    """Read a static table; relative paths count from the flow's folder."""
    path = table.path if "://" in table.path else str(root / table.path)
    reader = spark.read.format({"jsonl": "json"}.get(table.format, table.format))
    if table.format != "csv":
        return (reader.schema(table.schema.ddl) if table.schema else reader).load(path)
    # With a schema Spark would take the columns of a CSV file by their place, not by their names.
    infer = str(table.schema is None)
    whole = reader.option("header", "true").option("inferSchema", infer).load(path)
    wanted = parsed(table.schema.ddl).fields if table.schema else []
    columns = [F.col(f"`{field.name}`").cast(field.dataType) for field in wanted]
    return whole.select(*columns) if columns else whole


KIND = SparkKind(build)
