"""The kernel's stack machine evaluates conditions over the history as the automaton does, with missing values and both kinds of numbers."""

from __future__ import annotations

import math
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from millstream.errors import FlowError
from millstream.patterns import events
from millstream.patterns.automaton import FOREVER, Key, advance, step
from millstream.patterns.batches import Batch
from millstream.patterns.compile import compile_pattern
from millstream.patterns.matcher import matcher
from millstream.patterns.pattern import Pattern

LEAVES = [
    *(
        "x",
        "f",
        "a.x",
        "a.f",
        "first(a.x)",
        "last(a.f)",
        "sum(a.f)",
        "sum(a.x)",
        "avg(a.x)",
        "avg(a.f)",
    ),
    *("min(a.x)", "max(a.f)", "max(a.x)", "count(a.*)", "count(a.x)", "0", "1", "2.5", "-1"),
]


def numbers() -> st.SearchStrategy[str]:
    def wider(inner):
        pairs = st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "%"]), inner)
        return st.one_of(
            pairs.map(lambda some: f"({' '.join(some)})"),
            inner.map(lambda one: f"abs({one})"),
            st.tuples(inner, inner).map(lambda some: f"coalesce({some[0]}, {some[1]})"),
            st.tuples(inner, inner).map(lambda some: f"least({some[0]}, {some[1]})"),
            st.tuples(inner, inner).map(lambda some: f"greatest({some[0]}, {some[1]})"),
            st.tuples(inner, inner, inner).map(
                lambda s: f"case when {s[0]} > 1 then {s[1]} else {s[2]} end"
            ),
        )

    return st.recursive(st.sampled_from(LEAVES), wider, max_leaves=4)


def texts() -> st.SearchStrategy[str]:
    leaves = ["s", "a.s", "first(a.s)", "last(a.s)", "min(a.s)", "max(a.s)", "'m'", "'b'"]
    plain = st.sampled_from(leaves)
    return st.one_of(
        plain,
        st.tuples(plain, plain).map(lambda some: f"coalesce({some[0]}, {some[1]})"),
        st.tuples(plain, plain).map(lambda some: f"greatest({some[0]}, {some[1]})"),
        st.tuples(plain, plain).map(
            lambda some: f"case when a.x > 1 then {some[0]} else {some[1]} end"
        ),
    )


def truths() -> st.SearchStrategy[str]:
    comparison = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])
    compared = st.tuples(numbers(), comparison, numbers())
    plain = st.one_of(
        compared.map(" ".join),
        numbers().map(lambda one: f"{one} is null"),
        st.tuples(numbers(), numbers()).map(lambda some: f"{some[0]} in ({some[1]}, 2)"),
        st.tuples(numbers(), numbers()).map(lambda some: f"{some[0]} between {some[1]} and 3"),
        st.just("any(a.x > 1)"),
        st.just("count(a.s) > 1"),
        st.tuples(texts(), comparison, texts()).map(" ".join),
        st.tuples(texts(), texts()).map(lambda some: f"{some[0]} in ({some[1]}, 'm')"),
    )

    def wider(inner):
        return st.one_of(
            st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
                lambda some: f"({' '.join(some)})"
            ),
            inner.map(lambda one: f"(not {one})"),
        )

    return st.recursive(plain, wider, max_leaves=3)


whole = st.one_of(st.none(), st.integers(-2, 3))
text = st.one_of(st.none(), st.sampled_from(["", "b", "m", "ä", "mm", "𝄞", "￿"]))
real = st.one_of(
    st.none(), st.sampled_from([-1.5, 0.0, -0.0, 1.0, 2.5, 3.0, math.nan, math.inf, -math.inf])
)


@settings(max_examples=300)
@given(
    condition=truths(),
    rows=st.lists(st.tuples(whole, real, text), min_size=2, max_size=6),
    loop=st.booleans(),
    cut=st.integers(0, 6),
)
def test_the_kernel_evaluates_histories_as_the_automaton_does(condition, rows, loop, cut):
    begun = Pattern().begin("a", "n < 2")
    pattern = (begun.one_or_more() if loop else begun).followed_by_any("b", condition)
    table = pa.table(
        {
            "x": pa.array([x for x, _, _ in rows], pa.int64()),
            "f": pa.array([f for _, f, _ in rows], pa.float64()),
            "s": pa.array([s for _, _, s in rows], pa.string()),
            "n": pa.array(range(len(rows)), pa.int64()),
            "at": pa.array([place * 1_000_000 for place in range(len(rows))], pa.timestamp("us")),
        }
    )
    automaton = compile_pattern(pattern)
    try:
        masks, values = (
            events.met(automaton, table).astype("int64"),
            events.values(automaton, table),
        )
    except (FlowError, pa.ArrowException):
        assume(False)  # a part about the event alone that only Spark computes
        raise
    made = matcher(automaton, [column.type for column in values])
    assume(made.compiled)
    kept, ours = made.empty(pa.string(), table.schema), Counter()
    for first, last, watermark in (
        (0, min(cut, len(rows)), 0),
        (min(cut, len(rows)), len(rows), FOREVER),
    ):
        some = slice(first, last)
        part = table.slice(first, last - first)
        own = [column[some] for column in values]
        batch = Batch(
            pa.array(["k"] * len(part), pa.string()),
            events.micros(part.column("at")),
            masks[some],
            own,
            part,
        )
        kept, found = made.process(made.load(made.dump(kept)), batch, watermark)
        places = found.rows.column("n").to_pylist()
        ours.update(tuple(places[a:z]) for a, z in zip(found.starts, found.ends, strict=True))

    key, matches = Key(), []
    for event in events.events(automaton, table, "at"):
        key, some, _ = step(automaton, key, event)
        matches += some
    matches += advance(automaton, key, FOREVER)[1]
    assert ours == Counter(tuple(event.number for _, event in match.history) for match in matches)


@pytest.mark.parametrize(
    ("condition", "after"),
    [
        # As Spark has it: NaN is equal to itself, and above all other numbers.
        ("f = a.f", {math.nan: [math.nan], math.inf: [math.inf]}),
        ("f <> a.f", {math.nan: [1.0, math.inf], 1.0: [math.nan, math.inf]}),
        ("f > a.f", {1.0: [math.nan, math.inf], math.inf: [math.nan], math.nan: []}),
        ("f <= a.f", {math.nan: [math.nan, 1.0, math.inf], 1.0: [1.0]}),
        ("f <=> a.f", {math.nan: [math.nan], None: [None]}),
        ("f in (a.f, 5.0)", {math.nan: [math.nan]}),
        ("greatest(f, a.f) = f", {math.inf: [math.nan, math.inf], math.nan: [math.nan]}),
        ("least(f, a.f) = f", {math.nan: [math.nan, 1.0, math.inf], 1.0: [1.0]}),
    ],
)
def test_nan_is_compared_as_spark_does(condition, after):
    pattern = Pattern().begin("a", "n = 0").followed_by_any("b", condition)
    automaton = compile_pattern(pattern)
    tried = [math.nan, 1.0, math.inf, None]
    for first, expected in after.items():
        values = [first, *tried]
        table = pa.table(
            {
                "f": pa.array(values, pa.float64()),
                "n": pa.array(range(5), pa.int64()),
                "at": pa.array(range(5), pa.timestamp("us")),
            }
        )
        key, matches = Key(), []
        for event in events.events(automaton, table, "at"):
            key, some, _ = step(automaton, key, event)
            matches += some
        found = [str(values[match.history[-1][1].number]) for match in matches]
        assert sorted(found) == sorted(map(str, expected))


def test_texts_are_compared_by_the_kernel():
    pattern = (
        Pattern()
        .begin("a", "x = 1")
        .followed_by("b", "s > max(a.s) and s <> 'm' or a.s is null")
        .within("1 minute")
    )
    automaton = compile_pattern(pattern)
    assert matcher(automaton, [pa.string()] * len(automaton.values)).compiled
