"""What SQL forbids in a MATCH_RECOGNIZE clause is refused with the reason."""

from __future__ import annotations

import pytest

from millstream.errors import DuplicateName, FlowError, UnknownBlock, UnsupportedSql
from millstream.flow.schema import Schema
from millstream.patterns.match_recognize import read

schema = Schema.parse("id int, x int, s string")


def clause(
    measures: str = "",
    rows: str = "",
    pattern: str = "A B+",
    subset: str = "",
    define: str = "B AS true",
) -> str:
    measures = f"MEASURES {measures}" if measures else ""
    return f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id {measures} {rows} PATTERN ({pattern}) {subset} DEFINE {define})"


@pytest.mark.parametrize(
    ("parts", "error", "said"),
    [
        ({"define": "B AS true, b AS x > 1"}, DuplicateName, 'defines "b" twice'),
        ({"measures": "x AS m, id AS M"}, DuplicateName, 'measure "m" twice'),
        ({"subset": "SUBSET U = (A), u = (B)"}, FlowError, '"u" twice'),
        ({"subset": "SUBSET A = (B)"}, DuplicateName, 'variable "a" as a SUBSET'),
        ({"subset": "SUBSET U = (A), V = (U)"}, UnknownBlock, '"u" in SUBSET'),
        (
            {"pattern": "{- A -} B+", "rows": "ALL ROWS PER MATCH WITH UNMATCHED ROWS"},
            UnsupportedSql,
            "exclusion",
        ),
        ({"measures": "FIRST(x, 1, 2) AS m"}, UnsupportedSql, r"FIRST\(x, 1, 2\)"),
        ({"measures": "PREV() AS m"}, UnsupportedSql, r"PREV\(\)"),
        ({"measures": "FIRST(x, -1) AS m"}, UnsupportedSql, "offset in FIRST"),
        ({"measures": "CLASSIFIER(A, B) AS m"}, UnsupportedSql, "CLASSIFIER"),
        ({"measures": "CLASSIFIER('A') AS m"}, UnsupportedSql, "CLASSIFIER"),
        ({"define": "B AS MATCH_NUMBER(1) = 1"}, UnsupportedSql, "MATCH_NUMBER"),
        ({"measures": "FIRST(LAST(x)) AS m"}, UnsupportedSql, "inside of FIRST"),
        ({"measures": "LAST(PREV(x)) AS m"}, UnsupportedSql, "inside of LAST"),
        ({"define": "B AS FIRST(sum(x)) > 1"}, UnsupportedSql, "inside of FIRST"),
        ({"measures": "A.* AS m"}, UnsupportedSql, "as a measure"),
        (
            {"measures": "FIRST(concat(CLASSIFIER(A), B.s)) AS m"},
            FlowError,
            "mixes the blocks a, b",
        ),
        ({"measures": "array_agg(A.s || CLASSIFIER()) AS m"}, FlowError, "mixes column"),
    ],
)
def test_what_sql_forbids_is_refused(parts, error, said):
    with pytest.raises(error, match=said):
        read(clause(**parts), schema, batch=True)


def test_functions_may_be_nested_as_sql_allows():
    measures = "PREV(FIRST(x, 1), 2) AS a, FINAL LAST(A.x) - RUNNING LAST(x) AS b, PREV(RUNNING LAST(x)) AS c"
    found = read(clause(measures, define="B AS PREV(RUNNING LAST(x)) < x"), schema, batch=True)[1]
    assert found.outputs.names == ("a", "b", "c")
