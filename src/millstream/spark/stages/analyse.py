"""What only Spark can tell about a flow before it runs.

Every stage is resolved over streams without rows: so a mistake in an
expression, a type that does not fit, a stage that loses the time column or
hides an operator with state is found now, with the stage's name, and not after
minutes of running. The same resolved plans tell which columns of a journal a
group really needs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, StructField, StructType

from millstream.errors import InvalidSql, SchemasDiffer
from millstream.flow.flow import Flow
from millstream.flow.stages import EntryPoint, Stage
from millstream.plan.groups import Group, Plan
from millstream.spark.io.source import MARKER, PLACE
from millstream.spark.stages.build import Builder
from millstream.spark.stages.columns import parsed, place_field
from millstream.spark.stages.fields import single_fields
from millstream.spark.stages.kind import kind_of
from millstream.spark.stages.stateless import children, ddl, each, first_line, nodes, title

_GIVE = "give `reads` the columns that the journal has"


Fields = dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Analysis:
    """The schema of every stage, and the columns that each group needs of each journal it reads."""

    schemas: Mapping[str, StructType]
    columns: Mapping[tuple[str, str], tuple[str, ...]]
    #: The fields that it needs of a column, where these are not all.
    fields: Mapping[tuple[str, str], Fields]


def analyse(spark: SparkSession, plan: Plan, root: Path) -> Analysis:
    """Resolve every stage of a flow and find the mistakes that only Spark can see."""
    with tempfile.TemporaryDirectory() as nothing:
        stubs = _Stubs(spark, plan.flow, root, nothing, {})
        wholes = {place: _Whole(stubs, place) for place in (False, True)}
        columns: dict[tuple[str, str], tuple[str, ...]] = {}
        fields: dict[tuple[str, str], Fields] = {}
        for group in plan.groups:
            _check_stages(stubs, group)
            with _unchecked(spark):
                needed = wholes[needs_place(plan.flow, group)].needed(group)
            for name, (found, parts) in needed.items():
                columns[group.name, name], fields[group.name, name] = found, parts
        return Analysis(stubs.schemas, columns, fields)


def plain_types(analysis: Analysis) -> dict[str, dict[str, str]]:
    """Return the columns of all stages and journals, with their types as Spark spells them."""
    return {
        name: {one.name: one.dataType.simpleString() for one in schema.fields}
        for name, schema in analysis.schemas.items()
    }


def entry_schema(flow: Flow, name: str, schemas: Mapping[str, StructType]) -> StructType:
    """Return the columns of a journal that a group reads."""
    stage = flow.stages[name]
    assert isinstance(stage, EntryPoint)
    if stage.declared is not None:
        return parsed(stage.declared.ddl)
    (above,) = stage.inputs
    return StructType([field for field in schemas[above].fields if field.name != PLACE])


def needs_place(flow: Flow, group: Group) -> bool:
    """Tell whether a group has a stage that takes rows in order."""
    return any(kind_of(flow.stages[name]).ordered for name in group.stages)


@dataclass(frozen=True, slots=True)
class _Stubs:
    """Streams without rows, and the schemas of the stages that are resolved."""

    spark: SparkSession
    flow: Flow
    root: Path
    folder: str
    schemas: dict[str, StructType]
    _known: dict[str, DataFrame] = field(default_factory=dict)

    def raw(self, schema: StructType, *, place: bool, timed: bool) -> DataFrame:
        """Return a stream as a journal's source hands it out."""
        fields = [StructField(f.name, f.dataType) for f in schema.fields]
        fields += [place_field()] if place else []
        fields += [StructField(MARKER, BooleanType())] if timed else []
        return self.spark.readStream.schema(StructType(fields)).format("json").load(self.folder)

    def resolved(self, name: str) -> DataFrame:
        """Return a stream as stage `name` emits it; many stages may read it."""
        if name not in self._known:
            time = self.flow.stream(name).time
            frame = self.raw(self.schemas[name], place=False, timed=False)
            self._known[name] = frame if time is None else frame.withWatermark(time, "36500 days")
        return self._known[name]


def _check_stages(stubs: _Stubs, group: Group) -> None:
    flow, schemas = stubs.flow, stubs.schemas
    for name in group.stages:
        stage = flow.stages[name]
        if name in schemas:
            continue
        if isinstance(stage, EntryPoint):
            schemas[name] = entry_schema(flow, name, schemas)
            continue
        kind = kind_of(stage)
        with _blamed(flow, stage):
            frame = kind.build(stage, _Isolated(stubs))
            if kind.check is not None:
                kind.check(stage, flow, frame)
        schemas[name] = frame.schema
    if group.journal is not None:
        schemas[group.journal] = _journal_schema(flow, group.journal, schemas)


class _Isolated(Builder):
    """Builds one stage over stubs of its inputs."""

    def __init__(self, stubs: _Stubs) -> None:
        super().__init__(stubs.spark, stubs.flow, stubs.resolved, stubs.root)
        self._stubs = stubs

    def frame(self, name: str) -> DataFrame:
        return self._stubs.resolved(name)


def _journal_schema(flow: Flow, name: str, schemas: Mapping[str, StructType]) -> StructType:
    schema = entry_schema(flow, name, schemas)
    for reads in flow.stages.values():
        if not isinstance(reads, EntryPoint) or reads.journal_name != name or reads.name == name:
            continue
        declared = reads.declared
        assert declared is not None, "what reads a journal before it is written names its columns"
        columns = {f.name: f.dataType for f in parsed(declared.ddl).fields}
        if columns != {f.name: f.dataType for f in schema.fields}:
            held = f'journal "{name}" of flow "{flow.name}" holds {ddl(schema)}'
            msg, hint = f"{held}, but it is read as {declared.ddl}", _GIVE
            raise SchemasDiffer(msg, hint=hint, where=reads.where)
    return schema


class _Whole:
    """All stages over stubs of the entry points, each built once for all groups that have it."""

    def __init__(self, stubs: _Stubs, place: bool) -> None:
        self._stubs = stubs
        self._place = place
        self._owners: dict[int, tuple[str, str]] = {}
        self._columns: dict[str, tuple[str, ...]] = {}
        self._builder = Builder(stubs.spark, stubs.flow, self._entry, stubs.root)

    def _entry(self, name: str) -> DataFrame:
        stubs = self._stubs
        timed = stubs.flow.stream(name).time is not None
        schema = entry_schema(stubs.flow, name, stubs.schemas)
        frame = stubs.raw(schema, place=self._place, timed=timed)
        for attribute in each(frame._jdf.queryExecution().analyzed().output()):
            self._owners[attribute.exprId().id()] = (name, attribute.name())
        self._columns[name] = tuple(c for c in frame.columns if c not in (PLACE, MARKER))
        return frame

    def needed(self, group: Group) -> dict[str, tuple[tuple[str, ...], Fields]]:
        """Ask Spark's optimizer which columns of its inputs a group needs, and which of their fields."""
        flow, frame = self._stubs.flow, self._builder.frame(group.output)
        entries = [name for name in group.stages if isinstance(flow.stages[name], EntryPoint)]
        used: dict[str, set[str]] = {name: set() for name in entries}
        optimized = frame._jdf.queryExecution().optimizedPlan()
        for node in nodes(optimized):
            for child in children(node):
                if child.nodeName() == "StreamingRelation":
                    wanted = (
                        node.references() if node.nodeName() == "Project" else child.outputSet()
                    )
                    for attribute in each(wanted.toSeq()):
                        name, column = self._owners[attribute.exprId().id()]
                        used[name].add(column)
        fields = _fields(self._stubs, entries, self._owners, optimized)
        return {
            name: (_keep(flow, name, self._columns[name], used[name]), fields[name])
            for name in entries
        }


def _fields(
    stubs: _Stubs, entries: Sequence[str], owners: Mapping[int, tuple[str, str]], plan: Any
) -> dict[str, Fields]:
    """Return the fields of columns that a plan needs, by entry point, where these are not all."""
    found: dict[str, Fields] = {name: {} for name in entries}
    structs = {
        (name, field.name): field.dataType.fieldNames()
        for name in entries
        for field in entry_schema(stubs.flow, name, stubs.schemas).fields
        if isinstance(field.dataType, StructType)
    }
    if not structs:
        return found
    outputs = [attribute.exprId().id() for attribute in each(plan.output())]
    for number, places in single_fields(plan.toJSON(), outputs).items():
        name, column = owners.get(number, ("", ""))
        names = structs.get((name, column), [])
        if len(places) < len(names):
            found[name][column] = tuple(names[place] for place in sorted(places))
    return found


def _keep(flow: Flow, name: str, columns: tuple[str, ...], used: set[str]) -> tuple[str, ...]:
    # A row must have a column, also where only its being there counts.
    time = flow.stream(name).time
    kept = tuple(c for c in columns if c in used or c == time)
    return kept or columns[:1]


@contextmanager
def _blamed(flow: Flow, stage: Stage) -> Iterator[None]:
    """Name the stage in an error of Spark's."""
    try:
        yield
    except PySparkException as error:
        raise InvalidSql(f"{title(stage, flow)}: {first_line(error)}", where=stage.where) from error


@contextmanager
def _unchecked(spark: SparkSession) -> Iterator[None]:
    """Let the optimizer look at a stream that is not started."""
    key = "spark.sql.streaming.unsupportedOperationCheck"
    spark.conf.set(key, "false")
    try:
        yield
    finally:
        spark.conf.unset(key)
