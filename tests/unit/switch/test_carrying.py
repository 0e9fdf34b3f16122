"""Which states are carried over at the cut, renamed, converted, dropped or refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import millstream as ms
from millstream.errors import SwitchRefused
from millstream.plan.groups import plan as plan_of
from millstream.switch.changes import Change, Move, StageChange, Version
from millstream.switch.plan import SwitchPlan, switch_plan
from millstream.switch.show import table, to_json
from millstream.switch.wishes import StateWishes, renames_of

DDL = "k string, v long, at timestamp"
Build = Callable[[ms.Stream], object]


def count(state: Any, row: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return state + 1, row


def total(state: Any, row: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return state + row["v"], row


def as_mapping(state: int) -> dict[str, int]:
    return {"n": state}


def folded(step: Any = count, name: str = "count", **options: Any) -> Build:
    given = {"initial": 0, "by": "k", **options}
    if "states" in given:
        del given["initial"]

    def build(rows: ms.Stream) -> None:
        rows.fold(name, step, output=DDL, **given).sink("out", ms.console())

    return build


def declared(**states: str) -> Build:
    return folded(states=states)


def version(build: Build) -> Version:
    flow = ms.Flow("f", switch_every="1 hour")
    source = flow.source("rows", ms.inbox(DDL), time="at", key="k", lateness="5 min")
    build(source)
    return Version.of(plan_of(flow))


def planned(old: Build, new: Build, **options: Any) -> SwitchPlan:
    return switch_plan(version(old), version(new), **options)


def stage_of(plan: SwitchPlan, name: str) -> StageChange:
    return next(one for group in plan.groups for one in group.stages if one.name == name)


def test_a_fold_whose_function_changed_keeps_its_state_at_the_cut() -> None:
    plan = planned(folded(count), folded(total))
    found = stage_of(plan, "count")
    assert (found.change, found.move, found.at_cut) == (Change.REPLACED, Move.CARRIED, True)
    (unit,) = plan.units
    assert (unit.carried, unit.moved, unit.by) == (True, False, "time")
    assert plan.obstacles == ()
    text = table(plan)
    assert "carried over at the cut" in text
    assert '"count" changes, and keeps its state' in text
    assert "results of out pause at the cut" in text
    assert '"count": --back is possible, and would carry its state back' in text
    assert to_json(plan)["units"][0]["carried"] is True


def test_a_fold_that_does_not_change_goes_over_at_a_position() -> None:
    def filtered(least: int) -> Build:
        def build(rows: ms.Stream) -> None:
            some = rows.sql("some", f"SELECT * FROM rows WHERE v > {least}")
            some.fold("count", count, initial=0, output=DDL, by="k").sink("out", ms.console())

        return build

    plan = planned(filtered(1), filtered(2))
    assert (plan.units[0].carried, plan.units[0].moved) == (False, True)
    assert "carried over by name" in table(plan)


def test_distinct_with_the_same_key_keeps_it_too() -> None:
    def once(within: str, by: str = "k") -> Build:
        return lambda rows: rows.distinct("once", by=by, within=within).sink("out", ms.console())

    assert planned(once("1 h"), once("2 h")).units[0].carried
    (obstacle,) = planned(once("1 h"), once("1 h", by="v")).obstacles
    assert "its state was kept by k string, and would be by v bigint" in obstacle.fact


def test_columns_may_be_added_and_widened_and_the_way_back_is_shown() -> None:
    plan = planned(declared(s="n int"), declared(s="n bigint, most double"))
    assert plan.obstacles == ()
    assert stage_of(plan, "count").fit.added == ((("s", "most"), None),)
    text = " ".join(table(plan).split())
    assert 'column "s.n" was int, and is bigint' in text
    assert "--back would need --consent drop:count" in text
    assert 'column "s.n" is bigint, and would be int; column "s.most" would be gone' in text


def test_columns_that_do_not_fit_are_refused_with_all_differences_and_the_ways_out() -> None:
    plan = planned(declared(s="n bigint, total double"), declared(s="n int"))
    (obstacle,) = plan.obstacles
    assert 'column "s.n" is bigint, and would be int; column "s.total" would be gone' in (
        obstacle.fact
    )
    assert "convert=" in obstacle.hint
    assert "--consent drop:count" in obstacle.hint
    agreed = planned(
        declared(s="n bigint, total double"), declared(s="n int"), consent=["drop:count"]
    )
    assert (agreed.obstacles, stage_of(agreed, "count").move) == ((), Move.DROPPED)


def test_a_stage_that_is_renamed_takes_its_state_along() -> None:
    refused = planned(folded(), folded(name="counted"))
    assert "--state count=counted" in refused.obstacles[0].hint
    plan = planned(folded(), folded(name="counted"), states={"count": "counted"})
    found = stage_of(plan, "counted")
    assert (found.move, found.source, found.at_cut) == (Move.CARRIED, "count", True)
    assert plan.obstacles == ()
    assert 'carried over at the cut, from "count"' in table(plan)
    assert [one.name for group in plan.groups for one in group.stages] == ["rows", "counted"]


def test_states_of_a_fold_are_renamed_and_dropped_by_themselves() -> None:
    old, new = declared(a="n int", b="n int"), declared(c="n int")
    assert planned(old, new).obstacles
    plan = planned(old, new, states={"count.a": "count.c"}, consent=["drop:count.b"])
    assert plan.obstacles == ()
    fit = stage_of(plan, "count").fit
    assert fit.value({"a": {"n": 1}, "b": {"n": 2}}) == {"c": {"n": 1}}


def test_a_name_that_no_version_has_is_refused() -> None:
    plan = planned(folded(), folded(total), states={"cuont": "count"})
    assert 'the running version has no stage "cuont"' in " ".join(
        one.fact for one in plan.obstacles
    )
    gone = planned(folded(), folded(total), states={"count": "cuont"})
    assert 'the new version has no stage "cuont"' in " ".join(one.fact for one in gone.obstacles)


def test_convert_takes_any_state_and_is_used_in_the_switch_that_brings_it() -> None:
    converted = folded(initial={"n": 0}, convert=as_mapping)
    assert planned(folded(), folded(initial={"n": 0})).obstacles
    plan = planned(folded(), converted)
    assert plan.obstacles == ()
    assert stage_of(plan, "count").fit.value(3) == {"n": 3}
    # It stays in the flow, and must not get what it has made itself.
    later = planned(converted, folded(total, initial={"n": 0}, convert=as_mapping))
    assert stage_of(later, "count").fit.as_it_is
    # It is no part of what a stage means.
    assert planned(converted, folded(initial={"n": 0})).changed == ()


def test_state_that_is_carried_over_is_not_shared_out_nor_taken_from_the_past() -> None:
    shared = planned(folded(count), folded(total), mode="share")
    assert "cannot be shared out" in shared.obstacles[0].fact
    shadow = planned(folded(count), folded(total), mode="shadow")
    assert "nothing can run in the shadow" in shadow.obstacles[0].fact


def test_state_begins_empty_where_everything_is_processed_again() -> None:
    some = datetime(2026, 1, 1, tzinfo=UTC)
    plan = planned(folded(count), folded(total), since=some)
    assert 'the state that stage "count" had at' in plan.obstacles[0].fact
    everything = planned(folded(count), folded(total), since=datetime.fromtimestamp(0, UTC))
    assert stage_of(everything, "count").move is Move.EMPTY
    assert not any("the state" in one.fact for one in everything.obstacles)


@pytest.mark.parametrize("where", ["before", "behind", "fold behind"])
def test_a_group_with_windows_or_two_folds_goes_over_at_a_position(where: str) -> None:
    def build(step: Any) -> Build:
        def made(rows: ms.Stream) -> None:
            if where == "before":
                rows = rows.window("w", every="1 h", by="k", v="sum(v)")
            ddl = "k string, window_time timestamp" if where == "before" else DDL
            found = rows.fold("count", step, initial=0, output=ddl, by="k")
            if where == "behind":
                found = found.window("w", every="1 h", by="k", n="count(*)")
            if where == "fold behind":
                found = found.fold("again", count, initial=0, output=DDL, by="k")
            found.sink("out", ms.console())

        return made

    (unit,) = planned(build(count), build(total)).units
    assert (unit.carried, unit.moved) == (False, True)


def test_a_switch_that_began_at_a_position_ends_there() -> None:
    (unit,) = planned(folded(count), folded(total), by_position=["out"]).units
    assert (unit.carried, unit.moved) == (False, True)


def test_arrival_order_has_no_cut_in_time() -> None:
    plan = planned(folded(count, order="arrival"), folded(total, order="arrival"))
    assert (plan.units[0].carried, plan.units[0].moved) == (False, True)


# names


def test_a_rename_map_is_read_from_texts() -> None:
    assert renames_of(["a=b", " c.d = c.e "]) == {"a": "b", "c.d": "c.e"}
    for wrong in (["a"], ["a="], ["=b"], ["a=b", "a=c"], ["a=c", "b=c"]):
        with pytest.raises(SwitchRefused, match="does not rename one state"):
            renames_of(wrong)


def test_a_state_stays_in_its_stage() -> None:
    with pytest.raises(SwitchRefused, match='its stage is not "b"'):
        StateWishes({"a.x": "b.x"})
    assert StateWishes({"a": "b", "a.x": "b.y"}).renamed("a") == {"x": "y"}
    with pytest.raises(SwitchRefused, match="cannot become"):
        StateWishes({"a": "b.x"})


def test_two_stages_may_exchange_their_states() -> None:
    wishes = StateWishes({"a": "b", "b": "a"})
    assert [wishes.source(name) for name in "abc"] == ["b", "a", "c"]
    assert StateWishes({"a": "b"}).source("a") == ""
