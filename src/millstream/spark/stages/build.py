"""From the stages of a group to one Spark DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from millstream.errors import InternalError
from millstream.flow import stages as s
from millstream.flow.flow import Flow
from millstream.flow.targets import Table
from millstream.spark.io.source import DELAY, MARKER, PLACE
from millstream.spark.stages.action import Shipping, action
from millstream.spark.stages.keyless import Keyless
from millstream.spark.stages.ordered import Folding, Keeping, ordered
from millstream.switch.starts import MATCH_START

#: The mark of a column that carries the watermark, in Spark's metadata.
WATERMARK: Final = "spark.watermarkDelayMs"

#: Gives the raw rows of an entry point (a source, or a journal of this flow), markers included.
Entry = Callable[[str], DataFrame]


def timed(frame: DataFrame, entry: str, time: str | None) -> DataFrame:
    """Let the markers in `frame` move the watermark, count the other rows, and drop the markers."""
    if time is None:
        return frame.observe(counter(entry), F.count(F.lit(1)).alias("rows"))
    # Spark moves filters below withWatermark, where they would take the markers
    # away too early (a marker has no values that could meet them). It does not
    # move them below a count of rows, so the count is also the barrier.
    rows = F.count_if(~F.col(MARKER)).alias("rows")
    counted = frame.withWatermark(time, DELAY).observe(counter(entry), rows)
    return counted.where(f"NOT ({MARKER} AND `{time}` IS NOT NULL)").drop(MARKER)


def counter(entry: str) -> str:
    """Return the name under which Spark reports how many rows an entry point handed out."""
    return f"rows of {entry}"


class Builder:
    """Builds the DataFrame of every stage that a group needs, each once."""

    def __init__(
        self,
        spark: SparkSession,
        flow: Flow,
        entry: Entry,
        root: Path,
        letters: Callable[[str], Path | None] = lambda _: None,
        binaries: Mapping[str, Path] | None = None,
    ) -> None:
        self._spark = spark
        self._flow = flow
        self._entry = entry
        self._root = root
        self._letters = letters
        self._binaries = binaries or {}
        self._frames: dict[str, DataFrame] = {}

    def frame(self, name: str) -> DataFrame:
        """Return the rows of stage `name`."""
        if name not in self._frames:
            self._frames[name] = self._build(self._flow.stages[name])
        return self._frames[name]

    def results(self, name: str) -> DataFrame:
        """Return the rows of stage `name`, with which nothing more is done: those of a pattern say also when each match began."""
        stage = self._flow.stages[name]
        return (
            self._match(stage, start=MATCH_START)
            if isinstance(stage, s.Match)
            else self.frame(name)
        )

    def _time(self, name: str) -> str:
        time = self._flow.stream(name).time
        if time is None:
            raise InternalError(f'stage "{name}" needs a time column and has none')
        return time

    def _build(self, stage: s.Stage) -> DataFrame:
        match stage:
            case s.Source() | s.Reads() | s.Journal():
                return timed(
                    self._entry(stage.name), stage.name, self._flow.stream(stage.name).time
                )
            case s.Apply():
                return self._one_time(stage.function(self.frame(stage.input)), stage.name)
            case s.Sql():
                return self._one_time(self._sql(stage), stage.name)
            case s.Window():
                return self._window(stage)
            case s.Merge():
                return self._merge(stage)
            case s.Join():
                return self._join(stage)
            case s.Lookup():
                return self._lookup(stage)
            case s.Distinct() | s.Fold() | s.Match() | s.Action():
                return self._python(stage)
            case _:
                raise InternalError(f'stage "{stage.name}" is of a kind that Spark does not run')

    def _python(self, stage: s.Distinct | s.Fold | s.Match | s.Action) -> DataFrame:
        """Return the rows of a stage that runs in Spark's Python workers."""
        match stage:
            case s.Distinct():
                return self._distinct(stage)
            case s.Fold():
                return self._fold(stage)
            case s.Action():
                return self._action(stage)
            case s.Match():
                return self._match(stage)

    def _one_time(self, frame: Any, name: str) -> DataFrame:
        """Let only the stream's own time column carry the watermark, not copies that the user made of it."""
        if not isinstance(frame, DataFrame):
            return cast("DataFrame", frame)  # the analysis refuses it
        time = self._flow.stream(name).time
        copies = {column for column in marked(frame) if column != time}
        if not copies:
            return frame
        return frame.select(
            *(plain(c).alias(c) if c in copies else F.col(f"`{c}`") for c in frame.columns)
        )

    def _sql(self, stage: s.Sql) -> DataFrame:
        # The query is resolved at once, so the view may go again at once.
        self.frame(stage.input).createOrReplaceTempView(f"`{stage.input}`")
        try:
            return self._spark.sql(stage.query)
        finally:
            self._spark.catalog.dropTempView(stage.input)

    def _window(self, stage: s.Window) -> DataFrame:
        time = F.col(f"`{self._time(stage.input)}`")
        if stage.shape == "session":
            span = F.session_window(time, interval(stage.gap))
        else:
            span = F.window(time, interval(stage.size), interval(stage.every))
        rows = self.frame(stage.input)
        by = [F.expr(expression).alias(name) for name, expression in stage.by]
        # A key that carries the watermark would let Spark drop state by it instead of by the
        # window's end.
        timed_keys = marked(rows.select(*by)) if by else ()
        by = [
            F.expr(f"timestamp_micros(unix_micros({expression}))").alias(name)
            if name in timed_keys
            else column
            for column, (name, expression) in zip(by, stage.by, strict=True)
        ]
        found = rows.groupBy(span.alias("__window"), *by)
        results = found.agg(
            *(F.expr(expression).alias(name) for name, expression in stage.aggregates)
        )
        return results.select(
            *(F.col(f"`{name}`") for name, _ in stage.by),
            F.col("__window.start").alias("window_start"),
            F.col("__window.end").alias("window_end"),
            F.window_time("__window").alias("window_time"),
            *(F.col(f"`{name}`") for name, _ in stage.aggregates),
        )

    def _merge(self, stage: s.Merge) -> DataFrame:
        first, *others = (self.frame(name) for name in stage.inputs)
        names = [
            name
            for name in first.columns
            if name != PLACE or all(PLACE in o.columns for o in others)
        ]
        merged = first.select(*(F.col(f"`{name}`") for name in names))
        for other in others:
            merged = merged.unionByName(other.select(*(F.col(f"`{name}`") for name in names)))
        return merged

    def _join(self, stage: s.Join) -> DataFrame:
        left_time, right_time = self._time(stage.left), self._time(stage.right)
        left = self.frame(stage.left).drop(PLACE)
        right = self.frame(stage.right).drop(PLACE)
        right = right.select(
            *(F.col(f"`{name}`").alias(f"__right_{name}") for name in right.columns)
        )
        ours, theirs = F.col(f"`{left_time}`"), F.col(f"`__right_{right_time}`")
        bound = F.expr(f"INTERVAL {interval(stage.within)}")
        near = (theirs >= ours - bound) & (theirs <= ours + bound)
        # For the same reason keys are compared without the watermark that one of them may carry.
        times = {*marked(left), *marked(right)}
        keys = [(name, f"__right_{name}") for name in stage.on]
        same = [
            plain(ours) == plain(theirs)
            if {ours, theirs} & times
            else F.col(f"`{ours}`") == F.col(f"`{theirs}`")
            for ours, theirs in keys
        ]
        condition = near
        for one in same:
            condition = condition & one
        joined = left.join(right, condition, {"semi": "left_semi"}.get(stage.how, stage.how))
        if stage.how == "semi":
            return joined
        return joined.select(*self._joined_columns(stage, left, right, right_time))

    def _joined_columns(
        self, stage: s.Join, left: DataFrame, right: DataFrame, right_time: str
    ) -> list[Column]:
        columns = []
        for name in left.columns:
            column = F.col(f"`{name}`")
            outer = stage.how in ("right", "full")
            if outer and name == self._time(stage.left):
                column = F.coalesce(column, F.col(f"`__right_{right_time}`")).alias(name)
            elif outer and name in stage.on:
                column = F.coalesce(column, F.col(f"`__right_{name}`")).alias(name)
            columns.append(column)
        for hidden in right.columns:
            name = hidden.removeprefix("__right_")
            if name in stage.on or name == right_time == self._time(stage.left):
                continue
            # A join keeps one time column; the other becomes a plain timestamp.
            column = plain(hidden) if name == right_time else F.col(f"`{hidden}`")
            columns.append(column.alias(name))
        return columns

    def _lookup(self, stage: s.Lookup) -> DataFrame:
        table = read_table(self._spark, stage.table, self._root)
        frame = self.frame(stage.input)
        joined = frame.join(F.broadcast(table), list(stage.on), stage.how)
        added = [name for name in table.columns if name not in stage.on]
        return joined.select(*(F.col(f"`{name}`") for name in [*frame.columns, *added]))

    def _distinct(self, stage: s.Distinct) -> DataFrame:
        frame, time = self.frame(stage.input), self._time(stage.input)
        rule = Keeping(stage.by, time, stage.within // timedelta(microseconds=1))
        return ordered(
            frame,
            rule,
            by=stage.by,
            time=time,
            output=_nullable(frame.schema),
            shards=stage.shards,
            wait=True,
        )

    def _fold(self, stage: s.Fold) -> DataFrame:
        wait = stage.order == "time"
        time = self._time(stage.input) if wait else self._flow.stream(stage.input).time
        output = parsed(stage.output.ddl)
        rule = Folding(
            stage.name, stage.by, stage.step, stage.initial, frozenset(output.fieldNames()), time
        )
        return ordered(
            self.frame(stage.input),
            rule,
            by=stage.by,
            time=time,
            output=output,
            shards=stage.shards,
            wait=wait,
        )

    def _action(self, stage: s.Action) -> DataFrame:
        path = self._letters(self._journal_above(stage))
        letters = None if path is None else str(path)
        shipping = Shipping(self._flow.name, self._root, self._binaries)
        return action(self.frame(stage.input), stage, shipping, letters=letters)

    def _journal_above(self, stage: s.Stage) -> str:
        """Return the entry point from which a stage's rows come, or the first of them."""
        above = self._flow.stages[stage.inputs[0]]
        while not isinstance(above, s.Source | s.Reads | s.Journal):
            above = self._flow.stages[above.inputs[0]]
        return above.name

    def _match(self, stage: s.Match, start: str | None = None) -> DataFrame:
        # Loaded for flows that match: it brings numba.
        from millstream.spark.stages.match import around, matched, stage_recipe

        frame = self.frame(stage.input)
        recipe = stage_recipe(stage, frame, self._time(stage.input))
        found = matched(
            frame, recipe, shards=stage.shards, start=start, keyless=self._keyless(stage)
        )
        return self._one_time(around(stage, found), stage.name)

    def _keyless(self, stage: s.Match) -> Keyless | None:
        """Return where rows go that have no key; None where there cannot be any, as a source takes none without its own."""
        above = self._flow.stages[stage.input]
        path = self._letters(self._journal_above(stage))
        known = isinstance(above, s.Source) and stage.by == (above.key,)
        return (
            None
            if path is None or not stage.by or known
            else Keyless(stage.name, stage.by, str(path))
        )


def parsed(ddl: str) -> StructType:
    """Return the columns that a DDL text describes."""
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def marked(frame: DataFrame) -> tuple[str, ...]:
    """Return the columns that carry the watermark."""
    return tuple(field.name for field in frame.schema.fields if WATERMARK in field.metadata)


def plain(name: str) -> Column:
    """Return a timestamp column without the watermark that it may carry."""
    return F.expr(f"timestamp_micros(unix_micros(`{name}`))")


def place_field() -> StructField:
    return StructField(PLACE, LongType())


def interval(span: timedelta | None) -> str:
    """Return a duration as Spark writes it."""
    if span is None:
        raise InternalError("a duration is missing")
    return f"{span // timedelta(microseconds=1)} microseconds"


def read_table(spark: SparkSession, table: Table, root: Path) -> DataFrame:
    """Read a static table; relative paths count from the flow's folder."""
    path = table.path if "://" in table.path else str(root / table.path)
    reader = spark.read.format({"jsonl": "json"}.get(table.format, table.format))
    if table.format == "csv":
        # With a schema Spark would take the columns of a CSV file by their place, not by their
        # names.
        whole = (
            reader.option("header", "true")
            .option("inferSchema", str(table.schema is None))
            .load(path)
        )
        wanted = parsed(table.schema.ddl).fields if table.schema else []
        return (
            whole.select(*(F.col(f"`{f.name}`").cast(f.dataType) for f in wanted))
            if wanted
            else whole
        )
    return (reader.schema(table.schema.ddl) if table.schema else reader).load(path)


def _nullable(schema: StructType) -> StructType:
    return StructType(
        [StructField(field.name, field.dataType, nullable=True) for field in schema.fields]
    )
