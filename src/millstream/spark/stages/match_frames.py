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
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

from pyspark.accumulators import Accumulator
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StringType, StructType

from millstream.errors import NoTime
from millstream.flow.schema import Field, Schema
from millstream.flow.stages import SHARDS
from millstream.patterns.ordering import Ordering
from millstream.patterns.recipe import DEAD_LETTER, EVENT, PATTERN, TIMED_OUT, Recipe, piece_type
from millstream.spark.io.packed import SHARD, Packing, packing
from millstream.spark.io.shard_rows import Shards
from millstream.spark.io.source import PLACE
from millstream.spark.session.session import ROCKSDB
from millstream.spark.stages.columns import WATERMARK, delay, marked
from millstream.spark.stages.keyless import RECORD, Keyless
from millstream.spark.stages.match_rows import (
    COURSE,
    DEAD,
    JSON,
    KEY,
    LATE,
    ORDER,
    ROW,
    STARTED,
    TIME,
    UNMATCHED,
    ShardMatcher,
    Slots,
    whole,
)
from millstream.spark.stages.match_source import picked_shards
from millstream.spark.stages.match_state import MatchShard
from millstream.spark.stages.waking import waking
from millstream.spark.task_time import Worked
from millstream.state import StateFiles

#: What rows are ordered by, where that is more than a time.
BY: Final = "__by{}"
#: The key of rows without one, where these are a partition of their own.
KEYLESS: Final = "\0"
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
    prompt: bool = False,
    files: StateFiles | None = None,
    worked: Accumulator[Worked] | None = None,
    source: Callable[[Shards], DataFrame | None] = lambda _: None,
) -> DataFrame:
    """Return the matches that a recipe finds in the rows of a frame, which may be a stream.

    The column `start`, if it is named, has the time of the first event of each. With `drop_late`,
    rows of a stream that come behind the watermark are left out, and counted in its progress under
    the name `counted`; without it, whoever hands them out lets none through. Rows without a key are
    left out too, and go where `keyless` puts them. For rows that are `prompt` see `ordered`. State that
    is large is kept in `files`.
    Tasks report to `worked` how long they are at it. If the `source` of the rows can pick what is needed
    of them, it does.
    """
    prepared = _prepared(frame, recipe, shards, buried=keyless is not None)
    stage, output = _stage(prepared, frame, recipe, shards, drop_late=drop_late)
    names = stage.slots
    if frame.isStreaming:
        found = (
            _messages(prepared, frame, recipe, stage, keyless, files, source)
            .groupBy(SHARD)
            .transformWithStateInPandas(
                MatchShard(stage, files, worked, prompt),
                output,
                outputMode="append",
                timeMode="eventTime",
            )
            # Named there as the column of event time, Spark would fail on a match that only the end of
            # all events settles: it has the time of its last event, which is long past.
            .withMetadata(TIME, {WATERMARK: delay(frame)})
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


def _messages(
    prepared: DataFrame,
    frame: DataFrame,
    recipe: Recipe,
    stage: ShardMatcher,
    keyless: Keyless | None,
    files: StateFiles | None,
    source: Callable[[Shards], DataFrame | None],
) -> DataFrame:
    """Return rows packed for their shards, by their source if it can do that."""
    pack: Packing = keyless or packing(TIME)
    if files is not None and files.imported:
        pack = waking(pack, files)
    else:
        shards = picked_shards(frame.schema, recipe, _rows(prepared), stage, keyless)
        found = None if shards is None else source(shards)
        if found is not None:
            return found
    return prepared.mapInArrow(pack, f"{SHARD} int, rows binary")


def _rows(prepared: DataFrame) -> StructType:
    return StructType([one for one in prepared.schema.fields if one.name not in (SHARD, RECORD)])


def shard_matcher(frame: DataFrame, recipe: Recipe, shards: int) -> ShardMatcher:
    """Return what matches the rows of a shard of a frame, as `matched` has it."""
    return _stage(_prepared(frame, recipe, shards, buried=False), frame, recipe, shards)[0]


def _stage(
    prepared: DataFrame, frame: DataFrame, recipe: Recipe, shards: int, *, drop_late: bool = False
) -> tuple[ShardMatcher, StructType]:
    """Return what matches the rows of a shard, and the columns that come out of it."""
    schema = _rows(prepared)
    shown = _row_columns(frame, recipe)
    slots = _slots(recipe, schema, shown)
    output = _output(slots, letters=drop_late or recipe.letters)
    arrow, results = (to_arrow_schema(one, timezone="UTC") for one in (schema, output))
    names = tuple(tuple(one.name for one in plan) for plan in slots)
    return ShardMatcher(recipe, arrow, results, names, shown, drop_late, shards), output


def readied(frame: DataFrame, recipe: Recipe, counted: str) -> DataFrame:
    """Return a frame of the user's that patterns can be matched over, its events counted.

    Raises:
        NoTime: It is a stream without a watermark.
    """
    if not frame.isStreaming:
        return frame
    _check_watermark(frame, recipe.time)
    # The only store that Spark lets such stages use; queries that are started later have it too.
    frame.sparkSession.conf.set(PROVIDER, ROCKSDB)
    # Spark moves filters below withWatermark, where events that meet no condition would no longer
    # move the watermark. It does not move them below a count.
    timeless = named(recipe.time).isNull()
    keyless = reduce(or_, (named(name).isNull() for name in recipe.keys), F.lit(False)) & ~timeless
    counts = {"no_key": F.count_if(keyless), "no_time": F.count_if(timeless)}
    return frame.observe(
        counted,
        F.count(F.lit(1)).alias("events"),
        *(count.alias(name) for name, count in counts.items()),
    )


def from_sources(frame: DataFrame) -> bool:
    """Tell whether the rows of a stream come from its sources alone.

    Stages that keep state drop what is late.
    """
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
    if time not in marked(frame):
        msg = f'the stream has no watermark on its time column "{time}"'
        raise NoTime(msg, hint=f'call withWatermark("{time}", "10 seconds") on it first')


def named(name: str) -> Column:
    """Return the column of a name, whatever is in it."""
    return F.col(_quoted(name))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def schema_of(schema: StructType) -> Schema:
    """Return Spark's schema as one of ours."""
    return Schema(
        tuple(Field(field.name, field.dataType.simpleString()) for field in schema.fields)
    )


# Before and after, in SQL


def _prepared(frame: DataFrame, recipe: Recipe, shards: int, *, buried: bool) -> DataFrame:
    keys = [named(name) for name in recipe.keys]
    timeless = named(recipe.time).isNull() if recipe.time else F.lit(False)
    needed = [] if recipe.keyless else keys
    keyless = reduce(or_, (key.isNull() for key in needed), F.lit(False))
    texts = ", ".join(f"cast({_quoted(name)} as string)" for name in recipe.keys)
    hashed = F.expr(f"cast(pmod(xxhash64({texts}), {shards}) as int)")
    columns = [
        (hashed if keys else F.lit(0)).alias(SHARD),
        F.coalesce(_key(keys), F.lit(KEYLESS)).alias(KEY)
        if recipe.keyless
        else _key(keys).alias(KEY),
        # A plain timestamp: the watermark must not stick to a column that is packed.
        F.expr(f"timestamp_micros(unix_micros({_moment(recipe)}))").alias(TIME),
        *(F.expr(sql).alias(f"__mask{place}") for place, sql in enumerate(recipe.masks)),
        *(F.expr(sql).alias(f"__value{place}") for place, sql in enumerate(recipe.values)),
        *(
            _unmarked(frame, sql).alias(name)
            for sql, name in zip(recipe.rows, _row_columns(frame, recipe), strict=True)
            if name != KEY
        ),
    ]
    columns.append(F.col(PLACE) if PLACE in frame.columns else _content(frame).alias(ORDER))
    columns += [F.expr(one.sql).alias(BY.format(at)) for at, one in enumerate(recipe.order)]
    record = F.struct(*(named(name) for name in frame.columns if name != PLACE))
    if recipe.asks_python:
        columns.append(record.alias(ROW))
    wanted = [f"__mask{place} <> 0" for place in range(len(recipe.masks))]
    if recipe.letters:
        columns.append(F.when(timeless, "no time").when(keyless, "no key").alias(DEAD))
        columns.append(F.to_json(record).alias(JSON))
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
    return _numbered(chosen.where(" OR ".join(wanted)) if recipe.quiet else chosen, recipe)


def _moment(recipe: Recipe) -> str:
    return _quoted(recipe.time) if recipe.time else "cast(null as timestamp)"


def _numbered(rows: DataFrame, recipe: Recipe) -> DataFrame:
    """Return rows that are numbered in the order of several columns; without time, that is it."""
    if not recipe.order:
        return rows
    by = [_by(one, F.col(BY.format(place))) for place, one in enumerate(recipe.order)]
    # By shard, as the rows are spread anyway: in the order of the shard, those of a key are too.
    number = F.row_number().over(Window.partitionBy(SHARD).orderBy(*by, F.col(ORDER)))
    found = rows.withColumn(ORDER, number.cast("bigint"))
    if not recipe.time:
        found = found.withColumn(TIME, F.timestamp_micros(ORDER))
    return found.drop(*(BY.format(place) for place in range(len(recipe.order))))


def _by(ordering: Ordering, column: Column) -> Column:
    if ordering.falling:
        return column.desc_nulls_first() if ordering.nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if ordering.nulls_first else column.asc_nulls_last()


def _content(frame: DataFrame) -> Column:
    """Return a number that rows of the same content have: it orders those of one time.

    It depends on the rows alone, and on no pattern. Spark hashes no maps.
    """
    columns = [
        F.to_json(F.struct(one)) if _has_map(frame.schema[name].dataType) else one
        for name in frame.columns
        for one in [named(name)]
    ]
    return F.xxhash64(*columns)


def _has_map(kind: DataType) -> bool:
    return any(one in kind.simpleString() for one in ("map<", "variant"))


def _row_columns(frame: DataFrame, recipe: Recipe) -> tuple[str, ...]:
    """Return for each value of the outputs the column in which it comes.

    One that is the key, and a text, comes as the key.
    """
    alone = len(recipe.keys) == 1 and not recipe.keyless
    text = alone and frame.schema[recipe.keys[0]].dataType == StringType()
    spelled = (recipe.keys[0], _quoted(recipe.keys[0])) if text else ()
    return tuple(
        KEY if sql in spelled else f"__out{place}" for place, sql in enumerate(recipe.rows)
    )


def _unmarked(frame: DataFrame, sql: str) -> Column:
    """Return an expression; a copy of the time column without the watermark that it carries."""
    names = {spelled for name in marked(frame) for spelled in (name, _quoted(name))}
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
    """Return for each pattern the slots of its pieces.

    They are as few as can be, since a column costs more than what is in it.
    """
    types: list[str | None] = []
    slots = []
    for plan in recipe.plans:
        own: list[_Slot] = []
        for piece in plan.outputs.pieces:
            value = None if piece.value is None else prepared[shown[plan.rows[piece.value]]]
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
    distinct = dict.fromkeys(slot for plan in slots for slot in plan)
    fields += [f"{slot.name} {slot.type}" for slot in distinct]
    return StructType.fromDDL(", ".join(fields))  # type: ignore[return-value]


def _results(recipe: Recipe, slots: Slots) -> list[Column]:
    columns = []
    for place, output in enumerate(recipe.plans[0].outputs.columns):
        sqls = [
            _renamed(plan.outputs.columns[place].sql, names)
            for plan, names in zip(recipe.plans, slots, strict=True)
        ]
        whole = " ".join(f"WHEN {number} THEN {sql}" for number, sql in enumerate(sqls))
        columns.append(
            F.expr(sqls[0] if len(set(sqls)) == 1 else f"CASE {COURSE} {whole} END").alias(
                output.name
            )
        )
    if recipe.unmatched:
        own_columns = recipe.plans[0].outputs
        columns = [
            one
            if own_columns.is_row(output)
            else F.when(F.col(COURSE) != UNMATCHED, one).alias(output.name)
            for one, output in zip(columns, own_columns.columns, strict=True)
        ]
    if recipe.letters:
        # Also what is no column of the match, like a literal, is missing in a letter.
        own_names = recipe.plans[0].outputs.names
        columns = [
            F.when(F.col(DEAD).isNull(), one).alias(name)
            for one, name in zip(columns, own_names, strict=True)
        ]
    names = F.array(*(F.lit(plan.automaton.name) for plan in recipe.plans))
    extra = {
        PATTERN: names[F.col(COURSE)],
        TIMED_OUT: F.col(LATE),
        DEAD_LETTER: F.col(DEAD),
        EVENT: F.col(JSON),
    }
    if recipe.certain:
        extra[recipe.certain] = F.col(TIME)
    own = {output.name.lower() for output in recipe.plans[0].outputs.columns}
    return [
        *columns,
        *(extra[name].alias(name) for name in recipe.names if name.lower() not in own),
    ]


def _renamed(sql: str, slots: tuple[str, ...]) -> str:
    return re.sub(r"__piece(\d+)", lambda found: slots[int(found[1])], sql)
