"""Outputs: what is read of a SELECT list, and what is computed of histories."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from millstream.errors import DuplicateName, InvalidSql, PatternError, UnknownBlock, UnknownColumn
from millstream.flow.schema import Schema
from millstream.patterns.batches import Found
from millstream.patterns.outputs import Piece
from millstream.patterns.pattern import Pattern, Phenomenon
from millstream.patterns.recipe import output_schema, recipe
from millstream.patterns.results import compute

schema = Schema.parse("k string, x int, y double, at timestamp")
pattern = Pattern().begin("a", "x = 1").followed_by("b", "x > a.x").one_or_more().within("1 h")


def made(emit: str | None = None, **options):
    return recipe(pattern, schema, time="at", key=("k",), emit=emit, **options)


def test_what_is_asked_of_the_history_becomes_pieces():
    found = made("k, round(avg(b.y + 1), 1) as mean, count(b.*) + count(*) as n, a.at as began")
    assert [column.sql for column in found.plans[0].outputs.columns] == [
        "__piece0",
        "ROUND(__piece1, 1)",
        "__piece2 + __piece3",
        "__piece4",
    ]
    assert found.rows == ("k", "y + 1", "at")
    both = frozenset([0, 1])
    assert found.plans[0].outputs.pieces == (
        Piece("last", both, 0),
        Piece("avg", frozenset([1]), 1),
        Piece("count", frozenset([1])),
        Piece("count", both),
        Piece("last", frozenset([0]), 2),
    )


def test_types_are_told_where_they_are_plain():
    found = made(
        "k, b.y as y, count(b.*) as n, sum(b.x) as s, collect_list(b.y) as ys, avg(b.x) as m, b.x + 1 as odd"
    )
    types = [field.type for field in output_schema(found, schema)]
    assert types == [
        "string",
        "double",
        "bigint",
        "bigint",
        "array<double>",
        "double",
        None,
        "timestamp",
    ]


@pytest.mark.parametrize(
    ("emit", "error", "said"),
    [
        ("x", PatternError, 'emits column "x"'),
        ("c.x as x", UnknownBlock, 'block "c"'),
        ("a.z as z", UnknownColumn, 'column "z"'),
        ("a.x as x, b.x as X", DuplicateName, 'two outputs "x"'),
        ("a.x + 1", PatternError, "without a name"),
        ("a.x as x FROM t", InvalidSql, "not a list of expressions"),
        ("a.x as at", DuplicateName, 'output "at"'),
    ],
)
def test_an_output_that_cannot_be_is_refused(emit, error, said):
    with pytest.raises(error, match=said):
        made(emit)


def test_patterns_of_a_phenomenon_share_masks_and_values_and_have_all_columns():
    one = Pattern("one").begin("a", "x = 1").emit("a.y as y")
    two = Pattern("two").begin("a", "x = 2").next("b", "x > a.x").emit("b.y as y")
    found = recipe(Phenomenon("p", (one, two)), schema, time="at", key=())
    assert len(found.masks) == 1
    assert [(plan.word, plan.shift) for plan in found.plans] == [(0, 0), (0, 1)]
    assert found.names == ("y", "pattern", "at")
    other = recipe(Phenomenon("p", (one, two.emit("b.y as z"))), schema, time="at", key=())
    assert other.names == ("y", "z", "pattern", "at")


# Two matches: blocks a b b, and a; the values of their events are 1, 5, null and 7.
rows = pa.table({"v": pa.array([1, 5, None, 7], pa.int64())})
FOUND = Found(
    pa.array(["k", "l"]),
    np.array([10, 20]),
    np.array([8, 20]),
    np.array([False, False]),
    np.array([3, 4]),
    np.array([0, 1, 1, 0]),
    rows,
    np.array([1, 1]),
)


@pytest.mark.parametrize(
    ("piece", "kind", "expected"),
    [
        (Piece("first", frozenset([1]), 0), pa.int64(), [5, None]),
        (Piece("last", frozenset([1]), 0), pa.int64(), [None, None]),
        (Piece("last", frozenset([1]), 0, back=1), pa.int64(), [5, None]),
        (Piece("last", frozenset([0]), 0, shift=1), pa.int64(), [5, None]),
        (Piece("first", frozenset([1]), 0, shift=-1), pa.int64(), [1, None]),
        (Piece("count", frozenset([1])), pa.int64(), [2, 0]),
        (Piece("count", frozenset([1]), 0), pa.int64(), [1, 0]),
        (Piece("sum", frozenset([0, 1]), 0), pa.int64(), [6, 7]),
        (Piece("avg", frozenset([0, 1]), 0), pa.float64(), [3.0, 7.0]),
        (Piece("min", frozenset([1]), 0), pa.int64(), [5, None]),
        (Piece("list", frozenset([1]), 0), pa.list_(pa.int64()), [[5, None], []]),
        (Piece("match_number", frozenset([0])), pa.int64(), [1, 1]),
    ],
)
def test_a_piece_is_computed_for_all_matches_at_once(piece, kind, expected):
    assert compute(piece, FOUND, None if piece.value is None else "v", kind).to_pylist() == expected


def test_nan_is_above_all_other_numbers():
    numbers = pa.table({"v": pa.array([1.0, float("nan"), None, 7.0])})
    found = replace(FOUND, rows=numbers)
    greatest = compute(Piece("max", frozenset([0, 1]), 0), found, "v", pa.float64()).to_pylist()
    assert [str(one) for one in greatest] == ["nan", "7.0"]
    least = compute(Piece("min", frozenset([0, 1]), 0), found, "v", pa.float64()).to_pylist()
    assert least == [1.0, 7.0]
    nothing = compute(Piece("max", frozenset([9]), 0), found, "v", pa.float64()).to_pylist()
    assert nothing == [None, None]


def test_an_empty_match_has_its_row_and_nothing_else():
    empty = replace(FOUND.select(np.array([False, True])), blocks=np.array([-1]))
    every = frozenset([0, 1])
    shown = [
        compute(Piece("row", every, 0), empty, "v", pa.int64()),
        compute(Piece("last", every, 0), empty, "v", pa.int64()),
        compute(Piece("last", every, classifies=True), empty, None, pa.string(), ("a", "b")),
        compute(Piece("count", every), empty, None, pa.int64()),
    ]
    assert [one.to_pylist() for one in shown] == [[7], [None], [None], [0]]


def test_a_match_up_to_each_of_its_events_and_as_often_as_it_has_events():
    parts = FOUND.prefixes()
    names = Piece("last", frozenset([0, 1]), classifies=True)
    assert compute(names, parts, None, pa.string(), ("a", "b")).to_pylist() == ["a", "b", "b", "a"]
    own = Piece("last", frozenset([0]), classifies=True)
    assert compute(own, parts, None, pa.string(), ("a", "b")).to_pylist() == ["a", "a", "a", "a"]
    all_of_b = Piece("list", frozenset([1]), classifies=True)
    listed = compute(all_of_b, parts, None, pa.list_(pa.string()), ("a", "b")).to_pylist()
    assert listed == [[], ["b"], ["b", "b"], []]
    total = Piece("sum", frozenset([0, 1]), 0)
    assert compute(total, parts, "v", pa.int64()).to_pylist() == [1, 6, 6, 7]
    assert compute(total, FOUND.repeated(), "v", pa.int64()).to_pylist() == [6, 6, 6, 7]
    assert FOUND.select(np.array([False, True])).rows.column("v").to_pylist() == [7]
