"""Switches under every trouble that seeds can draw; and with a rule broken, which must be noticed."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from itertools import chain

import pytest

from millstream.errors import SwitchRefused
from millstream.journal.align import FOREVER_US
from millstream.switch import cut, machine
from millstream.switch.cut import Owners
from millstream.switch.events import (
    AbortRequested,
    Drained,
    Event,
    FirstFound,
    SwitchRequested,
)
from millstream.switch.instructions import LetGo, Release, Remove, Retire, Write
from millstream.switch.machine import Step
from millstream.switch.phases import Aborting, Job, Overlapping, Replacement, Retiring, State
from millstream.switch.record import Phase, Record
from millstream.switch.request import SwitchRequest
from simulation.switch.scenario import Arrival, Crash, Scenario, Wish, drawn
from simulation.switch.shapes import Reach, Result, Row, Shape, reach
from simulation.switch.shrink import shrunk
from simulation.switch.world import OURS, Rules, World, story, violation

#: More of them with `make prove`.
SEEDS = max(2_000, 1_000 * int(os.environ.get("PROVE", "0")))


@pytest.mark.slow
def test_every_seed_keeps_all_promises() -> None:
    for seed in range(SEEDS):
        found = violation(drawn(seed))
        if found is not None:
            told = "\n".join(story(shrunk(drawn(seed))))
            pytest.fail(f"seed {seed}: {found}\n{told}", pytrace=False)


def test_the_same_seed_is_the_same_story() -> None:
    for seed in range(10):
        assert story(drawn(seed)) == story(drawn(seed))


def test_the_seeds_reach_every_phase_and_every_trouble_often() -> None:
    seen: Counter[str] = Counter()
    for seed in range(300):
        world = World(drawn(seed))
        world.run()
        told = [line[7:] for line in world.lines]
        seen.update(line.partition(":")[0] for line in told if line.partition(":")[0] in set(Phase))
        seen["deaths"] += world.deaths
        seen["refused"] += sum(line.startswith("refused") for line in told)
        seen["asked again"] += sum("asked again" in line for line in told)
        seen["goes on"] += sum("continues after a stop" in line for line in told)
        seen["too long"] += sum("took too long" in line for line in told)
        seen["shares"] += sum("share of version" in line for line in told)
        seen["back"] += sum("goes back" in line for line in told)
        seen["several cuts"] += len(world.history.stretches) > 1
    kinds = [
        *Phase,
        "deaths",
        "refused",
        "asked again",
        "goes on",
        "too long",
        "shares",
        "back",
        "several cuts",
    ]
    assert {kind: seen[kind] for kind in kinds if seen[kind] < 5} == {}


# cases that the design names


def lived(
    first: Shape, then: Shape, rows: list[Row], *, at: int = 1, window: int = 10, lateness: int = 0
) -> World:
    """Run a life with one switch, one row after the other in a single partition."""
    arrivals = tuple(Arrival(0 if number < at else 300, 0, row) for number, row in enumerate(rows))
    world = World(Scenario(1, window, lateness, 1, first, arrivals, (Wish(50, "switch", then),)))
    world.run()
    return world


def published(world: World, version: str) -> list[tuple[int, tuple[object, ...]]]:
    found = [
        one for (name, _, _), part in world.published.items() if name == version for one in part
    ]
    return sorted((one.start, one.content) for one in found)


TEN = Shape("tumbling", 10, 10)


def test_a_window_that_starts_exactly_at_the_cut_is_published_by_the_new_version_only() -> None:
    world = lived(TEN, TEN, [Row(5, "k", 1), Row(19, "k", 2), Row(20, "k", 3), Row(31, "k", 4)])
    assert world.history.stretches[0].from_us == 20
    assert [start for start, _ in published(world, "v0")] == [0, 10]
    assert [start for start, _ in published(world, "v1")] == [20, 30]


def test_a_session_that_spans_the_cut_is_whole_and_the_old_version_s() -> None:
    shape = Shape("sessions", 0, 4)
    world = lived(
        shape,
        shape,
        [Row(5, "k", 1), Row(18, "k", 2), Row(20, "k", 3), Row(22, "k", 4), Row(40, "k", 5)],
    )
    assert published(world, "v0") == [(5, (5, (1,))), (18, (18, (2, 3, 4)))]
    assert published(world, "v1") == [(40, (40, (5,)))]


def test_windows_of_windows_hold_what_began_before_the_cut() -> None:
    shape = Shape("windows of windows", 6, 2)
    rows = [Row(5, "k", 1), Row(19, "k", 2), Row(21, "k", 3), Row(40, "k", 4)]
    world = lived(shape, shape, rows)
    alone = shape.results(rows)
    assert sorted([*published(world, "v0"), *published(world, "v1")]) == sorted(
        (one.start, one.content) for one in alone
    )


PAIRED = [Row(2, "k", 2), Row(19, "k", 3), Row(21, "k", 4), Row(40, "k", 6)]


def test_a_row_of_an_outer_join_whose_partner_lies_before_the_cut_is_not_alone() -> None:
    world = lived(Shape("joined rows", 3), Shape("joined rows", 3), PAIRED)
    assert published(world, "v1") == [(21, (4, 3)), (40, (6, None))]


@pytest.mark.parametrize("kind", ["join", "outer join", "full join"])
def test_a_pair_belongs_to_the_version_of_its_earlier_row_whichever_side_that_is(kind: str) -> None:
    swapped = [row._replace(id=row.id ^ 1) for row in PAIRED]
    for rows, pair in ((PAIRED, (4, 3)), (swapped, (2, 5))):
        world = lived(Shape(kind, 3), Shape(kind, 3), rows)
        assert (19, pair) in published(world, "v0")
        assert pair not in [content for _, content in published(world, "v1")]


def test_a_partition_that_never_had_a_row_neither_stops_nor_delays_a_switch() -> None:
    arrivals = [Arrival(0, 0, Row(5, "k", 1)), Arrival(0, 1, floor=5)]
    arrivals += [
        Arrival(200 + n, n % 2, Row(20 + n, "k", n + 2) if n % 2 == 0 else None, 20 + n)
        for n in range(20)
    ]
    world = World(Scenario(1, 10, 0, 2, TEN, tuple(arrivals), (Wish(50, "switch", TEN),)))
    world.run()
    assert len(published(world, "v1")) == 2


def test_versions_whose_window_sizes_differ_are_cut_at_a_boundary_of_both() -> None:
    rows = [Row(time, "k", time) for time in range(5, 60, 3)]
    world = lived(Shape("tumbling", 4, 4), Shape("tumbling", 10, 10), rows)
    cut_at = world.history.stretches[0].from_us
    assert cut_at % 20 == 0
    counted = [
        one for version in ("v0", "v1") for _, (_, ids) in published(world, version) for one in ids
    ]
    assert sorted(counted) == [row.id for row in rows]


ROWS = [Row(time, "k", time) for time in range(2, 60, 2)]


def dying(at: int) -> Scenario:
    """Return a life with one switch in which the driver dies at a step, and soon after that once more."""
    arrivals = tuple(Arrival(4 * number, 0, row) for number, row in enumerate(ROWS))
    shape = Shape("sliding", 10, 5)
    return Scenario(
        1, 10, 3, 1, shape, arrivals, (Wish(5, "switch", shape),), (Crash(at), Crash(at + 17))
    )


def idling(at: int) -> Scenario:
    """Return a life with one switch in which the only partition says at a step that it is idle, up to after the cut."""
    arrivals = (Arrival(0, 0, Row(12, "k", 1)), Arrival(at, 0, floor=60))
    shape = Shape("window rows", 30, 10)
    return Scenario(at, 4, 0, 1, shape, arrivals, (Wish(5, "switch", shape),))


def test_a_floor_that_rises_at_any_step_of_a_switch_changes_nothing() -> None:
    for at in range(1, 120):
        assert violation(idling(at)) is None


def test_a_crash_at_any_step_of_a_switch_changes_nothing() -> None:
    for at in range(1, 220):
        world = World(dying(at))
        world.run()
        assert sum(len(part) for part in world.published.values()) == len(
            dying(at).first.results(ROWS)
        )


# broken rules


def reads_from_the_cut(cut_us: int, look_back: int | None) -> int:
    return cut_us


def retires_at_the_cut(watermark: int | None, cut_us: int, horizon: int) -> bool:
    return watermark is not None and watermark >= min(cut_us, FOREVER_US)


def closes_without_lateness(progress: int | None, cut_us: int, horizon: int, lateness: int) -> bool:
    return cut.beyond(progress, cut_us, horizon, 0)


def never_passed(highest: int | None, bound: int | None) -> bool:
    return False


def owned_by_end(owners: Owners, version: str, one: Result) -> bool:
    end = one.start if one.complete is None else min(one.complete, FOREVER_US)
    return owners.owner(end, one.key) == version


def owned_by_both(owners: Owners, version: str, one: Result) -> bool:
    return True


def floors_uncounted(running_max: int | None, floor: int | None, length: int) -> int | None:
    return cut.handed_out(running_max, None, length)


def floors_unpromised(floor: int | None, cut_us: int) -> int | None:
    return floor


def inside_a_window(old: Shape, new: Shape, window: int) -> Reach:
    return reach(old, new, window)._replace(step=1)


def late_record(state: State, event: Event, now_us: int) -> Step:
    """Lets versions go before the record is written."""
    step = machine.advance(state, event, now_us)
    if isinstance(event, FirstFound) and step.instructions:
        return replace(step, instructions=(*step.instructions[1:], step.instructions[0]))
    return step


def removed_before_it_is_written(state: State, event: Event, now_us: int) -> Step:
    step = machine.advance(state, event, now_us)
    if isinstance(event, Drained) and isinstance(step.state, Retiring):
        return replace(
            step,
            instructions=tuple(sorted(step.instructions, key=lambda one: isinstance(one, Write))),
        )
    return step


def aborts_past_the_cut(state: State, event: Event, now_us: int) -> Step:
    if isinstance(event, AbortRequested) and isinstance(state, Overlapping):
        return Step(Aborting(state.job, state.new), (LetGo(), Remove(state.next)))
    return machine.advance(state, event, now_us)


def holds_for_good(state: State, event: Event, now_us: int) -> Step:
    """Forgets to let partitions go that have promised."""
    step = machine.advance(state, event, now_us)
    return replace(
        step, instructions=tuple(one for one in step.instructions if not isinstance(one, LetGo))
    )


def begins_anew(record: Record, now_us: int) -> Step:
    """Gives up a switch past its cut when the driver comes back."""
    if record.phase is Phase.OVERLAPPING and record.next is not None:
        job = Job(record.current, record.owners, record.number)
        return Step(
            Aborting(job, Replacement(record.next)), (Release(record.current), Remove(record.next))
        )
    return machine.recover(record, now_us)


def first_forgotten(record: Record, now_us: int) -> Step:
    """Comes back with the old version only; the new one is thought to be done with."""
    step = machine.recover(record, now_us)
    if isinstance(step.state, Overlapping):
        return replace(
            step,
            state=Retiring(step.state.job, step.state.new, step.state.leaving),
            instructions=(*step.instructions, Retire(record.leaving or "")),
        )
    return step


BROKEN = [
    (Rules(reads_from=reads_from_the_cut), {"once"}),
    (Rules(drained=retires_at_the_cut), {"once"}),
    (Rules(beyond=closes_without_lateness), {"once"}),
    (Rules(passed=never_passed), {"once"}),
    (Rules(promises=False), {"once"}),
    (Rules(owns=owned_by_end), {"once"}),
    (Rules(owns=owned_by_both), {"once"}),
    (Rules(handed_out=floors_uncounted), {"once"}),
    (Rules(promised_floor=floors_unpromised), {"once"}),
    (Rules(reach=inside_a_window), {"once"}),
    (Rules(advance=late_record), {"once", "repeatable", "jam"}),
    (Rules(advance=removed_before_it_is_written), {"once", "repeatable"}),
    (Rules(advance=aborts_past_the_cut), {"once", "jam"}),
    (Rules(advance=holds_for_good), {"gap", "jam"}),
    (Rules(recover=begins_anew), {"once", "jam"}),
    (Rules(recover=first_forgotten), {"once", "jam"}),
]


def named(rules: Rules) -> str:
    changed = next(
        getattr(rules, name)
        for name in Rules.__slots__
        if getattr(rules, name) is not getattr(OURS, name)
    )
    return getattr(changed, "__name__", "no_promises")


@pytest.mark.parametrize(
    ("rules", "promises"), [pytest.param(*one, id=named(one[0])) for one in BROKEN]
)
def test_a_broken_rule_is_noticed(rules: Rules, promises: set[str]) -> None:
    scenarios = chain(
        map(idling, range(1, 120)), map(dying, range(1, 300)), map(drawn, range(1000))
    )
    found = next(
        (one for scenario in scenarios if (one := violation(scenario, rules)) is not None), None
    )
    assert found is not None, "nothing is noticed"
    assert found.promise in promises, found


def test_a_failing_seed_is_shrunk_to_a_story_that_fails_for_the_same_reason() -> None:
    rules = Rules(drained=retires_at_the_cut, beyond=lambda *_: False)
    seed = next(seed for seed in range(400) if violation(drawn(seed), rules) is not None)
    small = shrunk(drawn(seed), rules)
    assert len(small.arrivals) <= len(drawn(seed).arrivals)
    assert len(small.wishes) == 1
    assert story(small, rules)[-1].startswith("BROKEN once: missing")


def test_a_switch_during_a_switch_is_refused_with_the_state_of_the_first() -> None:
    asked = SwitchRequested("v1", SwitchRequest(), ("g",), 10)
    state = machine.advance(machine.begun("v0"), asked, 0).state
    with pytest.raises(SwitchRefused, match='from version "v0" to "v1" is preparing'):
        machine.advance(state, replace(asked, version="v2"), 1)
