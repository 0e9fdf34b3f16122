"""Patterns as stages of flows, on Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import millstream as ms
from millstream.testing import flow_test

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

BEGIN = datetime(2013, 3, 8, 14, tzinfo=UTC)


def event(origin: str, delay: float, minute: float) -> dict[str, Any]:
    return {"origin": origin, "delay": float(delay), "at": BEGIN + timedelta(minutes=minute)}


def departures(lateness: str = "0 s") -> ms.Stream:
    schema = ms.inbox("origin string, delay double, at timestamp")
    return ms.Flow("flights").source(
        "departures", schema, time="at", key="origin", lateness=lateness
    )


def meltdown() -> ms.Pattern:
    worse = (
        ms.Pattern()
        .begin("first", "delay > 60")
        .followed_by("worse", "delay > first.delay")
        .times(3)
    )
    return worse.not_followed_by("ok", "delay <= 0").within("2 hours")


EMIT = "origin, first.at as began, count(worse.*) as n, max(worse.delay) as peak"


def test_three_worsening_delays_raise_one_alert_when_their_time_is_up() -> None:
    stream = departures("5 minutes")
    stream.match("meltdown", meltdown(), emit=EMIT).sink("alerts", ms.memory())
    with flow_test(stream.flow) as t:
        t.send(
            "departures",
            [event("JFK", delay, minute) for minute, delay in enumerate([61, 70, 80, 95])],
        )
        t.send(
            "departures",
            [event("LGA", delay, minute) for minute, delay in enumerate([61, 70, 80, 95, 0])],
        )
        t.advance_to(BEGIN + timedelta(hours=1))
        assert t.results("alerts") == []
        t.advance_to(BEGIN + timedelta(hours=3))
        (alert,) = t.results("alerts")
    assert (alert["origin"], alert["n"], alert["peak"]) == ("JFK", 3, 95.0)
    assert (alert["began"], alert["at"]) == (BEGIN, BEGIN + timedelta(hours=2))


def test_a_window_counts_the_matches_of_a_pattern() -> None:
    stream = departures()
    pairs = ms.Pattern().begin("a", "delay > 10").next("b", "delay > a.delay").within("10 minutes")
    found = stream.match("pairs", pairs, emit="origin, b.delay - a.delay as rise")
    found.window("hourly", every="1 hour", by="origin", n="count(*)", most="max(rise)").sink(
        "hourly", ms.memory()
    )
    with flow_test(stream.flow) as t:
        t.send(
            "departures",
            [event("JFK", delay, minute) for minute, delay in enumerate([11, 12, 20, 5, 70, 71])],
        )
        t.end()
        (row,) = t.results("hourly")
    assert (row["origin"], row["n"], row["most"]) == ("JFK", 3, 8.0)


def test_a_phenomenon_of_two_patterns_with_runs_out_of_time() -> None:
    stream = departures()
    up = (
        ms.Pattern("up")
        .begin("a", "delay > 10")
        .followed_by("b", "delay > 100")
        .within("10 minutes")
        .timeouts()
    )
    down = (
        ms.Pattern("down")
        .begin("a", "delay > 10")
        .followed_by("b", "delay < 0")
        .within("10 minutes")
        .timeouts()
    )
    both = ms.Phenomenon("change", (up, down), emit="origin, a.delay as since")
    stream.match("change", both).sink("changes", ms.memory())
    with flow_test(stream.flow) as t:
        t.send("departures", [event("JFK", 50, 0), event("JFK", -1, 2), event("EWR", 20, 5)])
        t.end()
        found = sorted(
            (r["origin"], r["pattern"], r["timed_out"], r["since"]) for r in t.results("changes")
        )
    assert found == [
        ("EWR", "down", True, 20.0),
        ("EWR", "up", True, 20.0),
        ("JFK", "down", False, 50.0),
        ("JFK", "up", True, 50.0),
    ]


def test_match_recognize_is_a_stage_that_a_window_may_follow() -> None:
    stream = departures("5 minutes")
    stream.flow.sql(
        "rises",
        """
        SELECT origin, low, high, at FROM departures MATCH_RECOGNIZE (
            PARTITION BY origin ORDER BY at
            MEASURES FIRST(delay) AS low, LAST(up.delay) AS high
            PATTERN (strt up{2}) WITHIN INTERVAL '1' HOUR DEFINE up AS delay > PREV(delay)
        ) AS m WHERE m.high > 10
        """,
    ).window("hourly", every="1 hour", by="origin", n="count(*)", most="max(high)").sink(
        "hourly", ms.memory()
    )
    stream.sql(
        "rows",
        """
        SELECT origin, part, at, match_time FROM departures MATCH_RECOGNIZE (
            PARTITION BY origin ORDER BY at MEASURES CLASSIFIER() AS part ALL ROWS PER MATCH
            PATTERN (late very) DEFINE late AS delay > 60, very AS delay > 90
        )
        """,
    ).sink("rows", ms.memory())
    with flow_test(stream.flow) as t:
        t.send(
            "departures",
            [event("JFK", delay, minute) for minute, delay in enumerate([1, 5, 9, 2, 61, 91, 0])],
        )
        t.end()
        (row,), rows = t.results("hourly"), t.results("rows")
    assert (row["origin"], row["n"], row["most"]) == ("JFK", 1, 91.0)
    assert sorted((r["part"], r["at"].minute, r["match_time"].minute) for r in rows) == [
        ("late", 4, 5),
        ("very", 5, 5),
    ]


@pytest.mark.parametrize(
    "first",
    [
        # Spark's optimizer leaves the origin out of these, so it is not read.
        "delay > 10 OR origin = 'x' AND false",
        "delay > 10 OR delay > 10 AND origin = 'x'",
        # Hundreds of conditions stay one.
        " OR ".join(f"delay = {one}" for one in range(11, 611)),
    ],
)
def test_a_condition_may_be_simpler_than_it_is_written(first: str) -> None:
    stream = departures()
    pair = ms.Pattern().begin("a", first).followed_by("b", "delay < 0").within("10 minutes")
    stream.match("pairs", pair, emit="a.delay as low").sink("pairs", ms.memory())
    with flow_test(stream.flow) as t:
        t.send("departures", [event("JFK", delay, n) for n, delay in enumerate([11, -1, 12])])
        t.end()
        assert [row["low"] for row in t.results("pairs")] == [11.0]


@pytest.mark.parametrize("first", ["delay > 10", "abs(delay) > 10"])
def test_a_dead_letter_has_the_same_words_whoever_leaves_the_row_out(first: str) -> None:
    schema = ms.inbox("origin string, gate string, delay double, n long, at timestamp")
    stream = ms.Flow("flights").source("departures", schema, time="at", key="origin")
    pair = ms.Pattern().begin("a", first).followed_by("b", "delay < 0").within("10 minutes")
    stream.match("pairs", pair, by="gate", emit="gate").sink("pairs", ms.memory())
    with flow_test(stream.flow) as t:
        t.send("departures", [{**event("JFK", 11, 0.000001), "gate": None, "n": None}])
        t.end()
        (letter,) = t.dead_letters("departures")
    assert letter["record"] == (
        '{"origin": "JFK", "gate": null, "delay": 11.0, "n": null, "at": "2013-03-08T14:00:00.000060+00:00"}'
    )


def test_events_without_the_key_of_a_pattern_become_dead_letters() -> None:
    schema = ms.inbox("origin string, gate string, delay double, at timestamp")
    stream = ms.Flow("flights").source("departures", schema, time="at", key="origin")
    late = (
        ms.Pattern()
        .begin("a", "delay > 10")
        .followed_by("b", "delay > a.delay")
        .within("10 minutes")
    )
    stream.match("late", late, by="gate", emit="gate, b.delay as delay").sink("late", ms.memory())
    gates = ["A1", None, "A1", None]
    with flow_test(stream.flow) as t:
        t.send(
            "departures",
            [{**event("JFK", 11 + n, n), "gate": gate} for n, gate in enumerate(gates)],
        )
        t.end()
        assert [(row["gate"], row["delay"]) for row in t.results("late")] == [("A1", 13.0)]
        letters = t.dead_letters("departures")
    assert [letter["reason"] for letter in letters] == ['pattern "late": the event has no gate'] * 2
    assert sorted(letter["position"] for letter in letters) == [1, 3]


VALLEYS = """
    SELECT * FROM departures MATCH_RECOGNIZE (
        PARTITION BY origin ORDER BY at
        MEASURES FIRST(top.delay) AS top, LAST(up.delay) AS high, COUNT(*) AS n
        PATTERN (top down+ up) DEFINE top AS delay > 80, down AS delay < 60, up AS delay > 50
    )
"""


@pytest.mark.parametrize("others", [0, 60])
def test_a_match_that_waits_for_longer_ones_comes_out_at_the_end_whatever_came_before(
    others: int,
) -> None:
    stream = departures()
    stream.sql("valleys", VALLEYS).sink("found", ms.memory())
    with flow_test(stream.flow) as t:
        # Another row under 60 could still belong to it, so nothing but the end settles it.
        t.send("departures", [event("JFK", delay, at) for at, delay in enumerate([90, 55, 55])])
        # Alone in its shard, nothing but its own timer wakes it; rows of others do, behind a watermark
        # that is long past it.
        for minute in (100, 200):
            t.send("departures", [event(f"X{one}", 90, minute) for one in range(others)])
            t.advance_to(BEGIN + timedelta(minutes=minute - 10))
        assert t.results("found") == []
        t.end()
        (row,) = t.results("found")
    assert (row["origin"], row["top"], row["high"], row["n"]) == ("JFK", 90.0, 55.0, 3)
    assert row["at"] == BEGIN + timedelta(minutes=2)
