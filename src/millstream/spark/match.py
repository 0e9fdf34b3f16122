"""`match` and `sql`: patterns over any DataFrame, outside of flows."""

from __future__ import annotations

import shutil
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import NullType, TimestampNTZType, TimestampType
from rich.console import Console

from millstream.errors import DuplicateName, InvalidSql, NoTime, UnboundedState, UnknownColumn
from millstream.extras import need
from millstream.flow.schema import Schema
from millstream.flow.site import here, meant
from millstream.flow.stages import SHARDS
from millstream.patterns import kernel_cache
from millstream.patterns.match_recognize import Recognition, read
from millstream.patterns.pattern import Pattern, Phenomenon
from millstream.patterns.recipe import Recipe, recipe, recognition_recipe
from millstream.patterns.relations import Clause, first_clause, has_window_pattern
from millstream.spark.session.session import HUGE_METHOD, LARGEST_METHOD
from millstream.spark.stages.match_frames import from_sources, matched, named, readied, schema_of
from millstream.spark.stages.stateless import first_line

#: Spark's default for HUGE_METHOD.
_HUGEST: Final = "65535"


def match(
    df: DataFrame,
    pattern: Pattern | Phenomenon,
    *,
    key: str | Sequence[str] | None = None,
    time: str | None = None,
    emit: str | None = None,
    strict: bool = False,
    dead_letters: bool = False,
    name: str | None = None,
    shards: int = SHARDS,
) -> DataFrame:
    """Return the matches of a pattern in a DataFrame, a batch or a stream: the same rows for both.

        burst = ms.Pattern().begin("a", "amount < 1").followed_by("b", "amount > 900")
        ms.match(df, burst.within("5 minutes"), key="card")

    Events of a key are seen in the order of their times; those of one time in a fixed order, which
    depends on their content and on nothing else. A stream needs a watermark on its time column: events wait for it, and those that come
    behind it are left out. So are events without a key or a time. All these are counted in the
    progress of a stream's query, and come out as well if you say so. The time of a result is the
    moment at which it is certain; Spark lets a stream have none up to the start of 1970, so that is
    the first microsecond after it there. A stream's state is kept in RocksDB, which is set on the session;
    so is the largest method that Java compiles, unless you have set `spark.sql.codegen.hugeMethodLimit`.

    Args:
        df: The events.
        pattern: What to look for; a phenomenon is several patterns at once.
        key: The column, or columns, by whose values events are matched apart; the pattern's own
            key, or none, if it is left out.
        time: The time column; the one with a watermark, or the only timestamp, if it is left out.
        emit: The columns of the results: "card, a.amount as first, count(b.*) as n"; the pattern's
            own, or its key and the events of each block, if it is left out.
        strict: Refuse a pattern whose runs may live for ever, instead of warning of it when it is
        matched over a stream.
        dead_letters: Put events that cannot be matched out as well: "dead_letter" then says why
            ("late", "no key" or "no time"; missing in a match), and "event" is the event as JSON.
        name: Under which a stream's events are counted: `query.lastProgress["observedMetrics"]` has
            "events", "no_key" and "no_time" under it, and "late" under the same name with " late"
            behind it. Late events that meet no condition are not among them.
        shards: Over how many parts keys are spread; fixed by the first run of a stream's
            checkpoint.
    """
    need("patterns", "ms.match")
    df = _typed(df)
    schema = schema_of(df.schema)
    timed = _time(df, schema, time)
    keys = None if key is None else (key,) if isinstance(key, str) else tuple(key)
    made = recipe(
        pattern, schema, time=timed, key=keys, emit=emit, strict=strict, letters=dead_letters
    )
    for warning in made.warnings if df.isStreaming else ():
        warnings.warn(warning, stacklevel=3)
    with _explained("the pattern cannot be computed"):
        return _matched(df, made, name or _unique(pattern.name), shards)


@contextmanager
def _explained(fact: str) -> Iterator[None]:
    """Say in an error of ours what Spark does not understand."""
    try:
        yield
    except PySparkException as error:
        raise InvalidSql(f"{fact}: {first_line(error)}", where=here()) from error


def _unique(name: str | None) -> str:
    # Two matches of one query must not count under one name.
    return f"match {name or 'pattern'} {uuid4().hex[:8]}"


def sql(
    spark: SparkSession,
    query: str,
    *,
    strict: bool = False,
    name: str | None = None,
    shards: int = SHARDS,
) -> DataFrame:
    """Return the result of a query with MATCH_RECOGNIZE clauses.

        query = "PARTITION BY symbol ORDER BY at ... PATTERN (down+ up+) ..."
        ms.sql(spark, f"SELECT * FROM trades MATCH_RECOGNIZE ({query})")

    A clause reads a table or view, a query in parentheses, or one of WITH. What stands around it is
    Spark's SQL, with joins, further clauses and what else Spark knows.

    Events that are late, or without a key or a time, are left out and counted as `match` does.

    Args:
        spark: The session that knows the tables.
        query: One or more MATCH_RECOGNIZE clauses, and any query around them.
        strict: Refuse a pattern whose runs may live for ever, instead of warning of it when it is
            matched over a stream.
        name: Under which a stream's events are counted.
        shards: Over how many parts keys are spread; fixed by the first run of a stream's
            checkpoint.
    """
    need("patterns", "ms.sql")
    views: list[str] = []
    try:
        while (clause := first_clause(query)) is not None:
            called = name and (f"{name} {len(views) + 1}" if views else name)
            matches = _recognized(spark, clause, strict, called or _unique("recognize"), shards)
            views.append(f"millstream_match_{uuid4().hex}")
            matches.createOrReplaceTempView(views[-1])
            query = clause.replaced(query, views[-1])
        if not views:
            msg, hint = (
                "the query has no MATCH_RECOGNIZE clause",
                "use spark.sql for a query without one",
            )
            if has_window_pattern(query):
                msg = "the query has a row pattern in a WINDOW, which is not supported"
                hint = "write a MATCH_RECOGNIZE clause with ONE ROW PER MATCH"
            raise InvalidSql(msg, hint=hint, where=here())
        with _explained("the query cannot be computed"):
            return spark.sql(query)
    finally:
        for view in views:
            spark.catalog.dropTempView(view)


def _recognized(
    spark: SparkSession, clause: Clause, strict: bool, name: str, shards: int
) -> DataFrame:
    """Return the rows of a MATCH_RECOGNIZE clause."""
    df = _rows(spark, clause)
    schema = schema_of(df.schema)
    found = read(clause.alone, schema, batch=not df.isStreaming)[1]
    time = "" if _untimed(df, found) else _time(df, schema, found.order)
    for warning in found.automaton.warnings:
        if strict:
            raise UnboundedState(warning, hint="say WITHIN INTERVAL '1' HOUR", where=here())
        if df.isStreaming:
            warnings.warn(warning, stacklevel=4)
    made = recognition_recipe(found, schema, time, batch=not df.isStreaming)
    with _explained("the query cannot be computed"):
        df = df.withColumns({name: F.expr(sql) for name, sql in found.computed})
        return _laid_out(_matched(df, made, name, shards), found)


def _laid_out(rows: DataFrame, found: Recognition) -> DataFrame:
    """Return all rows of matches in which a column stands as often as ORDER BY has it."""
    orders = [one.column for one in found.orders if one.column]
    if not found.all_rows or len(set(orders)) == len(orders):
        return rows
    names = [*found.partition, *orders]
    rest = [name for name in rows.columns if name not in names]
    return rows.select(*(named(name) for name in (*names, *rest)))


def _untimed(df: DataFrame, found: Recognition) -> bool:
    """Tell whether the rows of a batch are in another order than that of a time."""
    named = [one for one in df.schema.fields if one.name.lower() == found.order.lower()]
    timed = bool(named) and isinstance(named[0].dataType, TimestampType)
    known = bool(named) or not found.order
    return not df.isStreaming and not timed and known and found.automaton.within is None


def _rows(spark: SparkSession, clause: Clause) -> DataFrame:
    """Return the rows that a clause reads."""
    try:
        df = _typed(spark.sql(clause.reading))
    except PySparkException as error:
        if clause.relation.strip("`") == clause.named:
            hint = f'register it first: df.createOrReplaceTempView("{clause.named}")'
            msg = f'the query reads "{clause.named}", and the session has no such table or view'
        else:
            msg, hint = f"what MATCH_RECOGNIZE reads cannot be computed: {first_line(error)}", None
        raise InvalidSql(msg, hint=hint, where=here()) from error
    names = [column.lower() for column in df.columns]
    if twice := [column for column in df.columns if names.count(column.lower()) > 1]:
        msg = f'what MATCH_RECOGNIZE reads has two columns "{twice[0]}"'
        raise DuplicateName(msg, hint="name the columns that it needs", where=here())
    return df


def _typed(df: DataFrame) -> DataFrame:
    """Return a frame in which columns that are only ever missing are text: void has no values."""
    void = [one.name for one in df.schema.fields if isinstance(one.dataType, NullType)]
    return df.withColumns({name: named(name).cast("string") for name in void}) if void else df


def _compile_kernel() -> None:
    """Compile the kernel here, once, and say so: each of Spark's workers would do it, in silence."""
    compiling = kernel_cache.begin()
    if compiling is not None:
        with Console(stderr=True).status(kernel_cache.NOTE) as shown:
            if not shown.console.is_terminal:
                shown.console.print(kernel_cache.NOTE, highlight=False)
            compiling.wait()


def _matched(df: DataFrame, made: Recipe, name: str, shards: int) -> DataFrame:
    if (df.sparkSession.sparkContext.master or "").startswith("local"):
        _compile_kernel()
    if (other := _other_python(df.sparkSession.sparkContext)) is not None:
        said = f"the session's workers run {other}, which may lack what this program's Python, {sys.executable}, has"
        hint = "set PYSPARK_PYTHON to sys.executable before the session starts"
        warnings.warn(f"{said}\n  hint: {hint}", stacklevel=4)
    conf = df.sparkSession.conf
    if conf.get(HUGE_METHOD) == _HUGEST:
        conf.set(HUGE_METHOD, LARGEST_METHOD)
    drop_late = df.isStreaming and from_sources(df)
    return matched(readied(df, made, name), made, shards=shards, drop_late=drop_late, counted=name)


def _other_python(context: SparkContext) -> str | None:
    """Return the Python of a local session's workers if it is of another environment than ours."""
    found = shutil.which(context.pythonExec)
    if not (context.master or "").startswith("local") or found is None:
        return None
    # The folders: an environment's Python may be a link to that of another.
    ours, theirs = (Path(path).absolute().parent.resolve() for path in (sys.executable, found))
    return None if ours == theirs else found


def _time(df: DataFrame, schema: Schema, time: str | None) -> str:
    if time is not None:
        found = schema.find(time)
        if found is None:
            msg = f'the events have no time column "{time}"'
            raise UnknownColumn(msg, hint=meant(schema, time), where=here())
        if not isinstance(df.schema[found.name].dataType, TimestampType):
            msg = f'the time column "{found.name}" is {found.type}'
            raise NoTime(msg, hint="it must be a timestamp", where=here())
        return found.name
    marked = [
        field.name for field in df.schema.fields if "spark.watermarkDelayMs" in field.metadata
    ]
    moments = [
        field.name
        for field in df.schema.fields
        if isinstance(field.dataType, TimestampType | TimestampNTZType)
    ]
    candidates = marked or moments
    if len(candidates) != 1:
        if not candidates:
            fact = "no timestamp column"
        else:
            fact = f"the timestamp columns {', '.join(candidates)}"
        hint = 'say which is their time: time="at"'
        raise NoTime(f"the events have {fact}", hint=hint, where=here())
    return candidates[0]
