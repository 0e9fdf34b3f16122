"""Folds that are declared, as a flow describes them."""

from __future__ import annotations

import re
from typing import Any

import numba
import pytest

import millstream as ms
from millstream.errors import FlowError
from millstream.flow.describe import describe_stage
from millstream.flow.schema import Schema
from millstream.flow.stages import Fold
from millstream.plan import fingerprint
from millstream.plan.groups import plan

EVENTS = "k string, n int, x float, s string, l array<int>, d decimal(9,2), at timestamp"


def flow(**more: Any) -> ms.Flow:
    made = ms.Flow("declared")
    source = made.source("events", ms.inbox(EVENTS), time="at", key="k")
    source.fold("sums", **more).sink("out", ms.memory())
    return made


def fold_of(made: ms.Flow) -> Fold:
    found = made.stages["sums"]
    assert isinstance(found, Fold)
    return found


def test_results_have_the_key_the_time_and_the_folds() -> None:
    made = flow(seen="count(*)", total="sum(n)", mean="ewma( x , 0.25)", note="LAST(`s`)")
    fold = fold_of(made)
    expected = "k string, at timestamp, seen bigint, total bigint, mean double, note string"
    assert made.stream("sums").schema == Schema.parse(expected)
    assert fold.bounded_state == (
        "seen (count bigint), total (sum bigint), mean (ewma double), note (last string) per key"
    )
    folds = {"seen": "count(*)", "total": "sum(n)", "mean": "ewma(x, 0.25)", "note": "last(s)"}
    assert describe_stage(fold)["folds"] == folds
    row = {"k": "a", "at": 1, "n": 3, "x": 0.5, "s": None}
    state, result = fold.step(fold.initial, row)
    assert result == {"k": "a", "at": 1, "seen": 1, "total": 3, "mean": 0.5, "note": None}
    state, result = fold.step(state, {**row, "n": None, "x": 1.0, "s": "b"})
    assert result == {"k": "a", "at": 1, "seen": 2, "total": 3, "mean": 0.625, "note": "b"}


def damped(known: float, n: int, x: float) -> float:
    return 0.5 * known + n * x


def other(known: float, n: int, x: float) -> float:
    return 0.25 * known + n * x


def test_a_function_is_a_fold_of_the_columns_that_its_parameters_name() -> None:
    made = flow(trend=ms.compiled(damped, initial=1.0), seen="count(*)")
    fold = fold_of(made)
    expected = "k string, at timestamp, trend double, seen bigint"
    assert made.stream("sums").schema == Schema.parse(expected)
    assert fold.bounded_state == "trend (value double), seen (count bigint) per key"
    assert describe_stage(fold)["folds"]["trend"] == "damped(n, x) from 1.0"
    assert fold.extra == "patterns"
    row = {"k": "a", "at": 1, "n": 3, "x": 0.5}
    state, result = fold.step(fold.initial, {**row, "x": None})
    assert result["trend"] is None
    state, result = fold.step(state, row)
    assert result["trend"] == 2.0
    assert fold.step(state, row)[1]["trend"] == 2.5
    named = fold_of(flow(most=ms.compiled(lambda known, value: max(known, value), "n", initial=0)))
    assert named.output == Schema.parse("k string, at timestamp, most bigint")


def test_another_function_is_a_changed_group_that_continues_with_its_state() -> None:
    def marked(step: Any, initial: float = 0.0) -> Any:
        made = flow(trend=ms.compiled(step, initial=initial))
        return fingerprint.fingerprint(plan(made), "out")

    assert marked(damped) == marked(damped)
    assert marked(damped) != marked(other)
    assert marked(damped) != marked(damped, 1.0)
    one, two = (fold_of(flow(trend=ms.compiled(step, initial=0.0))) for step in (damped, other))
    assert two.fits_state_of(one, {}, ()).fits
    assert not fold_of(flow(trend="sum(x)")).fits_state_of(one, {}, ()).fits


@pytest.mark.parametrize(
    ("compiled", "fact"),
    [
        (ms.compiled(damped, "n", initial=0.0), 'the function "damped", which cannot be called as'),
        (ms.compiled(damped, "n", "m", initial=0.0), 'folds column "m"'),
        (ms.compiled(lambda known, m: known, initial=0.0), 'folds column "m"'),
        (ms.compiled(lambda known, s: known, initial=0.0), 'column "s", which is string'),
        (ms.compiled(lambda known, at: known, initial=0), 'column "at", which is timestamp'),
        (ms.compiled(lambda known, *n: known, initial=0), "whose parameters do not name columns"),
        (ms.compiled(lambda known: known, initial=0), "whose parameters do not name columns"),
        (ms.compiled(max, initial=0), "whose parameters do not name columns"),
        (ms.compiled(damped, 3, ["x"], initial=0.0), "folds a column without a name"),  # type: ignore[arg-type]
        (ms.compiled(numba.njit(damped), initial=0.0), "that numba has compiled"),
        (ms.compiled(damped, initial=1 << 63), 'begins the fold "trend" with 9223372036854775808'),
    ],
)
def test_a_function_that_is_no_fold_is_refused(compiled: Any, fact: str) -> None:
    with pytest.raises(FlowError, match=re.escape(fact)):
        flow(trend=compiled)


def test_an_output_gives_a_compiled_fold_its_own_type() -> None:
    fold_of(flow(output="at timestamp, own double", own=ms.compiled(damped, initial=0.0)))
    with pytest.raises(FlowError, match='has bigint as the type of "own" in its output'):
        flow(output="at timestamp, own long", own=ms.compiled(damped, initial=0.0))


def test_an_output_names_columns_of_the_row() -> None:
    fold = fold_of(flow(seen="count(*)", output="at timestamp, s string, seen bigint"))
    assert fold.step(fold.initial, {"at": 1, "s": "x"})[1] == {"at": 1, "s": "x", "seen": 1}


@pytest.mark.parametrize(
    ("more", "fact"),
    [
        ({"n": "median(n)"}, 'has "median(n)" as "n", which is no fold'),
        ({"n": "sum(n) + 1"}, "which is no fold"),
        ({"n": "sum(*)"}, 'has "sum(*)" as "n"'),
        ({"n": "sum(m)"}, 'folds column "m"'),
        ({"n": "sum(s)"}, 'has the sum of column "s", which is string'),
        ({"n": "max(l)"}, "which is array<int>"),
        ({"n": "last(d)"}, "which is decimal"),
        ({"n": "ewma(n)"}, 'has "ewma(n)" as "n"'),
        ({"n": "ewma(n, 2)"}, 'has "ewma(n, 2)" as "n"'),
        ({"n": "sum(n, 2)"}, 'has "sum(n, 2)" as "n"'),
        ({"n": "count(*)", "initial": 0}, 'has the fold "n" beside a step, initial= or states='),
        ({"k": "count(*)"}, '"k"'),
    ],
)
def test_what_is_no_fold_of_the_columns_is_refused(more: dict[str, Any], fact: str) -> None:
    with pytest.raises(FlowError, match=re.escape(fact)):
        flow(**more)


def test_a_changed_fold_is_a_changed_group_and_keeps_the_states_that_fit() -> None:
    def marked(**more: str) -> Any:
        return fingerprint.fingerprint(plan(flow(**more)), "out")

    assert marked(a="sum(n)") == marked(a="SUM( n )")
    assert marked(a="sum(n)") != marked(a="max(n)")
    one, more, other = (
        fold_of(flow(**given))
        for given in ({"a": "sum(n)"}, {"a": "sum(n)", "b": "count(*)"}, {"a": "max(n)"})
    )
    assert more.fits_state_of(one, {}, ()).fits
    assert not other.fits_state_of(one, {}, ()).fits
