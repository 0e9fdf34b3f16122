"""A cut in the past: what the plan says of it, and its steps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

import millstream as ms
from millstream.plan.groups import plan as plan_of
from millstream.switch.again import outputs
from millstream.switch.changes import Change, Version
from millstream.switch.cut import WHOLE, Owners, Stretch, owned_after
from millstream.switch.events import FirstFound, Held, Reported, Retired, SwitchRequested
from millstream.switch.instructions import (
    AskConfirm,
    FindFirst,
    MakeReady,
    Release,
    Retire,
    Withdraw,
    Write,
)
from millstream.switch.machine import advance, begun, recover
from millstream.switch.phases import Job, Running, State
from millstream.switch.plan import SwitchPlan, switch_plan
from millstream.switch.record import Phase, decode, encode
from millstream.switch.request import SwitchRequest
from millstream.switch.show import table, to_json
from millstream.switch.starts import HIDDEN_START, start_of

SINCE = datetime(2026, 3, 8, 12, 20, tzinfo=UTC)
DDL = "k string, v double, at timestamp"
Build = Callable[[int, ms.Stream], object]


def planned(build: Build, *, consent: tuple[str, ...] = (), new: Build | None = None) -> SwitchPlan:
    versions = []
    for number, one in enumerate((build, new or build)):
        flow = ms.Flow("f", window="1 hour")
        one(number, flow.source("rows", ms.inbox(DDL), time="at", key="k", lateness="5 min"))
        versions.append(Version.of(plan_of(flow)))
    return switch_plan(*versions, consent=consent, since=SINCE)


def to(target: object) -> Build:
    return lambda number, rows: rows.sql("some", f"SELECT * FROM rows WHERE v > {number}").sink(
        "out", target
    )


def test_the_plan_says_from_where_and_what_is_removed() -> None:
    plan = planned(to(ms.jsonl("out")))
    assert plan.obstacles == ()
    assert plan.since == datetime(2026, 3, 8, 12, tzinfo=UTC)  # where there may be a cut
    assert table(plan).splitlines()[-2:] == [
        "out begins again at 2026-03-08 12:00:00 UTC",
        "what is out since then is removed from out, and comes again as it is read",
    ]
    assert to_json(plan)["since"] == "2026-03-08T12:00:00+00:00"


@pytest.mark.parametrize(
    ("target", "taken"),
    [
        (ms.jsonl("o"), True),
        (ms.csv("o"), True),
        (ms.parquet("o"), True),
        (ms.memory(), True),
        (ms.postgres("postgresql://h/d", table="t"), True),
        (ms.outbox("o", "other.rows"), False),
        (ms.kafka_topic("t", servers="h:9092"), False),
    ],
)
def test_what_can_only_be_added_to_is_repeated_with_consent(target: object, taken: bool) -> None:
    plan = planned(to(target))
    assert (outputs(plan.old, plan.new, plan.groups).taken_back == ("out",)) is taken
    assert [one.hint.partition(" to repeat")[0] for one in plan.obstacles] == (
        [] if taken else ["use --consent out"]
    )
    agreed = planned(to(target), consent=("out",))
    assert agreed.obstacles == ()
    assert ("stays in out, and comes again" in table(agreed)) is not taken


def test_the_plan_says_what_readers_of_a_topic_will_see() -> None:
    agreed = planned(to(ms.kafka_topic("alerts", servers="h:9092")), consent=("out",))
    shown = " ".join(table(agreed).split())
    assert 'readers of topic "alerts" get them a second time' in shown


def test_what_the_terminal_has_shown_it_has_shown() -> None:
    assert planned(to(ms.console())).obstacles == ()


def test_results_in_another_place_leave_the_old_ones_alone() -> None:
    plan = planned(to(ms.jsonl("out")), new=to(ms.jsonl("out-2")))
    assert plan.obstacles == ()
    assert outputs(plan.old, plan.new, plan.groups).left == ("out",)
    assert table(plan).splitlines()[-1] == "what is out stays in out"


def test_groups_that_read_what_changes_are_processed_again_too() -> None:
    def build(number: int, rows: ms.Stream) -> None:
        some = rows.sql("some", f"SELECT * FROM rows WHERE v > {number}")
        noted = some.window("hourly", every="1 h", n="count(*)").journal("noted")
        noted.window("daily", every="1 d", by="k", n="sum(n)").sink("daily", ms.jsonl("daily"))
        rows.sink("all", ms.jsonl("all"))

    plan = planned(build)
    assert {group.name: group.change for group in plan.groups} == {
        "noted": Change.REPLACED,
        "daily": Change.REPLACED,
        "all": Change.KEPT,
    }
    (unit,) = plan.units
    assert (unit.private, unit.shared) == (("noted",), ())
    assert plan.obstacles == ()


def test_a_journal_that_nobody_in_the_flow_reads_is_repeated_with_consent() -> None:
    build: Build = lambda n, rows: rows.sql("some", f"SELECT * FROM rows WHERE v > {n}").journal(  # noqa: E731
        "noted"
    )
    (obstacle,) = planned(build).obstacles
    assert (
        obstacle.fact
        == 'what "noted" has got since 2026-03-08 12:00:00 UTC cannot be taken back, and would come again'
    )
    assert planned(build, consent=("noted",)).obstacles == ()


def test_a_state_of_long_ago_is_not_kept() -> None:
    def build(number: int, rows: ms.Stream) -> None:
        some = rows.sql("some", f"SELECT * FROM rows WHERE v > {number}")
        some.distinct("once", by="k", within="1 h").sink("out", ms.jsonl("out"))

    assert 'the state that stage "once" had at 2026-03-08 12:00:00 UTC is not kept' in table(
        planned(build)
    )
    assert planned(build, consent=("once",)).obstacles == ()


def test_matches_are_owned_by_their_time_from_then_on() -> None:
    def build(number: int, rows: ms.Stream) -> None:
        pattern = ms.Pattern().begin("a", f"v > {number}").next("b", "v > a.v").within("10 min")
        rows.match("rise", pattern, emit="k").sink("out", ms.jsonl("out"))

    plan = planned(build)
    (unit,) = plan.units
    # One that ends there or later may have begun before.
    assert unit.look_back == timedelta(minutes=10)
    group = plan.new.group("out")
    columns = [
        start_of(plan.new.flow, group.stages, "rise", by_time=by_time) for by_time in (False, True)
    ]
    assert [None if one is None else one.column for one in columns] == [HIDDEN_START, "at"]
    old, new = (Version.of(one) for one in (plan.old, plan.new))
    later = switch_plan(Version(old.plan, old.meanings, frozenset({"out"})), new)
    assert later.units[0].look_back == timedelta(minutes=10)


# its steps

FIRST = {"g": {"j": (4,)}}


def asked(state: State, since: int | None) -> State:
    wanted = SwitchRequested("b", SwitchRequest(consent=("c",)), ("g",), 10, since_us=since)
    return advance(state, wanted, 0).state


def test_nobody_is_asked_and_results_are_taken_back_before_the_new_version_begins() -> None:
    held = advance(asked(begun("a"), 50), Held(frozenset({"p"})), 1)
    assert held.instructions == (FindFirst(0, 50),)
    cut = advance(held.state, FirstFound(0, FIRST), 2)
    first, *between, second, release, retire = cut.instructions
    assert between == [Withdraw("a", 50), MakeReady("b")]
    assert (release, retire) == (Release("b"), Retire("a"))
    assert isinstance(first, Write)
    assert isinstance(second, Write)
    assert (first.record.phase, second.record.phase) == (Phase.OVERLAPPING, Phase.RETIRING)
    # A driver that dies takes back until that is done, and no longer: the results are the new
    # version's then.
    again = recover(decode(encode(first.record)), 3)
    assert again.instructions == cut.instructions[1:]
    assert again.state.new.consent == ("c",)
    assert recover(decode(encode(second.record)), 3).instructions == (Release("b"), Retire("a"))
    done = advance(cut.state, Retired(), 4).state
    assert isinstance(done, Running)
    assert done.current == "b"


def test_a_cut_before_the_last_one_takes_its_place_and_the_next_lies_after_both() -> None:
    owners = Owners("z", (Stretch(20, "z", "y", WHOLE), Stretch(90, "y", "a", WHOLE)))
    state = Running(Job("a", owners))
    cut = advance(
        advance(asked(state, 50), Held(frozenset()), 1).state, FirstFound(0, FIRST), 2
    ).state
    assert cut.owners == Owners("z", (Stretch(20, "z", "y", WHOLE), Stretch(50, "a", "b", WHOLE)))
    done = advance(cut, Retired(), 3).state
    assert done.owners.owner(95) == "b"
    later = advance(done, SwitchRequested("c", SwitchRequest(), ("g",), 10), 4).state
    asking = advance(later, Held(frozenset({"p"})), 5).state
    confirming = advance(asking, Reported(1, "p", 3), 6)
    assert confirming.instructions == (AskConfirm(1, 10, 9, 100),)


def test_what_a_group_owned_from_there_on_it_owns_no_more() -> None:
    stretch = Stretch(50, "a", "b", WHOLE)
    assert owned_after(((None, 20, 0, WHOLE), (90, None, 0, WHOLE)), stretch, "a") == (
        (None, 20, 0, WHOLE),
    )
    assert owned_after((), stretch, "b") == ((50, None, 0, WHOLE),)
