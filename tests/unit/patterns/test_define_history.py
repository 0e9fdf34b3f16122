"""Conditions in DEFINE that look at every row of the match: labels, lists, and the match's number."""

from __future__ import annotations

import pyarrow as pa
import pytest

from millstream.errors import ConditionFailed, InvalidCondition, UnknownBlock, UnsupportedSql
from millstream.flow.schema import Schema
from millstream.patterns import events
from millstream.patterns.automaton import FOREVER
from millstream.patterns.batches import Batch
from millstream.patterns.match_recognize import read
from millstream.patterns.matcher import Matcher, PlainMatcher, matcher, remembering
from millstream.patterns.search import SearchMatcher

schema = Schema.parse("n int, x int, s string, at timestamp")


def clause(pattern: str, define: str, more: str = "", skip: str = "") -> str:
    return f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at {skip} PATTERN ({pattern}) {more} DEFINE {define})"


def found(sql: str, *xs: int, batch: bool = True, made: Matcher | None = None) -> list[str]:
    """Return the matches as "place label place label ..."; x is the number, s a letter for it."""
    automaton = read(sql, schema, batch=batch)[1].automaton
    at = pa.array(range(len(xs)), pa.timestamp("us"))
    letters = ["abcdefghijklmnopqrstuvwxyz"[x] for x in xs]
    rows = pa.table({"n": pa.array(range(len(xs)), pa.int32()), "x": xs, "s": letters, "at": at})
    columns = events.values(automaton, rows)
    made = made or matcher(automaton, [column.type for column in columns])
    masks = events.met(automaton, rows).astype("int64")
    whole = Batch(pa.array(["k"] * len(xs)), events.micros(rows.column("at")), masks, columns, rows)
    some = made.process(made.empty(pa.string(), rows.schema), whole, FOREVER)[1]
    shown = [
        f"{n}{automaton.blocks[block]}"
        for n, block in zip(some.rows.column("n").to_pylist(), some.blocks, strict=True)
    ]
    return [" ".join(shown[a:z]) for a, z in zip(some.starts, some.ends, strict=True)]


@pytest.mark.parametrize(
    ("condition", "labels"),
    [
        ("FIRST(CLASSIFIER()) = 'B' AND FIRST(CLASSIFIER(), 1) = 'A'", "0B 1A 2X"),
        ("LAST(CLASSIFIER(), 2) = 'B' AND LAST(CLASSIFIER(), 1) = 'B'", "0B 1B 2X"),
        ("PREV(CLASSIFIER()) = 'B' AND PREV(CLASSIFIER(), 2) = 'A'", "0A 1B 2X"),
        ("PREV(LAST(CLASSIFIER(), 1)) = 'B'", "0B 1A 2X"),
        ("CLASSIFIER(U) = 'B' AND FIRST(CLASSIFIER(U)) = 'A'", "0A 1B 2X"),
        ("CLASSIFIER() = 'X' AND COUNT(*) = 3", "0A 1A 2X"),
        ("array_agg(CLASSIFIER()) = array('B', 'A', 'X')", "0B 1A 2X"),
        ("array_join(array_agg(lower(CLASSIFIER())), '') = 'bax'", "0B 1A 2X"),
        ("array_agg(s || CLASSIFIER()) = array('bB', 'cA', 'dX')", "0B 1A 2X"),
        ("try_element_at(array_agg(CLASSIFIER()), 2) = 'B'", "0A 1B 2X"),
        ("min(lower(CLASSIFIER())) = 'b'", "0B 1B 2X"),
        ("max_by(CLASSIFIER(), -x) = 'B' AND COUNT(*) = 3", "0B 1A 2X"),
        ("bool_or(CLASSIFIER() LIKE '%B') AND PREV(CLASSIFIER()) LIKE 'A%'", "0B 1A 2X"),
        ("COUNT(DISTINCT CLASSIFIER()) = 3", "0A 1B 2X"),
        ("COUNT(DISTINCT CLASSIFIER(U)) = 1 AND COUNT(*) = 3 AND A.x IS NULL", "0B 1B 2X"),
        ("FIRST(s, 1) = 'c' AND LAST(B.x) = 1 AND COUNT(A.*) = 1", "0B 1A 2X"),
        ("FIRST(U.x, 1) - FIRST(U.x) = 1", "0A 1A 2X"),
        ("PREV(FIRST(x, 2)) = 2", "0A 1A 2X"),
        ("FIRST(CLASSIFIER() = 'B') AND COUNT(*) = 3", "0B 1A 2X"),
        ("string_agg(s, '-') = 'b-c-d'", "0A 1A 2X"),
        ("sum(MATCH_NUMBER() * x) = 6", "0A 1A 2X"),
        ("MATCH_NUMBER() = 1 AND COUNT(*) = 3", "0A 1A 2X"),
        ("max(x - 2 * MATCH_NUMBER()) = 1", "0A 1A 2X"),
        ("sum(MATCH_NUMBER()) = 3 AND min(MATCH_NUMBER() + 100) = 101", "0A 1A 2X"),
        ("max_by(MATCH_NUMBER(), CLASSIFIER()) = 1 AND COUNT(*) = 3", "0A 1A 2X"),
        ("CAST(MATCH_NUMBER() AS string) = '1' AND COUNT(*) = 3", "0A 1A 2X"),
        ("round(stddev(x), 1) = 1.0 AND median(x) = 2", "0A 1A 2X"),
        ("NEXT(CLASSIFIER()) IS NULL AND COUNT(*) = 3", "0A 1A 2X"),
        ("COUNT() = 3", "0A 1A 2X"),
        ("any_value(B.x) = 2 AND every(x > 0)", "0A 1B 2X"),
        ("collect_set(x % 2) = array(1, 0)", "0A 1A 2X"),
        ("array_join(min(CLASSIFIER(), 2), '') = 'BB'", "0B 1B 2X"),
        ("array_join(max(CLASSIFIER(), 9), '') = 'XBA'", "0A 1B 2X"),
        ("min(B.x, 2) IS NULL AND max(x, 2) = array(3, 2)", "0A 1A 2X"),
        ("array_join(min_by(CLASSIFIER(), x, 2), '') = 'BA'", "0B 1A 2X"),
        ("max_by(CLASSIFIER(), x, 2) = array('X', 'B')", "0A 1B 2X"),
        ("element_at(map_agg(x, CLASSIFIER()), 1) = 'B' AND COUNT(*) = 3", "0B 1A 2X"),
        ("element_at(map_agg(1, s), 1) = 'b' AND COUNT(*) = 3", "0A 1A 2X"),
        ("array_join(element_at(multimap_agg(CLASSIFIER(), s), 'B'), '') = 'bc'", "0B 1B 2X"),
        ("array_max(array_agg(x)) = 3", "0A 1A 2X"),
        ("array_max(array(MATCH_NUMBER(), 1)) = 1 AND COUNT(*) = 3", "0A 1A 2X"),
        ("IF(false, 0 / 0, COUNT(*)) = 3", "0A 1A 2X"),
    ],
)
def test_conditions_over_every_row_of_a_match(condition, labels):
    sql = clause("(A | B)* X", f"X AS {condition}", "SUBSET U = (A, B)")
    assert found(sql, 1, 2, 3) == [labels]
    if "MATCH_NUMBER" not in condition and "NEXT" not in condition:
        automaton = read(sql, schema)[1].automaton
        plain = remembering(automaton, PlainMatcher(automaton))
        assert found(sql, 1, 2, 3, batch=False, made=plain) == [labels]


def test_the_number_of_a_match_counts_those_before_and_empty_ones():
    assert found(clause("A", "A AS MATCH_NUMBER() = x"), 1, 1, 2, 1, 3) == ["0A", "2A", "4A"]
    assert found(clause("A*", "A AS MATCH_NUMBER() = x"), 9, 2, 1, 4, 9) == ["1A", "3A"]
    skip = "AFTER MATCH SKIP TO NEXT ROW"
    sql = clause("A B", "A AS MATCH_NUMBER() < 3", skip=skip)
    assert found(sql, 1, 1, 1, 1, 1) == ["0A 1B", "1A 2B"]


def test_a_search_finds_what_the_plain_matcher_finds():
    define = "B AS x < PREV(x), C AS x > LAST(B.x)"
    for more in ("", "WITHIN INTERVAL '0.000003' SECOND"):
        for skip in ("PAST LAST ROW", "TO NEXT ROW", "TO FIRST C", "TO LAST B"):
            sql = clause("A B+ C+? D", define + ", D AS x > 2", more, f"AFTER MATCH SKIP {skip}")
            automaton = read(sql, schema, batch=True)[1].automaton
            xs = [5, 3, 1, 4, 2, 6, 5, 3, 4, 1, 2, 3]
            search = remembering(automaton, SearchMatcher(automaton))
            plain = remembering(automaton, PlainMatcher(automaton))
            assert found(sql, *xs, made=search) == found(sql, *xs, made=plain)


def test_what_was_tried_in_vain_is_not_tried_again():
    sql = clause("((A | B)+)+ X", "X AS PREV(CLASSIFIER()) = 'C'")
    assert found(sql, *[1] * 12) == []
    assert found(clause("((A+)+)+ X", "X AS x = 2 AND FIRST(x, 1) = 1"), *[1] * 60) == []


@pytest.mark.parametrize(
    ("define", "error", "said"),
    [
        ("X AS sum(A.x + B.x) > 1", InvalidCondition, "mixes the blocks a, b"),
        ("X AS array_agg(A.s || CLASSIFIER()) IS NULL", InvalidCondition, "mixes column"),
        ("X AS array_agg(A.s || CLASSIFIER(B)) IS NULL", InvalidCondition, "mixes the blocks"),
        ("X AS CLASSIFIER(W) = 'A'", UnknownBlock, r"CLASSIFIER\(W\)"),
        ("X AS sum(PREV(x)) > 1", UnsupportedSql, "inside of"),
        ("X AS PREV(sum(x)) > 1", UnsupportedSql, "inside of"),
        ("X AS max(DISTINCT x) > 1", InvalidCondition, "takes no DISTINCT"),
        ("X AS array_agg(sentences(CLASSIFIER())) IS NULL", InvalidCondition, "does not compute"),
    ],
)
def test_what_sql_forbids_is_refused_with_the_reason(define, error, said):
    with pytest.raises(error, match=said):
        read(clause("(A | B)* X", define), schema, batch=True)


def test_a_stream_does_not_know_the_number_of_a_match_beforehand():
    with pytest.raises(UnsupportedSql, match="MATCH_NUMBER in DEFINE"):
        read(clause("A", "A AS MATCH_NUMBER() = 1", "WITHIN INTERVAL '1' DAY"), schema)


def test_a_function_that_fails_says_of_which_condition():
    sql = clause("A+ X", "X AS element_at(array_agg(x), 5) = 1")
    with pytest.raises(ConditionFailed, match=r"(?i)element_at") as caught:
        found(sql, 1, 2, 3)
    assert "could not be computed: there is no place 5" in str(caught.value)
