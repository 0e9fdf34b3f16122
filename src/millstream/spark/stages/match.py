"""Patterns on Spark: over the rows of a batch or of a stream, with the same results.

SQL computes for each event the mask of the tests that it meets and the values that automata and
outputs need; events that meet none are left out there if contiguity allows. Keys are spread over
shards by the stable hash. In a batch a shard's rows are put in order and matched at once. In a
stream they are packed as Arrow data before the shuffle, wait in the shard's state until the
watermark has passed them, and are then matched in (time, place) order; timers wake a shard for rows
that wait and for runs whose time is up, also when its keys go quiet. What comes out are the
*pieces* of the outputs, of which SQL makes the columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_
from typing import Any, Final
from uuid import uuid4

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import StringType, StructType

from millstream.errors import GroupChanged, InternalError, NoTime
from millstream.flow.schema import Field, Schema
from millstream.flow.stages import SHARDS, Match
from millstream.patterns.automaton import FOREVER
from millstream.patterns.batches import Batch, Found
from millstream.patterns.events import asked, micros, plain
from millstream.patterns.matcher import Kept, Matcher, matcher
from millstream.patterns.outputs import Piece
from millstream.patterns.pattern import Pattern, Phenomenon
from millstream.patterns.query import Query
from millstream.patterns.recipe import (
    DEAD_LETTER,
    EVENT,
    PATTERN,
    TIMED_OUT,
    PatternPlan,
    Recipe,
    piece_type,
    recipe,
)
from millstream.patterns.results import classified, compute
from millstream.spark.io.source import PLACE
from millstream.spark.session.session import ROCKSDB
from millstream.spark.stages.keyless import RECORD, Keyless
from millstream.spark.stages.ordered import PIECE as CHUNK
from millstream.spark.stages.ordered import SHARD, from_bytes, pack, to_bytes, wake_at

KEY, TIME, COURSE, LATE, ROW = "__key", "__time", "__course", "__late", "__row"
STARTED, DEAD, JSON = "__started", "__dead", "__json"
#: How many there were before the state said so.
OLD_SHARDS: Final = 64
#: For each pattern, the column of each piece.
Slots = tuple[tuple[str, ...], ...]
PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"


def matched(
    frame: DataFrame,
    recipe: Recipe,
    *,
    shards: int = SHARDS,
    drop_late: bool = False,
    counted: str | None = None,
    start: str | None = None,
    keyless: Keyless | None = None,
) -> DataFrame:
    """Return the matches that a recipe finds in the rows of a frame, which may be a stream.

    The column `start`, if it is named, has the time of the first event of each. With `drop_late`,
    rows of a stream that come behind the watermark are left out, and counted in its progress under
    the name `counted`; without it, whoever hands them out lets none through. Rows without a key are
    left out too, and go where `keyless` puts them.
    """
    prepared = _prepared(frame, recipe, shards, buried=keyless is not None)
    schema = StructType([one for one in prepared.schema.fields if one.name not in (SHARD, RECORD)])
    arrow = to_arrow_schema(schema, timezone="UTC")
    shown = _shown(frame, recipe)
    slots = _slots(recipe, schema, shown)
    output = _output(slots, letters=drop_late or recipe.letters)
    names = tuple(tuple(one.name for one in course) for course in slots)
    stage = Stage(
        recipe, arrow, to_arrow_schema(output, timezone="UTC"), names, shown, drop_late, shards
    )
    if frame.isStreaming:
        found = (
            prepared.mapInArrow(keyless or pack, f"{SHARD} int, rows binary")
            .groupBy(SHARD)
            .transformWithStateInPandas(
                _Shard(stage),
                output,
                outputMode="append",
                timeMode="eventTime",
                eventTimeColumnName=TIME,
            )
        )
    else:
        found = prepared.groupBy(SHARD).applyInArrow(whole(stage), output)
    if counted is not None and drop_late:
        found = found.observe(
            f"{counted} late", F.count_if(F.col(DEAD).eqNullSafe("late")).alias("late")
        )
    if drop_late and not recipe.letters:
        found = found.where(F.col(DEAD).isNull())
    return found.select(
        *_results(recipe, names), *([] if start is None else [F.col(STARTED).alias(start)])
    )


def readied(frame: DataFrame, recipe: Recipe, counted: str) -> DataFrame:
    """Return a frame of the user's that patterns can be matched over, its events counted; refuse a stream without a watermark."""
    if not frame.isStreaming:
        return frame
    _check_watermark(frame, recipe.time)
    # The only store that Spark lets such stages use; queries that are started later have it too.
    frame.sparkSession.conf.set(PROVIDER, ROCKSDB)
    # Spark moves filters below withWatermark, where events that meet no condition would no longer
    # move the watermark. It does not move them below a count.
    timeless = F.col(f"`{recipe.time}`").isNull()
    keyless = (
        reduce(or_, (F.col(f"`{name}`").isNull() for name in recipe.keys), F.lit(False)) & ~timeless
    )
    counts = {"no_key": F.count_if(keyless), "no_time": F.count_if(timeless)}
    return frame.observe(
        counted,
        F.count(F.lit(1)).alias("events"),
        *(count.alias(name) for name, count in counts.items()),
    )


def from_sources(frame: DataFrame) -> bool:
    """Tell whether the rows of a stream come from its sources alone, not from stages that keep state and drop what is late."""
    waiting = [frame._jdf.queryExecution().analyzed()]
    while waiting:
        node = waiting.pop()
        if node.nodeName() in _KEEPING or (node.nodeName() == "Join" and node.isStreaming()):
            return False
        children = node.children()
        waiting += [children.apply(place) for place in range(children.length())]
    return True


_KEEPING: Final = (
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Distinct",
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "TransformWithState",
    "TransformWithStateInPySpark",
)


def _check_watermark(frame: DataFrame, time: str) -> None:
    if not any(
        "spark.watermarkDelayMs" in f.metadata for f in frame.schema.fields if f.name == time
    ):
        msg = f'the stream has no watermark on its time column "{time}"'
        raise NoTime(msg, hint=f'call withWatermark("{time}", "10 seconds") on it first')


def stage_recipe(stage: Match, frame: DataFrame, time: str) -> Recipe:
    """Return the recipe of a stage of a flow, over the columns that Spark has found."""
    pattern = stage.pattern
    columns = StructType(
        [field for field in frame.schema.fields if not field.name.startswith("__")]
    )
    if isinstance(pattern, Query):
        return pattern.recipe(schema_of(columns), time)
    if not isinstance(pattern, Pattern | Phenomenon):
        raise InternalError(f'stage "{stage.name}" matches {type(pattern).__name__}')
    return recipe(pattern, schema_of(columns), time=time, key=stage.by, emit=stage.emit)


def around(stage: Match, found: DataFrame) -> DataFrame:
    """Return what the query around a MATCH_RECOGNIZE clause makes of its rows; those of other patterns as they are."""
    if not isinstance(stage.pattern, Query):
        return found
    view = f"millstream_match_{uuid4().hex}"
    found.createOrReplaceTempView(view)
    try:
        return found.sparkSession.sql(stage.pattern.around(view))
    finally:
        found.sparkSession.catalog.dropTempView(view)


def schema_of(schema: StructType) -> Schema:
    """Return Spark's schema as one of ours."""
    return Schema(
        tuple(Field(field.name, field.dataType.simpleString()) for field in schema.fields)
    )


# Before and after, in SQL


def _prepared(frame: DataFrame, recipe: Recipe, shards: int, *, buried: bool) -> DataFrame:
    time = F.col(f"`{recipe.time}`")
    keys = [F.col(f"`{name}`") for name in recipe.keys]
    timeless = time.isNull()
    keyless = reduce(or_, (key.isNull() for key in keys), F.lit(False))
    hashed = F.expr(
        f"cast(pmod(xxhash64({', '.join(f'cast(`{k}` as string)' for k in recipe.keys)}), {shards}) as int)"
    )
    columns = [
        (hashed if keys else F.lit(0)).alias(SHARD),
        _key(keys).alias(KEY),
        # A plain timestamp: the watermark must not stick to a column that is packed.
        F.expr(f"timestamp_micros(unix_micros(`{recipe.time}`))").alias(TIME),
        *(F.expr(sql).alias(f"__mask{place}") for place, sql in enumerate(recipe.masks)),
        *(F.expr(sql).alias(f"__value{place}") for place, sql in enumerate(recipe.values)),
        *(
            _unmarked(frame, sql).alias(name)
            for sql, name in zip(recipe.rows, _shown(frame, recipe), strict=True)
            if name != KEY
        ),
    ]
    columns += [F.col(PLACE)] if PLACE in frame.columns else []
    if recipe.asks_python:
        columns.append(
            F.struct(*(F.col(f"`{name}`") for name in frame.columns if name != PLACE)).alias(ROW)
        )
    wanted = [f"__mask{place} <> 0" for place in range(len(recipe.masks))]
    record = F.to_json(F.struct(*(F.col(f"`{name}`") for name in frame.columns if name != PLACE)))
    if recipe.letters:
        columns.append(F.when(timeless, "no time").when(keyless, "no key").alias(DEAD))
        columns.append(record.alias(JSON))
        wanted.append(f"{DEAD} IS NOT NULL")
        # Letters need a time and a key for their way; what they have is in their JSON.
        chosen = (
            frame.select(*columns)
            .fillna("", [KEY])
            .withColumn(TIME, F.coalesce(TIME, F.timestamp_seconds(F.lit(0))))
        )
    elif buried:
        wanted.append(f"{RECORD} IS NOT NULL")
        chosen = frame.where(~timeless).select(*columns, F.when(keyless, record).alias(RECORD))
    else:
        chosen = frame.where(~(timeless | keyless)).select(*columns)
    return chosen.where(" OR ".join(wanted)) if recipe.quiet else chosen


def _shown(frame: DataFrame, recipe: Recipe) -> tuple[str, ...]:
    """Return for each value of the outputs the column in which it comes: one that is the key, and a text, comes as the key."""
    text = len(recipe.keys) == 1 and frame.schema[recipe.keys[0]].dataType == StringType()
    spelled = (recipe.keys[0], f"`{recipe.keys[0]}`") if text else ()
    return tuple(
        KEY if sql in spelled else f"__out{place}" for place, sql in enumerate(recipe.rows)
    )


def _unmarked(frame: DataFrame, sql: str) -> Column:
    """Return an expression; a copy of the time column without the watermark that it carries."""
    marked = [f"`{f.name}`" for f in frame.schema.fields if "spark.watermarkDelayMs" in f.metadata]
    names = {*marked, *(name.strip("`") for name in marked)}
    return F.expr(f"timestamp_micros(unix_micros({sql}))" if sql in names else sql)


def _key(keys: list[Column]) -> Column:
    if not keys:
        return F.lit("")
    return keys[0].cast("string") if len(keys) == 1 else F.to_json(F.struct(*keys))


@dataclass(frozen=True, slots=True)
class _Slot:
    """A column in which a piece leaves Python; patterns share those of a type."""

    name: str
    type: str | None


def _slots(recipe: Recipe, prepared: StructType, shown: tuple[str, ...]) -> list[list[_Slot]]:
    """Return for each pattern the slots of its pieces: as few as can be, since a column costs more than what is in it."""
    types: list[str | None] = []
    slots = []
    for course in recipe.courses:
        own: list[_Slot] = []
        for piece in course.outputs.pieces:
            value = None if piece.value is None else prepared[shown[course.rows[piece.value]]]
            kind = piece_type(piece, None if value is None else value.dataType.simpleString())
            types += [] if kind in types else [kind]
            own.append(
                _Slot(f"__slot{types.index(kind)}_{sum(one.type == kind for one in own)}", kind)
            )
        slots.append(own)
    return slots


def _output(slots: list[list[_Slot]], *, letters: bool) -> StructType:
    """Return the columns in which what is found leaves Python."""
    fields = [f"{TIME} timestamp", f"{STARTED} timestamp", f"{COURSE} int", f"{LATE} boolean"]
    fields += [f"{DEAD} string", f"{JSON} string"] if letters else []
    distinct = dict.fromkeys(slot for course in slots for slot in course)
    fields += [f"{slot.name} {slot.type}" for slot in distinct]
    return StructType.fromDDL(", ".join(fields))  # type: ignore[return-value]


def _results(recipe: Recipe, slots: Slots) -> list[Column]:
    columns = []
    for place, output in enumerate(recipe.courses[0].outputs.columns):
        said = [
            _renamed(course.outputs.columns[place].sql, names)
            for course, names in zip(recipe.courses, slots, strict=True)
        ]
        whole = " ".join(f"WHEN {number} THEN {sql}" for number, sql in enumerate(said))
        columns.append(
            F.expr(said[0] if len(set(said)) == 1 else f"CASE {COURSE} {whole} END").alias(
                output.name
            )
        )
    if recipe.letters:
        # Also what is no column of the match, like a literal, is missing in a letter.
        own_names = recipe.courses[0].outputs.names
        columns = [
            F.when(F.col(DEAD).isNull(), one).alias(name)
            for one, name in zip(columns, own_names, strict=True)
        ]
    names = F.array(*(F.lit(course.automaton.name) for course in recipe.courses))
    extra = {
        PATTERN: names[F.col(COURSE)],
        TIMED_OUT: F.col(LATE),
        DEAD_LETTER: F.col(DEAD),
        EVENT: F.col(JSON),
    }
    extra[recipe.certain] = F.col(TIME)
    own = {output.name.lower() for output in recipe.courses[0].outputs.columns}
    return [
        *columns,
        *(extra[name].alias(name) for name in recipe.names if name.lower() not in own),
    ]


def _renamed(sql: str, slots: tuple[str, ...]) -> str:
    return re.sub(r"__piece(\d+)", lambda found: slots[int(found[1])], sql)


# In Python


@dataclass
class Stage:
    """What a worker needs to match the rows of a shard."""

    recipe: Recipe
    rows: pa.Schema
    output: pa.Schema
    slots: Slots
    shown: tuple[str, ...]
    drop_late: bool = False
    shards: int = SHARDS

    @cached_property
    def matchers(self) -> list[Matcher]:
        late = self.recipe.late
        return [
            matcher(course.automaton, self._types(course), late=late, rows=course.lags)
            for course in self.recipe.courses
        ]

    def _types(self, course: PatternPlan) -> list[pa.DataType]:
        return [self.rows.field(f"__value{place}").type for place in course.values]

    def __getstate__(self) -> dict[str, Any]:
        # Made anew where it is needed.
        return {name: value for name, value in self.__dict__.items() if name != "matchers"}

    def empty(self) -> list[Kept]:
        return [
            one.empty(pa.string(), self._kept_columns(course))
            for one, course in zip(self.matchers, self.recipe.courses, strict=True)
        ]

    def _kept_columns(self, course: PatternPlan) -> pa.Schema:
        return self._payload(self.rows.empty_table(), course).schema

    def _payload(self, rows: pa.Table, course: PatternPlan) -> pa.Table:
        """Return the columns that outputs, and Python predicates, need."""
        whole = rows.select([self.shown[place] for place in course.rows])
        whole = whole.rename_columns([f"__out{place}" for place in course.rows])
        if any(test.functions for test in course.automaton.tests):
            for name, column in zip(_whole(rows).column_names, _whole(rows).columns, strict=True):
                whole = whole.append_column(name, column)
        return whole if whole.column_names else rows.select([TIME])

    def process(
        self, kept: list[Kept], rows: pa.Table, watermark: int
    ) -> tuple[list[Kept], list[pa.Table]]:
        """Match rows, which are in order, and return what is kept and what is found."""
        after, results = [], []
        for number, (course, one, before) in enumerate(
            zip(self.recipe.courses, self.matchers, kept, strict=True)
        ):
            now, found = one.process(before, self._batch(rows, course), watermark)
            after.append(now)
            if len(found):
                results.append(self._results(number, course, found))
        return after, results

    def sorted_out(self, rows: pa.Table, watermark: int | None) -> tuple[pa.Table, pa.Table | None]:
        """Return the rows that can be matched, and letters for the others: without a key or a time, or behind the watermark."""
        lost = np.zeros(len(rows), bool)
        if self.drop_late and watermark is not None:
            # Spark would fail the query when a match comes out that is older than its watermark.
            lost |= micros(rows.column(TIME)) <= watermark
        if self.recipe.letters:
            lost |= rows.column(DEAD).is_valid().to_numpy()
        if not lost.any():
            return rows, None
        return rows.filter(pa.array(~lost)), self._letters(rows.filter(pa.array(lost)), watermark)

    def _letters(self, rows: pa.Table, watermark: int | None) -> pa.Table:
        dead = pa.repeat(pa.scalar("late"), len(rows))
        # A time that Spark lets through; the event's own is in its JSON.
        at = np.maximum(micros(rows.column(TIME)), (watermark or 0) + 1000)
        arrays = {TIME: pa.array(at, pa.int64()).cast(self.output.field(TIME).type), DEAD: dead}
        if self.recipe.letters:
            arrays[DEAD] = pc.coalesce(rows.column(DEAD).combine_chunks(), dead)
            arrays[JSON] = rows.column(JSON).combine_chunks()
        filled = [arrays.get(one.name, pa.nulls(len(rows), one.type)) for one in self.output]
        return pa.Table.from_arrays(filled, schema=self.output)

    def _batch(self, rows: pa.Table, course: PatternPlan) -> Batch:
        count = len(course.automaton.tests)
        mask = rows.column(f"__mask{course.word}").to_numpy() >> course.shift & ((1 << count) - 1)
        for number, test in enumerate(course.automaton.tests):
            if test.alone:
                mask = np.where(asked(test.alone, _whole(rows)), mask, mask & ~(1 << number))
        if course.automaton.quiet:
            chosen = np.flatnonzero(mask)
            if len(chosen) < len(mask):
                rows, mask = rows.take(pa.array(chosen)), mask[chosen]
        values = [plain(rows.column(f"__value{place}").combine_chunks()) for place in course.values]
        keys = rows.column(KEY).combine_chunks()
        return Batch(
            keys,
            micros(rows.column(TIME)),
            mask.astype(np.int64),
            values,
            self._payload(rows, course),
        )

    def _results(self, number: int, course: PatternPlan, found: Found) -> pa.Table:
        whole, parts = found, found
        if self.recipe.all_rows:
            parts, whole = found.prefixes(), found.repeated()
        named = zip(self.slots[number], course.outputs.pieces, strict=True)
        arrays = {slot: self._piece(course, slot, piece, parts, whole) for slot, piece in named}
        arrays[TIME] = pa.array(parts.at, pa.int64()).cast(self.output.field(TIME).type)
        arrays[STARTED] = pa.array(parts.started, pa.int64()).cast(self.output.field(STARTED).type)
        arrays[COURSE] = pa.array(np.full(len(parts), number), pa.int32())
        arrays[LATE] = pa.array(parts.late)
        filled = [arrays.get(one.name, pa.nulls(len(parts), one.type)) for one in self.output]
        table = pa.Table.from_arrays(filled, schema=self.output)
        if not course.automaton.hidden or not self.recipe.all_rows:
            return table
        shown = ~np.isin(parts.blocks[parts.ends - 1], list(course.automaton.hidden))
        return table.filter(pa.array(shown))

    def _piece(
        self, course: PatternPlan, slot: str, piece: Piece, parts: Found, whole: Found
    ) -> pa.Array:
        kind = self.output.field(slot).type
        found = whole if piece.final else parts
        if piece.function == "classifier":
            return classified(found, course.automaton.blocks)
        value = None if piece.value is None else f"__out{course.rows[piece.value]}"
        return compute(piece, found, value, kind)


def _whole(rows: pa.Table) -> pa.Table:
    """Return the events as they came, for Python predicates."""
    flat = rows.column(ROW).combine_chunks()
    return pa.Table.from_arrays(flat.flatten(), names=[one.name for one in flat.type])


def in_order(rows: pa.Table) -> pa.Table:
    """Sort rows by time, then by place, or by content where they have none."""
    times = micros(rows.column(TIME))
    order = np.argsort(times, kind="stable")
    times = times[order]
    # Few have the time of another, and comparing times alone takes a fraction of comparing all.
    same = times[1:] == times[:-1]
    tied = (
        np.flatnonzero(np.append(same, False) | np.append(False, same))
        if len(times)
        else np.zeros(0, np.int64)
    )
    if len(tied):
        some = rows.take(pa.array(order[tied]))
        order[tied] = order[tied][pc.sort_indices(some, sort_keys=_content_keys(some)).to_numpy()]
    return rows.take(pa.array(order))


def _content_keys(rows: pa.Table) -> list[tuple[str, str]]:
    if PLACE in rows.column_names:
        return [(TIME, "ascending"), (PLACE, "ascending")]
    plain_ones = [
        one.name for one in rows.schema if one.name not in (TIME, SHARD) and _sortable(one.type)
    ]
    return [(name, "ascending") for name in (TIME, *plain_ones)]


def _sortable(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_null(kind)


def whole(stage: Stage) -> Callable[[pa.Table], pa.Table]:
    """Return the function that matches all rows of a shard of a batch."""

    # Spark counts the parameters: an object with `__call__` has one too many.
    def match(rows: pa.Table) -> pa.Table:
        good, letters = stage.sorted_out(rows.drop_columns([SHARD]), None)
        _, results = stage.process(stage.empty(), in_order(good), FOREVER)
        results += [] if letters is None else [letters]
        return pa.concat_tables(results) if results else stage.output.empty_table()

    return match


@dataclass
class _Shard(StatefulProcessor):
    """One shard of a stream: rows that wait, and what the matchers keep."""

    stage: Stage
    _handle: Any = field(default=None, repr=False)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        # One list for both, marked by their first byte: calls for state are what a shard's turn is
        # made of.
        self._pieces = handle.getListState("pieces", "data binary")
        self._next = _Once(handle.getValueState("next", "time bigint"))

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        fresh = [_Packed(from_bytes(data), bytes(data)) for frame in rows for data in frame["rows"]]
        yield from self._advance(fresh, timerValues.getCurrentWatermarkInMs() * 1000)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        yield from self._advance([], timerValues.getCurrentWatermarkInMs() * 1000)

    def close(self) -> None:
        """Nothing to give back."""

    def _advance(self, fresh: list[_Packed], watermark: int) -> Iterator[pd.DataFrame]:
        both = [(one, *self.stage.sorted_out(one.rows, watermark)) for one in fresh]
        yield from (_frame(letters) for _, _, letters in both if letters is not None)
        fresh = [
            one if letters is None else _Packed(good)
            for one, good, letters in both
            if good.num_rows
        ]
        self._next.forget()
        stored = self._next.get()
        times = [int(micros(one.rows.column(TIME)).min()) for one in fresh]
        lowest = min([*times, *(stored[:1] if stored else ())], default=None)
        if lowest is None:
            return
        if lowest > watermark:
            if fresh:
                self._pieces.appendList([(self._marked(_WAITING, one.bytes()),) for one in fresh])
                wake_at(self._handle, self._next, lowest)
            return
        yield from self._take([one.rows for one in fresh], watermark)

    def _take(self, fresh: list[pa.Table], watermark: int) -> Iterator[pd.DataFrame]:
        pieces = [self._opened(bytes(piece)) for (piece,) in self._pieces.get()]
        stored = [from_bytes(content) for mark, content in pieces if mark == _WAITING]
        names = self.stage.rows.names
        tables = [table.select(names) for table in (*stored, *fresh)]
        rows = pa.concat_tables(tables) if tables else self.stage.rows.empty_table()
        ready = micros(rows.column(TIME)) <= watermark
        rest = rows.filter(pa.array(~ready))
        before = self._load(b"".join(content for mark, content in pieces if mark == _KEPT))
        kept, results = self.stage.process(
            before, in_order(rows.filter(pa.array(ready))), watermark
        )
        self._store([*self._dumped(kept), *self._packed(rest)])
        self._wake_next(kept, rest)
        if results:
            yield _frame(pa.concat_tables(results))

    def _load(self, data: bytes) -> list[Kept]:
        if not data:
            return self.stage.empty()
        stored = msgspec.msgpack.decode(data)
        return [
            empty if part is None else one.load(part)
            for one, part, empty in zip(
                self.stage.matchers, stored, self.stage.empty(), strict=True
            )
        ]

    def _store(self, pieces: list[bytes]) -> None:
        if pieces:
            self._pieces.put([(piece,) for piece in pieces])
        else:
            self._pieces.clear()

    def _dumped(self, kept: list[Kept]) -> list[bytes]:
        if all(one.idle for one in kept):
            return []
        parts = [
            None if k.idle else one.dump(k)
            for one, k in zip(self.stage.matchers, kept, strict=True)
        ]
        data = msgspec.msgpack.encode(parts)
        return [self._marked(_KEPT, data[at : at + CHUNK]) for at in range(0, len(data), CHUNK)]

    def _packed(self, rest: pa.Table) -> list[bytes]:
        step = max(1, rest.num_rows * CHUNK // max(1, rest.nbytes))
        return [
            self._marked(_WAITING, to_bytes(rest.slice(at, step)))
            for at in range(0, rest.num_rows, step)
        ]

    def _marked(self, mark: bytes, content: bytes) -> bytes:
        return mark + self.stage.shards.to_bytes(4, "little") + content

    def _opened(self, piece: bytes) -> tuple[bytes, bytes]:
        """Return the mark and the content of a piece of state.

        Raises:
            GroupChanged: The keys were spread over another number of shards.
        """
        mark, shards, content = piece[:1], int.from_bytes(piece[1:5], "little"), piece[5:]
        if mark in _OLD:
            mark, shards, content = _OLD[mark], OLD_SHARDS, piece[1:]
        if shards != self.stage.shards:
            msg = f"the state of the pattern is spread over {shards} shards, not over {self.stage.shards}"
            raise GroupChanged(msg, hint=f"say shards={shards}, or start with a new checkpoint")
        return mark, content

    def _wake_next(self, kept: list[Kept], rest: pa.Table) -> None:
        limits = [one.soonest(part) for one, part in zip(self.stage.matchers, kept, strict=True)]
        limits += [int(micros(rest.column(TIME)).min())] if rest.num_rows else []
        lowest = min((limit for limit in limits if limit is not None), default=None)
        if lowest is None:
            self._next.clear()
        else:
            wake_at(self._handle, self._next, lowest)


_KEPT, _WAITING = b"K", b"W"
#: The marks of pieces that do not say over how many shards the keys are spread.
_OLD: Final = {b"k": _KEPT, b"w": _WAITING}


@dataclass(frozen=True, slots=True)
class _Packed:
    """Rows, and the bytes that they came as, if they are still the same."""

    rows: pa.Table
    data: bytes | None = None

    def bytes(self) -> bytes:
        return to_bytes(self.rows) if self.data is None else self.data


class _Once:
    """A value of state that is asked for once in a shard's turn."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self.forget()

    def forget(self) -> None:
        self._known = False
        self._value: Any = None

    def get(self) -> Any:
        if not self._known:
            self._known, self._value = True, self._state.get()
        return self._value

    def update(self, value: tuple[Any, ...]) -> None:
        self._state.update(value)
        self._known, self._value = True, value

    def clear(self) -> None:
        self._state.clear()
        self._known, self._value = True, None


def _frame(table: pa.Table) -> pd.DataFrame:
    return pd.DataFrame({name: _series(table.column(name)) for name in table.column_names})


def _series(column: pa.ChunkedArray) -> pd.Series[Any]:
    if pa.types.is_nested(column.type):
        return pd.Series(column.to_pylist(), dtype=object)
    if (
        pa.types.is_string(column.type)
        or pa.types.is_integer(column.type)
        or pa.types.is_floating(column.type)
    ):
        # As they are: Spark asks for Arrow data again.
        return pd.Series(pd.arrays.ArrowExtensionArray(column.combine_chunks()))
    # Objects where whole numbers are missing: numpy would turn the others into fractions.
    found: pd.Series[Any] = column.to_pandas(integer_object_nulls=True)
    return found
