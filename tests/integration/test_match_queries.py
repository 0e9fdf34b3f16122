"""`ms.sql` over queries of any form: what MATCH_RECOGNIZE reads, what stands around it, and names."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from millstream.errors import DuplicateName, InvalidSql, UnknownColumn
from millstream.patterns.pattern import Pattern, Phenomenon
from millstream.spark.match import match, sql

pytestmark = [pytest.mark.spark]

VALUES = "(VALUES (1, 90), (2, 80), (3, 70), (4, 80)) AS t (id, v)"
#: A valley: its rows' ids, and the labels of its rows.
VALLEY = """
    MATCH_RECOGNIZE (
        {by} ORDER BY id MEASURES array_agg(id) AS ids, string_agg(CLASSIFIER(), '') AS labels
        PATTERN (A B+ C+) DEFINE B AS v < PREV(v), C AS v > PREV(v)
    )
"""
FOUND = ([1, 2, 3, 4], "ABBC")


def rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in sql(spark, query, shards=1).collect()]


def test_a_clause_reads_any_relation_and_any_query_stands_around_it(spark: SparkSession) -> None:
    spark.sql(f"SELECT * FROM {VALUES}").createOrReplaceTempView("`a table`")
    valley, by = VALLEY.format(by=""), VALLEY.format(by="PARTITION BY id % 1, `even`")
    ids = "SELECT 1 AS lo, 'x' AS what"
    queries = {
        f"SELECT * FROM {VALUES} {valley}": [FOUND],
        f"SELECT * FROM `a table` {valley} AS m (x, y) WHERE size(x) > 3": [FOUND],
        f"SELECT m.labels, b.what FROM `a table` {valley} m JOIN ({ids}) b ON b.lo = m.ids[0]": [
            ("ABBC", "x")
        ],
        f"SELECT b.what, m.labels FROM ({ids}) b LEFT JOIN {VALUES} {valley} m ON b.lo = m.ids[0]": [
            ("x", "ABBC")
        ],
        f"""WITH s AS (SELECT * FROM `a table` WHERE id > 1), u AS (SELECT ids FROM s {valley})
            SELECT u.ids, m.ids FROM u, s {valley} m""": [([2, 3, 4], [2, 3, 4])],
        f"""SELECT o.n FROM (SELECT explode(ids) AS id, labels FROM `a table` {valley}) MATCH_RECOGNIZE (
            ORDER BY id MEASURES COUNT() AS n PATTERN (X+) DEFINE X AS labels = 'ABBC') AS o""": [
            (4,)
        ],
        f"""SELECT labels FROM `a table` {valley} UNION ALL SELECT upper(labels) FROM {VALUES}
            {valley} ORDER BY 1""": [("ABBC",), ("ABBC",)],
        f"SELECT *, `id % 1` AS again FROM (SELECT *, v % 2 = 0 AS even FROM {VALUES}) {by}": [
            (0, True, *FOUND, 0)
        ],
        f"SELECT count(*) FROM (SELECT * FROM {VALUES} WHERE id > 9) {valley}": [(0,)],
    }
    assert {query: rows(spark, query) for query in queries} == queries


def test_conditions_and_measures_may_look_at_labels_and_numbers(spark: SparkSession) -> None:
    clause = """
        SELECT {columns} FROM (VALUES (1, 'p'), (2, 'q'), (3, 'r')) AS t (id, s) MATCH_RECOGNIZE (
            ORDER BY id MEASURES {measures} ALL ROWS PER MATCH PATTERN ((A | "b")* X)
            SUBSET U = (A, X) DEFINE X AS {define}
        )
    """
    measures = {
        "array_agg(s || CLASSIFIER())": [["pb"], ["pb", "qA"], ["pb", "qA", "rX"]],
        "max_by(s, lower(CLASSIFIER()))": ["p", "p", "r"],
        "sum(MATCH_NUMBER() * 100 + id)": [101, 203, 306],
        "FINAL count(U.*) - RUNNING count(U.*)": [2, 1, 0],
        "CLASSIFIER(U)": [None, "A", "X"],
        "LAST(upper(CLASSIFIER()) || MATCH_NUMBER())": ["B1", "A1", "X1"],
        "bool_or(CLASSIFIER() LIKE 'A%')": [False, True, True],
        "PREV(lower(CLASSIFIER()))": [None, "b", "a"],
        "NEXT(CLASSIFIER())": ["A", "X", None],
        "avg(if(CLASSIFIER() = 'b', 10, 20))": [10.0, 15.0, 50 / 3],
        "count(*) FILTER (WHERE CLASSIFIER() = 'A')": [0, 1, 1],
    }
    said = ", ".join(f"{measure} AS m{at}" for at, measure in enumerate(measures))
    define = "array_agg(CLASSIFIER()) = array('b', 'A', 'X') AND sum(id) FILTER (WHERE s > 'p') = 5"
    names = ", ".join(f"m{at}" for at in range(len(measures)))
    found = rows(spark, clause.format(columns=names, measures=said, define=define))
    assert dict(zip(measures, map(list, zip(*found, strict=True)), strict=True)) == measures


def test_any_order_missing_keys_and_hostile_names(spark: SparkSession) -> None:
    spark.sql(
        """SELECT * FROM VALUES (null, 2, 'x', null), (null, 1, 'y', null), ('k', null, 'x', null),
        ('k', 1, 'y', null) AS t (`select`, `a ``b.c`, `order by`, nothing)"""
    ).createOrReplaceTempView("hostile")
    query = """
        SELECT * FROM hostile MATCH_RECOGNIZE (
            PARTITION BY `Select` ORDER BY `a ``b.c` {order}, named_struct('x', `order by`)
            MEASURES array_agg(`order by`) AS `from`, any_value(A.nothing) AS `x y`
            PATTERN (A+) DEFINE A AS A.`order by` IN ('x', 'y') AND nothing IS NULL
        )
    """
    first = [(None, ["y", "x"], None), ("k", ["x", "y"], None)]
    assert sorted(rows(spark, query.format(order="NULLS FIRST")), key=str) == sorted(first, key=str)
    last = [(None, ["y", "x"], None), ("k", ["y", "x"], None)]
    assert sorted(rows(spark, query.format(order="NULLS LAST")), key=str) == sorted(last, key=str)
    bare = "SELECT n FROM hostile MATCH_RECOGNIZE (MEASURES count(*) AS n PATTERN (A+) DEFINE A AS true)"
    assert rows(spark, bare) == [(4,)]
    with pytest.raises(InvalidSql, match="no MATCH_RECOGNIZE"):
        sql(spark, "SELECT 1")
    with pytest.raises(InvalidSql, match="no such table or view"):
        sql(spark, bare.replace("hostile", "missing"))
    with pytest.raises(InvalidSql, match="cannot be computed"):
        sql(spark, bare.replace("hostile", "(SELECT x)"))
    with pytest.raises(DuplicateName, match='two columns "a"'):
        sql(spark, bare.replace("hostile", "(SELECT 1 AS a, 2 AS a)"))
    with pytest.raises(UnknownColumn, match='"other" in PARTITION BY'):
        sql(spark, query.replace("`Select`", "other").format(order=""))


def test_the_patterns_of_a_phenomenon_may_emit_different_columns(spark: SparkSession) -> None:
    events = "SELECT id AS x, timestamp_seconds(id) AS at FROM range(1, 4)"
    up = Pattern("up").begin("a", "x > 2").emit("a.x as peak")
    down = Pattern("down").begin("b", "x < 2").emit("'low' as what, b.x as peak")
    bobo = Pattern("bobo").begin("a", "x = 1").not_next("b", "x = 9").next("c", "x = 3")
    both = Phenomenon("both", (up, down, bobo.emit("c.x as peak").like_bobocep()))
    found = match(spark.sql(events), both, shards=1).drop("at").collect()
    assert sorted(map(tuple, found), key=str) == [
        (1, "low", "down"),
        (3, None, "bobo"),
        (3, None, "up"),
    ]
