"""What of a switch can run in a shadow, where it begins, and up to where results are complete."""

from __future__ import annotations

import millstream as ms
from millstream.journal.align import FOREVER_US
from millstream.plan.groups import plan
from millstream.switch.changes import Version
from millstream.switch.plan import switch_plan
from millstream.switch.shadow import Shadowed, begins_at, settled_until, shadowed

SECOND = 1_000_000


def flow(
    least: int = 0,
    *,
    columns: str = "k string, v long, at timestamp",
    session: str | None = "1 min",
) -> Version:
    one = ms.Flow("f", window="1 hour")
    events = one.source("events", ms.inbox(columns), time="at", key="k", lateness="5 s")
    rows = events.sql("some", f"SELECT k, v, at FROM events WHERE v > {least}")
    rows.sink("rows", ms.memory())
    rows.window("hourly", every="20 min", n="count(*)").sink("hourly", ms.memory())
    rows.window("sliding", every="10 s", size="30 s", n="count(*)").sink("sliding", ms.memory())
    rows.window("sessions", gap="10 s", longest=session, n="count(*)").sink("sessions", ms.memory())
    rows.distinct("once", by="k", within="1 day").sink("once", ms.memory())
    return Version.of(plan(one))


def found(old: Version, new: Version) -> Shadowed:
    return shadowed(old, new, switch_plan(old, new, mode="shadow").units)


def test_what_moves_its_state_or_has_no_end_is_left_out() -> None:
    whole = found(flow(0), flow(1))
    assert whole.groups == {"rows", "hourly", "sliding", "sessions"}
    assert whole.left_out == ("once",)
    notes = switch_plan(flow(0), flow(1), mode="shadow").notes
    assert (
        "once is not in the shadow: its state is handed over in a switch, and the old version needs it"
        in notes
    )
    assert found(flow(0), flow(1, session=None)).left_out == ("sessions", "once")


def test_boundaries_are_those_of_all_windows_and_results_reach_as_far_as_in_either_version() -> (
    None
):
    whole = found(flow(0), flow(1, session="2 min"))
    assert whole.step_us == 20 * 60 * SECOND
    lengths = {name: whole.horizon_us(name) // SECOND for name in whole.groups}
    assert lengths == {"rows": 0, "hourly": 0, "sliding": 30, "sessions": 120}


def test_a_shadow_needs_input_that_there_is() -> None:
    wider = switch_plan(
        flow(), flow(1, columns="k string, v long, at timestamp, more long"), mode="shadow"
    )
    assert [one.fact for one in wider.obstacles] == [
        'source "events" has other columns, which no event has before a switch'
    ]


def test_it_begins_above_all_that_was_handed_out() -> None:
    assert begins_at([], 10) == 0
    assert begins_at([None, 39, 12], 10) == 40
    assert begins_at([40], 10) == 50


def test_results_are_complete_before_the_last_boundary_that_both_have_passed_with_their_horizon() -> (
    None
):
    assert settled_until([75, 64], 5, 10) == 50
    assert settled_until([75, 65], 5, 10) == 60
    assert settled_until([75, None], 5, 10) is None
    assert settled_until([FOREVER_US - 1000, FOREVER_US], 5, 10) == FOREVER_US
