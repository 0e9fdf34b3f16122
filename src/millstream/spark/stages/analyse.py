"""What only Spark can tell about a flow before it runs.

Every stage is resolved over streams without rows: so a mistake in an
expression, a type that does not fit, a stage that loses the time column or
hides an operator with state is found now, with the stage's name, and not after
minutes of running. The same resolved plans tell which columns of a journal a
group really needs.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, StructField, StructType

from millstream.errors import (
    FlowError,
    InvalidFunction,
    InvalidSql,
    SchemasDiffer,
    StatefulSql,
    TimeDropped,
)
from millstream.flow import stages as s
from millstream.flow.flow import Flow
from millstream.plan.groups import Group, Plan
from millstream.spark.io.source import MARKER, PLACE
from millstream.spark.stages.build import WATERMARK, Builder, parsed, place_field

#: Nodes of Spark's plans that keep state or need all rows, and what to write instead.
_STATEFUL: Final = {
    "Aggregate": "an aggregate",
    "Distinct": "distinct rows",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPySpark": "transformWithState",
    "FlatMapGroupsInPandas": "applyInPandas over groups",
    "FlatMapGroupsInArrow": "applyInArrow over groups",
    "Window": "a window function",
    "GlobalLimit": "a limit",
    "LocalLimit": "a limit",
    "Sort": "a sort",
    "Except": "except",
    "Intersect": "intersect",
    "EventTimeWatermark": "withWatermark",
}
_INSTEAD: Final = "use the stages window, distinct, fold or join: they have names, horizons and state that survives"


@dataclass(frozen=True, slots=True)
class Analysis:
    """The schema of every stage, and the columns that each group needs of each journal it reads."""

    schemas: Mapping[str, StructType]
    columns: Mapping[tuple[str, str], tuple[str, ...]]


def analyse(spark: SparkSession, plan: Plan, root: Path) -> Analysis:
    """Resolve every stage of a flow and find the mistakes that only Spark can see."""
    with tempfile.TemporaryDirectory() as nothing:
        stubs = _Stubs(spark, plan.flow, nothing)
        schemas: dict[str, StructType] = {}
        columns: dict[tuple[str, str], tuple[str, ...]] = {}
        for group in plan.groups:
            _check_stages(spark, plan.flow, group, stubs, schemas, root)
            with _unchecked(spark):
                needed = _needed(spark, plan.flow, group, stubs, schemas, root)
            columns |= {(group.name, name): found for name, found in needed.items()}
        return Analysis(schemas, columns)


def entry_schema(flow: Flow, name: str, schemas: Mapping[str, StructType]) -> StructType:
    """Return the columns of a journal that a group reads."""
    stage = flow.stages[name]
    if isinstance(stage, s.Source | s.Reads):
        return parsed(stage.schema.ddl)
    assert isinstance(stage, s.Journal)
    return StructType([field for field in schemas[stage.input].fields if field.name != PLACE])


def needs_place(flow: Flow, group: Group) -> bool:
    """Tell whether a group has a stage that takes rows in order."""
    return any(
        isinstance(flow.stages[name], s.Distinct | s.Fold | s.Match | s.Action)
        for name in group.stages
    )


class _Stubs:
    """Streams without rows."""

    def __init__(self, spark: SparkSession, flow: Flow, folder: str) -> None:
        self._spark = spark
        self._flow = flow
        self._folder = folder

    def raw(self, schema: StructType, *, place: bool, timed: bool) -> DataFrame:
        """Return a stream as a journal's source hands it out."""
        fields = [StructField(f.name, f.dataType) for f in schema.fields]
        fields += [place_field()] if place else []
        fields += [StructField(MARKER, BooleanType())] if timed else []
        return self._spark.readStream.schema(StructType(fields)).format("json").load(self._folder)

    def resolved(self, name: str, schema: StructType) -> DataFrame:
        """Return a stream as stage `name` puts it out."""
        time = self._flow.stream(name).time
        frame = self.raw(schema, place=False, timed=False)
        return frame if time is None else frame.withWatermark(time, "36500 days")


def _check_stages(
    spark: SparkSession,
    flow: Flow,
    group: Group,
    stubs: _Stubs,
    schemas: dict[str, StructType],
    root: Path,
) -> None:
    for name in group.stages:
        stage = flow.stages[name]
        if name in schemas:
            continue
        if isinstance(stage, s.Source | s.Reads | s.Journal):
            schemas[name] = entry_schema(flow, name, schemas)
            continue
        builder = _Isolated(spark, flow, stubs, schemas, root)
        with _blamed(flow, stage):
            frame = builder.build(stage)
            _check_frame(flow, stage, frame)
        schemas[name] = frame.schema
    if group.journal is not None:
        schemas[group.journal] = _journal_schema(flow, group.journal, schemas)


class _Isolated(Builder):
    """Builds one stage over stubs of its inputs."""

    def __init__(
        self,
        spark: SparkSession,
        flow: Flow,
        stubs: _Stubs,
        schemas: Mapping[str, StructType],
        root: Path,
    ) -> None:
        super().__init__(spark, flow, self._no_entry, root)
        self._stubs = stubs
        self._schemas = schemas

    def build(self, stage: s.Stage) -> DataFrame:
        return self._build(stage)

    def frame(self, name: str) -> DataFrame:
        return self._stubs.resolved(name, self._schemas[name])

    @staticmethod
    def _no_entry(name: str) -> DataFrame:
        raise AssertionError(name)


def _check_frame(flow: Flow, stage: s.Stage, frame: Any) -> None:
    if not isinstance(stage, s.Apply | s.Sql):
        return
    who = f'stage "{stage.name}" of flow "{flow.name}"'
    if not isinstance(frame, DataFrame):
        raise InvalidFunction(
            f"{who} returns {type(frame).__name__}, not a DataFrame",
            hint="return the DataFrame",
            where=stage.where,
        )
    if not frame.isStreaming:
        raise InvalidFunction(
            f"{who} does not use the stream it is given",
            hint="build the result from the argument",
            where=stage.where,
        )
    found = _stateful_nodes(frame, timed=flow.stream(stage.input).time is not None)
    if found:
        raise StatefulSql(f"{who} hides {' and '.join(found)}", hint=_INSTEAD, where=stage.where)
    _check_time(flow, stage, frame, who)
    if isinstance(stage, s.Apply) and stage.schema is not None:
        said = {f.name: f.dataType for f in parsed(stage.schema.ddl).fields}
        real = {f.name: f.dataType for f in frame.schema.fields}
        if said != real:
            raise SchemasDiffer(
                f"{who} returns {_ddl(frame.schema)}, but it is declared as {stage.schema.ddl}",
                hint="give schema= what the function returns, or leave it out",
                where=stage.where,
            )


def _check_time(flow: Flow, stage: s.Apply | s.Sql, frame: DataFrame, who: str) -> None:
    time = flow.stream(stage.input).time
    if time is None:
        return
    if time not in frame.columns:
        raise TimeDropped(
            f'{who} drops the time column "{time}"',
            hint=f'keep "{time}" in what it selects',
            where=stage.where,
        )
    if WATERMARK not in frame.schema[time].metadata:
        raise TimeDropped(
            f'{who} puts something else in place of the time column "{time}"',
            hint=f'leave "{time}" as it is and put the new value into another column',
            where=stage.where,
        )


def _stateful_nodes(frame: DataFrame, *, timed: bool) -> list[str]:
    names = [node.nodeName() for node in _nodes(frame._jdf.queryExecution().analyzed())]
    if timed:
        names.remove("EventTimeWatermark")  # the one of the stub itself
    found = [_STATEFUL[name] for name in names if name in _STATEFUL]
    joins = [n for n in _nodes(frame._jdf.queryExecution().analyzed()) if n.nodeName() == "Join"]
    if any(all(_children(join)[side].isStreaming() for side in (0, 1)) for join in joins):
        found.append("a join of the stream with itself")
    return sorted(set(found))


def _journal_schema(flow: Flow, name: str, schemas: Mapping[str, StructType]) -> StructType:
    schema = entry_schema(flow, name, schemas)
    for reads in flow.stages.values():
        if not isinstance(reads, s.Reads) or reads.journal != name:
            continue
        said = {f.name: f.dataType for f in parsed(reads.schema.ddl).fields}
        real = {f.name: f.dataType for f in schema.fields}
        if said != real:
            raise SchemasDiffer(
                f'journal "{name}" of flow "{flow.name}" holds {_ddl(schema)}, but it is read as {reads.schema.ddl}',
                hint="give `reads` the columns that the journal has",
                where=reads.where,
            )
    return schema


def _ddl(schema: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)


def _needed(
    spark: SparkSession,
    flow: Flow,
    group: Group,
    stubs: _Stubs,
    schemas: Mapping[str, StructType],
    root: Path,
) -> dict[str, tuple[str, ...]]:
    """Ask Spark's optimizer which columns of its inputs a group needs."""
    place = needs_place(flow, group)
    owners: dict[int, tuple[str, str]] = {}
    everything: dict[str, tuple[str, ...]] = {}

    def entry(name: str) -> DataFrame:
        timed = flow.stream(name).time is not None
        frame = stubs.raw(entry_schema(flow, name, schemas), place=place, timed=timed)
        for attribute in _each(frame._jdf.queryExecution().analyzed().output()):
            owners[attribute.exprId().id()] = (name, attribute.name())
        everything[name] = tuple(c for c in frame.columns if c not in (PLACE, MARKER))
        return frame

    frame = Builder(spark, flow, entry, root).frame(group.output)
    used: dict[str, set[str]] = {name: set() for name in everything}
    for node in _nodes(frame._jdf.queryExecution().optimizedPlan()):
        for child in _children(node):
            if child.nodeName() == "StreamingRelation":
                wanted = node.references() if node.nodeName() == "Project" else child.outputSet()
                for attribute in _each(wanted.toSeq()):
                    name, column = owners[attribute.exprId().id()]
                    used[name].add(column)
    return {name: _keep(flow, name, columns, used[name]) for name, columns in everything.items()}


def _keep(flow: Flow, name: str, columns: tuple[str, ...], used: set[str]) -> tuple[str, ...]:
    # A row must have a column, also where only its being there counts.
    time = flow.stream(name).time
    kept = tuple(c for c in columns if c in used or c == time)
    return kept or columns[:1]


@contextmanager
def _blamed(flow: Flow, stage: s.Stage) -> Iterator[None]:
    """Say which stage Spark's complaint, or the user's own error, belongs to."""
    who = f'stage "{stage.name}" of flow "{flow.name}"'
    try:
        yield
    except FlowError:
        raise
    except (AnalysisException, PySparkException) as error:
        raise InvalidSql(f"{who}: {_first_line(error)}", where=stage.where) from error
    except Exception as error:
        if not isinstance(stage, s.Apply):
            raise
        raise InvalidFunction(
            f"{who} failed while it was planned: {type(error).__name__}: {_first_line(error)}",
            where=stage.where,
        ) from error


def _first_line(error: Exception) -> str:
    text = (str(error).strip() or type(error).__name__).split("\n")[0].split(" SQLSTATE")[0]
    return re.sub(r"^\[[A-Z0-9_.]+\] ", "", text).rstrip(";. ")


@contextmanager
def _unchecked(spark: SparkSession) -> Iterator[None]:
    """Let the optimizer look at a stream that is not started."""
    key = "spark.sql.streaming.unsupportedOperationCheck"
    spark.conf.set(key, "false")
    try:
        yield
    finally:
        spark.conf.unset(key)


# Spark's plans are Java objects: untyped here.


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _children(plan):
        yield from _nodes(child)


def _children(node: Any) -> list[Any]:
    return list(_each(node.children()))


def _each(sequence: Any) -> Iterator[Any]:
    for place in range(sequence.length()):
        yield sequence.apply(place)
