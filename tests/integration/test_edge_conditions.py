"""Conditions and complex events at the edge are those of Spark."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from millstream.errors import InvalidCondition
from millstream.flow import expressions
from millstream.flow.arrow import schema as arrow_schema
from millstream.flow.schema import Schema
from millstream.patterns.automaton import FOREVER, Event, Key, Match, advance, step
from millstream.patterns.conditions import Owner
from millstream.patterns.edge import EdgePattern, edge_patterns
from millstream.patterns.pattern import Pattern, Phenomenon
from millstream.patterns.scalar.function import scalar, writer_for
from millstream.patterns.typed import coerced
from millstream.spark.match import match
from property.scalar_random import SCHEMA, Expressions, rows

pytestmark = [pytest.mark.spark]

FAILED = object()


def computed(sql: str, events: list[dict]) -> list:
    """Return what an expression is at the edge, for each row."""
    compute = scalar(sql, SCHEMA)

    def one(row: dict):
        try:
            return compute(row)
        except (ArithmeticError, ValueError):
            return FAILED

    return [one(row) for row in events]


def type_of(sql: str) -> str | None:
    return writer_for(SCHEMA, Owner("it")).code(expressions.expression(sql)).type


def same(ours, theirs) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return ours == theirs or (math.isnan(ours) and math.isnan(theirs))
    return type(ours) is type(theirs) and ours == theirs


def frame(spark, events):
    kinds = arrow_schema([(field.name, field.type) for field in SCHEMA])
    return spark.createDataFrame(pa.Table.from_pylist(events, schema=kinds)).cache()


def differences(spark, seed: int, count: int) -> list[str]:
    """Return where the edge and Spark differ over random expressions."""
    random = Random(seed)
    events, write = rows(random, 60), Expressions(random)
    ours = {}
    while len(ours) < count:
        text = write.any()
        # What cannot be cast is refused at once if it is a literal.
        with suppress(InvalidCondition):
            ours[text] = computed(text, events)
    found, eager = [], []
    sound = [text for text in ours if FAILED not in ours[text]]
    for text, theirs, kind in computed_by_spark(frame(spark, events), sound, eager):
        if kind.replace("void", "") != (type_of(text) or "").replace("void", ""):
            found.append(f"{text} is of type {kind}, not {type_of(text)}")
        wrong = [
            f"{text} is {right!r}, not {left!r}, for {event}"
            for left, right, event in zip(ours[text], theirs, events, strict=True)
            if not same(left, right)
        ]
        found += wrong[:1]
    # Spark may compute, and fail, where another part is null, so that the whole is null anyway.
    if len(eager) > count * 0.03:
        found += [f"{text} fails in Spark" for text in eager]
    # It leaves out what it does not need beside a null.
    failing = [text for text in ours if FAILED in ours[text] and "null" not in text]
    for text in failing[:15]:
        place = ours[text].index(FAILED)
        if passes(frame(spark, [events[place]]), text):
            found.append(f"{text} does not fail in Spark for {events[place]}")
    return found


def computed_by_spark(table, texts, failing):
    """Yield each expression with Spark's values and type; all in one query, unless one fails."""
    try:
        made = table.selectExpr(*(f"{text} as x{place}" for place, text in enumerate(texts)))
        kinds = [
            field.dataType.simpleString().replace("interval day to second", "interval")
            for field in made.schema.fields
        ]
        columns = made.toArrow().columns
    except PySparkException:
        if len(texts) == 1:
            failing += texts
            return
        half = len(texts) // 2
        yield from computed_by_spark(table, texts[:half], failing)
        yield from computed_by_spark(table, texts[half:], failing)
        return
    for text, column, kind in zip(texts, columns, kinds, strict=True):
        yield text, column.to_pylist(), kind


def passes(table, text) -> bool:
    try:
        table.selectExpr(f"{text} as x").collect()
    except PySparkException:
        return False
    return True


@pytest.mark.parametrize("seed", range(3))
def test_random_expressions_are_what_spark_computes(spark, seed):
    assert "\n".join(differences(spark, seed, 150)) == ""


def test_what_would_fail_beside_a_null_fails_where_spark_fails(spark):
    """Beside a null of the text nothing is computed, and a division asks for its divisor first."""
    fails, event = "element_at(list, 1)", {field.name: None for field in SCHEMA} | {"list": []}
    forms = ("{} + {}", "{} = {}", "{} / {}", "{} % {}", "{} div {}", "pmod({}, {})", "{} < {}")
    others = ("null", "cast(null as int)", "i")
    texts = [form.format(fails, other) for form in forms for other in others]
    texts += [form.format("i", fails) for form in forms]
    texts += [f"case {fails} when null then 1 else 2 end", f"try_add({fails}, null)"]
    table = frame(spark, [event])
    theirs = {text: passes(table, text) for text in texts}
    assert {text: computed(text, [event])[0] is not FAILED for text in texts} == theirs
    assert set(theirs.values()) == {True, False}


# Complex events

A_B = Pattern("p").begin("a", "x = 1").followed_by("b", "x = 2").within("1 minute")
LOOP = Pattern("p").begin("a", "x = 1").followed_by("b", "x in (2, 3)").one_or_more()
LOOP = LOOP.followed_by("c", "x = 0").within("100 seconds")
PATTERNS = {
    "default": A_B,
    "default of a loop": LOOP,
    "default of what is optional": A_B.followed_by("c", "x = 3").optional(),
    "default with a negation": A_B.not_followed_by("n", "x = 4"),
    "columns": A_B.emit("k, a.at as began, b.at as ended, b.n - a.n as apart, b.at - a.at as took"),
    "aggregates": LOOP.emit(
        "k, count(b.*) as n, count(b.d) as some, sum(b.n) as total, avg(b.n) as mean, min(b.d) as low, "
        "max(b.d) as high, first(b.at) as first, last(b.s) as last, any(b.x = 3) as threes, "
        "sum(m) as money, array_agg(b.n) as list, max(s) as most, round(avg(b.d), 2) as rounded"
    ),
    "calculated": LOOP.emit(
        "upper(k) as key, if(count(b.*) > 1, 'many', 'one') as size, "
        "case when max(b.n) > 20 then 'late' else concat('at ', cast(max(b.n) as string)) end as what, "
        "coalesce(a.s, '-') as s, sum(b.m) * 2 as twice, sum(b.n + b.x) as both, 1 as one, null as none"
    ),
    "timeouts": A_B.emit("k, a.n as a, b.n as b").timeouts(),
    "a phenomenon": Phenomenon(
        "ph",
        (replace(A_B, name="short"), replace(LOOP, name="long", late=True)),
        emit="k, a.n as first, count(*) as n, b.x as last",
    ),
}
EVENTS = Schema.parse("k string, x int, n bigint, d double, m decimal(6,2), s string, at timestamp")


def some_events(seed: int) -> list[dict]:
    random, at, found = Random(seed), datetime(2026, 1, 1, tzinfo=UTC), []
    for number in range(60):
        at += timedelta(seconds=random.randint(1, 9))
        event = {
            "k": random.choice("ab"),
            "x": random.choice([0, 1, 1, 2, 2, 3, 4]),
            "n": number,
            "d": random.choice([None, 1.5, -2.25, 0.1, 7.0, math.nan]),
            "m": random.choice([None, Decimal("1.25"), Decimal("-3.50")]),
            "s": random.choice([None, "", "a", "b"]),
            "at": at,
        }
        found.append(event)
    return found


def at_the_edge(pattern, events: list[dict]) -> list[dict]:
    """Return the complex events of a pattern, matched event by event."""
    found = []
    for one in edge_patterns(pattern, schema=EVENTS, time="at", key=["k"]):
        keys = {}
        for number, event in enumerate(events):
            row = coerced(event, EVENTS)
            at = int(row["at"].timestamp()) * 10**6
            seen = one.seen(("s", number), at, row)
            if seen is not None:
                taken = Event(number, at, seen.met, seen.values, seen)
                state, some, late = step(one.automaton, keys.get(one.key(row), Key()), taken)
                keys[one.key(row)] = state
                found += [emitted(one, one.key(row), match) for match in (*some, *late)]
        for key, state in keys.items():
            _, some, late = advance(one.automaton, state, FOREVER)
            found += [emitted(one, key, match) for match in (*some, *late)]
    return found


def emitted(pattern: EdgePattern, key: tuple, match: Match) -> dict | None:
    if match.timed_out and not pattern.emitted.late:
        return None
    history = [(block, event.row) for block, event in match.history]
    return pattern.complex_event(key, history, match.at, timed_out=match.timed_out)


@pytest.mark.parametrize("called", PATTERNS)
def test_complex_events_have_the_columns_and_values_that_match_gives(spark, called):
    events = some_events(3)
    kinds = arrow_schema([(field.name, field.type) for field in EVENTS])
    table = spark.createDataFrame(pa.Table.from_pylist(events, schema=kinds))
    theirs = match(table, PATTERNS[called], key="k", time="at").toArrow().to_pylist()
    ours = [one for one in at_the_edge(PATTERNS[called], events) if one is not None]
    assert len(ours) >= 3
    assert list(ours[0]) == list(theirs[0])
    zoned = [
        repr(one).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc") for one in theirs
    ]
    assert sorted(map(repr, ours)) == sorted(zoned)
