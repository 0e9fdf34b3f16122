"""What a plan says of patterns whose runs are carried over at the cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.plan.groups import plan as plan_of
from millstream.switch.changes import Move, Version
from millstream.switch.plan import SwitchPlan, switch_plan
from millstream.switch.show import table
from unit.docs.blocks import DOCS
from unit.docs.test_guide import Page

DDL = "k string, v long, at timestamp"
#: Runs of it may wait for ever, and its matches drop others.
SKIPPING = (
    ms.Pattern()
    .begin("a", "v > 1")
    .followed_by("b", "v > a.v")
    .followed_by("c", "v < 0")
    .skip_past_last()
)


def version(pattern: Any, name: str = "m", ddl: str = DDL, **options: Any) -> Version:
    flow = ms.Flow("f", switch_every="1 hour")
    rows = flow.source("rows", ms.inbox(ddl), time="at", key="k", lateness="5 min")
    if isinstance(pattern, str):
        rows.sql(name, pattern).sink("out", ms.console())
    else:
        rows.match(name, pattern, **options).sink("out", ms.console())
    return Version.of(plan_of(flow))


def planned(old: Any, new: Any, emit: str | None = "k, a.v as first", **options: Any) -> SwitchPlan:
    return switch_plan(version(old, emit=emit), version(new, emit=emit), **options)


def move_of(plan: SwitchPlan) -> Move:
    return next(one.move for group in plan.groups for one in group.stages if one.name == "m")


def changed(*names: str, **conditions: str) -> ms.Pattern:
    first, *rest = names
    pattern = ms.Pattern().begin(first, conditions.get(first, "v > 2"))
    for name in rest:
        pattern = pattern.followed_by(name, conditions.get(name, "v > 3"))
    return pattern.skip_past_last()


@pytest.mark.parametrize(
    "new", [changed("a", "b", "c"), changed("a", "b", "x", "c"), changed(*"abcd")]
)
def test_runs_go_on_while_their_blocks_are_the_first_ones(new: ms.Pattern) -> None:
    plan = planned(SKIPPING, new)
    assert (plan.obstacles, move_of(plan)) == ((), Move.CARRIED)
    (unit,) = plan.units
    assert (unit.carried, unit.moved, unit.by) == (True, False, "time")
    assert "go on by the new conditions" in table(plan)


def test_without_a_limit_and_without_a_skip_runs_are_carried_over_too() -> None:
    old, new = (ms.Pattern().begin("a", f"v > {n}").followed_by("b", "v < 0") for n in (1, 2))
    plan = planned(old, new)
    assert (plan.obstacles, move_of(plan), plan.units[0].carried) == ((), Move.CARRIED, True)


def test_a_block_that_is_gone_needs_an_heir_or_consent() -> None:
    new = changed("a", "x", "c")
    (obstacle,) = planned(SKIPPING, new).obstacles
    assert 'would be lost: block "b" is gone' in obstacle.fact
    assert "--state m.b=m.NAME" in obstacle.hint
    assert "--consent drop:m.b" in obstacle.hint
    renamed = planned(SKIPPING, new, states={"m.b": "m.x"})
    assert (renamed.obstacles, move_of(renamed)) == ((), Move.CARRIED)
    assert 'block "b" is called "x" now' in table(renamed)
    dropped = planned(SKIPPING, new, consent=["drop:m.b"])
    assert (dropped.obstacles, move_of(dropped)) == ((), Move.CARRIED)
    assert 'runs that have taken "b" are dropped' in table(dropped)
    everything = planned(SKIPPING, new, consent=["drop:m"])
    assert (everything.obstacles, move_of(everything)) == ((), Move.DROPPED)
    (unit,) = everything.units
    assert (unit.moved, unit.carried) == (False, True)  # neither version has rows of the other side
    assert "drops its state at the cut" in table(everything)
    shared = planned(SKIPPING, new, consent=["drop:m"], mode="share")
    assert not shared.units[0].carried  # the old version goes on with it


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (changed("a", "b"), 'the pattern ends with block "b" now'),
        (changed("a", "c", "b"), 'block "b" stands elsewhere'),
        (changed("a", "b", "d"), 'block "c" is gone'),  # a match with it may wait
    ],
)
def test_runs_that_have_nowhere_to_wait_are_named(new: ms.Pattern, why: str) -> None:
    assert why in planned(SKIPPING, new).obstacles[0].fact


def test_a_condition_may_ask_only_for_what_is_kept() -> None:
    new = changed("a", "b", "c", c="v < sum(b.v)")
    assert planned(SKIPPING, new).obstacles == (), "v is kept, since a match emits it"
    (obstacle,) = planned(SKIPPING, new, emit="k, count(a.*) as n").obstacles
    assert 'asks for the sum of v of block "b", which is not kept' in obstacle.fact
    assert planned(SKIPPING, new, emit=None).obstacles == (), "all columns are kept"


def test_what_a_match_of_kept_events_will_lack_is_shown() -> None:
    plan = switch_plan(
        version(SKIPPING, emit="k, a.v as first"),
        version(SKIPPING, emit="k, a.v as first, a.at as began"),
    )
    assert plan.obstacles == ()
    assert "at of events before the cut is not kept" in table(plan)


def test_a_shorter_time_ends_runs_at_the_cut() -> None:
    plan = planned(SKIPPING.within("1 h"), SKIPPING.within("20 min"))
    assert plan.obstacles == ()
    assert "runs that began 20 min or more before the cut end there" in table(plan)


def test_other_shards_or_another_key_cannot_take_runs_over() -> None:
    emit = "count(a.*) as n"
    old = version(SKIPPING, emit=emit)
    (obstacle,) = switch_plan(old, version(changed(*"abc"), emit=emit, shards=4)).obstacles
    assert "spread over 16 shards, and would be over 4" in obstacle.fact
    (obstacle,) = switch_plan(old, version(SKIPPING, emit=emit, by=[])).obstacles
    assert "its state was kept by k string, and would be by nothing" in obstacle.fact


def test_a_group_with_matches_that_are_owned_by_their_start_is_not_cut_at_its_sources() -> None:
    def merged(least: int) -> Version:
        flow = ms.Flow("f", switch_every="1 hour")
        rows = flow.source("rows", ms.inbox(DDL), time="at", key="k", lateness="5 min")
        pattern = ms.Pattern().begin("a", f"v > {least}").followed_by("b", "v < 0")
        owned = rows.match("owned", pattern.within("1 h"), emit="k, a.v as v")
        found = rows.match("m", pattern.skip_past_last(), emit="k, a.v as v")
        owned.merge("both", found).sink("out", ms.console())
        return Version.of(plan_of(flow))

    plan = switch_plan(merged(1), merged(2))
    assert not plan.units[0].carried
    assert 'stage "owned" beside it is replaced' in plan.obstacles[0].fact


def test_a_row_pattern_is_carried_over() -> None:
    def clause(least: int) -> str:
        return f"""SELECT * FROM rows MATCH_RECOGNIZE (
            PARTITION BY k ORDER BY at MEASURES LAST(b.v) AS v
            PATTERN (a b+ c) DEFINE b AS v > {least}, c AS v < PREV(v))"""

    plan = switch_plan(version(clause(1)), version(clause(2)))
    assert (plan.obstacles, move_of(plan), plan.units[0].carried) == ((), Move.CARRIED, True)


def test_a_pattern_of_a_phenomenon_that_is_gone_needs_consent() -> None:
    one, other = (
        ms.Pattern(name).begin("a", "v > 1").next("b", "v < 0").skip_past_last() for name in "pq"
    )
    both, rest = ms.Phenomenon("both", [one, other]), ms.Phenomenon("both", [one])
    (obstacle,) = planned(both, rest).obstacles
    assert 'pattern "q" is gone' in obstacle.fact
    assert planned(both, rest, consent=["drop:m.q"]).obstacles == ()
    assert planned(rest, both).obstacles == ()


def test_the_patterns_of_the_cookbook_are_switched_without_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = Page(DOCS / "guide" / "cookbook.md")
    page.run()
    found = {name: one for name, one in page.names.items() if isinstance(one, ms.Pattern)}
    found = {name: one for name, one in found.items() if one.span is not None}
    assert len(found) > 10
    columns = ["amount", "delay", "degrees", "level", "kwh"]
    ddl = ", ".join([*(f"{name} double" for name in columns), "country string, host string"])
    ddl += ", kind string, ok string, step string, k string, at timestamp"
    for name, pattern in found.items():
        longer, skipping = pattern.within("2 hours"), pattern.skip_past_last()
        for before, after in (
            (pattern, longer),
            (skipping, longer.skip_past_last()),
            (skipping, pattern.skip_to_next()),
            (pattern.singleton(), longer.singleton()),
        ):
            plan = switch_plan(version(before, ddl=ddl), version(after, ddl=ddl))
            assert plan.obstacles == (), (name, table(plan))


def test_matches_that_wait_cannot_go_over_to_a_pattern_that_does_not_skip() -> None:
    new = ms.Pattern().begin("a", "v > 1").followed_by("b", "v > a.v").followed_by("c", "v < 0")
    (obstacle,) = planned(SKIPPING, new).obstacles
    assert "matches that wait for earlier runs" in obstacle.fact
    assert "--consent drop:m.held" in obstacle.hint
    assert planned(SKIPPING, new, consent=["drop:m.held"]).obstacles == ()
