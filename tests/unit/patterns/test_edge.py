"""Patterns for one event at a time."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest

from millstream.errors import (
    ConditionFailed,
    DuplicateName,
    EventRefused,
    InvalidCondition,
    PatternError,
    UnknownColumn,
    UnsupportedSql,
)
from millstream.flow.schema import Schema
from millstream.patterns.edge import EdgePattern, edge_patterns
from millstream.patterns.pattern import Pattern, Phenomenon
from millstream.patterns.query import Query
from millstream.patterns.typed import coerced

SCHEMA = Schema.parse("origin string, delay double, gate int, at timestamp")
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
AT = 1794830400_000_000
LATER = (
    Pattern("later")
    .begin("late", "delay > 60")
    .followed_by("later", "delay > late.delay and at - late.at < interval 1 hour")
    .within("2 hours")
    .emit("origin, late.delay as first, max(delay) as worst, count(later.*) as n")
)


def edge(pattern: Pattern, schema: Schema | None = SCHEMA) -> EdgePattern:
    return EdgePattern.of(pattern, schema=schema, time="at", key=["origin"])


def row(**columns):
    return coerced({"origin": "BOS", "at": "2026-11-16T12:00:00Z", **columns}, SCHEMA)


def test_an_event_is_seen_with_its_bits_values_and_needed_columns():
    seen = edge(LATER).seen(("s", 7), AT, row(delay=70, gate=3))
    assert (seen.at, seen.id, seen.order) == (AT, ("s", 7), (AT, ("s", 7)))
    assert seen.met == 0b11
    assert seen.values == (70.0, AT)
    assert seen.row == {"origin": "BOS", "delay": 70.0, "at": NOON}


KINDS = Schema.parse(
    "m decimal(6,2), day date, local timestamp_ntz, f float, d double, s string, raw binary, "
    "some array<date>, pair struct<x:decimal(4,1),y:int>, unused string, at timestamp"
)


@pytest.mark.parametrize("emit", [None, "max(m) as m, last(b.some) as some"])
def test_what_a_run_keeps_of_an_event_is_enough_to_see_it_again_elsewhere(emit):
    pattern = (
        Pattern()
        .begin("a", "m > 1.5 and day = date '2026-11-16' and s like 'x%' and raw is not null")
        .followed_by("b", "local > a.local or d > a.d or m > a.m or pair.x > 2")
        .followed_by("c", "f = 0.5 and size(some) = 2")
        .within("1 hour")
    )
    found = EdgePattern.of(replace(pattern, output=emit), schema=KINDS, time="at", key=["day", "m"])
    event = {
        "m": "1.75",
        "day": "2026-11-16",
        "local": "2026-11-16T12:00:00",
        "f": 0.5,
        "d": "NaN",
        "s": "xy",
        "raw": b"raw",
        "some": ["2026-01-01", None],
        "pair": {"x": "2.5", "y": 1},
        "unused": "long",
        "at": "2026-11-16T12:00:00Z",
    }
    seen = found.seen(("s", 1), AT, coerced(event, KINDS))
    assert seen.met == 0b111
    assert ("unused" in seen.row) is (emit is None)
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(seen.row))
    again = found.received(("s", 1), AT, sent)
    assert repr(again) == repr(seen)  # NaN is not equal to itself
    assert found.key(coerced(event, KINDS)) == ("2026-11-16", "1.75")


def test_an_event_that_meets_nothing_is_not_seen():
    pattern = Pattern().begin("a", "delay > 60").followed_by("b", "gate = 3").within("1 hour")
    assert edge(pattern).seen(("s", 1), AT, row(delay=5, gate=1)) is None
    assert edge(pattern).seen(("s", 1), AT, row(delay=None, gate=None)) is None
    assert edge(pattern).seen(("s", 1), AT, row(delay=5, gate=3)).met == 0b10


def test_without_a_schema_columns_are_what_comes_and_the_time_is_a_time():
    found = edge(LATER, None)
    seen = found.seen(("s", 1), AT, {"origin": "BOS", "delay": 61, "at": "whatever"})
    assert (seen.met, seen.values) == (0b11, (61, AT))
    with pytest.raises(ConditionFailed, match='the condition "delay > 60" of pattern "later"'):
        found.seen(("s", 1), AT, {"delay": "much"})


def test_a_predicate_is_asked_and_one_that_looks_back_sees_the_whole_row():
    alone = Pattern().begin("a", lambda event: event["gate"] == 3)
    assert edge(alone).seen(("s", 1), AT, row(gate=3)).met == 1
    assert edge(alone).seen(("s", 1), AT, row(gate=4)) is None
    back = Pattern().begin("a").followed_by("b", lambda event, history: bool(history))
    assert edge(back).seen(("s", 1), AT, row(gate=4)).row == row(gate=4)


def test_what_only_spark_computes_is_refused_by_name_and_place():
    pattern = Pattern("p").begin("a", "soundex(origin) = 'B200'").within("1 hour")
    with pytest.raises(InvalidCondition, match=r'block "a" uses soundex\(\), which only Spark'):
        edge(pattern)


def test_sql_patterns_are_refused():
    query = Query.of(
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at PATTERN (a b) DEFINE a AS x = 1)"
    )
    for found in (query, query.sql):
        with pytest.raises(UnsupportedSql, match="a MATCH_RECOGNIZE clause cannot be matched"):
            edge(found)


def test_the_patterns_of_a_phenomenon_are_named_in_what_they_emit():
    one = Pattern("one").begin("a", "gate = 1").within("1 hour")
    two = replace(LATER, name="two", late=True, output=None)
    both = Phenomenon("ph", (one, two), emit="origin")
    first, second = edge_patterns(both, schema=SCHEMA, time="at", key=["origin"])
    seen = first.seen(("s", 1), AT, row(gate=1))
    expected = {"origin": "BOS", "pattern": "one", "timed_out": False, "at": NOON}
    assert first.complex_event(("BOS",), [(0, seen)], AT) == expected
    assert (first.name, second.name) == ("one", "two")


@pytest.mark.parametrize(
    "emit", ["origin as at", "origin as timed_out", "origin, origin as ORIGIN"]
)
def test_an_output_with_a_name_that_is_taken_is_refused(emit):
    with pytest.raises(DuplicateName):
        edge(LATER.emit(emit).timeouts())


def test_the_patterns_of_a_phenomenon_emit_the_same_columns():
    one = Pattern("one").begin("a", "gate = 1").within("1 hour")
    for emits in (("origin", "origin as x"), ("origin as pattern", "origin as pattern")):
        both = tuple(one.emit(emit) for emit in emits)
        both = Phenomenon("ph", (both[0], replace(both[1], name="two")))
        with pytest.raises((PatternError, DuplicateName)):
            edge_patterns(both, schema=SCHEMA, time="at", key=["origin"])
    assert edge(one.emit("origin as pattern")).emitted.names == ("pattern",)


def test_a_column_that_is_not_there_is_refused():
    with pytest.raises(UnknownColumn):
        EdgePattern.of(Pattern().begin("a"), schema=SCHEMA, time="at", key=["carrier"])


@pytest.mark.parametrize(
    ("columns", "wrong"),
    [
        ({"gate": 3.5}, 'column "gate" of an event is 3.5, which is no int'),
        ({"gate": 2**31}, "which is no int"),
        ({"delay": "much"}, "column \"delay\" of an event is 'much', which is no double"),
        ({"at": "noon"}, 'column "at" .* which is no timestamp'),
        ({"origin": 1}, "which is no string"),
    ],
)
def test_a_value_that_its_column_cannot_hold_is_refused(columns, wrong):
    with pytest.raises(EventRefused, match=wrong):
        row(**columns)


def test_rows_get_the_columns_of_the_schema():
    assert row(gate=None, extra=1) == {"origin": "BOS", "delay": None, "gate": None, "at": NOON}


def test_the_outputs_are_computed_from_the_history():
    found = edge(LATER)
    history = [
        (0, found.seen(("s", 1), AT, row(delay=61))),
        (1, found.seen(("s", 2), AT, row(delay=99.6))),
    ]
    assert found.complex_event(("BOS",), history, AT) == {
        "origin": "BOS",
        "first": 61.0,
        "worst": 99.6,
        "n": 1,
        "at": NOON,
    }


def test_equal_patterns_have_equal_digests_in_every_process():
    other = LATER.followed_by("more", "delay > 3")
    assert edge(LATER).digest == edge(LATER).digest
    assert len({edge(LATER).digest, edge(other).digest, edge(LATER, None).digest}) == 3
    code = "from unit.patterns.test_edge import *; print(edge(LATER).digest)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="tests"
    )
    assert ran.stdout.strip() == edge(LATER).digest


def test_nothing_heavy_is_imported():
    code = (
        "import sys; from millstream.patterns.edge import EdgePattern;"
        "from millstream.patterns.pattern import Pattern;"
        "EdgePattern.of(Pattern().begin('a', 'x > 1'), schema=None, time='at', key=[]);"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"pyarrow", "numpy", "numba", "pandas", "pyspark"}
    assert not heavy & set(ran.stdout.split())
