from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.ingest.idle import Progress, proposals

IDLE, LATENESS, NOW = 10, 5, 1000


def partition(
    number: int,
    running_max: int | None,
    *,
    floor: int | None = None,
    ended: bool = False,
    quiet: int = 0,
) -> Progress:
    return Progress(number, running_max, floor, ended, NOW - quiet)


def propose(*partitions: Progress) -> list[tuple[int, int]]:
    return proposals(partitions, now_us=NOW, idle_us=IDLE, lateness_us=LATENESS)


def test_an_idle_partition_is_brought_level_with_the_slowest_active_one() -> None:
    assert propose(partition(0, 80), partition(1, 70), partition(2, 20, quiet=10)) == [(2, 65)]


def test_a_partition_that_was_quiet_for_a_shorter_time_is_not_idle() -> None:
    assert propose(partition(0, 80), partition(1, 20, quiet=9)) == []


def test_an_empty_partition_is_idle_too() -> None:
    assert propose(partition(0, 80), partition(1, None, quiet=10)) == [(1, 75)]


def test_an_active_partition_without_rows_may_still_bring_any_time() -> None:
    assert propose(partition(0, 80), partition(1, None), partition(2, 20, quiet=10)) == []


def test_if_all_are_idle_they_are_brought_level_with_the_furthest() -> None:
    assert propose(partition(0, 80, quiet=20), partition(1, 20, quiet=30)) == [(1, 75)]


def test_if_all_are_idle_they_go_as_far_as_somebody_wants_them_to() -> None:
    options = {"now_us": NOW, "idle_us": IDLE, "lateness_us": LATENESS}
    idle = partition(0, 80, quiet=20), partition(1, None, quiet=30)
    assert proposals(idle, **options, wanted=200) == [(0, 200), (1, 200)]
    assert proposals(idle, **options, wanted=10) == [(1, 75)]
    awake = partition(0, 80), partition(1, 20, quiet=30)
    assert proposals(awake, **options, wanted=200) == [(1, 75)]
    done = partition(0, 80, floor=200, quiet=20), partition(1, None, ended=True)
    assert proposals(done, **options, wanted=200) == []


def test_a_floor_is_not_proposed_again() -> None:
    assert propose(partition(0, 80), partition(1, 20, floor=75, quiet=10)) == []


def test_a_floor_rises_with_the_others() -> None:
    assert propose(partition(0, 90), partition(1, 20, floor=75, quiet=10)) == [(1, 85)]


def test_a_partition_that_has_ended_holds_nobody_up_and_is_left_alone() -> None:
    assert propose(partition(0, 80, quiet=10), partition(1, 20, ended=True, quiet=10)) == []
    assert propose(partition(0, 20, quiet=10), partition(1, 80, ended=True, quiet=10)) == [(0, 75)]


def test_a_partition_ahead_of_the_active_ones_needs_no_floor() -> None:
    assert propose(partition(0, 50), partition(1, 80, quiet=10)) == []


def test_nothing_is_known_while_all_are_empty() -> None:
    assert propose(partition(0, None, quiet=10), partition(1, None, quiet=10)) == []


progresses = st.builds(
    Progress,
    partition=st.just(0),
    running_max=st.none() | st.integers(1, 100),
    floor=st.none() | st.integers(1, 100),
    ended=st.booleans(),
    rows_at_us=st.integers(NOW - 20, NOW),
)


@given(st.lists(progresses, min_size=1, max_size=5))
def test_floors_rise_and_once_applied_are_enough(found: list[Progress]) -> None:
    views = [
        Progress(n, one.running_max, one.floor, one.ended, one.rows_at_us)
        for n, one in enumerate(found)
    ]
    floors = dict(propose(*views))
    for number, floor in floors.items():
        before = views[number]
        assert not before.ended
        assert before.floor is None or floor > before.floor
        views[number] = Progress(number, before.running_max, floor, before.ended, before.rows_at_us)
    assert propose(*views) == []
