"""Folds that are declared, as a flow describes them."""

from __future__ import annotations

import re
from typing import Any

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
