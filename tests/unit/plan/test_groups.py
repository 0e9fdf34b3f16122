from datetime import timedelta

import pytest

import millstream as ms
from millstream.errors import NoOutputs, UnknownGroup
from millstream.plan.groups import plan as plan_of

DDL = "k string, v double, at timestamp"
HOUR = timedelta(hours=1)


@pytest.fixture
def flow() -> ms.Flow:
    return ms.Flow("f")


@pytest.fixture
def rows(flow) -> ms.Stream:
    return flow.source("rows", ms.inbox(DDL), time="at", lateness="10 min", key="k")


def big(stream: ms.Stream, name: str) -> ms.Stream:
    return stream.sql(name, f"SELECT * FROM {stream.name} WHERE v > 1")


def test_a_group_is_an_output_with_the_stages_above_it(flow, rows):
    big(rows, "big").window("hourly", every="1 h", n="count(*)").sink("out", ms.console())
    (group,) = plan_of(flow).groups
    assert group.name == "out"
    assert group.stages == ("rows", "big", "hourly")
    assert group.output == "hourly"
    assert group.inputs == ("rows",)
    assert (group.sinks, group.journal) == (("out",), None)
    assert group.stateful
    assert group.timed
    assert group.lateness == timedelta(minutes=10)


def test_sinks_of_one_stream_share_a_group_named_after_the_first(flow, rows):
    rows.sink("one", ms.console())
    big(rows, "big").sink("other", ms.console())
    rows.key_by("k").sink("two", ms.memory())
    plan = plan_of(flow)
    assert [(group.name, group.sinks) for group in plan.groups] == [
        ("one", ("one", "two")),
        ("other", ("other",)),
    ]


def test_shared_stages_are_in_both_groups(flow, rows):
    shared = big(rows, "shared")
    big(shared, "a").sink("a", ms.console())
    big(shared, "b").sink("b", ms.console())
    assert [group.stages for group in plan_of(flow).groups] == [
        ("rows", "shared", "a"),
        ("rows", "shared", "b"),
    ]


def test_a_journal_cuts_the_flow(flow, rows):
    kept = big(rows, "shared").journal("kept")
    big(kept, "a").sink("a", ms.console())
    big(kept, "b").sink("b", ms.console())
    plan = plan_of(flow)
    assert [(group.name, group.stages) for group in plan.groups] == [
        ("kept", ("rows", "shared")),
        ("a", ("kept", "a")),
        ("b", ("kept", "b")),
    ]
    assert plan.group("kept").journal == "kept"
    assert plan.group("kept").output == "shared"
    assert plan.group("a").inputs == ("kept",)
    assert plan.group("a").lateness == timedelta(0)


def test_groups_come_after_those_whose_journals_they_read(flow, rows):
    first = big(rows, "one").journal("first")
    second = big(first, "two").journal("second")
    big(second, "three").sink("last", ms.console())
    assert [group.name for group in plan_of(flow).groups] == ["first", "second", "last"]


def test_a_cycle_runs_in_groups_of_its_own(flow, rows):
    again = flow.reads("kept", DDL, time="at")
    kept = flow.merge("all", rows, again).journal("kept")
    kept.sink("out", ms.console())
    plan = plan_of(flow)
    assert [(group.name, group.inputs) for group in plan.groups] == [
        ("kept", ("rows", "kept")),
        ("out", ("kept",)),
    ]
    assert plan.group("kept").stages == ("rows", "reads_kept", "all")
    assert plan.group("out").stages == ("kept",)


def test_a_cycle_over_two_groups_is_ordered_after_what_feeds_it(flow, rows):
    clean = big(rows, "clean").journal("cleaned")
    again = flow.reads("second", DDL, time="at")
    first = clean.merge("all", again).journal("first")
    big(first, "more").journal("second")
    assert [group.name for group in plan_of(flow).groups] == ["cleaned", "first", "second"]


def test_entry_points_come_first(flow, rows):
    other = flow.source(
        "other", ms.inbox("k string, w int, at timestamp"), time="at", lateness="1 h"
    )
    joined = big(rows, "big").join("joined", other, on="k", within="1 h")
    joined.sink("out", ms.console())
    (group,) = plan_of(flow).groups
    assert group.stages == ("rows", "other", "big", "joined")
    assert group.inputs == ("rows", "other")
    assert group.lateness == HOUR


def test_a_stream_read_twice_is_one_input(flow, rows):
    rows.merge("twice", rows).sink("out", ms.console())
    (group,) = plan_of(flow).groups
    assert group.stages == ("rows", "twice")
    assert group.inputs == ("rows",)


@pytest.mark.parametrize(
    ("make", "stateful", "handed_over"),
    [
        (lambda s: big(s, "x"), False, ()),
        (lambda s: s.apply("x", same), False, ()),
        (lambda s: s.join("x", ms.table("t.csv"), on="k"), False, ()),
        (lambda s: s.window("x", every="1 h", n="count(*)"), True, ()),
        (lambda s: s.join("x", s, on=["k", "v"], within="1 h"), True, ()),
        (lambda s: s.distinct("x", by="k", within="1 h"), True, ("x",)),
        (lambda s: s.fold("x", step, initial=0, output="at timestamp"), True, ("x",)),
        (
            lambda s: s.fold("x", step, initial=0, output="at timestamp", order="arrival"),
            True,
            ("x",),
        ),
    ],
)
def test_a_group_knows_whether_it_has_state_and_whether_that_moves(
    flow, rows, make, stateful, handed_over
):
    make(rows).sink("out", ms.console())
    (group,) = plan_of(flow).groups
    assert group.stateful is stateful
    assert group.handed_over == handed_over


def test_a_group_without_time_says_so(flow):
    flow.source("ticks", ms.rate(1)).sink("out", ms.console())
    assert not plan_of(flow).group("out").timed


def test_a_plan_knows_who_writes_and_who_reads_each_journal(flow, rows):
    kept = big(rows, "shared").journal("kept")
    kept.sink("a", ms.console())
    big(rows, "b").sink("b", ms.console())
    uses = plan_of(flow).journals
    assert list(uses) == ["rows", "kept"]
    assert (uses["rows"].kind, uses["rows"].writer, uses["rows"].readers) == (
        "source",
        "rows",
        ("b", "kept"),
    )
    assert (uses["kept"].kind, uses["kept"].writer, uses["kept"].readers) == (
        "group",
        "kept",
        ("a",),
    )


def test_a_stage_that_nothing_reads_is_warned_of(flow, rows):
    rows.sink("out", ms.console())
    big(big(rows, "lost"), "further")
    flow.source("other", ms.rate(1))
    plan = plan_of(flow)
    assert [warning.split(" (")[0] for warning in plan.warnings] == [
        'no sink or journal reads stage "lost"',
        'no sink or journal reads stage "further"',
        'no sink or journal reads source "other"',
    ]
    assert plan.group("out").stages == ("rows",)


def test_a_flow_without_outputs_has_no_plan(flow, rows):
    with pytest.raises(NoOutputs):
        plan_of(flow)


def test_a_flow_with_a_journal_and_no_sink_has_a_plan(flow, rows):
    rows.journal("kept")
    assert [group.name for group in plan_of(flow).groups] == ["kept"]


def test_an_unknown_group_is_met_with_those_that_are_there(flow, rows):
    rows.sink("out", ms.console())
    with pytest.raises(UnknownGroup) as caught:
        plan_of(flow).group("nowhere")
    assert caught.value.hint == "its groups are out"


def step(state, row):
    return state, None


def same(frame):
    return frame
