"""Whatever is edited in whatever flow: exactly what it touches is switched, in units that do not touch each other."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream.flow.dump import dump
from millstream.flow.yaml import load
from millstream.plan.groups import Plan
from millstream.plan.groups import plan as plan_of
from millstream.switch.changes import Change, Version
from millstream.switch.plan import SwitchPlan, switch_plan
from millstream.switch.show import table, to_json
from property.plan_flows import flows

Draw = Callable[[st.SearchStrategy[Any]], Any]


def edited(draw: Draw, data: dict[str, Any]) -> str | None:
    """Change one stage's meaning; return its name, or None if none can be."""
    stages: dict[str, Any] = data.get("stages") or {}
    ways = [
        name for name, stage in stages.items() if {"window", "sql", "within", "gap"} & set(stage)
    ]
    if not ways:
        return None
    name = draw(st.sampled_from(sorted(ways)))
    stage = stages[name]
    if "sql" in stage:
        stage["sql"] += " AND w > 7"
    elif "gap" in stage:
        stage["gap"] = "4 min"
    elif "within" in stage:
        stage["within"] = "3 min"
    else:
        stage["aggregates"]["v"] = "min(v)"
    return name


def named(data: Any) -> Any:
    """Return the data with its keys as texts: the library reads `on` as a truth value."""
    if isinstance(data, list):
        return [named(value) for value in data]
    return (
        {"on" if key is True else key: named(value) for key, value in data.items()}
        if isinstance(data, dict)
        else data
    )


@st.composite
def edits(draw: Draw) -> tuple[ms.Flow, ms.Flow, str | None]:
    """Return a flow, the flow with one stage changed, and the stage."""
    flow = draw(flows(functions=False, most=9))
    data = named(yaml.safe_load(dump(flow)))
    name = edited(draw, data)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "flow.yaml"
        file.write_text(yaml.safe_dump(data, sort_keys=False))
        return flow, load(file), name


def planned(old: ms.Flow, new: ms.Flow) -> SwitchPlan:
    return switch_plan(Version.of(plan_of(old)), Version.of(plan_of(new)))


@settings(max_examples=25)
@given(edits())
def test_a_changed_stage_replaces_the_groups_that_it_is_in_and_no_other(given):
    old, new, name = given
    plan = planned(old, new)
    touched = {group.name for group in plan_of(old).groups if name in group.stages}
    assert {group.name for group in plan.changed} == torn(plan_of(old), touched)
    for group in plan.changed:
        changed = [stage.name for stage in group.stages if stage.change is not Change.KEPT]
        assert changed == ([name] if group.name in touched else [])


def torn(plan: Plan, changed: set[str]) -> set[str]:
    """Return changed groups with those that read a journal of which each version has its own."""
    uses = [use for use in plan.journals.values() if use.kind == "group"]
    while private := [
        use
        for use in uses
        if use.writer in changed and changed & set(use.readers) and set(use.readers) - changed
    ]:
        changed = changed.union(*(use.readers for use in private))
    return changed


def pairs(plan: Plan) -> set[tuple[str, str]]:
    """Return (writer, reader) for all groups that meet at a journal."""
    return {
        (use.writer, reader)
        for use in plan.journals.values()
        if use.kind == "group"
        for reader in use.readers
    }


@settings(max_examples=25)
@given(flows(functions=False, most=9), flows(functions=False, most=9))
def test_units_are_what_hangs_together(old, new):
    plan = planned(old, new)
    members = [name for unit in plan.units for name in unit.groups]
    assert sorted(members) == sorted(group.name for group in plan.changed)
    meeting = pairs(plan.old) | pairs(plan.new)
    place = {name: number for number, unit in enumerate(plan.units) for name in unit.groups}
    assert all(place[a] == place[b] for a, b in meeting if a in place and b in place)
    for unit in plan.units:
        reached, waiting = {unit.groups[0]}, [unit.groups[0]]
        while waiting:
            one = waiting.pop()
            near = {b for a, b in meeting if a == one} | {a for a, b in meeting if b == one}
            waiting += (near & set(unit.groups)) - reached
            reached |= near & set(unit.groups)
        assert reached == set(unit.groups)


@settings(max_examples=25)
@given(edits())
def test_a_unit_reaches_at_least_as_far_as_each_of_its_groups(given):
    plan = planned(*given[:2])
    for unit in plan.units:
        for name in unit.groups:
            horizon, look_back = plan.old.group(name).horizon, plan.new.group(name).look_back
            assert unit.horizon is None or (horizon is not None and unit.horizon >= horizon)
            assert unit.look_back is None or (look_back is not None and unit.look_back >= look_back)


@settings(max_examples=25)
@given(flows(functions=False, most=9), flows(functions=False, most=9))
def test_there_and_back_what_was_new_is_removed(old, new):
    there, back = planned(old, new), planned(new, old)
    turned = {Change.NEW: Change.REMOVED, Change.REMOVED: Change.NEW}
    assert {one.name: turned.get(one.change, one.change) for one in there.groups} == {
        one.name: one.change for one in back.groups
    }
    assert not there.step % old.switch_every
    assert not there.step % new.switch_every


@settings(max_examples=25)
@given(flows(functions=False, most=9), flows(functions=False, most=9))
def test_any_plan_of_a_switch_can_be_shown(old, new):
    plan = planned(old, new)
    data = to_json(plan)
    assert json.loads(json.dumps(data)) == data
    lines = table(plan).splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert all(any(line.startswith(f" {group.name} ") for line in lines) for group in plan.groups)


@settings(max_examples=25)
@given(flows(most=9))
def test_a_flow_switched_to_itself_changes_nothing(flow):
    plan = planned(flow, flow)
    assert plan.changed == ()
    assert plan.units == ()
    assert plan.obstacles == ()
