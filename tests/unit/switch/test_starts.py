"""By what results are owned: their start, or where two versions have none in common, their time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

import millstream as ms
from millstream.plan.groups import plan as plan_of
from millstream.switch.changes import Version
from millstream.switch.plan import SwitchPlan, switch_plan
from millstream.switch.starts import HIDDEN_START, start_before, start_of

SECOND = timedelta(seconds=1)
Make = Callable[[ms.Stream], ms.Stream]


def rows(stream: ms.Stream) -> ms.Stream:
    return stream


def joined(how: str) -> Make:
    def make(stream: ms.Stream) -> ms.Stream:
        right = stream.sql("right", "SELECT k, v AS other, at FROM some")
        return stream.join("x", right, on="k", within="5 s", how=how)

    return make


def queried(make: Make) -> Make:
    return lambda stream: (found := make(stream)).sql("q", f"SELECT * FROM {found.name}")


def sliding(stream: ms.Stream) -> ms.Stream:
    return stream.window("x", every="5 s", size="15 s", n="count(*)")


def matched(stream: ms.Stream) -> ms.Stream:
    pattern = ms.Pattern().begin("a", "v > 1").followed_by("b", "v > a.v").within("6 s")
    return stream.match("x", pattern, emit="k, a.v AS v")


def version(make: Make, number: int = 1) -> Version:
    flow = ms.Flow("f", switch_every="10 s")
    events = flow.source("events", ms.inbox("k string, v long, at timestamp"), time="at", key="k")
    some = events.sql("some", f"SELECT * FROM events WHERE v > -{number}")
    make(some).sink("out", ms.console())
    return Version.of(plan_of(flow))


def switched(old: Make, new: Make) -> SwitchPlan:
    return switch_plan(version(old, 1), version(new, 2))


@pytest.mark.parametrize(
    ("make", "column", "before"),
    [
        (rows, "at", "at"),
        (sliding, "window_start", "window_start"),
        (queried(sliding), "window_time", "window_time"),
        (matched, HIDDEN_START, HIDDEN_START),
        (joined("inner"), HIDDEN_START, "at"),
        (joined("left"), HIDDEN_START, "at"),
        (joined("full"), HIDDEN_START, "at"),
        (joined("semi"), "at", "at"),
        (queried(joined("inner")), "at", "at"),
    ],
)
def test_the_column_of_a_start_now_and_at_cuts_of_earlier_releases(
    make: Make, column: str, before: str
) -> None:
    plan = version(make).plan
    group = plan.group("out")
    found = [one(plan.flow, group.stages, group.output) for one in (start_of, start_before)]
    assert [one and one.column for one in found] == [column, before]


@pytest.mark.parametrize(
    ("old", "new", "look_back"),
    [
        (sliding, queried(sliding), 15),
        (queried(sliding), sliding, 15),
        (joined("inner"), queried(joined("inner")), 5),
        (queried(joined("inner")), joined("inner"), 5),
        (joined("semi"), joined("inner"), 5),
        (matched, joined("left"), 5),
        (matched, rows, 0),
    ],
)
def test_versions_whose_results_start_in_different_ways_go_by_the_time_of_both(
    old: Make, new: Make, look_back: int
) -> None:
    plan = switched(old, new)
    assert plan.unlike == {"out"}
    assert [unit.look_back for unit in plan.units] == [look_back * SECOND]


@pytest.mark.parametrize(
    ("make", "look_back"),
    [
        (rows, 0),
        (sliding, 0),
        (queried(sliding), 15),
        (matched, 0),
        (joined("inner"), 0),
        (joined("left"), 5),
        (queried(joined("inner")), 5),
    ],
)
def test_versions_whose_results_start_alike_go_by_that(make: Make, look_back: int) -> None:
    plan = switched(make, make)
    assert plan.unlike == set()
    assert [unit.look_back for unit in plan.units] == [look_back * SECOND]
