"""Patterns on Spark: batches and streams give the same matches, those of the automaton."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from millstream.errors import (
    DuplicateName,
    InvalidSql,
    NoTime,
    PatternError,
    UnboundedState,
    UnknownColumn,
)
from millstream.patterns import events
from millstream.patterns.automaton import FOREVER, Key, advance, step
from millstream.patterns.compile import compile_pattern
from millstream.patterns.pattern import Pattern, Phenomenon
from millstream.spark.match import match, sql

pytestmark = [pytest.mark.spark]

SCHEMA = "k string, x int, n int, at timestamp"
LAST = "2020-01-02 00:00:00"
#: The first moment that Spark takes from a stage with state.
FIRST = datetime.fromisoformat("1970-01-01T00:00:00.000001")


def some_events(count: int, seed: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    second, rows = 0, []
    for number in range(count):
        second += chance.randrange(1, 4)
        at = f"2020-01-01 00:{second // 60:02}:{second % 60:02}"
        rows.append({"k": chance.choice("abcde"), "x": chance.randrange(5), "n": number, "at": at})
    return rows


def batch(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    plain = spark.createDataFrame(
        [tuple(row.values()) for row in rows], "k string, x int, n int, at string"
    )
    return plain.selectExpr("k", "x", "n", "cast(at as timestamp) as at")


def streamed(
    spark: SparkSession,
    rows: list[dict[str, Any]],
    folder: Path,
    find: Any,
    files: int = 2,
    progress: list[str] | None = None,
) -> list[dict[str, Any]]:
    """Return what comes out of a stream over the rows, in files that are read one after the other, each a little out of order."""
    source = folder / "in"
    source.mkdir(parents=True)
    step_ = -(-len(rows) // files)
    for number in range(files):
        part = rows[number * step_ : (number + 1) * step_]
        random.Random(number).shuffle(part)
        (source / f"{number}.json").write_text("\n".join(json.dumps(row) for row in part))
    (source / "9.json").write_text(json.dumps({"k": "zz", "x": -1, "n": -1, "at": LAST}))
    for number, file in enumerate(sorted(source.iterdir())):
        os.utime(
            file, (1_600_000_000 + number, 1_600_000_000 + number)
        )  # Spark reads the oldest first
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(source))
    query = (
        find(stream.withWatermark("at", "5 minutes"))
        .writeStream.format("memory")
        .queryName("found")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    if progress is not None:
        progress += [one.json for one in query.recentProgress]
    return [row.asDict(recursive=True) for row in spark.table("found").collect()]


def by_hand(pattern: Pattern, rows: list[dict[str, Any]]) -> Counter:
    automaton = compile_pattern(pattern)
    table = pa.table(
        {
            "k": [row["k"] for row in rows],
            "x": pa.array([row["x"] for row in rows], pa.int32()),
            "n": pa.array([row["n"] for row in rows], pa.int32()),
            "at": pa.array([row["at"].replace(" ", "T") for row in rows]).cast(pa.timestamp("us")),
        }
    )
    keys: dict[str, Key] = {}
    found: Counter = Counter()

    def note(name, matches):
        found.update((name, tuple(event.row["n"] for _, event in one.history)) for one in matches)

    for event in events.events(automaton, table, "at"):
        name = event.row["k"]
        keys[name], matches, _ = step(automaton, keys.get(name, Key()), event)
        note(name, matches)
    for name, key in keys.items():
        note(name, advance(automaton, key, FOREVER)[1])
    return found


PATTERNS = {
    "sequence": Pattern()
    .begin("a", "x = 0")
    .followed_by("b", "x > 2")
    .followed_by("c", "x = 1")
    .within("30 seconds"),
    "history": Pattern()
    .begin("a", "x < 2")
    .followed_by("b", "x > a.x")
    .times(2)
    .followed_by("c", "x < avg(b.x) and n > 5")
    .within("20 seconds"),
    "negation": Pattern().begin("a", "x = 0").not_followed_by("b", "x = 1").within("15 seconds"),
    "strict, past last": Pattern()
    .begin("a", "x >= 1")
    .one_or_more()
    .consecutive()
    .greedy()
    .next("b", "x = 0")
    .within("40 seconds")
    .skip_past_last(),
    "text in its history": Pattern()
    .begin("a", "x = 0")
    .followed_by("b", "x = 1 and k = a.k")
    .within("10 seconds"),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_batch_and_stream_find_what_the_automaton_finds(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    rows = some_events(300, seed=len(name))
    pattern = PATTERNS[name]
    expected = by_hand(pattern, rows)
    assert sum(expected.values()) > 3

    def find(df: DataFrame) -> DataFrame:
        return match(df, pattern, key="k", emit="k, collect_list(n) as ns")

    def shown(results: list[dict[str, Any]]) -> Counter:
        return Counter((row["k"], tuple(row["ns"])) for row in results)

    whole = [row.asDict() for row in find(batch(spark, rows)).collect()]
    assert shown(whole) == expected
    assert shown(streamed(spark, rows, tmp_path, find)) == expected


def at_the_epoch() -> list[dict[str, Any]]:
    """Events around the first moment of 1970, in two batches."""
    times = ["1969-12-31 23:59:50", "1970-01-01 00:00:00", "1970-01-01 00:00:10"]
    first = [
        {"k": k, "x": x, "n": 10 * n + x, "at": at}
        for n, k in enumerate("abc")
        for x, at in enumerate(times[: n + 1])
    ]
    return [*first, *({**row, "k": row["k"] * 2, "n": row["n"] + 100} for row in first)]


@pytest.mark.parametrize("letters", [False, True])
def test_an_event_at_the_epoch_or_before_it_is_found_by_a_stream_as_by_a_batch(
    spark: SparkSession, tmp_path: Path, letters: bool
) -> None:
    rows = at_the_epoch()
    alone = Pattern().begin("a", "x >= 0").emit("k, a.n as n")
    after = Pattern().begin("a", "x = 0").followed_by("b", "x = 1").within("1 minute")
    for place, pattern in enumerate((alone, after.emit("k, a.n as n"))):

        def find(df: DataFrame, pattern: Pattern = pattern) -> DataFrame:
            return match(df, pattern, key="k", dead_letters=letters)

        expected = [row.asDict() for row in find(batch(spark, rows)).collect()]
        assert len(expected) == (12, 4)[place]
        found = streamed(spark, rows, tmp_path / str(place), find)
        assert sorted(map(str, found)) == sorted(
            str({**row, "at": max(row["at"], FIRST)}) for row in expected
        )


def test_results_have_the_columns_that_were_asked_for(spark: SparkSession) -> None:
    rows = [
        ("c", 1, 0, "2020-01-01 00:00:01"),
        ("c", 5, 1, "2020-01-01 00:00:02"),
        ("c", 7, 2, "2020-01-01 00:00:04"),
    ]
    df = batch(spark, [dict(zip(("k", "x", "n", "at"), row, strict=True)) for row in rows])
    pattern = Pattern().begin("a", "x = 1").followed_by("b", "x > 1").times(2).within("1 minute")
    emit = "upper(k) as card, a.at as began, count(b.*) as n, max(b.x) - a.x as rise, round(avg(b.x), 1) as mean, sum(x) as total"
    (row,) = match(df, pattern, key="k", emit=emit).collect()
    assert (row.card, row.n, row.rise, row["mean"], row.total) == ("C", 2, 6, 6.0, 13)
    assert row.at.second == 4
    (whole,) = match(df, pattern, key="k").collect()
    assert (whole.k, whole.a.x, [one.x for one in whole.b]) == ("c", 1, [5, 7])


def test_runs_out_of_time_and_several_patterns_come_out_of_one_stage(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        {"k": "c", "x": x, "n": n, "at": f"2020-01-01 00:00:{n:02}"}
        for n, x in enumerate([1, 2, 1, 0, 3])
    ]
    up = Pattern("up").begin("a", "x = 1").next("b", "x = 2").within("1 minute")
    down = (
        Pattern("late")
        .begin("a", "x = 1")
        .followed_by("b", "x = 9")
        .within("10 seconds")
        .timeouts()
    )
    both = Phenomenon("both", (up, down), emit="k, a.n as first")

    def find(df: DataFrame) -> DataFrame:
        return match(df, both, key="k")

    expected = [(0, "late", True), (0, "up", False), (2, "late", True)]
    for found in (
        [row.asDict() for row in find(batch(spark, rows)).collect()],
        streamed(spark, rows, tmp_path, find, 2),
    ):
        assert sorted((row["first"], row["pattern"], row["timed_out"]) for row in found) == expected


def test_a_python_predicate_gets_whole_events(spark: SparkSession) -> None:
    rows = some_events(60, seed=1)
    pattern = (
        Pattern()
        .begin("a", "x = 0")
        .followed_by("b", lambda event, history: event["x"] > history["a"][0]["x"] + 2)
    )
    pattern = pattern.within("1 minute")
    same = Pattern().begin("a", "x = 0").followed_by("b", "x > a.x + 2").within("1 minute")
    found = [
        match(batch(spark, rows), one, key="k", emit="k, a.n as a, b.n as b").collect()
        for one in (pattern, same)
    ]
    assert sorted(found[0]) == sorted(found[1])
    assert found[0]

    def alone(event: dict[str, Any]) -> bool:
        return event["y"] > 2

    broken = Pattern().begin("a", "x = 0").followed_by("b", alone).within("1 minute")
    with pytest.raises(
        PythonException, match=r'predicate alone\(\) of block "b" failed with KeyError'
    ):
        match(batch(spark, rows), broken, key="k", emit="k").collect()


def test_match_recognize_on_batch_and_stream(spark: SparkSession, tmp_path: Path) -> None:
    rows = some_events(200, seed=7)
    query = """
        SELECT k, first_n, last_n, number, peak, earlier, later FROM {table} MATCH_RECOGNIZE (
            PARTITION BY k ORDER BY at
            MEASURES FIRST(a.n) AS first_n, LAST(n) AS last_n, MATCH_NUMBER() AS number, MAX(u.x) AS peak,
                PREV(a.n, 2) AS earlier, NEXT(FIRST(n)) AS later
            ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
            PATTERN (a b+ c?) WITHIN INTERVAL '20' SECOND SUBSET u = (a, b)
            DEFINE b AS b.x >= PREV(b.x), c AS c.x < LAST(b.x)
        ) AS m WHERE peak > 1
    """
    batch(spark, rows).createOrReplaceTempView("trades")
    whole = [row.asDict() for row in sql(spark, query.format(table="trades")).collect()]
    assert len(whole) > 5
    for row in whole:
        own = [one["n"] for one in rows if one["k"] == row["k"]]
        at = own.index(row["first_n"])
        assert (row["earlier"], row["later"]) == (own[at - 2] if at > 1 else None, own[at + 1])

    def find(stream: DataFrame) -> DataFrame:
        stream.createOrReplaceTempView("live")
        return sql(spark, query.format(table="live"))

    found = streamed(spark, rows, tmp_path, find)
    assert sorted(map(str, (tuple(row.values()) for row in found))) == sorted(
        map(str, (tuple(r.values()) for r in whole))
    )


def test_all_rows_per_match_are_running_unless_final(spark: SparkSession) -> None:
    rows = [
        {"k": "c", "x": x, "n": n, "at": f"2020-01-01 00:00:{n:02}"}
        for n, x in enumerate([3, 1, 2, 0])
    ]
    batch(spark, rows).createOrReplaceTempView("t")
    query = """
        SELECT n, total, whole, part FROM t MATCH_RECOGNIZE (
            PARTITION BY k ORDER BY at
            MEASURES SUM(x) AS total, FINAL SUM(x) AS whole, CLASSIFIER() AS part
            ALL ROWS PER MATCH PATTERN (a {- b -} c) DEFINE a AS x = 3, c AS x = 2
        )
    """
    assert [tuple(row) for row in sql(spark, query).orderBy("n").collect()] == [
        (0, 3, 6, "a"),
        (2, 6, 6, "c"),
    ]


MEASURES = {
    "CLASSIFIER(a)": "a",
    "array_agg(CLASSIFIER())": ["a", "b", "b", "b"],
    "LAST(CLASSIFIER(), 3)": "a",
    "PREV(CLASSIFIER(), 3)": "a",
    "PREV(LAST(b.x))": 2,
    "any_value(b.x)": 4,
    "round(stddev(b.x), 3)": 1.155,
    "var_pop(a.x)": 0.0,
    "max_by(n, -x)": 2,
    "min_by(b.n, b.x)": 2,
    "sort_array(collect_set(x))": [2, 4],
    "string_agg(x, '-')": "4-4-2-4",
    "listagg(n, ',') WITHIN GROUP (ORDER BY n DESC)": "3,2,1,0",
    "count_if(x > 2)": 3,
    "bool_and(b.x > 2)": False,
    "every(x > 1)": True,
    "median(x)": 4.0,
    "count(DISTINCT x)": 2,
    "SUM(x) FILTER (WHERE n > 0)": 10,
    "COUNT(*) FILTER (WHERE b.x > 2)": 2,
    "array_agg(n) FILTER (WHERE x = 2)": [2],
    "date_format(MATCH_ROWTIME(), 'ss')": "03",
    "min(n, 2)": [0, 1],
    "max(CLASSIFIER(), 2)": ["b", "b"],
    "max(c.x, 2)": None,
    "min_by(n, x, 2)": [2, 0],
    "max_by(CLASSIFIER(), n, 9)": ["b", "b", "b", "a"],
    "map_agg(x, n)": {4: 0, 2: 2},
    "map_agg(c.x, c.n)": None,
    "multimap_agg(CLASSIFIER(), n)": {"a": [0], "b": [1, 2, 3]},
    "map_union(map(x, n))": {4: 0, 2: 2},
    "array_agg(x || (SELECT '!'))": ["4!", "4!", "2!", "4!"],
    "array_agg(x IN (SELECT 2))": [False, False, True, False],
    "array_agg(EXISTS (SELECT 'x'))": [True] * 4,
    "array_agg(CLASSIFIER() || (SELECT '!'))": ["a!", "b!", "b!", "b!"],
    "stddev(c.x)": None,
    "array_agg(nothing)": [None] * 4,
}


def test_measures_are_computed_from_the_rows_of_a_match(spark: SparkSession) -> None:
    rows = [
        {"k": "c", "x": x, "n": n, "at": f"2020-01-01 00:00:{n:02}"}
        for n, x in enumerate([4, 4, 2, 4, 0])
    ]
    batch(spark, rows).selectExpr("*", "null as nothing").createOrReplaceTempView("t")
    measures = ", ".join(f"{said} AS m{place}" for place, said in enumerate(MEASURES))
    query = f"""
        SELECT * FROM t MATCH_RECOGNIZE (
            ORDER BY at MEASURES {measures} PATTERN (a b+ c?)
            DEFINE a AS n = 0, b AS b.x > 0 AND b.k LIKE 'c%', c AS x > 9
        )
    """
    (found,) = sql(spark, query).collect()
    assert dict(zip(MEASURES, found, strict=False)) == MEASURES
    spark.table("t").where("n < 0").createOrReplaceTempView("t")
    assert sql(spark, query).collect() == []


def test_a_batch_may_be_in_any_order_with_anchors_and_rows_behind(spark: SparkSession) -> None:
    rows = [
        {"k": k, "x": x, "n": n, "at": "2020-01-01 00:00:00"}
        for k in "ab"
        for n, x in enumerate([1, 1, 2, 3])
    ]
    batch(spark, rows).createOrReplaceTempView("t")
    query = """
        SELECT * FROM t MATCH_RECOGNIZE (
            PARTITION BY k ORDER BY {order}
            MEASURES array_agg(n) AS ns, NEXT(a.x) AS behind, LAST(x) AS least
            PATTERN (^ a b+ {end}) DEFINE b AS b.x < PREV(x) OR NEXT(x) IS NOT NULL
        )
    """
    falling = sql(spark, query.format(order="x DESC, n DESC", end=""))
    assert falling.columns == ["k", "ns", "behind", "least"]
    expected = [(k, [3, 2, 1], 2, 1) for k in "ab"]
    assert sorted(tuple(row) for row in falling.collect()) == expected
    assert sql(spark, query.format(order="x DESC, n DESC", end="$")).collect() == []
    timed = sql(spark, query.format(order="at, abs(n - 1), n", end=""))
    assert sorted((row.k, row.ns) for row in timed.collect()) == [
        ("a", [1, 0, 2]),
        ("b", [1, 0, 2]),
    ]
    assert timed.columns == ["k", "ns", "behind", "least", "at"]


def test_a_column_that_is_ordered_by_twice_stands_twice(spark: SparkSession) -> None:
    rows = [{"k": "a", "x": x, "n": 0, "at": "2020-01-01 00:00:00"} for x in (1, 2)]
    batch(spark, rows).createOrReplaceTempView("t")
    query = "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY x, x DESC MEASURES LAST(k) AS l {} PATTERN (A) DEFINE A AS x > 1)"
    twice = sql(spark, query.format("ALL ROWS PER MATCH"))
    assert twice.columns[:3] == ["x", "x", "l"]
    assert [tuple(row)[:3] for row in twice.collect()] == [(2, 2, "a")]
    assert sql(spark, query.format("")).columns == ["l"]


def test_a_pattern_in_a_window_is_refused_as_such(spark: SparkSession) -> None:
    window = "WINDOW w AS (ORDER BY id MEASURES LAST(id) AS l PATTERN (A) DEFINE A AS true)"
    with pytest.raises(InvalidSql, match="row pattern in a WINDOW"):
        sql(spark, f"SELECT l OVER w FROM range(3) {window}")


def test_empty_matches_and_unmatched_rows_of_a_batch(spark: SparkSession) -> None:
    rows = [
        {"k": "a", "x": x, "n": n, "at": f"2020-01-01 00:00:0{n}"} for n, x in enumerate([1, 2, 1])
    ]
    batch(spark, rows).createOrReplaceTempView("t")
    query = """
        SELECT {columns} FROM t MATCH_RECOGNIZE (
            PARTITION BY k ORDER BY at
            MEASURES COUNT(*) AS c, MATCH_NUMBER() AS m, LAST(n) AS l, CLASSIFIER() AS who
            {rows} PATTERN ({pattern}) DEFINE b AS x = 2
        )
    """

    def found(columns: str, rows: str, pattern: str) -> list[tuple[Any, ...]]:
        frame = sql(spark, query.format(columns=columns, rows=rows, pattern=pattern))
        return [tuple(row) for row in frame.orderBy("at").collect()]

    assert found("k, c, m, l, who", "ONE ROW PER MATCH", "b*") == [
        ("a", 0, 1, None, None),
        ("a", 1, 2, 1, "b"),
        ("a", 0, 3, None, None),
    ]
    shown = "n, c, m, who"
    assert found(shown, "ALL ROWS PER MATCH OMIT EMPTY MATCHES", "b*") == [(1, 1, 2, "b")]
    assert len(found(shown, "ALL ROWS PER MATCH", "b | ()")) == 3
    assert found(shown, "ALL ROWS PER MATCH WITH UNMATCHED ROWS", "b") == [
        (0, None, None, None),
        (1, 1, 1, "b"),
        (2, None, None, None),
    ]
    assert found(shown, "ALL ROWS PER MATCH", "^+ | b") == [(0, 0, 1, None), (1, 1, 2, "b")]
    assert found(shown, "ALL ROWS PER MATCH WITH UNMATCHED ROWS", "^+ | b") == [
        (0, 0, 1, None),
        (1, 1, 2, "b"),
        (2, None, None, None),
    ]


def test_rows_of_one_time_are_in_one_order_whatever_the_pattern(spark: SparkSession) -> None:
    rows = [
        {"k": k, "x": x, "n": x, "at": "2020-01-01 00:00:00"} for k in "abcdefgh" for x in (0, 1)
    ]
    df = batch(spark, rows)
    found = []
    for first, second in ((0, 1), (1, 0)):
        pattern = Pattern().begin("a", f"x = {first}").followed_by("b", f"x = {second}")
        found.append({row["k"] for row in match(df, pattern, key="k", emit="k").collect()})
    assert not found[0] & found[1]
    assert found[0] | found[1] == set("abcdefgh")


def test_what_does_not_fit_is_refused_before_anything_runs(spark: SparkSession) -> None:
    df = batch(spark, some_events(3, seed=1))
    pattern = Pattern().begin("a", "x = 0").followed_by("b", "x > 1")
    with pytest.raises(UnboundedState, match="may live for ever"):
        match(df, pattern, key="k", strict=True)
    df.createOrReplaceTempView("strict")
    endless = "SELECT * FROM strict MATCH_RECOGNIZE (ORDER BY at PATTERN (a b+) DEFINE b AS x > 1)"
    with pytest.raises(UnboundedState, match="has a loop without an end"):
        sql(spark, endless, strict=True)
    with pytest.raises(UnknownColumn, match='key "card"'):
        match(df, pattern, key="card")
    with pytest.raises(PatternError, match='emits column "x"'):
        match(df, pattern, key="k", emit="k, x")
    with pytest.raises(UnknownColumn, match='block "b" reads column "y"'):
        match(df, Pattern().begin("b", "y = 1"), key="k")
    with pytest.raises(NoTime, match="no timestamp column"):
        match(df.drop("at"), pattern, key="k")
    stream = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    with pytest.warns(UserWarning, match="may live for ever"):
        match(stream, Pattern().begin("a", "value = 0").followed_by("b", "value > 1"))
    with pytest.raises(NoTime, match="no watermark"):
        match(spark.readStream.format("rate").load(), Pattern().begin("a", "value = 0"))


def test_events_without_key_or_time_are_left_out_or_come_out_as_letters(
    spark: SparkSession,
) -> None:
    df = spark.sql(
        """SELECT * FROM VALUES ('k', 1, timestamp'2020-01-01 00:00:01'), (null, 1, timestamp'2020-01-01 00:00:01'), ('k', 2, null)
        AS t(k, x, at)"""
    )
    pattern = Pattern().begin("a", "x = 1")
    assert match(df, pattern, key="k", emit="k, a.x as x").count() == 1
    with_letters = match(
        df, pattern, key="k", emit="k, a.x as x, 'yes' as found", dead_letters=True
    )
    rows = {row.dead_letter: row for row in with_letters.collect()}
    assert {reason: row.found for reason, row in rows.items()} == {
        None: "yes",
        "no key": None,
        "no time": None,
    }
    assert json.loads(rows["no time"].event) == {"k": "k", "x": 2}
    with pytest.raises(DuplicateName, match='output "event"'):
        match(df, pattern, key="k", emit="a.x as event", dead_letters=True)


def test_runs_survive_a_restart_and_end_when_their_time_is_up(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    pattern = (
        Pattern().begin("a", "x = 1").followed_by("b", "x = 2 and n > a.n").within("20 minutes")
    )

    def write(name: str, *rows: tuple[str, int, int, str]) -> None:
        lines = [json.dumps(dict(zip(("k", "x", "n", "at"), row, strict=True))) for row in rows]
        (source / name).write_text("\n".join(lines))

    def run() -> list[tuple[Any, ...]]:
        stream = spark.readStream.schema(SCHEMA).json(str(source)).withWatermark("at", "1 minute")
        found = match(stream, pattern.timeouts(), key="k", emit="k, a.n as a, b.n as b")
        writing = (
            found.writeStream.format("json").option("path", str(out)).trigger(availableNow=True)
        )
        writing.option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        ).start().awaitTermination()
        results = (
            spark.read.schema("k string, a int, b int, timed_out boolean").json(str(out)).collect()
        )
        return sorted((row.k, row.a, row.b, row.timed_out) for row in results)

    write(
        "1.json",
        ("p", 1, 0, "2020-01-01 00:00:00"),
        ("q", 1, 1, "2020-01-01 00:01:00"),
        ("z", 0, 2, "2020-01-01 00:05:00"),
    )
    assert run() == []
    write("2.json", ("p", 2, 3, "2020-01-01 00:10:00"), ("z", 0, 4, "2020-01-01 00:12:00"))
    assert run() == [("p", 0, 3, False)]
    write("3.json", ("z", 0, 5, "2020-01-01 01:00:00"))
    assert run() == [("p", 0, 3, False), ("q", 1, None, True)]


def test_late_events_are_counted_and_come_out_as_letters(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        {"k": "c", "x": 1, "n": 0, "at": "2020-01-01 10:00:00"},
        {"k": "c", "x": 1, "n": 1, "at": "2020-01-01 12:00:00"},
    ]
    rows += [{"k": key, "x": 1, "n": 2, "at": "2020-01-01 09:00:00"} for key in "cdefg"]
    lost = [
        {"k": None, "x": 1, "n": 4, "at": "2020-01-01 12:01:00"},
        {"k": "c", "x": 0, "n": 5, "at": None},
    ]
    late = {"k": "c", "x": 1, "n": 3, "at": "2020-01-01 12:01:00"}

    def find(letters: bool) -> Any:
        pattern = Pattern().begin("a", "x = 1")
        return lambda df: match(
            df, pattern, key="k", emit="k, a.n as n", dead_letters=letters, name="ones"
        )

    found, counts = counted(spark, [*rows, *lost, late], tmp_path / "plain", find(letters=False))
    assert sorted(row["n"] for row in found) == [0, 1, 3]
    assert counts == {"events": 11, "no_key": 1, "no_time": 1, "late": 5}
    found, _ = counted(spark, [*rows, *lost, late], tmp_path / "letters", find(letters=True))
    assert sorted(row["n"] for row in found if row["dead_letter"] is None) == [0, 1, 3]
    letters = Counter(
        (row["dead_letter"], json.loads(row["event"])["n"]) for row in found if row["dead_letter"]
    )
    assert letters == {("late", 2): 5, ("no key", 4): 1, ("no time", 5): 1}


def counted(
    spark: SparkSession, rows: list[dict[str, Any]], folder: Path, find: Any
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Return what comes out of a stream over the rows, and what its progress counted under "ones"."""
    progress: list[str] = []
    found = streamed(spark, rows, folder, find, files=5, progress=progress)
    counts: Counter = Counter()
    for one in progress:
        observed = json.loads(one).get("observedMetrics", {})
        for name in ("ones", "ones late"):
            counts.update(observed.get(name, {}))
    return found, dict(counts)


@pytest.mark.parametrize(("given", "after"), [("65535", "8000"), ("9000", "9000")])
def test_large_methods_are_taken_apart_unless_somebody_has_said_how_large_they_may_be(
    spark: SparkSession, given: str, after: str
) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.codegen.hugeMethodLimit", given)
    frame = batch(own, some_events(10, 1))
    match(frame, Pattern("p").begin("a", "x > 2"), key="k", emit="a.n")
    assert own.conf.get("spark.sql.codegen.hugeMethodLimit") == after
