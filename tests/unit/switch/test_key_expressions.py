"""A change of the expression that a key is computed by is a change of the key."""

from __future__ import annotations

from typing import Any

import pytest

import millstream as ms
from millstream.plan.groups import plan as plan_of
from millstream.switch.changes import Move, Version, changes
from millstream.switch.plan import switch_plan


def count(total: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return total + 1, {"k": row["k"], "at": row["at"], "n": total + 1}


def version(kind: str, by: str) -> Version:
    flow = ms.Flow("shop")
    sales = flow.source("sales", ms.inbox("shop string, at timestamp"), time="at", key="shop")
    if kind == "fold":
        found = sales.fold("n", count, initial=0, output="k string, at timestamp, n long", by=by)
    elif kind == "distinct":
        found = sales.distinct("n", by=by, within="1 day")
    else:
        found = sales.window("n", every="1 min", by=by, n="count(*)")
    found.sink("out", ms.memory())
    return Version.of(plan_of(flow))


@pytest.mark.parametrize("kind", ["fold", "distinct"])
def test_state_is_carried_by_the_same_expression_and_dropped_with_another(kind: str) -> None:
    old = version(kind, "upper(shop) as k")
    (kept,) = changes(old, version(kind, "UPPER( shop ) as k"))
    assert {stage.move for stage in kept.stages} == {Move.NONE}, "it means the same"
    (group,) = changes(old, version(kind, "lower(shop) as k"))
    (stage,) = (one for one in group.stages if one.name == "n")
    assert stage.move is Move.DROPPED
    assert stage.why == ("its state was kept by k = upper(shop), and would be by k = lower(shop)")


def test_a_window_by_another_expression_is_owned_by_its_start_and_cannot_be_shared_out() -> None:
    old, new = version("window", "upper(shop) as k"), version("window", "lower(shop) as k")
    assert switch_plan(old, new).obstacles == ()
    (obstacle,) = switch_plan(old, new, mode="share").obstacles
    assert "are keyed by k = upper(shop) and by k = lower(shop)" in obstacle.fact
    wider = version("window", "UPPER(shop) as k")
    assert switch_plan(old, wider, mode="share").obstacles == ()
