"""The steps of a switch, one by one, and the record that decides."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from millstream.errors import ControlBroken, InternalError, SwitchRefused
from millstream.switch import machine
from millstream.switch.cut import WHOLE, Owners, Stretch
from millstream.switch.events import (
    AbortRequested,
    Beyond,
    Confirmed,
    Drained,
    Event,
    Failed,
    FirstFound,
    Held,
    Passed,
    Removed,
    Reported,
    Retired,
    ShareRequested,
    SwitchRequested,
    Tick,
)
from millstream.switch.instructions import (
    AskConfirm,
    AskWindows,
    Close,
    FindFirst,
    LetGo,
    Release,
    Remove,
    Retire,
    StartHeld,
    Write,
)
from millstream.switch.machine import Step, advance, begun, recover
from millstream.switch.phases import Job, Running, State
from millstream.switch.record import Phase, Record, decode, encode
from millstream.switch.request import SwitchRequest


def requested(**more: Any) -> SwitchRequest:
    return SwitchRequest(timeout=timedelta(microseconds=100), **more)


ASKED = SwitchRequested("b", requested(), ("g", "h"), step_us=10)
FIRST = {"g": {"j": (4, 0)}}
BOTH = frozenset({"p0", "p1"})


def after(*events: Event, state: State | None = None) -> Step:
    step = Step(state or begun("a"))
    for now, event in enumerate(events):
        step = advance(step.state, event, now)
    return step


UNTIL_ASKED = (ASKED, Held(BOTH))
UNTIL_CONFIRMING = (*UNTIL_ASKED, Reported(1, "p0", 7), Reported(1, "p1", None))
UNTIL_CUTTING = (*UNTIL_CONFIRMING, Confirmed(1, "p0"), Confirmed(1, "p1"))
UNTIL_CUT = (*UNTIL_CUTTING, FirstFound(1, FIRST))
UNTIL_RETIRING = (*UNTIL_CUT, Beyond("g"), Beyond("h"), Drained("g"), Drained("h"))


def kinds(step: Step) -> list[type]:
    return [type(one) for one in step.instructions]


def test_a_switch_from_beginning_to_end() -> None:
    assert kinds(after(ASKED)) == [Write, StartHeld]
    assert after(*UNTIL_ASKED).instructions == (AskWindows(1, 10),)
    assert after(*UNTIL_CONFIRMING).instructions == (AskConfirm(1, 10, 8, 90),)
    assert after(*UNTIL_CUTTING).instructions == (FindFirst(1, 90),)
    cut = after(*UNTIL_CUT)
    assert cut.instructions[1:] == (Release("a"), Release("b"))
    assert cut.state.owners == Owners("a", (Stretch(90, "a", "b", WHOLE),))
    assert after(*UNTIL_CUT, Beyond("g")).instructions == (Close("a", "g"),)
    assert after(*UNTIL_CUT, Drained("g")).state.phase is Phase.OVERLAPPING
    assert after(*UNTIL_RETIRING).instructions[-1] == Retire("a")
    done = after(*UNTIL_RETIRING, Retired())
    assert (done.state.phase, done.state.current) == (Phase.RUNNING, "b")


def test_every_step_is_a_line_of_history() -> None:
    step = Step(begun("a"))
    for now, event in enumerate((*UNTIL_RETIRING, Retired())):
        before, step = step.state.phase, advance(step.state, event, now)
        assert bool(step.entries) or step.state.phase is before
        assert all(entry.at_us == now and entry.number == 1 for entry in step.entries)


@pytest.mark.parametrize("until", [(ASKED,), UNTIL_ASKED, UNTIL_CONFIRMING, UNTIL_CUTTING])
@pytest.mark.parametrize("end", [AbortRequested(), Failed("b", "no such column")])
def test_until_the_cut_a_switch_can_be_given_up(until: tuple[Event, ...], end: Event) -> None:
    step = after(*until, end)
    assert step.state.phase is Phase.ABORTING
    assert step.instructions == (LetGo(), Remove("b"))
    done = advance(step.state, Removed(), 99)
    assert (done.state.phase, done.state.current, done.state.owners) == (
        Phase.RUNNING,
        "a",
        Owners("a"),
    )


@pytest.mark.parametrize("until", [UNTIL_CUT, UNTIL_RETIRING, ()])
def test_past_the_cut_there_is_nothing_to_abort(until: tuple[Event, ...]) -> None:
    with pytest.raises(SwitchRefused, match="nothing to abort"):
        after(*until, AbortRequested())


def test_what_takes_too_long_is_given_up_but_not_past_the_cut() -> None:
    assert advance(after(*UNTIL_ASKED).state, Tick(), 99).state.phase is Phase.ASKING
    assert advance(after(*UNTIL_ASKED).state, Tick(), 100).state.phase is Phase.ABORTING
    assert advance(after(*UNTIL_CUT).state, Tick(), 1000).state.phase is Phase.OVERLAPPING


def test_a_partition_that_has_passed_the_cut_lets_all_be_asked_again_and_in_the_end_stopped() -> (
    None
):
    step = after(*UNTIL_CONFIRMING, Confirmed(1, "p0"), Passed(1, "p1"))
    assert step.instructions == (LetGo(), AskWindows(2, 10))
    assert advance(step.state, Confirmed(1, "p1"), 9) == Step(step.state)
    stops = []
    for number in range(2, 9):
        asked = [Reported(number, "p0", 8), Reported(number, "p1", 8), Passed(number, "p1")]
        step = after(*asked, state=step.state)
        stops += [one.stop for one in step.instructions if isinstance(one, AskWindows)]
    assert stops == [False, True, False, False, False, True, False]


def test_a_cut_lies_behind_the_last_one_whoever_has_handed_out_how_little() -> None:
    owners = Owners("x", (Stretch(200, "x", "a", WHOLE),))
    step = after(*UNTIL_CONFIRMING, state=Running(Job("a", owners)))
    assert step.instructions == (AskConfirm(1, 10, 20, 210),)


def test_where_nothing_was_handed_out_everything_is_the_new_version_s() -> None:
    step = after(ASKED, Held(BOTH), Reported(1, "p0", None), Reported(1, "p1", None))
    assert step.instructions == (AskConfirm(1, 10, None, 0),)


def test_where_nobody_runs_nobody_is_asked() -> None:
    step = after(ASKED, Held(frozenset()))
    assert step.state.phase is Phase.CUTTING


def test_a_version_may_not_have_the_name_of_one_that_ran_before() -> None:
    done = after(*UNTIL_RETIRING, Retired()).state
    with pytest.raises(InternalError, match='"a" has run already'):
        advance(done, SwitchRequested("a", requested(), (), 10), 50)


# shares and shadows


SHARED = SwitchRequested("b", requested(share=1000), ("g",), 10)
UNTIL_SHARED = (SHARED, *UNTIL_CUT[1:])


def asked_again(number: int, share: int) -> tuple[Event, ...]:
    confirmed = [
        Reported(number, "p0", 30),
        Reported(number, "p1", 30),
        Confirmed(number, "p0"),
        Confirmed(number, "p1"),
    ]
    return (
        ShareRequested(requested(share=share or None), BOTH),
        *confirmed,
        FirstFound(number, {}),
    )


def test_a_share_is_raised_by_a_cut_of_its_own() -> None:
    shared = after(*UNTIL_SHARED)
    assert shared.state.phase is Phase.SHARING
    half = after(*asked_again(2, 5000), state=shared.state)
    assert half.state.phase is Phase.SHARING
    assert half.state.job.firsts == {"b": FIRST}
    whole = after(
        *asked_again(3, WHOLE), state=after(*asked_again(2, 5000), state=shared.state).state
    )
    assert (whole.state.phase, whole.state.leaving) == (Phase.OVERLAPPING, "a")
    assert [one.share for one in whole.state.owners.stretches] == [1000, 5000, WHOLE]


def test_a_share_that_is_taken_back_lets_the_new_version_drain() -> None:
    back = after(*asked_again(2, 0), state=after(*UNTIL_SHARED).state)
    assert (back.state.phase, back.state.leaving) == (Phase.OVERLAPPING, "b")
    done = after(Drained("g"), Retired(), state=back.state)
    assert (done.state.phase, done.state.current) == (Phase.RUNNING, "a")


def test_a_raise_that_is_given_up_leaves_the_share_as_it_was() -> None:
    asked = after(ShareRequested(requested(share=5000), BOTH), state=after(*UNTIL_SHARED).state)
    step = after(AbortRequested(), state=asked.state)
    assert (step.state.phase, step.state.new.share, step.instructions) == (
        Phase.SHARING,
        1000,
        (LetGo(),),
    )


def test_keys_can_be_asked_back_while_more_are_given() -> None:
    asked = after(ShareRequested(requested(share=5000), BOTH), state=after(*UNTIL_SHARED).state)
    back = after(ShareRequested(requested(), BOTH), state=asked.state)
    assert (back.state.phase, back.state.new.wanted, back.instructions[0]) == (
        Phase.ASKING,
        0,
        LetGo(),
    )
    # Answers to the question before do not count.
    assert after(Reported(asked.state.round, "p0", 30), state=back.state).state == back.state
    same = after(ShareRequested(requested(share=1000), BOTH), state=asked.state)
    assert (same.state.phase, same.state.new.share, same.state.new.wanted) == (
        Phase.SHARING,
        1000,
        1000,
    )


@pytest.mark.parametrize("share", [1000, -1, WHOLE + 1])
def test_a_share_that_makes_no_sense_is_refused(share: int) -> None:
    with pytest.raises(SwitchRefused):
        after(
            ShareRequested(requested(share=share or None), BOTH), state=after(*UNTIL_SHARED).state
        )


def test_a_shadow_runs_until_it_is_ended() -> None:
    step = after(SwitchRequested("b", requested(shadow=True), ("g",), 10), Held(BOTH))
    assert step.state.phase is Phase.SHADOWING
    assert advance(step.state, Tick(), 10**9).state.phase is Phase.SHADOWING
    assert after(AbortRequested(), state=step.state).state.phase is Phase.ABORTING


# versions that fail


def test_a_version_that_fails_past_the_cut_changes_nothing() -> None:
    step = after(*UNTIL_CUT)
    assert advance(step.state, Failed("b", "errors"), 1) == Step(step.state)


# after a crash


def recovered(*events: Event) -> Step:
    """Return where a driver finds itself that dies after these events."""
    step, record = Step(begun("a")), machine.record_of(begun("a"))
    for now, event in enumerate(events):
        step = advance(step.state, event, now)
        for one in step.instructions:
            record = one.record if isinstance(one, Write) else record
    return recover(decode(encode(record)), 1000)


@pytest.mark.parametrize(
    ("until", "phase", "instructions"),
    [
        ((), Phase.RUNNING, (Release("a"),)),
        ((ASKED,), Phase.ABORTING, (Release("a"), LetGo(), Remove("b"))),
        (UNTIL_CUTTING, Phase.ABORTING, (Release("a"), LetGo(), Remove("b"))),
        (UNTIL_CUT, Phase.OVERLAPPING, (Release("a"), Release("b"))),
        (UNTIL_SHARED, Phase.SHARING, (Release("a"), Release("b"))),
        (UNTIL_RETIRING, Phase.RETIRING, (Release("b"), Retire("a"))),
        ((*UNTIL_RETIRING, Retired()), Phase.RUNNING, (Release("b"),)),
    ],
)
def test_a_driver_that_died_goes_on_from_the_record(until, phase, instructions) -> None:
    step = recovered(*until)
    assert step.state.phase is phase
    assert step.instructions == instructions


def test_where_the_new_version_began_is_known_until_it_leaves() -> None:
    assert recovered(*UNTIL_CUT).state.job.firsts == {"b": FIRST}
    assert recovered(*UNTIL_RETIRING, Retired()).state.job.firsts == {"b": FIRST}


def test_the_new_names_of_states_outlive_a_crash() -> None:
    asked = SwitchRequested("b", requested(states={"x": "y"}), ("g",), step_us=10)
    state = recovered(asked, *UNTIL_CUT[1:]).state
    assert not isinstance(state, Running)
    assert state.new.states == {"x": "y"}


def test_a_record_is_whole_or_refused() -> None:
    content = encode(machine.record_of(after(*UNTIL_CUT).state))
    assert decode(content).owners.stretches[0].from_us == 90
    for damaged in (b"", content[:-1], content.replace(b"90", b"91"), b"millstream switch 2 0\n{}"):
        with pytest.raises(ControlBroken):
            decode(damaged)


def test_a_record_of_a_phase_that_leaves_nothing_behind_is_our_mistake() -> None:
    with pytest.raises(InternalError):
        recover(Record(1, Phase.ASKING, "a", Owners("a"), "b"), 0)
