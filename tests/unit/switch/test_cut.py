"""Where the cut lies, who owns what, how far each version reads."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import InternalError, UnplaceableKey
from millstream.journal.partitioning import place
from millstream.switch.cut import (
    EARLIEST,
    WHOLE,
    Owners,
    Stretch,
    beyond,
    bound_above,
    cut_of,
    drained,
    first_positions,
    goes_out,
    knows,
    newest,
    owned_after,
    passed,
    reads_from,
    window_number,
)

KEYS = [f"key {number}" for number in range(300)]


# where the cut lies


@given(st.lists(st.one_of(st.none(), st.integers(1, 10_000)), min_size=1), st.integers(1, 500))
def test_nothing_that_was_handed_out_starts_at_the_cut_or_later(times, length):
    numbers = [None if time is None else window_number(time, length) for time in times]
    bound = bound_above(numbers)
    cut = cut_of(bound, length)
    assert all(time is None or time < cut for time in times)
    assert not any(passed(number, bound) for number in numbers)
    assert cut % length == 0
    # A whole window is left to tell everybody.
    assert bound is None or cut - max(time for time in times if time is not None) > length


def test_idle_empty_and_new_partitions_do_not_hold_up_the_cut():
    assert cut_of(bound_above([None, 7, None]), 10) == 90
    assert cut_of(bound_above([None, None]), 10) == EARLIEST


def test_a_partition_that_has_passed_the_bound_says_so():
    assert not passed(8, 8)
    assert passed(9, 8)
    assert not passed(None, 8)
    assert passed(0, None)
    assert not passed(None, None)


# who owns what


def test_a_result_that_starts_exactly_at_the_cut_is_the_new_version_s():
    owners = Owners("a").after(Stretch(100, "a", "b", WHOLE))
    assert owners.owner(99) == "a"
    assert owners.owner(100) == "b"


def test_several_switches_in_a_row_each_own_their_stretch():
    owners = Owners("a").after(Stretch(100, "a", "b", WHOLE)).after(Stretch(200, "b", "a", WHOLE))
    assert [owners.owner(start) for start in (0, 100, 199, 200, 10**9)] == ["a", "b", "b", "a", "a"]
    assert owners.parts("a") == ((None, 100, 0, WHOLE), (200, None, 0, WHOLE))
    assert owners.parts("b") == ((100, 200, 0, WHOLE),)


def test_cuts_only_go_forward():
    owners = Owners("a").after(Stretch(100, "a", "b", WHOLE))
    with pytest.raises(InternalError):
        owners.after(Stretch(100, "b", "a", WHOLE))


def test_a_share_is_given_by_the_stable_hash_and_grows_without_taking_back():
    tenth, half = Stretch(100, "a", "b", 1000), Stretch(200, "a", "b", 5000)
    owners = Owners("a").after(tenth).after(half)
    early, later = (
        {key for key in KEYS if owners.owner(start, key) == "b"} for start in (100, 200)
    )
    assert early == {key for key in KEYS if place(key, WHOLE) < 1000}
    assert early < later
    assert 0.04 < len(early) / len(KEYS) < 0.17


def test_a_result_without_a_key_cannot_be_shared_out():
    owners = Owners("a").after(Stretch(100, "a", "b", 1000))
    assert owners.owner(99) == "a"
    with pytest.raises(UnplaceableKey):
        owners.owner(100)


stretches = st.lists(
    st.tuples(
        st.integers(1, 50),
        st.sampled_from(["a", "b"]),
        st.sampled_from([0, 1, 1000, 5000, 9999, WHOLE]),
    ),
    max_size=4,
)


@settings(max_examples=50)
@given(stretches, st.integers(0, 250), st.sampled_from(KEYS))
def test_every_result_has_one_owner_and_the_parts_say_who(steps, start, key):
    owners, at = Owners("a"), 0
    for length, second, share in steps:
        at += length
        owners = owners.after(Stretch(at, "b" if second == "a" else "a", second, share))
    holding = [
        version
        for version in ("a", "b")
        for low, high, first, last in owners.parts(version)
        if (low is None or start >= low)
        and (high is None or start < high)
        and first <= place(key, WHOLE) < last
    ]
    assert holding == [owners.owner(start, key)]


# how far versions read


@dataclass
class Rows:
    """A partition as a list of times."""

    times: list[int]
    begin: int = 0

    @property
    def end(self) -> int:
        return len(self.times)

    def first_above(self, moment: int, start: int, end: int) -> int:
        return next((at for at in range(start, end) if max(self.times[: at + 1]) > moment), end)

    def state_at(self, position: int) -> object:
        raise AssertionError("not needed")


@settings(max_examples=100)
@given(st.lists(st.integers(0, 50), max_size=12), st.integers(0, 60))
def test_no_row_at_or_after_a_moment_lies_before_the_first_position(times, moment):
    (first,) = first_positions([Rows(times)], moment)
    assert all(time < moment for time in times[:first])
    assert first == len(times) or times[first] >= moment


def test_the_new_version_reads_from_its_look_back_before_the_cut():
    assert reads_from(1000, 300) == 700
    assert reads_from(100, 300) == EARLIEST
    assert reads_from(1000, None) == EARLIEST


def test_the_old_version_reads_on_until_nothing_that_it_owns_can_come():
    assert not beyond(None, 1000, 300, 20)
    assert not beyond(1319, 1000, 300, 20)
    assert beyond(1320, 1000, 300, 20)
    assert not drained(None, 1000, 300)
    assert not drained(1299, 1000, 300)
    assert drained(1300, 1000, 300)


# order at the sink


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_of_two_batches_that_are_ready_at_least_one_goes_out(old, new, cut):
    first = goes_out(old, new, cut, newer=False, waited=0, timeout=5)
    second = goes_out(new, old, cut, newer=True, waited=0, timeout=5)
    assert first or second


def test_the_version_that_is_ahead_waits_but_not_for_good():
    assert not goes_out(120, 110, 100, newer=True, waited=0, timeout=5)
    assert not goes_out(120, 110, 100, newer=False, waited=0, timeout=5)
    assert goes_out(120, 110, 100, newer=True, waited=5, timeout=5)
    assert goes_out(110, 120, 100, newer=True, waited=0, timeout=5)


def test_the_old_version_never_waits_for_what_completes_before_the_cut():
    assert goes_out(100, None, 100, newer=False, waited=0, timeout=5)
    assert goes_out(90, 20, 100, newer=False, waited=0, timeout=5)


# what groups own, cut by cut


def test_a_group_that_several_versions_kept_owns_all_that_they_owned() -> None:
    first, second = Stretch(10, "a", "b", WHOLE), Stretch(30, "c", "d", WHOLE)
    mine = owned_after((), first, "b")
    assert mine == ((10, None, 0, WHOLE),)
    # Version "c" came and went without touching the group.
    assert owned_after(mine, second, "c") == ((10, 30, 0, WHOLE),)
    assert owned_after(None, second, "c") == ((None, 30, 0, WHOLE),)


def test_hearing_of_a_cut_twice_changes_nothing() -> None:
    stretch = Stretch(30, "c", "d", 2500)
    for before, name in (((10, None, 0, WHOLE),), "c"), ((), "d"), (None, "c"):
        once = owned_after(before, stretch, name)
        assert owned_after(once, stretch, name) == once
        assert knows(once, 30)
    assert owned_after(None, stretch, "c") == ((None, 30, 0, WHOLE), (30, None, 2500, WHOLE))


def test_of_several_sources_the_one_that_knows_of_the_last_cut_speaks_for_all() -> None:
    stale, fresh = ((10, None, 0, WHOLE),), ((10, 30, 0, WHOLE),)
    assert newest([stale, fresh]) == newest([fresh, stale]) == fresh
    assert newest([]) is None
    assert not knows(stale, 30)
    assert not knows(None, 30)
