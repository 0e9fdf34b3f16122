"""What the plan of a switch says, edit by edit."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

import millstream as ms
from millstream.errors import SwitchImpossible
from millstream.plan.groups import plan as plan_of
from millstream.switch.changes import Change, Move, Version
from millstream.switch.plan import SwitchPlan, switch_plan
from millstream.switch.show import table, to_json

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
DDL = "k string, v double, at timestamp"
Build = Callable[[ms.Flow, ms.Stream], object]


def version(build: Build, *, window: str = "1 hour", ddl: str = DDL, **source: object) -> Version:
    flow = ms.Flow("f", window=window)
    settings = {"time": "at", "key": "k", "lateness": "30 min", **source}
    build(flow, flow.source("rows", ms.inbox(ddl), **settings))
    return Version.of(plan_of(flow))


def planned(old: Build, new: Build, **options: object) -> SwitchPlan:
    return switch_plan(version(old), version(new), **options)


def hourly(every: str = "1 h", **aggregates: str) -> Build:
    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        named = aggregates or {"n": "count(*)"}
        rows.window("hourly", every=every, **named).sink("hourly", ms.console())

    return build


def filtered(limit: int) -> Build:
    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        some = rows.sql("some", f"SELECT * FROM rows WHERE v > {limit}")
        some.window("hourly", every="1 h", n="count(*)").sink("hourly", ms.console())
        rows.sql("all", "SELECT * FROM rows").sink("alerts", ms.jsonl("alerts"))

    return build


def step(state: int, row: dict[str, object]) -> tuple[int, None]:
    return state + 1, None


def folded(by: str = "k", initial: object = 0, name: str = "count") -> Build:
    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        rows.fold(name, step, initial=initial, output=DDL, by=by).sink("out", ms.console())

    return build


def change_of(plan: SwitchPlan, group: str, stage: str) -> tuple[Change, Move]:
    found = next(one for one in plan.groups if one.name == group)
    one = next(one for one in found.stages if one.name == stage)
    return one.change, one.move


def test_the_same_version_again_changes_nothing() -> None:
    plan = planned(filtered(1), filtered(1))
    assert plan.changed == ()
    assert plan.units == ()
    assert "nothing to switch" in table(plan)


def test_a_changed_filter_replaces_its_group_and_no_other() -> None:
    plan = planned(filtered(1), filtered(2))
    assert [(group.name, group.change) for group in plan.groups] == [
        ("hourly", Change.REPLACED),
        ("alerts", Change.KEPT),
    ]
    assert change_of(plan, "hourly", "some") == (Change.REPLACED, Move.NONE)
    assert change_of(plan, "hourly", "hourly") == (Change.KEPT, Move.OWNED)
    assert plan.units[0].overlap == 30 * MINUTE


def test_the_plan_reads_as_promised() -> None:
    plan = planned(filtered(1), filtered(2))
    assert table(plan, datetime(2026, 3, 8, 15, tzinfo=UTC)).splitlines() == [
        " group   stage   change    state    how",
        " hourly  some    replaced           no state",
        " hourly  hourly  kept      windows  owned by start: old until 15:00, new from 15:00",
        " alerts  all     kept",
        "the cut will be at a multiple of 1 h, one to two of them after the newest event",
        "both versions of hourly run side by side for about 30 min",
    ]


def test_the_plan_is_data_too() -> None:
    data = json.loads(json.dumps(to_json(planned(filtered(1), filtered(2)))))
    assert data["possible"] is True
    assert data["units"][0]["overlap"] == 1800
    assert data["groups"][0]["stages"][1]["differences"] == [
        'stage "some": "query" was SELECT * FROM rows WHERE v > 1, now SELECT * FROM rows WHERE v > 2'
    ]


def test_groups_come_and_go() -> None:
    def more(flow: ms.Flow, rows: ms.Stream) -> None:
        hourly()(flow, rows)
        rows.window("daily", every="1 d", n="count(*)").sink("daily", ms.console())

    added, removed = planned(hourly(), more), planned(more, hourly())
    assert change_of(added, "daily", "daily") == (Change.NEW, Move.OWNED)
    assert change_of(removed, "daily", "daily") == (Change.REMOVED, Move.OWNED)
    assert added.units[0].horizon == timedelta(0)  # nothing of the old version is in it
    assert removed.units[0].horizon == timedelta(days=1)
    assert " daily   all    removed         until the cut" in table(removed)
    assert "new from the cut" in table(added)
    assert table(added).splitlines()[-1] == "daily begins at the cut"
    out = "daily ends at the cut: what began before it is out about 1 d 30 min later"
    assert table(removed).splitlines()[-1] == out


# state that is handed over


def test_the_state_of_a_fold_is_carried_over_by_name() -> None:
    def before(flow: ms.Flow, rows: ms.Stream) -> None:
        some = rows.sql("some", "SELECT * FROM rows WHERE v > 1")
        some.fold("count", step, initial=0, output=DDL, by="k").sink("out", ms.console())

    def after(flow: ms.Flow, rows: ms.Stream) -> None:
        some = rows.sql("some", "SELECT * FROM rows WHERE v > 2")
        some.fold("count", step, initial=0, output=DDL, by="k").sink("out", ms.console())

    plan = planned(before, after)
    assert change_of(plan, "out", "count") == (Change.KEPT, Move.CARRIED)
    assert plan.units[0].by == "position"
    assert "cut at a position" in table(plan)
    assert plan.obstacles == ()
    assert plan.units[0].moved
    dropped = planned(before, after, consent=["count"])
    assert change_of(dropped, "out", "count") == (Change.KEPT, Move.DROPPED)
    assert dropped.obstacles == ()
    assert dropped.units[0].by == "time"
    assert not dropped.units[0].moved


@pytest.mark.parametrize(
    ("after", "fact"),
    [
        (folded(by="v"), "its state was kept by k string, and would be by v double"),
        (folded(initial={"n": 0}), "a state began as 0, and would as {'n': 0}"),
        (folded(name="other"), "the stage is gone"),
        (
            lambda flow, rows: rows.distinct("count", by="k", within="1 h").sink(
                "out", ms.console()
            ),
            "it was a fold",
        ),
    ],
)
def test_state_that_has_no_heir_is_dropped_only_with_consent(after: Build, fact: str) -> None:
    plan = planned(folded(), after)
    (obstacle,) = plan.obstacles
    assert fact in obstacle.fact
    assert "--consent drop:count" in obstacle.hint
    with pytest.raises(SwitchImpossible, match='the state of stage "count"'):
        plan.check()
    agreed = planned(folded(), after, consent=["count"])
    agreed.check()
    assert Move.DROPPED in {stage.move for group in agreed.groups for stage in group.stages}


def test_a_stage_that_begins_to_keep_state_begins_empty() -> None:
    plain: Build = lambda flow, rows: rows.sql("count", "SELECT * FROM rows").sink(  # noqa: E731
        "out", ms.console()
    )
    plan = planned(plain, folded())
    assert change_of(plan, "out", "count") == (Change.REPLACED, Move.EMPTY)


# units


def chained(first: str, second: str, *, last: str = "1 h") -> Build:
    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        one = rows.window("one", every="10 min", size=first, n="count(*)").journal("ones")
        two = one.window("two", every="30 min", size=second, by="k", n="sum(n)").journal("twos")
        two.window("three", every=last, by="k", n="sum(n)").sink("out", ms.console())

    return build


def test_neighbours_that_change_form_a_unit_and_their_reaches_add_up() -> None:
    plan = planned(chained("20 min", "1 h"), chained("30 min", "2 h"))
    (unit,) = plan.units
    assert unit.groups == ("ones", "twos")
    assert unit.private == ("ones",)
    assert unit.shared == ("twos",)
    assert unit.horizon == 20 * MINUTE + HOUR
    # A window of the second that starts at the cut holds windows of the first that began half an
    # hour before it.
    assert unit.look_back == 30 * MINUTE


def test_changed_groups_with_an_unchanged_one_between_them_are_two_units() -> None:
    plan = planned(chained("20 min", "1 h", last="1 h"), chained("30 min", "1 h", last="2 h"))
    assert [unit.groups for unit in plan.units] == [("ones",), ("out",)]
    assert [unit.shared for unit in plan.units] == [("ones",), ()]
    assert [unit.private for unit in plan.units] == [(), ()]


def test_results_without_their_window_s_start_look_back_by_its_size() -> None:
    def build(least: int) -> Build:
        def made(flow: ms.Flow, rows: ms.Stream) -> None:
            sliding = rows.window("sliding", every="10 min", size="1 h", n="count(*)")
            sliding.sql("some", f"SELECT * FROM sliding WHERE n > {least}").sink(
                "out", ms.console()
            )

        return made

    (unit,) = planned(build(1), build(2)).units
    assert (unit.horizon, unit.look_back) == (HOUR, HOUR)


def test_a_cycle_that_changes_is_refused() -> None:
    def build(limit: int) -> Build:
        def made(flow: ms.Flow, rows: ms.Stream) -> None:
            back = flow.reads("loop", DDL, time="at")
            rows.merge("both", back).sql("next", f"SELECT * FROM both WHERE v > {limit}").journal(
                "loop"
            )

        return made

    (obstacle,) = planned(build(1), build(2)).obstacles
    assert "form a cycle" in obstacle.fact


# sessions


def sessions(longest: str | None, gap: str = "5 min") -> Build:
    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        rows.window("visits", gap=gap, longest=longest, n="count(*)").sink("out", ms.console())

    return build


def test_sessions_without_an_end_make_the_overlap_open_ended_and_the_plan_says_so() -> None:
    plan = planned(sessions(None), sessions("2 h"))
    assert [one.fact for one in plan.obstacles] == [
        "it is not known when the sessions of out that are open at the cut will have ended"
    ]
    assert plan.overlap is None
    assert "run until the sessions that are open at the cut have ended" in " ".join(
        table(plan).split()
    )


def test_sessions_without_an_end_that_do_not_change_go_over_as_they_are() -> None:
    def build(least: int) -> Build:
        def made(flow: ms.Flow, rows: ms.Stream) -> None:
            some = rows.sql("some", f"SELECT * FROM rows WHERE v > {least}")
            some.window("visits", gap="5 min", n="count(*)").sink("out", ms.console())

        return made

    plan = planned(build(1), build(2))
    assert plan.obstacles == ()
    assert plan.units[0].moved
    assert plan.overlap == timedelta(0)


def test_sessions_that_may_have_begun_before_what_is_kept_are_refused() -> None:
    old, new = (
        version(sessions(None, "5 min"), keep_for="1 d"),
        version(sessions(None, "6 min"), keep_for="1 d"),
    )
    assert "may have begun before what source" in switch_plan(old, new).obstacles[0].fact


# the cut


def test_the_cut_is_a_boundary_of_both_versions_windows() -> None:
    assert planned(hourly("7 min"), hourly("20 min")).step == 7 * HOUR
    assert planned(hourly("20 min"), hourly("30 min")).step == HOUR


def test_versions_without_a_common_boundary_say_which_rows_count_in_both() -> None:
    plan = planned(hourly("7 min"), hourly("11 min"))
    assert plan.step == 11 * HOUR
    assert "rows of up to 7 min after the cut count in a window of each version" in table(plan)
    far = planned(hourly("17 min"), hourly("23 h"))
    assert far.step == 23 * HOUR
    none = planned(hourly("1 h"), hourly("25 h"))
    assert none.step == HOUR
    assert "may be in no window of the new version" in table(none)


def test_service_windows_that_differ_have_a_common_one() -> None:
    assert (
        switch_plan(
            version(hourly(), window="20 min"), version(hourly("2 h"), window="30 min")
        ).step
        == 2 * HOUR
    )


# what others read


def test_a_journal_that_others_read_may_gain_columns_only() -> None:
    def build(*columns: str) -> Build:
        def made(flow: ms.Flow, rows: ms.Stream) -> None:
            some = rows.sql("some", f"SELECT {', '.join(columns)} FROM rows")
            some.journal("shared").sql("kept", "SELECT at, k FROM shared").sink("out", ms.console())

        return made

    meanings = version(build("at", "k", "v"))
    gone = switch_plan(meanings, _with_meaning(version(build("at", "k")), meanings, "out"))
    assert [one.fact for one in gone.obstacles if "v" in one.fact]


def _with_meaning(one: Version, other: Version, group: str) -> Version:
    """Return a version in which a group means what it did: the analysis leaves out columns that it does not read."""
    return Version(one.plan, {**one.meanings, group: other.meanings[group]})


def test_a_source_keeps_its_columns_and_its_time() -> None:
    old = version(hourly(), partitions=2)
    assert switch_plan(old, version(hourly(), partitions=2, ddl=f"{DDL}, w int")).obstacles == ()
    for new, fact in [
        (
            version(hourly(), partitions=2, ddl="k string, at timestamp"),
            'column "v" of source "rows" is double and would be gone',
        ),
        (
            version(hourly(), partitions=2, ddl="k string, v long, at timestamp"),
            "is double and would be bigint",
        ),
        (
            version(hourly(), ddl=f"{DDL}, then timestamp", time="then", partitions=2),
            "is timed by at and would be by then",
        ),
    ]:
        assert any(fact in one.fact for one in switch_plan(old, new).obstacles), fact


def test_a_version_of_another_flow_is_refused() -> None:
    flow = ms.Flow("g")
    hourly()(flow, flow.source("rows", ms.inbox(DDL), time="at", key="k"))
    plan = switch_plan(version(hourly()), Version.of(plan_of(flow)))
    assert 'the new version is of flow "g"' in plan.obstacles[0].fact


# shares


def test_results_without_a_key_cannot_be_shared_out() -> None:
    def total(every: str) -> Build:
        return lambda flow, rows: rows.window("hourly", every=every, by=[], n="count(*)").sink(
            "hourly", ms.console()
        )

    plan = planned(total("1 h"), total("2 h"), mode="share")
    assert "have no key, so they cannot be shared out" in plan.obstacles[0].fact
    assert planned(total("1 h"), total("2 h")).obstacles == ()
    keyed = planned(hourly("1 h"), hourly("2 h"), mode="share")
    assert keyed.obstacles == ()


def test_state_that_is_handed_over_by_name_cannot_be_shared_out() -> None:
    def summed(least: int) -> Build:
        def build(flow: ms.Flow, rows: ms.Stream) -> None:
            some = rows.sql("some", f"SELECT * FROM rows WHERE v > {least}")
            some.distinct("once", by="k", within="1 h").sink("out", ms.console())

        return build

    assert planned(summed(1), summed(2)).obstacles == ()
    (obstacle,) = planned(summed(1), summed(2), mode="share").obstacles
    assert (
        obstacle.fact
        == 'stage "once" of out hands its state (keys) over by name, so it cannot be shared out'
    )
    assert "--consent once" in obstacle.hint


def test_results_of_several_keys_cannot_be_shared_out_by_one_of_them() -> None:
    def build(every: str) -> Build:
        def made(flow: ms.Flow, rows: ms.Stream) -> None:
            most = rows.window("whole", every=every, by=[], n="count(*)", k="max(k)")
            most.sql("some", "SELECT * FROM whole WHERE n > 1").sink("out", ms.console())

        return made

    (obstacle,) = planned(build("1 h"), build("2 h"), mode="share").obstacles
    assert 'stage "whole" in group "out" does not group by "k"' in obstacle.fact


def test_only_what_leaves_a_unit_is_shared_out() -> None:
    def build(least: int) -> Build:
        def made(flow: ms.Flow, rows: ms.Stream) -> None:
            ones = (
                rows.window("ones", every="1 h", by=["k", "v"], n="count(*)")
                .key_by(None)
                .journal("inside")
            )
            some = ones.sql("some", f"SELECT * FROM inside WHERE n > {least}")
            some.window("twos", every="2 h", by="k", n="sum(n)").sink("out", ms.console())

        return lambda flow, rows: made(
            flow, rows.sql("first", f"SELECT * FROM rows WHERE v > {least}")
        )

    plan = planned(build(1), build(2), mode="share")
    assert plan.units[0].private == ("inside",)
    assert plan.obstacles == ()
    assert [note for note in plan.notes if "shared out" in note] == [
        'results of group "out" are shared out by "k"'
    ]


def test_groups_that_come_and_go_have_the_keys_of_their_version() -> None:
    def build(*names: str) -> Build:
        def made(flow: ms.Flow, rows: ms.Stream) -> None:
            for name in names:
                rows.window(name, every="1 h", n="count(*)").sink(name, ms.console())

        return made

    lines = table(planned(build("kept", "gone"), build("kept", "new"), mode="share")).splitlines()
    assert "new begins at the cut, with the keys of the new version" in lines
    assert "gone continues with the keys of the old version, until it has none" in lines


def test_a_version_whose_sessions_have_no_end_could_not_give_keys_back() -> None:
    def build(longest: str | None) -> Build:
        return lambda flow, rows: rows.window("s", gap="1 min", longest=longest, n="count(*)").sink(
            "s", ms.console()
        )

    assert planned(build("1 h"), build(None)).obstacles == ()
    (obstacle,) = planned(build("1 h"), build(None), mode="share").obstacles
    assert "could not give keys back" in obstacle.fact


# patterns


def alerts(least: int, *, singleton: bool = False) -> Build:
    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        pattern = (
            ms.Pattern().begin("a", f"v > {least}").followed_by("b", "v > a.v").within("10 min")
        )
        found = rows.match(
            "rising", pattern.singleton() if singleton else pattern, emit="k, a.v as first"
        )
        found.sink("alerts", ms.console())

    return build


def test_matches_are_owned_by_start_and_reach_as_far_as_their_pattern() -> None:
    plan = planned(alerts(1), alerts(2))
    assert change_of(plan, "alerts", "rising") == (Change.REPLACED, Move.OWNED)
    # What begins at the cut needs nothing from before it, though its time is that of its last
    # event.
    assert (plan.units[0].horizon, plan.units[0].look_back) == (10 * MINUTE, 0 * MINUTE)


def test_matches_that_depend_on_each_other_are_carried_over_at_the_cut() -> None:
    plan = planned(alerts(1, singleton=True), alerts(2, singleton=True))
    assert change_of(plan, "alerts", "rising") == (Change.REPLACED, Move.CARRIED)
    assert (plan.obstacles, plan.units[0].carried, plan.units[0].horizon) == ((), True, 0 * MINUTE)


def plain(least: int, *, more: bool = False) -> Build:
    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        plain = flow.source("plain", ms.inbox("k string, v double"))
        plain.sql("some", f"SELECT * FROM plain WHERE v > {least}").sink("out", ms.console())
        if more:
            plain.sink("more", ms.console())

    return build


def test_a_group_without_time_is_taken_over_where_it_stands() -> None:
    plan = planned(plain(1), plain(2))
    assert plan.obstacles == ()
    assert (plan.units[0].by, plan.units[0].moved) == ("position", True)


def test_a_new_group_without_time_has_nowhere_to_begin() -> None:
    assert "its results have no time" in planned(plain(1), plain(1, more=True)).obstacles[0].fact


def beside(every: str, *, journal: bool = False) -> Build:
    """Return a flow with a window before a fold, in one group or in two."""

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        windows = rows.window("windows", every=every, n="count(*)")
        kept = windows.journal("kept") if journal else windows
        output = "k string, n bigint, window_time timestamp"
        kept.fold("count", step, initial=0, output=output, by="k").sink("out", ms.console())

    return build


def test_state_is_not_handed_over_beside_a_window_that_changes() -> None:
    (obstacle,) = planned(beside("1 h"), beside("30 min")).obstacles
    assert 'stage "windows" beside it is replaced' in obstacle.fact
    assert "--consent count" in obstacle.hint
    assert planned(beside("1 h"), beside("30 min"), consent=["count"]).obstacles == ()


def test_state_is_handed_over_behind_a_journal_that_another_group_writes() -> None:
    plan = planned(beside("1 h", journal=True), beside("30 min", journal=True))
    assert plan.obstacles == ()
    assert [group.name for group in plan.changed] == ["kept"]


def test_who_reads_a_journal_between_two_changed_groups_is_replaced_with_them() -> None:
    def build(least: int, name: str) -> Build:
        def made(flow: ms.Flow, rows: ms.Stream) -> None:
            kept = rows.sql("some", f"SELECT * FROM rows WHERE v > {least}").journal("kept")
            kept.window("hours", every="1 h", **{name: "count(*)"}).sink("hours", ms.console())
            kept.window("minutes", every="1 min", n="count(*)").sink("minutes", ms.console())

        return made

    plan = planned(build(1, "n"), build(2, "m"))
    (unit,) = plan.units
    assert set(unit.groups) == {"kept", "hours", "minutes"}
    assert (unit.private, unit.shared) == (("kept",), ())
    alone = planned(build(1, "n"), build(2, "n"))
    assert [one.name for one in alone.changed] == ["kept"]
    assert (alone.units[0].private, alone.units[0].shared) == ((), ("kept",))


def lateness_of(lateness: str) -> Version:
    flow = ms.Flow("f")
    rows = flow.source("rows", ms.inbox(DDL), time="at", key="k", lateness=lateness)
    rows.window("w", every="1 h", n="count(*)").sink("out", ms.console())
    return Version.of(plan_of(flow))


def test_rows_are_late_by_the_version_that_owns_their_time():
    plan = switch_plan(lateness_of("5 min"), lateness_of("1 min"))
    assert plan.notes == (
        'rows of "rows" from the cut on are late by 1 min, rows before it by 5 min',
    )
    again = datetime(2026, 1, 1, tzinfo=UTC)
    (note,) = [
        one
        for one in switch_plan(lateness_of("0 s"), lateness_of("1 min"), since=again).notes
        if "late" in one
    ]
    assert "are processed; their dead letters stay" in note


def test_two_latenesses_cannot_be_shared_out():
    plan = switch_plan(lateness_of("5 min"), lateness_of("1 min"), mode="share")
    assert "late for one version and not for the other" in plan.obstacles[0].fact
