"""`lookup` on Spark: a join with a table that every executor has."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from millstream.flow.stages import Lookup
from millstream.flow.targets import Table
from millstream.spark.served.serving import serving
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
    if "://" not in table.path and serving(spark) is not None:
        return _carried(spark, table, root / table.path)
    path = table.path if "://" in table.path else str(root / table.path)
    reader = spark.read.format({"jsonl": "json"}.get(table.format, table.format))
    if table.format != "csv":
        return (reader.schema(table.schema.ddl) if table.schema else reader).load(path)
    return _by_name(_csv(spark, table).load(path, format="csv"), table)


def _csv(spark: SparkSession, table: Table) -> DataFrameReader:
    infer = str(table.schema is None)
    return spark.read.option("header", "true").option("inferSchema", infer)


def _by_name(whole: DataFrame, table: Table) -> DataFrame:
    """Return the columns that a schema names: with one, Spark would take CSV's by their place."""
    wanted = parsed(table.schema.ddl).fields if table.schema else []
    columns = [F.col(f"`{field.name}`").cast(field.dataType) for field in wanted]
    return whole.select(*columns) if columns else whole


def _carried(spark: SparkSession, table: Table, path: Path) -> DataFrame:
    """Read a table on the driver's host, once, for executors that do not see it."""
    if table.format == "parquet":
        return _by_name(spark.createDataFrame(pq.read_table(path)), table)
    files = [path] if path.is_file() else sorted(path.glob(f"*.{table.format}"))
    lines = [(line,) for file in files for line in file.read_text().splitlines()]
    text = spark.createDataFrame(lines, "line string")
    if table.format == "csv":
        return _by_name(_csv(spark, table).csv(text), table)
    return (spark.read.schema(table.schema.ddl) if table.schema else spark.read).json(text)


KIND = SparkKind(build)
