import pytest

import millstream as ms
from millstream.errors import (
    DuplicateColumn,
    InvalidSql,
    StatefulSql,
    TimeDropped,
    UnknownColumn,
    UnknownStream,
)
from millstream.flow.query import choice_of


@pytest.fixture
def rows() -> ms.Stream:
    ddl = "a int, b int, s string, xs array<int>, place struct<city:string>, at timestamp"
    return ms.Flow("f").source("rows", ms.inbox(ddl), time="at", key="s")


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT * FROM rows", ("a", "b", "s", "xs", "place", "at")),
        (
            "SELECT * FROM rows WHERE s IN ('x', 'y') AND a BETWEEN 1 AND 2",
            ("a", "b", "s", "xs", "place", "at"),
        ),
        ("SELECT r.*, a + b AS total FROM rows r", ("a", "b", "s", "xs", "place", "at", "total")),
        ("SELECT * EXCEPT (xs, place) FROM rows", ("a", "b", "s", "at")),
        ("SELECT at, a AS x, x + 1 AS y FROM rows", ("at", "x", "y")),
        ("SELECT at, explode(xs) AS x FROM rows", ("at", "x")),
        ("SELECT at, place.city FROM rows", ("at", "city")),
        ("SELECT at, cast(a AS string) FROM rows", ("at", "a")),
        ("SELECT at, transform(xs, x -> x + a) AS ys FROM rows", ("at", "ys")),
        ("WITH big AS (SELECT a, at FROM rows WHERE a > 9) SELECT * FROM big", ("a", "at")),
        ("SELECT a, at FROM (SELECT * FROM rows) WHERE a > 1", ("a", "at")),
        ("SELECT AT, a FROM rows", ("AT", "a")),
    ],
)
def test_a_query_tells_its_columns(rows, query, names):
    assert rows.sql("q", query).columns == names


def test_the_types_that_are_plain_to_see_are_kept(rows):
    schema = rows.sql(
        "q", "SELECT at, r.a AS x, cast(b AS double) AS y, a * 2 AS z FROM rows AS r"
    ).schema
    assert [field.type for field in schema] == ["timestamp", "int", "double", None]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT at, a + 1 FROM rows",
        "SELECT at, place.* FROM rows",
        "SELECT at, x FROM rows LATERAL VIEW explode(xs) t AS x",
    ],
)
def test_columns_that_only_spark_can_name_are_left_to_it(rows, query):
    stream = rows.sql("q", query)
    assert stream.schema is None
    assert stream.time == "at"


def test_the_time_column_is_known_by_its_new_spelling(rows):
    assert rows.sql("q", "SELECT AT, a FROM rows").time == "AT"


def test_a_key_that_is_not_selected_is_gone(rows):
    assert rows.sql("q", "SELECT s, at FROM rows").key == "s"
    assert rows.sql("p", "SELECT a, at FROM rows").key is None


@pytest.mark.parametrize(
    ("query", "what", "instead"),
    [
        ("SELECT max(at) AS at FROM rows GROUP BY a", "GROUP BY", "window"),
        ("SELECT DISTINCT at FROM rows", "DISTINCT", "distinct"),
        ("SELECT at FROM rows LIMIT 3", "LIMIT", "leave it out"),
        ("SELECT at FROM rows ORDER BY a", "ORDER BY", "leave it out"),
        ("SELECT at FROM rows SORT BY a", "SORT BY", "leave it out"),
        (
            "SELECT at, row_number() OVER (PARTITION BY a ORDER BY at) AS n FROM rows",
            "window function",
            "fold",
        ),
        ("SELECT at FROM rows JOIN rows AS r ON rows.a = r.a", "a join", "join"),
        ("SELECT at FROM rows, rows AS r", "a join", "join"),
        ("SELECT count(*) AS n FROM rows", 'aggregate "count(*)"', "window"),
        ("SELECT at FROM rows UNION ALL SELECT at FROM rows", "UNION", "merge"),
        ("SELECT at FROM rows WHERE a IN (SELECT b FROM rows)", "subquery", "join"),
        ("SELECT at FROM rows WHERE EXISTS (SELECT 1 FROM rows)", "subquery", "join"),
        ("SELECT at, (SELECT 1) AS x FROM rows", "subquery", "join"),
        ("SELECT at FROM (SELECT DISTINCT at FROM rows)", "DISTINCT", "distinct"),
    ],
)
def test_a_query_that_needs_state_is_refused_with_the_stage_to_use(rows, query, what, instead):
    with pytest.raises(StatefulSql) as caught:
        rows.sql("q", query)
    assert what in caught.value.message
    assert instead in caught.value.hint


def test_a_query_that_drops_the_time_says_how_to_keep_it(rows):
    with pytest.raises(TimeDropped) as caught:
        rows.sql("q", "SELECT a, b FROM rows")
    assert caught.value.message == 'stage "q" of flow "f" drops the time column "at"'
    assert caught.value.hint == 'add "at" to the SELECT list'


@pytest.mark.parametrize(
    "query",
    ["SELECT date_trunc('hour', at) AS at FROM rows", "SELECT at AS began, a AS at FROM rows"],
)
def test_a_query_that_changes_the_time_is_refused(rows, query):
    with pytest.raises(TimeDropped, match="into the time column"):
        rows.sql("q", query)


def test_a_stream_without_time_may_drop_what_it_likes():
    rows = ms.Flow("f").source("rows", ms.inbox("a int, at timestamp"))
    assert rows.sql("q", "SELECT a FROM rows").columns == ("a",)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("SELECT at, dealy FROM rows", "dealy"),
        ("SELECT at FROM rows WHERE c > 1", "c"),
        ("SELECT at, q.a FROM rows", "q"),
        ("SELECT at, transform(xs, x -> y) AS ys FROM rows", "y"),
        ("SELECT at FROM (SELECT at, a FROM rows) WHERE b > 1", "b"),
    ],
)
def test_an_unknown_column_is_found_wherever_it_stands(rows, query, name):
    with pytest.raises(UnknownColumn, match=f'column "{name}"'):
        rows.sql("q", query)


def test_two_columns_of_one_name_are_refused(rows):
    with pytest.raises(DuplicateColumn, match='two columns "a"'):
        rows.sql("q", "SELECT at, a, b AS a FROM rows")


@pytest.mark.parametrize(
    "query", ["SELECT at FROM others", "SELECT at FROM db.rows", "SELECT at FROM Rows"]
)
def test_a_query_reads_its_own_stream_only(rows, query):
    with pytest.raises(UnknownStream) as caught:
        rows.sql("q", query)
    assert caught.value.hint == "write FROM rows"


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO x SELECT * FROM rows",
        "a + 1",
        "SELECT 1 AS at",
        "SELECT FROM",
        "DROP TABLE rows",
    ],
)
def test_what_is_not_a_query_over_the_stream_is_refused(rows, query):
    with pytest.raises(InvalidSql):
        rows.sql("q", query)


def test_a_stream_with_a_dash_in_its_name_is_quoted_in_the_query():
    rows = ms.Flow("f").source("my-rows", ms.inbox("a int, at timestamp"), time="at")
    assert rows.sql("q", "SELECT * FROM `my-rows`").columns == ("a", "at")
    with pytest.raises(UnknownStream, match="my-rows"):
        rows.sql("p", "SELECT * FROM rows")


@pytest.mark.parametrize(
    ("query", "items", "condition"),
    [
        ("SELECT * FROM rows", "*", "TRUE"),
        ("select * from ROWS where a > 1 -- not b", "*", "a > 1"),
        ("SELECT * FROM `rows` WHERE s = 'x' OR b IS NULL", "*", "s = 'x' OR b IS NULL"),
        ("SELECT a, b.*, upper(s) AS t FROM rows WHERE b", "a, b.*, UPPER(s) AS t", "b"),
        ("SELECT * EXCEPT (b), a AS x FROM rows", "* EXCEPT (b), a AS x", "TRUE"),
    ],
)
def test_a_query_may_only_choose(query, items, condition):
    found = choice_of(query, "rows")
    assert found is not None
    assert ", ".join(one.sql(dialect="spark") for one in found[0]) == items
    assert found[1].sql(dialect="spark", comments=False) == condition


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT * FROM rows",
        "SELECT explode(xs) AS x FROM rows",
        "SELECT a, count(*) FROM rows GROUP BY a",
        "SELECT /*+ REPARTITION(3) */ * FROM rows",
        "SELECT * FROM rows r WHERE r.a > 1",
        "SELECT * FROM rows TABLESAMPLE (10 PERCENT)",
        "SELECT * FROM rows LIMIT 1",
        "SELECT * FROM rows LATERAL VIEW explode(xs) AS x",
        "SELECT * FROM (SELECT * FROM rows)",
        "SELECT * FROM other",
        "SELECT * FROM db.rows",
        "WITH big AS (SELECT * FROM rows) SELECT * FROM big",
        "WITH rows AS (SELECT * FROM rows WHERE a > 1) SELECT * FROM rows",
        "SELECT * FROM rows, rows",
        "SELECT * FROM rows UNION ALL SELECT * FROM rows",
        "SELECT * FROM rows ORDER BY a",
        "VALUES (1)",
    ],
)
def test_a_query_that_does_more_is_known(query):
    assert choice_of(query, "rows") is None
