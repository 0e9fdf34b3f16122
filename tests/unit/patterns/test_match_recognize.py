"""The MATCH_RECOGNIZE clause: what is read, what it finds, and what is refused with the reason."""

from __future__ import annotations

import pyarrow as pa
import pytest

from millstream.errors import (
    ConditionFailed,
    InvalidCondition,
    InvalidSql,
    PatternError,
    UnknownBlock,
    UnknownColumn,
    UnsupportedSql,
)
from millstream.flow.schema import Schema
from millstream.patterns import events
from millstream.patterns.automaton import FOREVER, Automaton
from millstream.patterns.batches import Batch
from millstream.patterns.history import Node, evaluate
from millstream.patterns.match_recognize import read
from millstream.patterns.matcher import Matcher, PlainMatcher, matcher, remembering
from millstream.patterns.pattern import Skip

schema = Schema.parse("sym string, price int, at timestamp")


def clause(
    pattern: str = "a b", define: str = "a AS price = 1, b AS price = 2", **parts: str
) -> str:
    said = {
        "partition": "PARTITION BY sym",
        "order": "ORDER BY at",
        "measures": "",
        "rows": "",
        "skip": "",
        **parts,
    }
    front = " ".join(said[name] for name in ("partition", "order", "measures", "rows", "skip"))
    return f"SELECT * FROM trades MATCH_RECOGNIZE ({front} PATTERN ({pattern}) {said.get('after', '')} DEFINE {define})"


def found(sql: str, *prices: int) -> list[str]:
    """Return the places of the rows of each match, in two batches: the kernel and the plain matcher find the same."""
    automaton = read(sql, schema)[1].automaton
    at = [second * 1_000_000 for second in range(len(prices))]
    rows = pa.table({"price": pa.array(prices, pa.int64()), "at": pa.array(at, pa.timestamp("us"))})
    rows = rows.append_column("number", pa.array(range(len(prices))))
    kernel = matcher(automaton, [column.type for column in events.values(automaton, rows)])
    assert kernel.compiled
    shown = in_two_batches(automaton, kernel, rows)
    assert in_two_batches(automaton, remembering(automaton, PlainMatcher(automaton)), rows) == shown
    return shown


def in_two_batches(automaton: Automaton, made: Matcher, rows: pa.Table) -> list[str]:
    kept, shown = made.empty(pa.string(), rows.schema), []
    half = len(rows) // 2
    for part, watermark in ((rows.slice(0, half), 0), (rows.slice(half), 10**15)):
        masks = events.met(automaton, part).astype("int64")
        batch = Batch(
            pa.array(["k"] * len(part)),
            events.micros(part.column("at")),
            masks,
            events.values(automaton, part),
            part,
        )
        kept, some = made.process(made.load(made.dump(kept)), batch, watermark)
        numbers = some.rows.column("number").to_pylist()
        shown += [
            " ".join(map(str, numbers[a:z])) for a, z in zip(some.starts, some.ends, strict=True)
        ]
    return shown


def test_the_parts_of_the_clause_are_read():
    sql = clause(
        pattern="a b+? {- c -}",
        measures="MEASURES FIRST(a.price) AS f, FINAL LAST(b.price, 1) AS l, CLASSIFIER() AS c, MATCH_NUMBER() AS m",
        rows="ALL ROWS PER MATCH",
        skip="AFTER MATCH SKIP TO FIRST b",
        after="WITHIN INTERVAL '5' MINUTE SUBSET u = (a, b)",
    )
    recognition = read(sql, schema)[1]
    assert (recognition.table, recognition.partition, recognition.order) == (
        "trades",
        ("sym",),
        "at",
    )
    assert recognition.all_rows
    assert [piece.final for piece in recognition.outputs.pieces] == [False, True, False, False]
    automaton = recognition.automaton
    assert (automaton.skip, automaton.within, automaton.numbered) == (
        Skip("to_first", "b"),
        300_000_000,
        True,
    )
    assert dict(automaton.names)["u"] == frozenset([0, 1])
    assert automaton.hidden == frozenset([2])
    assert recognition.outputs.names == ("f", "l", "c", "m")


def test_a_greedy_quantifier_prefers_more_and_a_reluctant_one_less():
    define = "a AS price = 1, b AS price >= 1"
    assert found(clause("a b+", define, after="WITHIN INTERVAL '1' HOUR"), 1, 2, 3, 0) == ["0 1 2"]
    assert found(clause("a b+?", define), 1, 2, 3, 0) == ["0 1"]


def test_prev_looks_at_the_row_before_even_outside_of_the_match():  # V: strt down+ up+
    define = "down AS down.price < PREV(down.price), up AS price > PREV(price)"
    assert found(clause("strt down+ up+", define), 9, 7, 5, 8, 9, 1, 0) == ["0 1 2 3 4"]
    assert found(clause("down", "down AS price < PREV(price, 2)"), 9, 1, 5, 8, 9, 1) == ["2", "5"]


def test_prev_looks_at_rows_that_meet_nothing():
    assert found(clause("a", "a AS price > 5 AND price < PREV(price)"), 9, 7, 1, 8, 9, 6) == [
        "1",
        "5",
    ]


def test_last_with_an_offset_counts_the_rows_of_its_variable():  # as Flink's queries say it, which have no PREV
    define = "down AS LAST(down.price, 1) IS NULL OR price < LAST(down.price, 1), up AS price > LAST(down.price)"
    assert found(clause("strt down+ up", define), 1, 9, 7, 5, 8, 9) == ["0 1 2 3 4"]
    define = "a AS COALESCE(LAST(a.price, 2) + LAST(a.price, 1) = price, TRUE), b AS price = 0"
    assert found(clause("a{3,} b", define), 5, 1, 1, 2, 3, 5, 0) == ["1 2 3 4 5 6"]
    assert found(clause("a b c", "c AS LAST(price, 2) = price"), 1, 2, 3, 2, 9) == ["1 2 3"]


def test_one_and_true_are_not_the_same():
    assert evaluate(Node("literal", of=1), (), (), ()) == 1
    assert evaluate(Node("literal", of=True), (), (), ()) is True
    define = "a AS COALESCE(LAST(a.price, 1), {}) = {}, b AS price = 0"
    assert found(clause("a b", define.format(1, 1)), 7, 0) == ["0 1"]
    assert found(
        clause("a b", "a AS COALESCE(LAST(a.price, 1) = 1, TRUE), b AS price = 0"), 7, 0
    ) == ["0 1"]


def test_parts_that_mean_the_same_are_not_followed_twice():
    define = "a AS price > 0, b AS price > 0"
    assert found(clause("(a | b)+ c", define + ", c AS price = 0"), *[1] * 60, 0) == [
        " ".join(map(str, range(61)))
    ]


def test_aggregates_in_define_count_the_row_itself():
    assert found(
        clause("a+ b", "a AS SUM(a.price) < 10, b AS price > AVG(a.price)"), 4, 5, 9, 1
    ) == ["0 1 2"]


def whole(sql: str, *prices: int) -> list[str]:
    """Return the places of the rows of each match in a batch, which two keys share."""
    automaton = read(sql, schema, batch=True)[1].automaton
    at = pa.array(range(len(prices)), pa.timestamp("us"))
    rows = pa.table({"price": pa.array(prices, pa.int64()), "at": at, "number": range(len(prices))})
    columns = events.values(automaton, rows)
    shown = []
    for made in (
        matcher(automaton, [pa.int64()] * len(columns)),
        remembering(automaton, PlainMatcher(automaton)),
    ):
        masks = events.met(automaton, rows).astype("int64")
        keys = pa.array([str(place % 2) for place in range(len(rows))])
        batch = Batch(keys, events.micros(rows.column("at")), masks, columns, rows)
        found = made.process(made.empty(pa.string(), rows.schema), batch, FOREVER)[1]
        numbers = found.rows.column("number").to_pylist()
        ends = zip(found.starts, found.ends, strict=True)
        shown.append(sorted(" ".join(map(str, numbers[a:z])) for a, z in ends))
    assert shown[0] == shown[1]
    return shown[0]


def test_anchors_stand_for_the_first_and_the_last_row_of_a_partition():
    prices = [1, 1, 1, 1, 1, 1, 1]
    assert whole(clause("^ a", "a AS price = 1"), *prices) == ["0", "1"]
    assert whole(clause("a a $", "a AS price = 1"), *prices) == ["3 5", "4 6"]
    assert whole(clause("^ a+ $", "a AS price = 1"), *prices) == ["0 2 4 6", "1 3 5"]
    assert whole(clause("(^ a?) b", "a AS price = 1, b AS price > 0"), *prices) == ["0 2", "1 3"]
    assert whole(clause("^*? a{1}? $+", "a AS price = 1"), *prices) == ["5", "6"]
    assert whole(clause("a ^", "a AS price = 1"), *prices) == []
    assert whole(clause("^+ | a", "a AS price = 1"), *prices) == ["2", "3", "4", "5", "6"]
    assert whole(clause("a | ^", "a AS price = 1"), 2, 1, 1, 1) == ["1", "2", "3"]


def test_next_looks_at_the_rows_behind_in_a_batch():
    define = "a AS price > NEXT(price), b AS NEXT(a.price, 2) IS NULL"
    assert whole(clause("a b", define), 9, 9, 5, 7, 3, 1) == ["2 4", "3 5"]
    assert whole(clause("a", "a AS NEXT(price) = 2 * price"), 1, 5, 2, 9, 4) == ["0", "2"]
    piece = read(clause(measures="MEASURES NEXT(LAST(b.price), 2) AS n"), schema, batch=True)[1]
    assert [lag[2] for lag in piece.outputs.lags] == [-2]


def test_a_batch_may_be_in_any_order():
    order = "ORDER BY price DESC NULLS FIRST, length(sym), at"
    found = read(clause(order=order), schema, batch=True)[1]
    assert [(one.sql, one.falling, one.nulls_first) for one in found.orders] == [
        ("price", True, True),
        ("LENGTH(sym)", False, True),
        ("at", False, True),
    ]
    assert (found.order, read(clause(order="ORDER BY at, sym"), schema, batch=True)[1].order) == (
        "",
        "at",
    )
    with pytest.raises(UnsupportedSql, match="does not ORDER BY a time first"):
        read(clause(order=order, after="WITHIN INTERVAL '1' HOUR"), schema, batch=True)
    with pytest.raises(UnsupportedSql, match="does not ORDER BY a time first"):
        read(clause(order=order, measures="MEASURES MATCH_ROWTIME() AS m"), schema, batch=True)


@pytest.mark.parametrize("batch", [True, False])
def test_a_variables_own_columns_are_those_of_the_row(batch):
    define = "a AS a.price = 1 AND a.sym LIKE 'x%', b AS u.price > a.price AND LAST(b.sym) = 'y'"
    automaton = read(clause(define=define, after="SUBSET u = (b)"), schema, batch=batch)[
        1
    ].automaton
    own, other = automaton.tests
    assert own.event is not None
    assert (own.event, own.history) == ("(price = 1) AND (sym LIKE 'x%')", None)
    assert (other.event, other.history is None) == ("sym = 'y'", False)


def test_spark_tells_of_the_row_what_runs_of_a_stream_remember():
    define = "a AS a.price = 1, b AS a.price = 1 OR price = 2"
    stream = read(clause(define=define), schema)[1].automaton
    batch = read(clause(define=define), schema, batch=True)[1].automaton
    assert stream.tests[0].event == batch.tests[0].event == "price = 1"
    # What a run remembers is in checkpoints: it stays.
    assert (len(stream.registers), stream.tests[0].plain) == (1, False)
    assert (len(batch.registers), batch.tests[0].plain) == (1, True)
    assert found(clause(define=define), 1, 2, 3, 1, 1) == ["0 1", "3 4"]


def test_a_condition_that_two_variables_share_is_told_of_neither():
    define = "a AS a.price = 1, b AS a.price = 1"
    assert found(clause(define=define), 1, 7, 1) == ["0 1"]


def test_the_classifier_of_the_row_that_is_asked_is_its_variable():
    define = "a AS CLASSIFIER() = 'a' AND price = 1, b AS CLASSIFIER(u) = 'b' OR CLASSIFIER() = 'a'"
    assert found(clause("a b", define, after="SUBSET u = (a, b)"), 1, 7) == ["0 1"]
    assert found(clause("a b", "a AS CLASSIFIER() = 'b', b AS TRUE"), 1, 7) == []


@pytest.mark.parametrize(
    "condition",
    [
        "ROUND(a.price / 2.0) = 4.0 AND LENGTH(a.sym || 'x') IS NULL",
        "CAST(a.price AS string) = '7'",
        "CAST(a.price AS string) LIKE '7%' AND price = 2",
        "CASE WHEN SQRT(SUM(a.price) + 2) = 3.0 THEN TRUE END",
        "date_trunc('MINUTE', a.at) < at",
    ],
)
def test_conditions_may_use_functions_over_the_history(condition):
    sql = clause("a b", f"a AS price = 7, b AS {condition}", partition="")
    automaton = read(sql, schema)[1].automaton
    at = pa.array([0, 1_000_000, 2_000_000, 9_000_000], pa.timestamp("us"))
    prices, nothing = pa.array([1, 7, 2, 7], pa.int64()), pa.nulls(4, pa.string())
    rows = pa.table({"price": prices, "sym": nothing, "at": at})
    made = matcher(automaton, [column.type for column in events.values(automaton, rows)])
    assert not made.compiled
    masks = events.met(automaton, rows).astype("int64")
    columns = events.values(automaton, rows)
    batch = Batch(pa.repeat("k", 4), events.micros(rows.column("at")), masks, columns, rows)
    shown = made.process(made.empty(pa.string(), rows.schema), batch, FOREVER)[1]
    assert shown.rows.column("price").to_pylist() == [7, 2]


def test_a_function_that_python_does_not_know_is_refused():
    with pytest.raises(InvalidCondition, match="only Spark could compute"):
        read(clause(define="a AS TRUE, b AS soundex(a.sym) = 'x'"), schema)


def test_a_variable_may_match_no_row():
    assert found(clause("(a | b) c", "a AS FALSE, c AS price = 2"), 1, 2) == ["0 1"]


def test_prev_of_the_first_or_last_row_of_a_variable():
    define = "b AS price > 5, c AS price = PREV(LAST(b.price)) AND price < PREV(FIRST(b.price), 2)"
    assert found(clause("a b+ c", define), 9, 1, 6, 7, 6, 0) == ["1 2 3 4"]
    assert found(clause("a b", "b AS price > PREV(RUNNING LAST(price))"), 3, 1, 2) == ["1 2"]


@pytest.mark.parametrize("kind", ["FIRST", "LAST"])
def test_a_skip_to_the_first_row_or_to_no_row_is_an_error(kind):
    define = "a AS price = 1, b AS price = 2"
    with pytest.raises(ConditionFailed, match='SKIP goes to "a", and a match has it as its first'):
        found(clause("a b", define, skip=f"AFTER MATCH SKIP TO {kind} a"), 1, 2)
    with pytest.raises(ConditionFailed, match='SKIP goes to "b", and a match has no row of it'):
        found(clause("a b?", define, skip=f"AFTER MATCH SKIP TO {kind} b"), 1, 3)
    fits = clause("a b+", define, skip=f"AFTER MATCH SKIP TO {kind} b")
    assert found(fits, 1, 2, 2, 1, 2, 3) == ["0 1 2", "3 4"]


def test_within_may_have_several_units():
    def within(said: str) -> int | None:
        return read(clause(after=f"WITHIN INTERVAL {said}"), schema)[1].automaton.within

    assert within("'1:30' HOUR TO MINUTE") == 90 * 60 * 10**6
    assert within("'1 02:03:04.5' DAY TO SECOND") == (93_784 * 10 + 5) * 10**5
    with pytest.raises(InvalidCondition, match="without a fixed length"):
        within("'1-2' YEAR TO MONTH")


def test_classifier_is_about_its_variables():
    measures = "MEASURES CLASSIFIER(u) AS c, PREV(CLASSIFIER()) AS p, LAST(CLASSIFIER(), 1) AS l"
    outputs = read(clause(measures=measures, after="SUBSET u = (b)"), schema)[1].outputs
    shown = [(one.function, one.blocks, one.back, one.shift) for one in outputs.pieces]
    every = frozenset([0, 1])
    assert shown == [("last", {1}, 0, 0), ("last", every, 0, -1), ("last", every, 1, 0)]
    assert all(piece.classifies for piece in outputs.pieces)


def test_running_and_final_belong_to_the_function_behind_them():
    measures = (
        "MEASURES FINAL LAST(price) - RUNNING LAST(price) AS d, FINAL SUM(price) + price AS s"
    )
    outputs = read(clause(measures=measures, rows="ALL ROWS PER MATCH"), schema)[1].outputs
    assert [(one.function, one.final) for one in outputs.pieces] == [
        ("last", True),
        ("last", False),
        ("sum", True),
    ]
    assert [one.sql for one in outputs.columns] == ["__piece0 - __piece1", "__piece2 + __piece1"]


@pytest.mark.parametrize(
    ("measure", "said"),
    [
        ("KURTOSIS(price)", "no aggregate of a pattern"),
        ("TRY_SUM(price)", "no aggregate of a pattern"),
        ("SUM(price) OVER ()", "no aggregate of a pattern"),
        ("SUM(LAST(price))", "inside of"),
        ("COUNT(LOWER(PREV(price)))", "inside of"),
        ("PREV(PREV(price))", "inside of PREV"),
        ("CLASSIFIER(z)", 'no variable "z"'),
    ],
)
def test_a_measure_that_cannot_be_computed_is_refused(measure, said):
    with pytest.raises(PatternError, match=said) as caught:
        read(clause(measures=f"MEASURES {measure} AS m"), schema)
    assert caught.value.hint


def test_alternation_and_permute():
    define = "a AS price = 1, b AS price = 2, c AS price = 3"
    assert found(clause("(a | b) c", define), 2, 3, 1, 3) == ["0 1", "2 3"]
    assert found(clause("PERMUTE(a, b, c)", define), 3, 1, 2, 2, 1, 3) == ["0 1 2", "3 4 5"]
    many = ", ".join(f"v{place} AS price = {place}" for place in range(7))
    permuted = clause(f"PERMUTE({', '.join(f'v{place}' for place in range(7))})", many)
    assert found(permuted, 6, 2, 0, 4, 3, 5, 1, 0) == ["0 1 2 3 4 5 6"]
    assert len(read(permuted, schema)[1].automaton.states) == 2**7 - 2


@pytest.mark.parametrize(
    ("sql", "error", "said"),
    [
        (clause("a b $"), UnsupportedSql, 'anchor "\\$"'),
        (clause("^ a b"), UnsupportedSql, "anchor"),
        (clause("a* b*"), UnsupportedSql, "matches no row at all"),
        (clause("a (b"), InvalidSql, "is not SQL"),
        (clause("a b{3,2}"), UnsupportedSql, "counts nothing"),
        (clause(define="a AS price > NEXT(price), b AS TRUE"), UnsupportedSql, "NEXT in DEFINE"),
        (
            clause(define="a AS TRUE, b AS MATCH_NUMBER() = 1"),
            UnsupportedSql,
            "MATCH_NUMBER in DEFINE",
        ),
        (clause(define="z AS price = 1"), UnknownBlock, 'defines "z"'),
        (clause(define="a AS prize = 1"), UnknownColumn, 'column "prize"'),
        (clause(measures="MEASURES LAST(a.prize) AS p"), UnknownColumn, 'column "prize"'),
        (clause(order=""), UnsupportedSql, "no ORDER BY"),
        (clause(order="ORDER BY at DESC"), UnsupportedSql, "more than the rising time"),
        (clause(order="ORDER BY at, price"), UnsupportedSql, "more than the rising time"),
        (clause(rows="ALL ROWS PER MATCH WITH UNMATCHED ROWS"), UnsupportedSql, "unmatched rows"),
        (clause(skip="AFTER MATCH SKIP TO FIRST z"), UnknownBlock, 'skips to "z"'),
        (clause(after="SUBSET u = (a, z)"), UnknownBlock, '"z" in SUBSET'),
        (clause(after="WITHIN INTERVAL '1' MONTH"), InvalidCondition, "without a fixed length"),
        ("SELECT 1", InvalidSql, "0 MATCH_RECOGNIZE clauses"),
        (
            clause(measures="MEASURES NEXT(b.price) AS p"),
            UnsupportedSql,
            "1 row on with NEXT, which may lie behind",
        ),
        (
            clause("a b?", measures="MEASURES NEXT(a.price) AS p"),
            UnsupportedSql,
            "may lie behind the match",
        ),
        (
            clause(measures="MEASURES NEXT(LAST(price, 1), 2) AS p"),
            UnsupportedSql,
            "2 rows on with NEXT",
        ),
        (
            clause(measures="MEASURES NEXT(a.price) AS p", rows="ALL ROWS PER MATCH"),
            UnsupportedSql,
            "for each row",
        ),
        (clause("PERMUTE(a, b, c, d, e, f, g, h, i)"), UnsupportedSql, "permutes 9 parts"),
    ],
)
def test_what_a_stream_cannot_do_is_refused_with_the_reason(sql, error, said):
    with pytest.raises(error, match=said) as caught:
        read(sql, schema)
    assert caught.value.hint


@pytest.mark.parametrize(
    "measure",
    [
        "NEXT(a.price)",
        "NEXT(FIRST(price))",
        "NEXT(LAST(price, 1))",
        "NEXT(u.price)",
        "NEXT(b.price, 0)",
    ],
)
def test_next_may_look_at_rows_of_the_match(measure):
    read(clause(measures=f"MEASURES {measure} AS p", after="SUBSET u = (a)"), schema)


@pytest.mark.parametrize("measure", ["count(dwn.*)", "sum(dwn.price)", "dwn.price"])
def test_a_measure_of_an_unknown_variable_is_refused(measure):
    clause = f"ORDER BY at MEASURES {measure} AS n PATTERN (down up+) DEFINE down AS price > 1, up AS price > 2"
    with pytest.raises(UnknownBlock, match='"dwn"') as caught:
        read(f"SELECT * FROM t MATCH_RECOGNIZE ({clause})", schema)
    assert "down" in str(caught.value.__notes__)
