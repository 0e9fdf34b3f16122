"""Whatever flow can be built can be planned, and nothing gets lost on the way."""

import json
import tempfile
from datetime import timedelta
from pathlib import Path

from hypothesis import given, settings

from millstream.flow.describe import describe
from millstream.flow.dump import dump
from millstream.flow.stages import Distinct, Fold, Join, Journal, Reads, Source, Window
from millstream.flow.yaml import load
from millstream.plan import draw
from millstream.plan.fingerprint import difference, digest, fingerprint, normal
from millstream.plan.groups import plan as plan_of
from property.plan_flows import flows

ENTRIES = Source | Reads | Journal


@settings(max_examples=50)
@given(flows())
def test_every_stage_that_reaches_an_output_is_in_a_group(flow):
    plan = plan_of(flow)
    planned = {name for group in plan.groups for name in group.stages}
    written = {group.journal for group in plan.groups if group.journal is not None}
    assert planned | written == set(flow.stages) - set(flow.unused()) | written
    assert sorted(name for group in plan.groups for name in group.sinks) == sorted(flow.sinks)
    assert written == {name for name, stage in flow.stages.items() if isinstance(stage, Journal)}


@settings(max_examples=50)
@given(flows())
def test_a_group_is_closed_and_in_order(flow):
    for group in plan_of(flow).groups:
        seen: set[str] = set()
        for name in group.stages:
            stage = flow.stages[name]
            assert isinstance(stage, ENTRIES) or set(stage.inputs) <= seen
            seen.add(name)
        assert group.output in group.stages
        assert bool(group.sinks) != (group.journal is not None)
        reads = {
            stage.journal if isinstance(stage, Reads) else stage.name
            for stage in map(flow.stages.get, group.stages)
            if isinstance(stage, ENTRIES)
        }
        assert set(group.inputs) == reads


@settings(max_examples=50)
@given(flows())
def test_names_of_groups_are_unique_and_their_facts_follow_from_their_stages(flow):
    groups = plan_of(flow).groups
    assert len({group.name for group in groups}) == len(groups)
    for group in groups:
        stages = [flow.stages[name] for name in group.stages]
        assert group.stateful == any(
            isinstance(stage, Window | Join | Distinct | Fold) for stage in stages
        )
        assert set(group.handed_over) == {
            stage.name for stage in stages if isinstance(stage, Distinct | Fold)
        }
        bounded = [group.horizon, group.look_back, group.behind, group.lateness]
        assert all(length is None or length >= timedelta(0) for length in bounded)
        open_end = any(
            isinstance(stage, Window) and stage.shape == "session" and stage.longest is None
            for stage in stages
        )
        assert (group.horizon is None) == open_end
        assert group.behind <= sum(
            (stage.within for stage in stages if isinstance(stage, Join)), timedelta(0)
        )


@settings(max_examples=50)
@given(flows())
def test_a_group_comes_after_what_it_reads_unless_they_form_a_cycle(flow):
    groups = plan_of(flow).groups
    place = {group.journal: at for at, group in enumerate(groups) if group.journal is not None}
    reads = {
        at: {place[name] for name in group.inputs if name in place}
        for at, group in enumerate(groups)
    }
    for at, read in reads.items():
        assert all(at in above(reads, later) for later in read if later >= at)


def above(reads: dict[int, set[int]], start: int) -> set[int]:
    found: set[int] = set()
    waiting = [start]
    while waiting:
        for other in reads[waiting.pop()] - found:
            found.add(other)
            waiting.append(other)
    return found | {start}


@settings(max_examples=40)
@given(flows())
def test_a_plan_can_be_shown_in_every_way(flow):
    plan = plan_of(flow)
    json.dumps(draw.to_json(plan))
    json.dumps(describe(flow))
    lines = draw.tree(plan).splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert sum(line.startswith(("├─ ", "└─ ")) for line in lines) == len(plan.groups)


@settings(max_examples=40)
@given(flows())
def test_a_fingerprint_is_json_and_its_normal_form_is_stable(flow):
    plan = plan_of(flow)
    for group in plan.groups:
        one = fingerprint(plan, group.name)
        again = json.loads(json.dumps(one))
        assert difference(one, again) == []
        assert digest(one) == digest(again)
        assert json.loads(json.dumps(normal(one))) == normal(one)


@settings(max_examples=50)
@given(flows(functions=False))
def test_a_flow_without_functions_survives_yaml(flow):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "flow.yaml"
        file.write_text(dump(flow))
        again = load(file)
    assert again == flow
    assert dump(again).splitlines()[:2] == dump(flow).splitlines()[:2]
    names = {group.name for group in plan_of(flow).groups}
    assert {group.name for group in plan_of(again).groups} == names
    for name in names:
        assert difference(fingerprint(plan_of(flow), name), fingerprint(plan_of(again), name)) == []
