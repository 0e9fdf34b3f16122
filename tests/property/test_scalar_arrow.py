"""What both compute of an expression, the edge for a row and Arrow for a column, is the same."""

from __future__ import annotations

import math

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.flow.schema import Schema
from millstream.patterns import sql
from millstream.patterns.scalar.function import scalar

SCHEMA = Schema.parse("i bigint, j bigint, d double, s string, b boolean")
KINDS = pa.schema(
    [
        ("i", pa.int64()),
        ("j", pa.int64()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
    ]
)
SMALL = st.integers(-3, 3)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | SMALL,
            "j": st.none() | SMALL,
            "d": st.none() | st.sampled_from([0.0, -1.5, 2.0, math.inf, -math.inf, math.nan]),
            "s": st.none() | st.sampled_from(["", "a", "B", "ab"]),
            "b": st.none() | st.booleans(),
        }
    ),
    min_size=1,
    max_size=8,
)
NUMBERS = st.recursive(
    st.sampled_from(["i", "j", "1", "-2", "3"]),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("+-*"), inner, inner).map(lambda t: f"({t[1]} {t[0]} {t[2]})"),
        inner.map(lambda one: f"(- {one})"),
        inner.map(lambda one: f"abs({one})"),
        inner.map(lambda one: f"coalesce({one}, 1)"),
        st.just("length(s)"),
    ),
    max_leaves=4,
)
DOUBLES = st.sampled_from(["d", "d / 2", "d + i", "(- d)", "i / 2"])
TEXTS = st.sampled_from(["s", "lower(s)", "upper(s)", "'a'", "coalesce(s, 'B')"])
SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
LEAVES = st.one_of(
    *(
        st.tuples(kind, SIGNS, kind).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        for kind in (NUMBERS, DOUBLES, TEXTS)
    ),
    st.tuples(NUMBERS, SIGNS, DOUBLES).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
    NUMBERS.map(lambda one: f"({one} is null)"),
    NUMBERS.map(lambda one: f"({one} between -1 and 2)"),
    NUMBERS.map(lambda one: f"({one} in (1, j))"),
    TEXTS.map(lambda one: f"({one} in ('a', 'B'))"),
    st.sampled_from(["b", "true"]),
)
TRUTHS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({' '.join(t)})"),
        inner.map(lambda one: f"(not {one})"),
    ),
    max_leaves=5,
)


@settings(max_examples=300)
@given(text=TRUTHS | NUMBERS | DOUBLES | TEXTS, rows=ROWS)
def test_a_row_at_the_edge_and_a_column_in_arrow_give_the_same(text, rows):
    theirs = sql.evaluate(text, pa.Table.from_pylist(rows, schema=KINDS)).to_pylist()
    compute = scalar(text, SCHEMA)
    for row, expected in zip(rows, theirs, strict=True):
        found = compute(row)
        same = found == expected or (found is not None and found != found and expected != expected)
        assert same, (text, row, found, expected)
