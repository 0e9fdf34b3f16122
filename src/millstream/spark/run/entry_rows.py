"""The rows of an entry point as Spark reads them from its journal, and how many it has yet to read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BooleanType, DataType, StructField, StructType

from millstream.journal import journal_at
from millstream.journal.partitioning import placeable
from millstream.plan.groups import journal_read
from millstream.spark.io.checkpoint import Logged
from millstream.spark.io.control import Orders
from millstream.spark.io.row_tests import columns_of
from millstream.spark.io.shard_rows import Shards, message_fields
from millstream.spark.io.sink import Input
from millstream.spark.io.source import MARKER, PLACE, ReadSettings, padded
from millstream.spark.io.summed_rows import Sums
from millstream.spark.served.serving import embedded, serving
from millstream.spark.session.session import cores
from millstream.spark.stages.analyse import Fields, entry_schema, needs_place
from millstream.spark.stages.columns import place_field
from millstream.spark.stages.kind import kind_of

if TYPE_CHECKING:
    from millstream.spark.run.query import GroupQuery
    from millstream.spark.stages.build import Sifted


@dataclass(frozen=True, slots=True)
class EntryReader:
    """Reads the journals of a group, entry point by entry point."""

    query: GroupQuery
    slack_ms: int

    def rows(self, name: str) -> DataFrame:
        """Return the rows of an entry point, markers included: the columns that a result depends on."""
        return self.read(name, self._columns(name), self._control, self._fields(name))

    def packed(self, origin: Sifted, by: tuple[str, ...], shards: int) -> DataFrame | None:
        """Return whole rows of an entry point packed for the shards of a stage, if they can be."""
        name = origin.entry
        query, whole = self.query, self._schema(name)
        unread = set(whole.fieldNames()) - set(query.analysis.columns[query.group.name, name])
        shared = self._shared(origin.stages)
        if shared or unread or len(by) != 1 or query.flow.stream(name).time is None:
            return None
        if not placeable(to_arrow_type(whole[by[0]].dataType, timezone="UTC")):
            return None
        settings = self._settings(name, tuple(whole.fieldNames()), self._control, {})
        fields = StructType([StructField(one.name, one.dataType) for one in whole.fields])
        if settings.place is not None:
            fields = fields.add(place_field())
        assert settings.time is not None
        found = Shards(by[0], shards, _json(fields), settings.time, kept=origin.tests)
        return packed_rows(query.spark, settings, found)

    def picked(self, origin: Sifted, shards: Shards) -> DataFrame | None:
        """Return what a pattern needs of the rows of an entry point, packed, if the source can do that."""
        name = origin.entry
        query, columns = self.query, self._columns(name)
        assert shards.picked is not None
        needed = shards.picked.needed.union(*map(columns_of, origin.tests))
        # What Spark's optimizer finds that no result depends on is not read.
        unread = needed - {*columns, PLACE}
        if self._shared(origin.stages) or self._fields(name) or unread or query.careful:
            return None
        settings = self._settings(name, columns, self._control, {})
        return packed_rows(query.spark, settings, structs.replace(shards, kept=origin.tests))

    def summed(self, origin: Sifted, sums: Sums, columns: StructType) -> DataFrame | None:
        """Return sums of the rows of an entry point, if the source can add them up."""
        name, query, known = origin.entry, self.query, origin.columns
        if known is None:
            known = {one: (one,) for one in self._schema(name).fieldNames()}
        if self._shared(origin.stages) or query.careful or not sums.needed <= known.keys():
            return None
        paths = {one: known[one] for one in sums.needed}
        # A row must be dated as its marker.
        if paths[sums.time] != (query.flow.stream(name).time,) or paths[sums.time] != (sums.time,):
            return None
        tested = set().union(*map(columns_of, origin.tests))
        read = tested.union(path[0] for path in paths.values())
        parts = {
            column: tuple(sorted({path[1] for path in paths.values() if path[0] == column}))
            for column in read - tested - {path[0] for path in paths.values() if len(path) == 1}
        }
        whole = tuple(one for one in self._schema(name).fieldNames() if one in read)
        settings = self._settings(name, whole, self._control, parts)
        schema = StructType([*columns.fields, StructField(MARKER, BooleanType())])
        own = structs.replace(sums, kept=origin.tests, paths=paths)
        settings = structs.replace(settings, place=None, schema=_json(schema), sums=own)
        return _read(query.spark, settings)

    def _shared(self, names: Sequence[str]) -> bool:
        """Tell whether several stages of the group read one of some streams."""
        query = self.query
        read = [one for reader in query.group.stages for one in query.flow.stages[reader].inputs]
        return any(read.count(name) > 1 for name in names)

    def read(
        self, name: str, columns: tuple[str, ...], control: Path, parts: Fields | None = None
    ) -> DataFrame:
        """Return columns of an entry point, markers included, and nulls in place of the others.

        Args:
            name: The entry point.
            columns: What is read of its journal.
            control: The checkpoint under whose name its source finds orders.
            parts: The fields of columns that are read, where these are not all.
        """
        settings = self._settings(name, columns, control, parts or {})
        return entry_rows(self.query.spark, settings, self._schema(name))

    def _columns(self, name: str) -> tuple[str, ...]:
        """Return the columns that are read."""
        if self._whole:
            return tuple(self._schema(name).fieldNames())
        return self.query.analysis.columns[self.query.group.name, name]

    def _fields(self, name: str) -> Fields:
        """Return the fields that are read of structs that are not read whole."""
        return {} if self._whole else self.query.analysis.fields[self.query.group.name, name]

    @property
    def _whole(self) -> bool:
        """Whether rows may become dead letters here: those have all columns."""
        flow = self.query.flow
        stages = [flow.stages[name] for name in self.query.group.stages]
        kinds = [(one, kind_of(one).refuses) for one in stages]
        return self.query.careful or any(tell and tell(one, flow) for one, tell in kinds)

    @property
    def _control(self) -> Path:
        return self.query.checkpoint.location

    def _schema(self, name: str) -> StructType:
        return entry_schema(self.query.flow, name, self.query.analysis.schemas)

    def _settings(
        self, name: str, columns: tuple[str, ...], control: Path, parts: Fields
    ) -> ReadSettings:
        query = self.query
        source = query.sink.inputs[journal_read(query.flow.stages[name])]
        placed = query.careful or needs_place(query.flow, query.group)
        return ReadSettings(
            journal=source.name,
            path=str(source.path),
            columns=columns,
            fields=parts,
            schema="",
            time=query.flow.stream(name).time,
            lateness=source.lateness,
            grouped=source.grouped,
            limit=query.limit,
            tasks=_tasks(query.spark, source.path),
            place=query.group.inputs.index(source.name) if placed else None,
            slack_ms=self.slack_ms,
            control=str(control),
            served=_served(query.spark, source.path),
            generation=None if query.sink.log is None else query.sink.log.generation,
        )


def _tasks(spark: SparkSession, journal: Path) -> int:
    """Return how many tasks may read a batch."""
    if embedded(spark.sparkContext.master):
        return cores(spark)
    # A cluster may have few executors at the start, and more later.
    return max(cores(spark), journal_at(journal).cached_reader().description.partitions)


def _served(spark: SparkSession, journal: Path) -> str | None:
    """Return where to find who reads a journal for executors, if that is needed."""
    found = serving(spark)
    if found is None:
        return None
    found.service.allow(journal)
    return str(found.file)


def entry_rows(spark: SparkSession, settings: ReadSettings, whole: StructType) -> DataFrame:
    """Return the columns that are read, of all that there are, and nulls in place of the others."""
    parts = settings.fields
    fields = [
        StructField(column, _part(whole[column].dataType, parts.get(column)))
        for column in settings.columns
    ]
    fields += [place_field()] if settings.place is not None else []
    fields += [StructField(MARKER, BooleanType())] if settings.time else []
    schema = _json(StructType(fields))
    frame = _read(spark, structs.replace(settings, schema=schema))
    # What no result depends on is not read, but a stage may name it.
    unread = [field for field in whole.fields if field.name not in frame.columns]
    if not unread and not parts:
        return frame
    return frame.select(
        *(_filled(column, whole, parts.get(column)) for column in frame.columns),
        *(F.lit(None).cast(field.dataType).alias(field.name) for field in unread),
    )


def packed_rows(spark: SparkSession, settings: ReadSettings, shards: Shards) -> DataFrame:
    """Return rows packed for shards, and markers beside them."""
    assert settings.time is not None
    messages = _json(message_fields(settings.time, MARKER))
    return _read(spark, structs.replace(settings, schema=messages, shards=shards))


def _read(spark: SparkSession, settings: ReadSettings) -> DataFrame:
    option = msgspec.json.encode(settings).decode()
    return spark.readStream.format("millstream").option("settings", option).load()


def _json(schema: StructType) -> str:
    return json.dumps(schema.jsonValue())


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


def lag(
    inputs: Mapping[str, Input], committed: Logged | None, orders: Orders, now_us: int
) -> tuple[int, float]:
    """Return how many rows are not read yet, and since how many seconds the oldest of them waits.

    A version that is held, and has not been told yet where to begin, waits for nothing.
    """
    rows, oldest = 0, now_us
    for name, source in inputs.items():
        first = orders.first.get(name)
        if orders.held and first is None:
            continue
        reader = journal_at(source.path).cached_reader()
        offset = committed.offsets.get(name) if committed else None
        count = reader.description.partitions
        next_ = first if offset is None else offset.next_positions(first)
        begun = None if next_ is None else padded(next_, count)
        for number in range(count):
            view = reader.partition(number)
            position = view.begin if begun is None else begun[number]
            behind = view.rows(position, view.end)
            rows += behind
            if behind > 0:
                oldest = min(oldest, next(iter(view.entries(position, position + 1))).appended_at)
    return rows, (now_us - oldest) / 1e6
