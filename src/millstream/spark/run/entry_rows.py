"""The rows of an entry point as Spark reads them from its journal, and how many it has yet to read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import structs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, StructField, StructType

from millstream.journal import journal_at
from millstream.spark.io.checkpoint import Logged
from millstream.spark.io.shard_rows import message_fields
from millstream.spark.io.sink import Input
from millstream.spark.io.source import MARKER, ReadSettings, padded
from millstream.spark.stages.columns import place_field


def entry_rows(spark: SparkSession, settings: ReadSettings, whole: StructType) -> DataFrame:
    """Return the columns that are read, of all that there are, and nulls in place of the others."""
    parts = settings.fields
    fields = [
        StructField(column, _part(whole[column].dataType, parts.get(column)))
        for column in settings.columns
    ]
    fields += [place_field()] if settings.place is not None else []
    fields += [StructField(MARKER, BooleanType())] if settings.time else []
    schema = json.dumps(StructType(fields).jsonValue())
    option = msgspec.json.encode(structs.replace(settings, schema=schema)).decode()
    frame = spark.readStream.format("millstream").option("settings", option).load()
    # What no result depends on is not read, but a stage may name it.
    unread = [field for field in whole.fields if field.name not in frame.columns]
    if not unread and not parts:
        return frame
    return frame.select(
        *(_filled(column, whole, parts.get(column)) for column in frame.columns),
        *(F.lit(None).cast(field.dataType).alias(field.name) for field in unread),
    )


def packed_rows(spark: SparkSession, settings: ReadSettings, whole: StructType) -> DataFrame:
    """Return all columns, packed for the shards that the settings name, and markers beside them."""
    assert settings.time is not None
    assert settings.shards is not None
    fields = StructType([StructField(one.name, one.dataType) for one in whole.fields])
    if settings.place is not None:
        fields = fields.add(place_field())
    rows, messages = (
        json.dumps(one.jsonValue()) for one in (fields, message_fields(settings.time, MARKER))
    )
    shards = structs.replace(settings.shards, schema=rows)
    option = msgspec.json.encode(structs.replace(settings, schema=messages, shards=shards))
    return spark.readStream.format("millstream").option("settings", option.decode()).load()


def _part(kind: DataType, names: Sequence[str] | None) -> DataType:
    """Return a struct with some of its fields."""
    if names is None:
        return kind
    assert isinstance(kind, StructType)
    return StructType([kind[name] for name in names])


def _filled(column: str, whole: StructType, names: Sequence[str] | None) -> Column:
    """Return a column, with nulls for the fields that were not read."""
    if names is None:
        return F.col(f"`{column}`")
    kind = whole[column].dataType
    assert isinstance(kind, StructType)
    return F.struct(
        *(
            (F.col(f"`{column}`.`{one.name}`") if one.name in names else F.lit(None))
            .cast(one.dataType)
            .alias(one.name)
            for one in kind.fields
        )
    ).alias(column)


def lag(inputs: Mapping[str, Input], committed: Logged | None, now_us: int) -> tuple[int, float]:
    """Return how many rows are not read yet, and since how many seconds the oldest of them waits."""
    rows, oldest = 0, now_us
    for name, source in inputs.items():
        reader = journal_at(source.path).cached_reader()
        offset = committed.offsets.get(name) if committed else None
        count = reader.description.partitions
        begun = padded(offset.positions, count) if offset else None
        for number in range(count):
            view = reader.partition(number)
            position = view.begin if begun is None else begun[number]
            behind = view.rows(position, view.end)
            rows += behind
            if behind > 0:
                oldest = min(oldest, next(iter(view.entries(position, position + 1))).appended_at)
    return rows, (now_us - oldest) / 1e6
