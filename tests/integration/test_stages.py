"""Every kind of stage, on Spark, with its results written out."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millstream as ms
from millstream.errors import GroupFailed
from millstream.spark.io.row_tests import Compare
from millstream.spark.stages.build import Builder, Sifted
from millstream.testing import flow_test

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

EVENTS = "k string, v long, at timestamp"


def at(text: str) -> datetime:
    """Return a time of 2020-01-01."""
    return datetime.fromisoformat(f"2020-01-01 {text}").replace(tzinfo=UTC)


def event(k: str, v: int, time: str) -> dict[str, Any]:
    return {"k": k, "v": v, "at": at(time)}


def rows(results: list[dict[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    """Return some columns of results, sorted: order between keys is nobody's promise."""
    return sorted(
        (tuple(row[name] for name in columns) for row in results),
        key=lambda row: [str(value) for value in row],
    )


def events(flow: ms.Flow, name: str = "events", lateness: str = "0 s") -> ms.Stream:
    return flow.source(name, ms.inbox(EVENTS), time="at", key="k", lateness=lateness)


def test_windows_of_each_kind_hold_what_belongs_to_them() -> None:
    flow = ms.Flow("windows")
    source = events(flow)
    source.window("hourly", every="1 hour", n="count(*)", total="sum(v)").sink(
        "tumbling", ms.memory()
    )
    source.window("slid", size="1 hour", every="30 minutes", n="count(*)").sink(
        "sliding", ms.memory()
    )
    source.window("visits", gap="10 minutes", longest="2 hours", n="count(*)").sink(
        "session", ms.memory()
    )
    with flow_test(flow) as t:
        t.send(
            "events",
            [
                event("a", 1, "10:00"),
                event("a", 2, "10:05"),
                event("b", 4, "10:40"),
                event("a", 8, "11:00"),
            ],
        )
        t.end()
        assert rows(t.results("tumbling"), "k", "window_start", "n", "total") == [
            ("a", at("10:00"), 2, 3),
            ("a", at("11:00"), 1, 8),
            ("b", at("10:00"), 1, 4),
        ]
        assert rows(t.results("sliding"), "k", "window_start", "n") == [
            ("a", at("09:30"), 2),
            ("a", at("10:00"), 2),
            ("a", at("10:30"), 1),
            ("a", at("11:00"), 1),
            ("b", at("10:00"), 1),
            ("b", at("10:30"), 1),
        ]
        assert rows(t.results("session"), "k", "window_start", "window_end", "n") == [
            ("a", at("10:00"), at("10:15"), 2),
            ("a", at("11:00"), at("11:10"), 1),
            ("b", at("10:40"), at("10:50"), 1),
        ]


def test_a_window_closes_when_event_time_has_passed_it_and_not_before() -> None:
    flow = ms.Flow("closing")
    events(flow, lateness="10 minutes").window("hourly", every="1 hour", n="count(*)").sink(
        "out", ms.memory()
    )
    with flow_test(flow) as t:
        t.send("events", [event("a", 1, "10:30"), event("a", 1, "11:09")])
        assert t.results("out") == []
        t.send("events", [event("a", 1, "10:59:59"), event("a", 1, "11:10:01")])
        assert t.results("out")["n"] == [2]


def test_a_late_row_is_left_out_and_kept_as_a_dead_letter() -> None:
    flow = ms.Flow("lateness")
    events(flow, lateness="10 minutes").window("hourly", every="1 hour", n="count(*)").sink(
        "out", ms.memory()
    )
    with flow_test(flow) as t:
        t.send(
            "events", [event("a", 1, "11:00"), event("a", 2, "10:50"), event("a", 3, "10:49:59")]
        )
        t.end()
        assert rows(t.results("out"), "window_start", "n") == [(at("10:00"), 1), (at("11:00"), 1)]
        letters = t.dead_letters("events")
        assert [letter["reason"] for letter in letters] == ["late"]
        assert '"v": 3' in letters[0]["record"]


def only_large(frame: DataFrame) -> DataFrame:
    return frame.where("v > 1").withColumn("double", F.col("v") * 2)


def test_apply_and_sql_change_rows_and_markers_pass_by_their_filters() -> None:
    flow = ms.Flow("rows")
    large = events(flow).apply("large", only_large)
    large.sql(
        "named", "SELECT concat(k, '!') AS name, double, at FROM large WHERE double < 100"
    ).sink("rows", ms.memory())
    large.window("hourly", every="1 hour", n="count(*)").sink("windows", ms.memory())
    with flow_test(flow, stages=["large"]) as t:
        t.send("events", [event("a", 1, "10:00"), event("b", 2, "10:01"), event("c", 70, "10:02")])
        assert rows(t.results("large"), "k", "double") == [("b", 4), ("c", 140)]
        t.advance_to("2020-01-01 12:00")
        assert rows(t.results("rows"), "name", "double") == [("b!", 4)]
        assert rows(t.results("windows"), "k", "n") == [("b", 1), ("c", 1)]


def test_merge_takes_the_rows_of_all_its_streams() -> None:
    flow = ms.Flow("merging")
    merged = flow.merge("both", events(flow, "left"), events(flow, "right"))
    merged.window("hourly", every="1 hour", n="count(*)").sink("out", ms.memory())
    with flow_test(flow) as t:
        t.send("left", [event("a", 1, "10:00")])
        t.send("right", [event("a", 1, "10:30")])
        t.advance_to("2020-01-01 12:00", "left")
        assert t.results("out") == []
        t.advance_to("2020-01-01 12:00", "right")
        assert t.results("out")["n"] == [2]


def test_joins_pair_rows_that_are_near_in_time() -> None:
    flow = ms.Flow("joining")
    left = events(flow, "left", lateness="1 hour")
    right = flow.source(
        "right", ms.inbox("k string, w long, at timestamp"), time="at", lateness="1 hour"
    )
    left.join("paired", right, on="k", within="10 minutes").sink("inner", ms.memory())
    left.join("kept", right, on="k", within="10 minutes", how="left").sink("left", ms.memory())
    left.join("seen", right, on="k", within="10 minutes", how="semi").sink("semi", ms.memory())
    paired = left.join("again", right, on="k", within="10 minutes")
    paired.window("hourly", every="1 hour", by="k", n="count(*)").sink("chained", ms.memory())
    with flow_test(flow) as t:
        t.send("left", [event("a", 1, "10:00"), event("a", 2, "10:30"), event("b", 3, "10:00")])
        t.send(
            "right",
            [{"k": "a", "w": 7, "at": at("10:10")}, {"k": "b", "w": 8, "at": at("09:49:59")}],
        )
        t.end()
        assert rows(t.results("inner"), "k", "v", "w", "at") == [("a", 1, 7, at("10:00"))]
        assert rows(t.results("left"), "k", "v", "w") == [
            ("a", 1, 7),
            ("a", 2, None),
            ("b", 3, None),
        ]
        assert rows(t.results("semi"), "k", "v") == [("a", 1)]
        assert rows(t.results("chained"), "k", "n") == [("a", 1)]


def test_a_join_on_a_time_column_waits_for_its_bound_and_not_for_the_key() -> None:
    flow = ms.Flow("hours")
    hourly = events(flow).window(
        "hours", every="1 hour", by={"k": "k", "hour": "date_trunc('hour', at)"}, n="count(*)"
    )
    weather = flow.source("weather", ms.inbox("k string, hour timestamp, wind long"), time="hour")
    hourly.journal("counts").join(
        "both", weather, on=["k", "hour"], within="1 hour", how="left"
    ).sink("out", ms.memory())
    copied = events(flow, "others").sql("copied", "SELECT k, at, at AS seen FROM others")
    copied.window("seen", every="1 hour", by=["k", "seen"], n="count(*)").sink("seen", ms.memory())
    with flow_test(flow) as t:
        t.send(
            "weather",
            [
                {"k": "a", "hour": at("10:00"), "wind": 7},
                {"k": "a", "hour": at("10:50"), "wind": 0},
            ],
        )
        t.send("others", [event("a", 1, "10:00"), event("a", 1, "10:30")])
        t.advance_to("2020-01-01 10:45")
        assert t.results("out") == t.results("seen") == []
        t.send("events", [event("a", 1, "10:55")])
        t.send("others", [event("a", 1, "10:50")])
        t.end()
        assert rows(t.results("out"), "hour", "n", "wind") == [(at("10:00"), 1, 7)]
        assert rows(t.results("seen"), "seen", "n") == [
            (at("10:00"), 1),
            (at("10:30"), 1),
            (at("10:50"), 1),
        ]


def test_a_static_table_adds_its_columns(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("k,name\na,Anna\n")
    flow = ms.Flow("naming")
    names = ms.table(str(tmp_path / "names.csv"))
    events(flow).join("named", names, on="k", how="left").sink("out", ms.memory())
    with flow_test(flow) as t:
        t.send("events", [event("a", 1, "10:00"), event("b", 2, "10:00")])
        assert rows(t.results("out"), "k", "name") == [("a", "Anna"), ("b", None)]


def running_total(state: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    total = state + row["v"]
    return total, {"k": row["k"], "at": row["at"], "total": total}


def test_fold_and_distinct_see_rows_in_order_of_event_time() -> None:
    flow = ms.Flow("ordered")
    source = events(flow, lateness="1 hour")
    once = source.distinct("once", by=["k", "v"], within="20 minutes")
    once.sink("once", ms.memory())
    totals = once.fold(
        "totals", running_total, initial=0, output="k string, at timestamp, total long"
    )
    totals.sink("totals", ms.memory())
    totals.window("hourly", every="1 hour", by="k", top="max(total)").sink("windows", ms.memory())
    with flow_test(flow) as t:
        t.send("events", [event("a", 1, "10:10"), event("a", 2, "10:00"), event("b", 5, "10:05")])
        t.send("events", [event("a", 1, "10:29"), event("a", 1, "10:30"), event("b", 5, "10:24")])
        t.end()
        assert rows(t.results("once"), "k", "v", "at") == [
            ("a", 1, at("10:10")),
            ("a", 1, at("10:30")),
            ("a", 2, at("10:00")),
            ("b", 5, at("10:05")),
        ]
        assert rows(t.results("totals"), "k", "at", "total") == [
            ("a", at("10:00"), 2),
            ("a", at("10:10"), 3),
            ("a", at("10:30"), 4),
            ("b", at("10:05"), 5),
        ]
        assert rows(t.results("windows"), "k", "top") == [("a", 4), ("b", 5)]


@pytest.mark.parametrize(("above", "below"), [("v > 1", "v < 9"), ("abs(v) > 1", "v < 9")])
def test_rows_that_sql_leaves_out_are_left_out_whoever_looks_at_them(
    above: str, below: str
) -> None:
    flow = ms.Flow("sifted")
    source = events(flow, lateness="1 hour")
    large = source.sql("large", f"SELECT * FROM events WHERE {above}")
    chosen = large.sql("chosen", f"SELECT * FROM large WHERE {below}")
    chosen.fold("sums", total="sum(v)").sink("sums", ms.memory())
    chosen.distinct("once", by="k", within="1 minute").sink("once", ms.memory())
    pair = ms.Pattern().begin("a", "v > 4").next("b", "v > 1").within("1 hour")
    chosen.match("pairs", pair, emit="k, a.v as x, b.v as y").sink("pairs", ms.memory())
    # Without the key of the pattern: a dead letter, if it is not left out before.
    small = large.sql("small", "SELECT * FROM large WHERE v < 4")
    small.match("by_v", ms.Pattern().begin("a", "v > 0"), by="v", emit="v").sink("v", ms.memory())
    with flow_test(flow) as t:
        t.send("events", [event("a", 5, "10:10"), event("a", 0, "10:11"), event("a", 2, "10:12")])
        t.send("events", [event("a", 9, "10:13"), event("a", 3, "10:14"), event("b", 4, "10:00")])
        t.send("events", [{**event("b", 0, "10:20"), "v": None}])
        t.end()
        totals = [("a", 10), ("a", 5), ("a", 7), ("b", 4)]
        assert rows(t.results("sums"), "k", "total") == totals
        firsts = [("a", 2), ("a", 3), ("a", 5), ("b", 4)]
        assert rows(t.results("once"), "k", "v") == firsts
        assert rows(t.results("pairs"), "k", "x", "y") == [("a", 5, 2)]
        assert rows(t.results("v"), "v") == [(2,), (3,)]
        assert t.dead_letters("events") == []


def test_sources_pack_what_stages_only_leave_rows_out_of(spark: SparkSession) -> None:
    flow = ms.Flow("sifted")
    source = events(flow)
    large = source.sql("large", "SELECT * FROM events WHERE v > 1")
    large.sql("chosen", "SELECT * FROM large WHERE v < 9").sink("out", ms.memory())
    large.sql("other", "SELECT * FROM large WHERE v % 2 = 0").sink("others", ms.memory())
    large.sql("named", "SELECT k, at FROM large").sink("names", ms.memory())
    asked: list[Sifted] = []

    def packed(origin: Sifted, _by: tuple[str, ...], _shards: int) -> None:
        asked.append(origin)

    frame = spark.sql("SELECT 'a' AS k, 1L AS v, now() AS at, false AS __marker")
    builder = Builder(spark, flow, lambda _: frame, Path(), packed=packed)
    # Rows that lack columns are no rows of the source.
    for name in ("events", "chosen", "other", "named"):
        assert builder.messages(name, ("k",), 4) is None
    tests = (Compare("v", ">", 1), Compare("v", "<", 9))
    assert asked == [
        Sifted("events", ("events",)),
        Sifted("events", ("events", "large", "chosen"), tests),
    ]


def test_declared_folds_go_on_over_batches_and_keep_their_states() -> None:
    flow = ms.Flow("declared")
    folds = {"n": "count(*)", "total": "sum(v)", "top": "max(v)", "begun": "first(at)"}
    source = events(flow, lateness="1 hour")
    source.fold("sums", mean="ewma(v, 0.5)", **folds).sink("out", ms.memory())
    with flow_test(flow) as t:
        t.send("events", [event("a", 1, "10:10"), event("a", 2, "10:00"), event("b", 5, "10:05")])
        t.send("events", [event("a", 7, "10:29"), event("a", None, "10:30")])
        t.end()
        assert rows(t.results("out"), "k", "at", "n", "total", "top", "begun", "mean") == [
            ("a", at("10:00"), 1, 2, 2, at("10:00"), 2.0),
            ("a", at("10:10"), 2, 3, 2, at("10:00"), 1.5),
            ("a", at("10:29"), 3, 10, 7, at("10:00"), 4.25),
            ("a", at("10:30"), 4, 10, 7, at("10:00"), 4.25),
            ("b", at("10:05"), 1, 5, 5, at("10:05"), 5.0),
        ]


def halved(known: float, v: int) -> float:
    return known / 2 + 12 // (v - 3)


def test_a_compiled_fold_goes_on_over_batches_and_leaves_out_rows_on_which_it_fails() -> None:
    flow = ms.Flow("compiled")
    own = ms.compiled(halved, initial=1.0)
    events(flow, lateness="1 hour").fold("folds", n="count(*)", own=own).sink("out", ms.memory())
    with flow_test(flow) as t:
        t.send("events", [event("a", 4, "10:10"), event("b", 5, "10:05"), event("a", 3, "10:15")])
        t.send("events", [event("a", None, "10:20"), event("a", 9, "10:29")])
        t.end()
        assert rows(t.results("out"), "k", "at", "n", "own") == [
            ("a", at("10:10"), 1, 12.5),
            ("a", at("10:20"), 2, 12.5),
            ("a", at("10:29"), 3, 8.25),
            ("b", at("10:05"), 1, 6.5),
        ]
        (letter,) = t.dead_letters("events")
        assert (
            letter["reason"] == 'fold "folds" failed: ZeroDivisionError: integer division by zero'
        )


def counted(total: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return total + 1, {"key": row["code"], "at": row["at"], "n": total + 1}


def test_a_key_may_be_an_expression_in_every_kind_of_stage() -> None:
    flow = ms.Flow("keyed")
    source = flow.source("events", ms.inbox(EVENTS), time="at", key="upper(k) as code")
    source.window("hourly", every="1 hour", total="sum(v)").sink("windows", ms.memory())
    source.fold("counted", counted, initial=0, output="key string, at timestamp, n long").sink(
        "folded", ms.memory()
    )
    source.distinct("once", by="lower(k)", within="1 hour").sink("distinct", ms.memory())
    rise = ms.Pattern().begin("a", "v < 2").followed_by("b", "v > a.v").within("1 hour")
    source.match("rise", rise, emit="code, a.v as low, b.v as high").sink("matches", ms.memory())
    other = flow.source("others", ms.inbox("k string, w long, seen timestamp"), time="seen")
    on = "upper(k) as code"
    source.join("semi", other, on=on, within="1 hour", how="semi").sink("joined", ms.memory())
    kept = source.journal("kept", partitions=2)
    kept.window("again", every="1 hour", n="count(*)").sink("journal", ms.memory())
    with flow_test(flow) as t:
        sent = [event("a", 1, "10:00"), event("A", 2, "10:01"), event("b", 5, "10:02")]
        t.send("events", sent)
        t.send("others", [{"k": "a", "w": 1, "seen": at("10:30")}])
        t.end()
        assert rows(t.results("joined"), "k", "v") == [("A", 2), ("a", 1)]
        assert rows(t.results("windows"), "code", "total") == [("A", 3), ("B", 5)]
        assert rows(t.results("folded"), "key", "n") == [("A", 1), ("A", 2), ("B", 1)]
        assert rows(t.results("distinct"), "k", "lower_k") == [("a", "a"), ("b", "b")]
        assert rows(t.results("matches"), "code", "low", "high") == [("A", 1, 2)]
        assert rows(t.results("journal"), "code", "n") == [("A", 2), ("B", 1)]


def test_fields_of_a_struct_are_there_whether_they_are_read_alone_or_not_at_all() -> None:
    flow = ms.Flow("nested")
    place = "place struct<city: string, zip: string, spot: struct<x: long, y: long>>"
    source = flow.source("events", ms.inbox(f"k string, {place}, at timestamp"), time="at")
    source.window("cities", every="1 hour", by="place.city as city", far="max(place.spot.x)").sink(
        "cities", ms.memory()
    )
    parts = source.sql("parts", "SELECT k, place.*, at FROM events")
    unread = parts.sql("unread", "SELECT k, city, zip AS code, spot, at FROM parts")
    unread.sql("towns", "SELECT k, city, at FROM unread").sink("towns", ms.memory())
    source.sql("nowhere", "SELECT k, at FROM events WHERE place IS NULL").sink(
        "nowhere", ms.memory()
    )
    source.sql("all", "SELECT k, place, place.zip, at FROM events").sink("all", ms.memory())
    home = {"city": "Ulm", "zip": "89073", "spot": {"x": 4, "y": 2}}
    with flow_test(flow) as t:
        t.send("events", [{"k": "a", "place": home, "at": at("10:00")}])
        t.send("events", [{"k": "b", "place": home | {"spot": None}, "at": at("10:01")}])
        t.send("events", [{"k": "c", "place": None, "at": at("10:02")}])
        t.end()
        cities = {row["city"]: row["far"] for row in t.results("cities")}
        assert cities == {"Ulm": 4, None: None}
        towns = {row["k"]: row["city"] for row in t.results("towns")}
        assert towns == {"a": "Ulm", "b": "Ulm", "c": None}
        assert rows(t.results("nowhere"), "k") == [("c",)]
        whole = {row["k"]: (row["place"], row["zip"]) for row in t.results("all")}
        assert whole == {
            "a": (home, "89073"),
            "b": (home | {"spot": None}, "89073"),
            "c": (None, None),
        }


def test_a_journal_carries_rows_and_time_to_the_next_group() -> None:
    flow = ms.Flow("chained")
    named = events(flow).sql("named", "SELECT nullif(k, 'nobody') AS k, v, at FROM events")
    hourly = named.window("hourly", every="1 hour", by="k", n="count(*)").journal(
        "hours", partitions=2, key="k"
    )
    hourly.window("daily", every="1 day", by="k", hours="count(*)", most="max(n)").sink(
        "days", ms.memory()
    )
    hourly.sink("hours_out", ms.memory())
    with flow_test(flow) as t:
        t.send(
            "events",
            [
                event("a", 1, "10:00"),
                event("a", 1, "10:30"),
                event("b", 1, "11:00"),
                event("a", 1, "13:00"),
            ],
        )
        t.send("events", [event("nobody", 1, "13:30"), {"k": None, "v": 1, "at": at("13:30")}])
        t.advance_to("2020-01-02 00:00")
        assert [letter["reason"] for letter in t.dead_letters("events")] == ['key "k" is null']
        assert [letter["reason"] for letter in t.dead_letters("hours")] == ['key "k" is null']
        assert rows(t.results("hours_out"), "k", "n") == [("a", 1), ("a", 2), ("b", 1)]
        assert rows(t.results("days"), "k", "hours", "most") == [("a", 2, 2), ("b", 1, 1)]


def test_a_cycle_through_a_journal_ends_when_nothing_goes_round_any_more() -> None:
    flow = ms.Flow("round")
    numbers = flow.source("numbers", ms.inbox("n long"))
    back = flow.reads("again", "n long")
    grown = flow.merge("all", numbers, back).sql("grown", "SELECT n + 1 AS n FROM all")
    grown.sql("even", "SELECT n FROM grown WHERE n % 2 = 0").journal("again")
    grown.sql("odd", "SELECT n FROM grown WHERE n % 2 = 1").sink("out", ms.memory())
    with flow_test(flow) as t:
        t.send("numbers", [{"n": n} for n in range(1, 9)])
        t.end()
        assert t.wait() is True
        # 1 becomes 2, goes round and comes out as 3; 2 comes out as 3 at once.
        assert rows(t.results("out"), "n") == [(n,) for n in (3, 3, 5, 5, 7, 7, 9, 9)]


def test_several_sinks_of_one_stream_get_the_same_rows(spark: SparkSession) -> None:
    flow = ms.Flow("copies")
    source = events(flow)
    source.sink("one", ms.memory())
    source.sink("two", ms.memory())
    with flow_test(flow) as t:
        t.send("events", [event("a", 1, "10:00")])
        assert t.results("one") == t.results("two") == [event("a", 1, "10:00")]


def numbered(state: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    ratio = None if row["n"] == 9 else math.nan if row["n"] == 3 else 1
    return state + 1, {"n": row["n"], "place": state + 1, "ratio": ratio, "short": ratio}


def test_a_fold_over_all_rows_takes_them_as_they_arrive_where_there_is_no_time() -> None:
    flow = ms.Flow("arrival")
    numbers = flow.source("numbers", ms.inbox("n long"))
    output = "n long, place long, ratio double, short float"
    numbers.fold("numbered", numbered, initial=0, output=output, by=[], order="arrival").sink(
        "out", ms.memory()
    )
    with flow_test(flow) as t:
        t.send("numbers", [{"n": n} for n in (5, 3, 9)])
        t.end()
        assert t.wait() is True
        assert rows(t.results("out"), "place", "n") == [(1, 5), (2, 3), (3, 9)]
        # NaN is a number, not a null.
        found = rows(t.results("out"), "place", "ratio", "short")
        assert repr(found) == "[(1, 1.0, 1.0), (2, nan, nan), (3, None, None)]"


def connected(state: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return state, {"n": row["n"], "ports": len(psutil.Process().net_connections("tcp"))}


def test_a_worker_has_no_port_to_which_a_stranger_could_connect_instead() -> None:
    """Spark would take its bytes for the worker's, and the query would wait for ever."""
    flow = ms.Flow("guarded")
    ports = flow.source("numbers", ms.inbox("n long")).fold(
        "ports", connected, initial=0, output="n long, ports long", by=[], order="arrival"
    )
    ports.sink("all", ms.memory())
    with flow_test(flow) as t:
        t.send("numbers", [{"n": 1}])
        t.end()
        assert t.wait() is True
        assert rows(t.results("all"), "n", "ports") == [(1, 0)]


def divided(state: dict[str, int], row: dict[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
    state["seen"] = state.get("seen", 0) + 1  # before it fails, if it does
    return state, {"k": row["k"], "at": row["at"], "x": 10 // row["v"], "seen": state["seen"]}


def test_a_row_on_which_a_step_fails_is_a_dead_letter_and_leaves_the_state_alone() -> None:
    flow = ms.Flow("failing")
    output = "k string, at timestamp, x long, seen long"
    events(flow).fold("divided", divided, initial=dict, output=output).sink("out", ms.memory())
    with flow_test(flow) as t:
        sent = [("a", 5, "10:00"), ("a", 0, "10:01"), ("b", 2, "10:02"), ("a", 10, "10:03")]
        t.send("events", [event(*one) for one in sent])
        t.end()
        # The row that failed is not among those that "a" has seen.
        assert rows(t.results("out"), "k", "x", "seen") == [("a", 1, 2), ("a", 2, 1), ("b", 5, 1)]
        (letter,) = t.dead_letters("events")
        assert letter["origin"] == "fold:divided"
        assert letter["reason"].startswith('fold "divided" failed: ZeroDivisionError: ')
        assert json.loads(letter["record"])["v"] == 0


def test_a_fold_that_stops_on_errors_shows_the_row() -> None:
    flow = ms.Flow("stopping")
    output = "k string, at timestamp, x long, seen long"
    folded = events(flow).fold("divided", divided, initial=dict, output=output, on_error="stop")
    folded.sink("out", ms.memory())
    with flow_test(flow) as t:
        t.send("events", [event("a", 5, "10:00"), event("a", 0, "10:01")])
        t.end()
        with pytest.raises(
            GroupFailed, match=r"\"divided\" failed on {'k': 'a', 'v': 0, .* by zero"
        ):
            t.results("out")


def misspelt(state: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return state, {"k": row["k"], "at": row["at"], "y": 1}


def test_a_step_that_returns_other_columns_stops_the_flow_and_is_named() -> None:
    flow = ms.Flow("misspelt")
    output = "k string, at timestamp, x long"
    events(flow).fold("divided", misspelt, initial=0, output=output).sink("out", ms.memory())
    with flow_test(flow) as t:
        t.send("events", [event("a", 0, "10:00")])
        t.end()
        with pytest.raises(GroupFailed, match='stage "divided" emits a column "y"'):
            t.results("out")


def test_a_flow_may_use_a_module_beside_it_from_wherever_it_is_started(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_a_flow.py").write_text("def twice(n):\n    return 2 * n\n")
    (tmp_path / "flow.py").write_text(
        "import millstream as ms\n"
        "from neighbour_of_a_flow import twice\n"
        "flow = ms.Flow('neighbours')\n"
        "def step(state, row):\n"
        "    return state, {'n': twice(row['n'])}\n"
        "numbers = flow.source('numbers', ms.inbox('n long'))\n"
        "numbers.fold('doubled', step, initial=0, output='n long', by=[], order='arrival').sink('out', ms.memory())\n"
    )
    with flow_test(tmp_path / "flow.py") as t:
        t.send("numbers", [{"n": 21}])
        assert t.results("out")["n"] == [42]


def test_a_row_on_which_a_key_or_a_condition_fails_is_a_dead_letter_of_its_stage() -> None:
    flow = ms.Flow("keys")
    source = events(flow)
    source.distinct(
        "firsts", by=["10 div v as tenth", "100 div v as hundredth"], within="1 day"
    ).sink("first", ms.memory())
    source.window("hours", every="1 hour", by={"tenth": "10 div v"}, n="count(*)").sink(
        "hourly", ms.memory()
    )
    big = ms.Pattern().begin("big", "10 div v >= 5")
    source.match("bigs", big, emit="k, big.v as v").sink("found", ms.memory())
    with flow_test(flow) as t:
        sent = [("a", 5, "10:00"), ("a", 0, "10:01"), ("a", 0, "10:01"), ("b", 2, "10:02")]
        t.send("events", [event(*one) for one in sent])
        t.end()
        assert rows(t.results("first"), "v", "tenth") == [(2, 5), (5, 2)]
        assert rows(t.results("hourly"), "tenth", "n") == [(2, 1), (5, 1)]
        assert rows(t.results("found"), "k", "v") == [("b", 2)]
        letters = t.dead_letters("events")
        # Two equal rows are two letters, of each stage.
        assert sorted(one["origin"] for one in letters) == [
            *(["keyed:firsts"] * 2),
            *(["keyed:hours"] * 2),
            *(["match:bigs"] * 2),
        ]
        reasons = {one["origin"]: one["reason"] for one in letters}
        assert reasons["keyed:hours"] == 'the key of "hours" cannot be computed: "10 div v" fails'
        assert {json.loads(one["record"])["k"] for one in letters} == {"a"}
