"""Clauses of a query as text: what each reads, and what is left where it stood."""

from __future__ import annotations

import pytest

from millstream.errors import InvalidSql
from millstream.patterns.relations import first_clause

CLAUSE = "MATCH_RECOGNIZE (PATTERN (a) DEFINE a AS true)"


def apart(sql: str) -> tuple[list[str], str]:
    """Return what each clause reads, innermost first, and the query over tables m1, m2, ..."""
    read: list[str] = []
    while (clause := first_clause(sql)) is not None:
        read.append(clause.reading.removeprefix("SELECT * FROM "))
        sql = clause.replaced(sql, f"m{len(read)}")
    return read, sql


@pytest.mark.parametrize(
    ("sql", "read", "left"),
    [
        (f"SELECT * FROM t {CLAUSE}", ["t"], "SELECT * FROM m1 AS `t`"),
        (f"SELECT * FROM t {CLAUSE} AS m WHERE x", ["t"], "SELECT * FROM m1 AS m WHERE x"),
        (f"SELECT * FROM t {CLAUSE} WHERE x", ["t"], "SELECT * FROM m1 AS `t` WHERE x"),
        (f"SELECT * FROM db.t u {CLAUSE} m", ["db.t u"], "SELECT * FROM m1 m"),
        (f"SELECT * FROM `a ``b` {CLAUSE}", ["`a ``b`"], "SELECT * FROM m1 AS `a ``b`"),
        (f"SELECT * FROM range(5) {CLAUSE}", ["range(5)"], "SELECT * FROM m1 AS `range`"),
        (f"SELECT * FROM range(5) r {CLAUSE}", ["range(5) r"], "SELECT * FROM m1 AS `r`"),
        (
            f"SELECT * FROM (VALUES (1, 2)) t (id, v) {CLAUSE} AS m (x)",
            ["(VALUES (1, 2)) t (id, v)"],
            "SELECT * FROM m1 AS m (x)",
        ),
        (
            f"SELECT * FROM u JOIN (SELECT 1) AS s {CLAUSE} ON true, t {CLAUSE} AS n",
            ["(SELECT 1) AS s", "t"],
            "SELECT * FROM u JOIN m1 AS `s` ON true, m2 AS n",
        ),
        (
            f"SELECT * FROM (SELECT * FROM t {CLAUSE}) AS o {CLAUSE}",
            ["t", "(SELECT * FROM m1 AS `t`) AS o"],
            "SELECT * FROM m2 AS `o`",
        ),
        (
            f"WITH t (a) AS (VALUES (1)), u AS (SELECT * FROM t {CLAUSE}) SELECT * FROM u {CLAUSE}",
            [
                "WITH t (a) AS (VALUES (1)) SELECT * FROM t",
                "WITH t (a) AS (VALUES (1)), u AS (SELECT * FROM m1 AS `t`) SELECT * FROM u",
            ],
            "WITH t (a) AS (VALUES (1)), u AS (SELECT * FROM m1 AS `t`) SELECT * FROM m2 AS `u`",
        ),
        (
            f"SELECT * FROM (WITH q AS (SELECT 1) SELECT * FROM q) z, t {CLAUSE}",
            ["t"],
            "SELECT * FROM (WITH q AS (SELECT 1) SELECT * FROM q) z, m1 AS `t`",
        ),
    ],
)
def test_a_clause_is_cut_out_with_what_it_reads(sql, read, left):
    assert apart(sql) == (read, left)


def test_a_query_without_a_clause_has_none():
    assert first_clause("SELECT match_recognize FROM t") is None
    assert first_clause("SELECT 'MATCH_RECOGNIZE (' FROM t") is None


@pytest.mark.parametrize("sql", [f"SELECT {CLAUSE}", CLAUSE, "SELECT * FROM t MATCH_RECOGNIZE ("])
def test_what_cannot_be_read_is_refused(sql):
    with pytest.raises(InvalidSql):
        first_clause(sql)
