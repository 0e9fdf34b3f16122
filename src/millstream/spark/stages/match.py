"""`match` on Spark: a pattern of a flow, with the query around it and the rows without a key."""

from __future__ import annotations

from functools import partial
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from millstream.errors import InternalError
from millstream.flow.flow import Flow
from millstream.flow.stages import Match, Written
from millstream.patterns.pattern import Pattern, Phenomenon
from millstream.patterns.query import Query
from millstream.patterns.recipe import Recipe, recipe
from millstream.spark.stages.build import Builder
from millstream.spark.stages.keyless import Keyless
from millstream.spark.stages.kind import SparkKind, Versions
from millstream.spark.stages.match_carry import PatternCarry
from millstream.spark.stages.match_frames import matched, schema_of, shard_matcher
from millstream.spark.stages.match_rows import TIME, ShardMatcher
from millstream.switch.starts import HIDDEN_START


def build(stage: Match, builder: Builder, start: str | None = None) -> DataFrame:
    frame = builder.frame(stage.input)
    recipe = recipe_of(stage, frame.schema, builder.time(stage.input))
    reason = f'pattern "{stage.name}": one of its conditions or outputs fails on the event'
    frame = builder.sifted(stage, frame, recipe.computed, f"match:{stage.name}", reason)
    keyless = _keyless(stage, builder)
    found = matched(
        frame,
        recipe,
        shards=stage.shards,
        start=start,
        keyless=keyless,
        prompt=builder.prompt(stage.input),
        files=builder.state_files(stage),
        worked=builder.worked,
        source=partial(builder.picked, stage.input),
    )
    return builder.one_time(_around(stage, found), stage.name)


def _carry(versions: Versions) -> PatternCarry:
    pairs = zip(versions.stages, versions.builders, strict=True)
    before, after = (_matcher(stage, builder) for stage, builder in pairs)
    return PatternCarry(before, after, versions.cut_us, versions.fit)


def _matcher(stage: Match, builder: Builder) -> ShardMatcher:
    """Return what matches the rows of a shard of a stage."""
    frame = builder.frame(stage.input)
    return shard_matcher(
        frame, recipe_of(stage, frame.schema, builder.time(stage.input)), stage.shards
    )


def results(stage: Match, builder: Builder) -> DataFrame:
    """Return the matches, each with the time of its first event in a hidden column."""
    return build(stage, builder, HIDDEN_START)


def _may_lack_keys(stage: Match, flow: Flow) -> bool:
    """Tell whether there may be rows without the key of a stage."""
    above = flow.stages[stage.input]
    # A source takes none without its own key.
    known = isinstance(above, Written) and above.writer == "source" and stage.by == (above.key,)
    return bool(stage.by) and not known


KIND = SparkKind(
    build,
    results=results,
    ordered=True,
    own_state=True,
    sifts=True,
    refuses=_may_lack_keys,
    carry=_carry,
)


def _keyless(stage: Match, builder: Builder) -> Keyless | None:
    """Return where rows go that have no key; None where there cannot be any."""
    letters = builder.letters(stage)
    if letters is None or not _may_lack_keys(stage, builder.flow):
        return None
    return Keyless(stage.name, stage.by, letters, TIME)


def recipe_of(stage: Match, schema: StructType, time: str) -> Recipe:
    """Return the recipe of a stage of a flow, over the columns that Spark has found."""
    pattern = stage.pattern
    columns = StructType([field for field in schema.fields if not field.name.startswith("__")])
    if isinstance(pattern, Query):
        return pattern.recipe(schema_of(columns), time)
    if not isinstance(pattern, Pattern | Phenomenon):
        raise InternalError(f'stage "{stage.name}" matches {type(pattern).__name__}')
    return recipe(pattern, schema_of(columns), time=time, key=stage.by, emit=stage.emit)


def _around(stage: Match, found: DataFrame) -> DataFrame:
    """Return what the query around a MATCH_RECOGNIZE clause makes of its rows."""
    if not isinstance(stage.pattern, Query):
        return found
    view = f"millstream_match_{uuid4().hex}"
    found.createOrReplaceTempView(view)
    try:
        return found.sparkSession.sql(stage.pattern.around(view))
    finally:
        found.sparkSession.catalog.dropTempView(view)
