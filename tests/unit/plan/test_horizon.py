"""The table of horizons and look-backs, and how they add up."""

from datetime import timedelta

import pytest

import millstream as ms
from millstream.flow.stages import Reach
from millstream.plan.groups import plan as plan_of

ZERO = timedelta(0)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DDL = "k string, v double, at timestamp"


@pytest.fixture
def flow() -> ms.Flow:
    return ms.Flow("f", window="1 hour")


@pytest.fixture
def rows(flow) -> ms.Stream:
    return flow.source("rows", ms.inbox(DDL), time="at")


def rising() -> ms.Pattern:
    return ms.Pattern().begin("a", "v > 1").followed_by("b", "v > a.v").emit("a.v as v")


def joined(stream: ms.Stream, how: str, within: str = "10 min", name: str = "x") -> ms.Stream:
    other = stream.flow.source(f"other_{name}", ms.inbox("k string, at timestamp"), time="at")
    return stream.join(name, other, on="k", within=within, how=how)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda s: s.sql("x", "SELECT * FROM rows"), Reach()),
        (lambda s: s.apply("x", lambda frame: frame), Reach()),
        (lambda s: s.join("x", ms.table("t.csv"), on="k"), Reach()),
        (lambda s: s.merge("x", s), Reach()),
        (lambda s: s.journal("x"), Reach()),
        (lambda s: s.window("x", every="1 h", n="count(*)"), Reach()),
        (lambda s: s.window("x", every="20 min", n="count(*)"), Reach()),
        (lambda s: s.window("x", every="2 h", n="count(*)"), Reach(2 * HOUR)),
        (lambda s: s.window("x", every="7 min", n="count(*)"), Reach(7 * MINUTE)),
        (lambda s: s.window("x", every="10 min", size="1 h", n="count(*)"), Reach(HOUR)),
        (
            lambda s: s.window("x", gap="5 min", longest="3 h", n="count(*)"),
            Reach(3 * HOUR, 3 * HOUR + 5 * MINUTE),
        ),
        (lambda s: s.window("x", gap="5 min", n="count(*)"), Reach(None, None)),
        (lambda s: joined(s, "inner"), Reach(10 * MINUTE, ZERO, behind=10 * MINUTE)),
        (lambda s: joined(s, "left"), Reach(10 * MINUTE, 10 * MINUTE, behind=10 * MINUTE)),
        (lambda s: joined(s, "right"), Reach(10 * MINUTE, 10 * MINUTE, behind=10 * MINUTE)),
        (lambda s: joined(s, "full"), Reach(10 * MINUTE, 10 * MINUTE, behind=10 * MINUTE)),
        (lambda s: joined(s, "semi"), Reach(10 * MINUTE, 10 * MINUTE, behind=10 * MINUTE)),
        (lambda s: s.distinct("x", by="k", within="1 d"), Reach(handed_over=True)),
        (lambda s: s.match("x", rising().within("1 h")), Reach(HOUR)),
        (lambda s: s.match("x", rising()), Reach(None)),
        (lambda s: s.match("x", rising().within("1 h").skip_past_last()), Reach(handed_over=True)),
        (lambda s: s.match("x", rising().within("1 h").singleton()), Reach(handed_over=True)),
        (
            lambda s: s.fold("x", lambda a, b: (a, None), initial=0, output="at timestamp"),
            Reach(handed_over=True),
        ),
    ],
)
def test_each_stage_reaches_as_far_as_the_table_says(flow, rows, make, expected):
    make(rows)
    assert flow.stages["x"].reach(flow.switch_every) == expected


def planned(flow: ms.Flow, stream: ms.Stream):
    stream.sink("out", ms.console())
    return plan_of(flow).group("out")


def test_along_a_chain_horizons_and_look_backs_add_up(flow, rows):
    once = joined(rows, "left", "10 min", "x")
    twice = joined(once, "full", "20 min", "y")
    group = planned(flow, twice.window("w", every="2 h", n="count(*)"))
    assert group.horizon == 30 * MINUTE + 2 * HOUR
    assert group.look_back == 30 * MINUTE
    assert group.behind == 30 * MINUTE


def test_of_several_ways_the_longest_counts(flow, rows):
    left = joined(rows, "inner", "10 min", "x").sql("a", "SELECT k, v, at FROM x")
    right = joined(rows, "inner", "50 min", "y").sql("b", "SELECT k, v, at FROM y")
    group = planned(flow, left.merge("m", right))
    assert group.horizon == 50 * MINUTE
    assert group.behind == 50 * MINUTE


@pytest.mark.parametrize("how", ["inner", "left", "full", "semi"])
def test_what_reads_pairs_looks_back_to_the_right_rows_of_its_first_left_row(flow, rows, how):
    pairs = joined(rows, how)
    assert planned(flow, pairs.window("w", every="1 h", n="count(*)")).look_back == 10 * MINUTE


def test_grouping_by_a_window_s_end_looks_back_by_its_size(flow, rows):
    sliding = rows.window("inner", every="10 min", size="1 h", n="count(*)")
    group = planned(flow, sliding.window("outer", every="30 min", total="sum(n)"))
    # A window of half an hour that starts at the cut holds sliding ones that began up to an hour
    # before it.
    assert group.look_back == HOUR
    assert group.horizon == HOUR


def test_stateless_stages_between_two_windows_change_nothing(flow, rows):
    sliding = rows.window("inner", every="10 min", size="1 h", n="count(*)")
    some = sliding.sql("some", "SELECT * FROM inner WHERE n > 1".replace("inner", "`inner`"))
    assert planned(flow, some.window("outer", every="30 min", total="sum(n)")).look_back == HOUR


def test_a_window_whose_boundaries_the_cut_respects_adds_nothing(flow, rows):
    hourly = rows.window("hourly", every="1 h", n="count(*)")
    group = planned(flow, hourly.window("daily", every="1 d", total="sum(n)"))
    assert group.look_back == ZERO
    assert group.horizon == timedelta(days=1)


def test_a_window_that_is_not_grouped_again_does_not_look_back(flow, rows):
    sliding = rows.window("w", every="10 min", size="1 h", n="count(*)")
    assert planned(flow, sliding.sql("q", "SELECT * FROM w")).look_back == ZERO


def test_one_open_end_makes_the_chain_open(flow, rows):
    sessions = rows.window("sessions", gap="5 min", n="count(*)")
    group = planned(flow, sessions.window("hourly", every="1 h", total="sum(n)"))
    assert (group.horizon, group.look_back, group.overlap) == (None, None, None)


def test_a_journal_starts_the_count_anew(flow, rows):
    kept = rows.window("w", every="7 min", n="count(*)").journal("kept")
    group = planned(flow, kept.sql("q", "SELECT * FROM kept"))
    assert group.horizon == ZERO


def test_the_overlap_is_the_horizon_and_the_lateness(flow):
    late = flow.source("late", ms.inbox(DDL), time="at", lateness="30 min")
    group = planned(flow, late.window("w", every="2 h", n="count(*)"))
    assert group.overlap == 2 * HOUR + 30 * MINUTE


def test_what_is_handed_over_is_named(flow, rows):
    once = rows.distinct("once", by="k", within="1 d")
    group = planned(flow, once.window("w", every="1 h", n="count(*)"))
    assert group.handed_over == ("once",)
    assert group.horizon == ZERO
