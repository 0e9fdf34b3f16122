"""Which patterns need no SQL: a source can pick what they need of its rows by itself.

That is so if Arrow can compute their conditions (`sql_tests`) and if outputs are columns. All other
patterns have their masks from SQL.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain

from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from millstream.flow import expressions
from millstream.journal.partitioning import placeable
from millstream.patterns.recipe import Recipe
from millstream.spark.io.picked_rows import Lost, Picked
from millstream.spark.io.shard_rows import Shards
from millstream.spark.io.source import PLACE
from millstream.spark.stages.keyless import Keyless
from millstream.spark.stages.match_rows import KEY, TIME, ShardMatcher
from millstream.spark.stages.sql_tests import NeedsSql, column_in, row_test


def picked_shards(
    columns: StructType,
    recipe: Recipe,
    rows: StructType,
    stage: ShardMatcher,
    keyless: Keyless | None,
) -> Shards | None:
    """Return what a source picks for a pattern, and for which shards; None if it takes SQL.

    Args:
        columns: The columns of the source's rows.
        recipe: The pattern.
        rows: The columns that it needs, under its own names for them.
        stage: What matches them.
        keyless: Where rows go that have no key.
    """
    try:
        picked = _picked(columns, recipe, rows, stage.shown, keyless)
    except NeedsSql:
        return None
    return Shards(KEY, stage.shards, json.dumps(rows.jsonValue()), TIME, picked)


def _picked(
    columns: StructType,
    recipe: Recipe,
    rows: StructType,
    shown: Sequence[str],
    keyless: Keyless | None,
) -> Picked:
    unusual = recipe.letters or recipe.order or recipe.keyless or recipe.asks_python
    if unusual or not recipe.time or len(recipe.keys) != 1 or PLACE not in columns.names:
        raise NeedsSql
    (key,) = recipe.keys
    if not placeable(to_arrow_type(columns[key].dataType, timezone="UTC")):
        raise NeedsSql
    if keyless is not None and not isinstance(keyless.letters, str):
        raise NeedsSql
    named = {TIME: recipe.time, PLACE: PLACE}
    values = {f"__value{place}": sql for place, sql in enumerate(recipe.values)}
    outputs = dict(zip(shown, recipe.rows, strict=True))
    for name, sql in chain(values.items(), outputs.items()):
        if name != KEY:
            named[name] = column_in(expressions.expression(sql), columns).name
    masks = {
        f"__mask{word}": tuple(row_test(sql, columns) for sql in tests)
        for word, tests in enumerate(_tests(recipe))
    }
    if {KEY, *named, *masks} != set(rows.names):
        raise NeedsSql
    lost = None
    if keyless is not None:
        lost = Lost(keyless.stage, keyless.columns, str(keyless.letters))
    return Picked((key, KEY), masks, named, recipe.quiet, lost)


def _tests(recipe: Recipe) -> list[list[str | None]]:
    """Return the tests of each mask, in the order of their bits."""
    words: list[list[str | None]] = [[] for _ in recipe.masks]
    for plan in recipe.plans:
        assert plan.shift == len(words[plan.word])
        words[plan.word] += [test.event for test in plan.automaton.tests]
    return words
