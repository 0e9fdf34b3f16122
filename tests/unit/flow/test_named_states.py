"""Several states of a fold, by name, with declared columns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import InvalidOption, RunError
from millstream.flow.describe import describe_stage
from millstream.flow.kept import conformed
from millstream.flow.stages import Fold
from millstream.flow.stages.named_states import kept
from millstream.plan import fingerprint
from millstream.plan.groups import plan
from millstream.spark.stages.fold import Folding
from millstream.spark.stages.row_keys import RowKeys

STATES = {"sums": "total double, n long", "seen": "first timestamp, last array<string>"}
OUTPUT = "k string, at timestamp"


def step(state: dict[str, Any], row: dict[str, Any]) -> tuple[dict[str, Any], None]:
    sums = {"total": row["v"], "n": state["sums"]["n"] + 1}
    return {"sums": sums, "seen": {"last": [row["k"]]}}, None


def flow(**more: Any) -> ms.Flow:
    made = ms.Flow("named")
    source = made.source("events", ms.inbox("k string, v long, at timestamp"), time="at", key="k")
    source.fold("counted", step, output=OUTPUT, **more).sink("out", ms.memory())
    return made


def fold_of(made: ms.Flow) -> Fold:
    found = made.stages["counted"]
    assert isinstance(found, Fold)
    return found


def test_a_new_key_begins_with_what_is_given_and_none_in_all_other_columns() -> None:
    fold = fold_of(flow(states=STATES, initial={"sums": {"n": 0}}))
    assert fold.initial == {"sums": {"total": None, "n": 0}, "seen": {"first": None, "last": None}}
    assert fold.bounded_state == (
        "sums (total double, n bigint), seen (first timestamp, last array<string>) per key"
    )


@pytest.mark.parametrize(
    ("states", "initial", "fact"),
    [
        ({}, None, "declares no states"),
        ({"a b": "n long"}, None, 'has a state "a b", which is no name'),
        ({"sums": "n decimal(10,2)"}, None, 'keeps "sums.n" of type decimal'),
        ({"sums": "n map<string,int>"}, None, 'keeps "sums.n" of type map'),
        ({"sums": "n long"}, 0, "begins with something else than values of their columns"),
        ({"sums": "n long"}, {"sum": {}}, 'it keeps a state "sum", which is not declared'),
        ({"sums": "n long"}, {"sums": {"m": 0}}, 'state "sums" has no column "m"'),
        ({"sums": "n long"}, {"sums": {"n": "0"}}, "\"sums.n\" is bigint, and cannot hold '0'"),
    ],
)
def test_a_mistake_in_what_is_declared_is_one_of_the_flow(
    states: Any, initial: Any, fact: str
) -> None:
    with pytest.raises(InvalidOption) as caught:
        flow(states=states, initial=initial)
    assert fact in str(caught.value)


def test_without_states_an_initial_state_is_needed() -> None:
    with pytest.raises(InvalidOption, match="has no initial state"):
        flow()
    assert fold_of(flow(initial=None)).initial is None


def test_states_are_described_and_a_flow_without_them_means_what_it_did() -> None:
    named, plain = flow(states=STATES), flow(initial=0)
    described = describe_stage(named.stages["counted"])
    assert described["states"]["sums"] == [["total", "double"], ["n", "bigint"]]
    assert "states" not in describe_stage(plain.stages["counted"])
    wider = flow(states={**STATES, "sums": "total double, n long, least double"})
    before, after = (fingerprint.fingerprint(plan(one), "out") for one in (named, wider))
    assert any('"states"' in line for line in fingerprint.difference(before, after))


def test_what_a_step_keeps_is_checked_and_completed() -> None:
    states = kept(fold_of(flow(states=STATES)).states)
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    value = {"sums": {"total": 1}, "seen": {"first": moment, "last": ["a", None]}}
    assert conformed(states, value) == {**value, "sums": {"total": 1.0, "n": None}}
    for wrong in (
        {"sums": {"n": True}, "seen": {}},
        {"sums": {"n": 1 << 63}, "seen": {}},
        {"sums": {"n": 1}, "seen": {"first": moment.replace(tzinfo=None)}},
        {"sums": {"n": 1}, "seen": {"last": [1]}},
        {"sums": {"n": 1}},
        {"sums": 3, "seen": {}},
        7,
    ):
        with pytest.raises(ValueError, match=r"it keeps|and cannot hold"):
            conformed(states, wrong)


def test_a_step_that_keeps_something_else_fails_on_that_row() -> None:
    fold = fold_of(flow(states={"sums": "total double, n long"}, initial={"sums": {"n": 0}}))

    def wrong(state: Any, row: dict[str, Any]) -> tuple[Any, None]:
        return {"sums": {"n": row["v"] or "none"}}, None

    names = frozenset({"k", "at"})
    rule = Folding("f", ("k",), wrong, fold.initial, names, None, states=kept(fold.states))
    rows = pa.table({"k": ["a", "a"], "v": pa.array([3, 0], pa.int64())})
    failed = r"failed on \{'k': 'a', 'v': 0\}: .*\"sums.n\" is bigint, and cannot hold"
    with pytest.raises(RunError, match=failed):
        rule.take(rows, RowKeys.of(rows, ("k",)), {})
