"""The steps of a switch: a function from a state and an event to the next state and what to do.

                SwitchRequested                Held                   all reported            all confirmed
    RUNNING ──────────────────▶ PREPARING ──────────────▶ ASKING ──────────────▶ CONFIRMING ──────────────▶ CUTTING
       ▲                            │  └──(shadow)──▶ SHADOWING  ▲                   │                         │
       │           Removed          ▼   too slow, failed │       └─── Passed: again ─┘                         │ FirstFound
       ├────────────────────── ABORTING ◀── AbortRequested ┴──────────────────────────────────────────────┘      │
       │                                                                                                ═══ the cut ═══
       │    Retired                  all drained                    a part of the keys only                    │
       └─────────────── RETIRING ◀──────────────── OVERLAPPING ◀─┬────────────────────────────────────────────┤
                                                                 │  ShareRequested: ASKING ... CUTTING         ▼
                                                                 └──────────────────────────────────────── SHARING

Until the cut a switch can be aborted, and is if the new version fails, is too slow, or the driver
dies; the old version never noticed. The cut is one durable record; from there the switch goes
forward only, and a crash finishes it. A share is raised or taken back by a cut of its own; taken
back to nothing, it is the new version that drains and retires.

    PREPARING    the new version starts, held: sources open, workers up, nothing read
    SHADOWING    it runs on live input beside the old one, and its results go nowhere near the sinks
    ASKING       every partition reports the highest window that it has handed out
    CONFIRMING   every partition promises to hand out nothing at or after the cut until it knows more
    CUTTING      where the new version begins to read is looked up in the journals
    SHARING      both versions run, each owns its keys
    OVERLAPPING  both run; a unit that has read past the cut, its horizon and its lateness is closed, then drained
                 (a cut in the past: the old version stops, its results since are taken back, the
                 new one begins)
    RETIRING     the version that leaves is stopped, its checkpoints are removed
    ABORTING     the new version is removed

Every version that ever runs has a name of its own, also one that comes back: by it results are
owned. Instructions are carried out in order, each may be repeated after a crash, and `Write` is
durable before the next one begins. Events that come too late, answers to an earlier question, are
ignored; what a user asks at the wrong time is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from millstream.errors import InternalError, SwitchRefused
from millstream.switch import cut as cuts
from millstream.switch.cut import WHOLE, Owners, Stretch, percent
from millstream.switch.events import (
    AbortRequested,
    Beyond,
    Confirmed,
    Drained,
    Event,
    Failed,
    First,
    FirstFound,
    Held,
    Mode,
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
    Instruction,
    LetGo,
    MakeReady,
    Release,
    Remove,
    Retire,
    RunShadow,
    StartHeld,
    Withdraw,
    Write,
)
from millstream.switch.record import Homes, Phase, Record

#: So often are partitions asked that go on meanwhile; then they are stopped where they are.
MOST_ROUNDS: Final = 3
_BEFORE_THE_CUT = (Phase.PREPARING, Phase.SHADOWING, Phase.ASKING, Phase.CONFIRMING, Phase.CUTTING)
_WITH_A_DEADLINE = (Phase.PREPARING, Phase.ASKING, Phase.CONFIRMING, Phase.CUTTING)


# states


@dataclass(frozen=True, slots=True)
class Ballot:
    """What the partitions have answered so far."""

    voters: frozenset[str] = frozenset()
    round: int = 0
    highest: Mapping[str, int | None] = field(default_factory=dict)
    confirmed: frozenset[str] = frozenset()
    bound: int | None = None

    @property
    def all_reported(self) -> bool:
        return self.highest.keys() >= self.voters

    @property
    def all_confirmed(self) -> bool:
        return self.confirmed >= self.voters


@dataclass(frozen=True, slots=True)
class State:
    """Where a job stands in its life of switches."""

    phase: Phase
    current: str
    owners: Owners
    number: int = 0
    next: str | None = None
    units: tuple[str, ...] = ()
    mode: Mode = "switch"
    step_us: int = 0
    share: int = 0
    wanted: int = WHOLE
    ballot: Ballot = field(default_factory=Ballot)
    firsts: Mapping[str, First] = field(default_factory=dict)
    leaving: str | None = None
    closed: frozenset[str] = frozenset()
    drained: frozenset[str] = frozenset()
    deadline_us: int | None = None
    homes: Mapping[str, Homes] = field(default_factory=dict)
    since_us: int | None = None
    latest_us: int | None = None
    consent: tuple[str, ...] = ()

    @property
    def cut_us(self) -> int:
        """The cut that is being made: it lies behind all that was handed out, and behind the last one, or where a user wants it."""
        return (
            self.since_us
            if self.since_us is not None
            else cuts.cut_of(self.ballot.bound, self.step_us)
        )

    @property
    def staying(self) -> str:
        """The version that is left when the other has gone."""
        stays = self.next if self.leaving == self.current else self.current
        assert stays is not None
        return stays


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the job's history."""

    at_us: int
    number: int
    phase: Phase
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """The next state, what to do to get there, and what to write into the job's history."""

    state: State
    instructions: tuple[Instruction, ...] = ()
    entries: tuple[Entry, ...] = ()


def begun(version: str) -> State:
    """Return the state of a job whose first version runs."""
    return State(Phase.RUNNING, version, Owners(version))


def advance(state: State, event: Event, now_us: int) -> Step:
    """Return the next state and what to do to get there.

    Raises:
        SwitchRefused: A user asked for something that does not go now; the message says what the
            switch is doing.
    """
    return _HANDLERS[type(event)](state, event, now_us)


def _moved(state: State, now_us: int, text: str, *instructions: Instruction) -> Step:
    return Step(state, instructions, (Entry(now_us, state.number, state.phase, text),))


# what users ask for


def _requested(state: State, event: SwitchRequested, now_us: int) -> Step:
    if state.phase is not Phase.RUNNING:
        raise SwitchRefused(
            f'a switch from version "{state.current}" to "{state.next}" is {state.phase}',
            hint=_way_out(state.phase),
        )
    known = {
        state.owners.first,
        *(name for one in state.owners.stretches for name in (one.first, one.second)),
    }
    if event.version in known or event.version == state.current:
        # It would publish once more what the version of that name has published.
        raise InternalError(f'a version of the name "{event.version}" has run already')
    new = State(
        Phase.PREPARING,
        state.current,
        state.owners,
        number=state.number + 1,
        next=event.version,
        firsts=state.firsts,
        units=event.units,
        mode=event.mode,
        step_us=event.step_us,
        wanted=event.share if event.mode == "share" else WHOLE,
        deadline_us=now_us + event.limit_us,
        homes=event.homes,
        since_us=event.since_us,
        latest_us=state.latest_us,
        consent=event.consent,
    )
    text = f'version "{event.version}" is prepared beside "{state.current}"'
    return _moved(new, now_us, text, Write(record_of(new)), StartHeld(event.version))


def _way_out(phase: Phase) -> str:
    if phase in _BEFORE_THE_CUT:
        return "abort it, or wait until it is done"
    return (
        "raise its share to 100%, or take it back to 0%"
        if phase is Phase.SHARING
        else "wait until it is done"
    )


def _abort_requested(state: State, event: AbortRequested, now_us: int) -> Step:
    if state.phase not in _BEFORE_THE_CUT:
        fact = (
            "no switch is going on"
            if state.phase is Phase.RUNNING
            else f"the switch is {state.phase}, past its cut"
        )
        raise SwitchRefused(
            f"there is nothing to abort: {fact}", hint="a switch back to the old version undoes it"
        )
    return _abort(state, now_us, event.why)


def _share_requested(state: State, event: ShareRequested, now_us: int) -> Step:
    again = state.phase in _BEFORE_THE_CUT and state.share > 0
    if state.phase is not Phase.SHARING and not again:
        msg = f"the job is {state.phase}, not sharing its keys between two versions"
        begin = "begin with a switch that has --share"
        raise SwitchRefused(
            msg, hint=begin if state.phase is Phase.RUNNING else _way_out(state.phase)
        )
    if (event.share == state.share and not again) or not 0 <= event.share <= WHOLE:
        msg = f"the new version has {percent(state.share)} of the keys, and {percent(event.share)} were asked for"
        raise SwitchRefused(msg, hint="ask for another share, from 0% to 100%")
    if event.share == state.share:
        return _abort(state, now_us, "another one was asked for, and taken back")
    ballot = Ballot(event.voters, state.ballot.round)
    asking = replace(state, wanted=event.share, ballot=ballot, deadline_us=now_us + event.limit_us)
    step = _ask(
        asking, now_us, f'the share of version "{state.next}" is to be {percent(event.share)}'
    )
    return replace(step, instructions=(LetGo(), *step.instructions)) if again else step


# until the cut


def _held(state: State, event: Held, now_us: int) -> Step:
    if state.phase is not Phase.PREPARING or state.next is None:
        return Step(state)
    if state.mode == "shadow":
        new = replace(state, phase=Phase.SHADOWING, deadline_us=None)
        text = f'version "{state.next}" runs in the shadow of "{state.current}"'
        return _moved(new, now_us, text, Write(record_of(new)), RunShadow(state.next))
    if state.since_us is not None:
        # Nobody has to be asked: the old version goes no further.
        return _cutting(replace(state, ballot=Ballot()), now_us)
    return _ask(
        replace(state, ballot=Ballot(event.voters)), now_us, f'version "{state.next}" is held'
    )


def _ask(state: State, now_us: int, text: str) -> Step:
    """Ask all partitions, once more: answers to earlier questions do not count."""
    number = state.ballot.round + 1
    new = replace(state, phase=Phase.ASKING, ballot=Ballot(state.ballot.voters, number))
    # Of partitions that run on, one may always be quicker than the question.
    step = _moved(
        new, now_us, text, AskWindows(number, state.step_us, stop=number % (MOST_ROUNDS + 1) == 0)
    )
    return step if state.ballot.voters else _counted(step)


def _counted(step: Step) -> Step:
    """Go on at once where nobody has to be asked: nothing runs that could have handed out anything."""
    found = _confirming(step.state, step.entries[0].at_us)
    cut = _cutting(found.state, step.entries[0].at_us)
    return Step(
        cut.state,
        (*step.instructions, *cut.instructions),
        (*step.entries, *found.entries, *cut.entries),
    )


def _reported(state: State, event: Reported, now_us: int) -> Step:
    ballot = state.ballot
    if (
        state.phase is not Phase.ASKING
        or event.round != ballot.round
        or event.partition not in ballot.voters
    ):
        return Step(state)
    heard = replace(
        state, ballot=replace(ballot, highest={**ballot.highest, event.partition: event.highest})
    )
    return _confirming(heard, now_us) if heard.ballot.all_reported else Step(heard)


def _confirming(state: State, now_us: int) -> Step:
    bound = cuts.bound_above(state.ballot.highest.values())
    last = _latest(state)
    if last is not None:
        # A version that is still on its way to the last cut has handed out less than that.
        bound = max(cuts.window_number(last, state.step_us), -1 if bound is None else bound)
    new = replace(state, phase=Phase.CONFIRMING, ballot=replace(state.ballot, bound=bound))
    return _moved(
        new,
        now_us,
        "all windows are known",
        AskConfirm(state.ballot.round, state.step_us, bound, new.cut_us),
    )


def _latest(state: State) -> int | None:
    """Return the latest cut that was ever made."""
    known = [
        one
        for one in (state.latest_us, *(one.from_us for one in state.owners.stretches))
        if one is not None
    ]
    return max(known, default=None)


def _confirmed(state: State, event: Confirmed, now_us: int) -> Step:
    ballot = state.ballot
    if (
        state.phase is not Phase.CONFIRMING
        or event.round != ballot.round
        or event.partition not in ballot.voters
    ):
        return Step(state)
    heard = replace(state, ballot=replace(ballot, confirmed=ballot.confirmed | {event.partition}))
    return _cutting(heard, now_us) if heard.ballot.all_confirmed else Step(heard)


def _passed(state: State, event: Passed, now_us: int) -> Step:
    if state.phase is not Phase.CONFIRMING or event.round != state.ballot.round:
        return Step(state)
    asked = _ask(
        state, now_us, f"{event.partition} has passed the cut that was meant: all are asked again"
    )
    return replace(asked, instructions=(LetGo(), *asked.instructions))


def _cutting(state: State, now_us: int) -> Step:
    new = replace(state, phase=Phase.CUTTING)
    text = (
        "all partitions stay below the cut"
        if state.since_us is None
        else "the cut lies in the past"
    )
    return _moved(new, now_us, text, FindFirst(state.ballot.round, new.cut_us))


def _tick(state: State, _: Tick, now_us: int) -> Step:
    over = state.deadline_us is not None and now_us >= state.deadline_us
    return (
        _abort(state, now_us, "it took too long")
        if over and state.phase in _WITH_A_DEADLINE
        else Step(state)
    )


def _abort(state: State, now_us: int, why: str) -> Step:
    assert state.next is not None
    if state.share:
        # Both versions own keys already: only the new share is given up.
        kept = replace(state, phase=Phase.SHARING, wanted=state.share, deadline_us=None)
        return _moved(kept, now_us, f"the share stays {percent(state.share)}: {why}", LetGo())
    new = replace(state, phase=Phase.ABORTING, deadline_us=None)
    shadow = state.mode == "shadow" or state.phase is Phase.SHADOWING
    text = (
        f'the shadow of version "{state.next}" ends: {why}'
        if shadow
        else f"the switch is given up: {why}"
    )
    return _moved(new, now_us, text, LetGo(), Remove(state.next))


def _removed(state: State, _: Removed, now_us: int) -> Step:
    if state.phase is not Phase.ABORTING:
        return Step(state)
    homes = {name: homes for name, homes in state.homes.items() if name == state.current}
    new = State(
        Phase.RUNNING,
        state.current,
        state.owners,
        number=state.number,
        firsts=state.firsts,
        homes=homes,
        latest_us=state.latest_us,
    )
    return _moved(new, now_us, f'version "{state.current}" runs on alone', Write(record_of(new)))


# the cut, and what follows from it


def _first_found(state: State, event: FirstFound, now_us: int) -> Step:
    if state.phase is not Phase.CUTTING or event.round != state.ballot.round:
        return Step(state)
    assert state.next is not None
    stretch = Stretch(state.cut_us, state.current, state.next, state.wanted)
    if state.since_us is not None:
        return _again(state, stretch, event.first, now_us)
    leaving = {0: state.next, WHOLE: state.current}.get(state.wanted)
    new = replace(
        state,
        phase=Phase.SHARING if leaving is None else Phase.OVERLAPPING,
        owners=state.owners.after(stretch),
        share=state.wanted,
        firsts={**state.firsts, state.next: event.first} if event.first else state.firsts,
        leaving=leaving,
        deadline_us=None,
        closed=frozenset(),
        drained=frozenset(),
    )
    text = f"cut at {state.cut_us} us: {percent(state.wanted)} of what starts from there belongs to {state.next}"
    # The record decides. The old version learns of it first: it may not read on before it knows
    # where its part ends.
    step = _moved(new, now_us, text, Write(record_of(new)), *_released(new))
    return step if new.units or leaving is None else _retiring(step, now_us)


def _again(state: State, stretch: Stretch, first: First, now_us: int) -> Step:
    assert state.next is not None
    new = replace(
        state,
        phase=Phase.OVERLAPPING,
        owners=state.owners.again(stretch),
        share=state.wanted,
        firsts={**state.firsts, state.next: first},
        leaving=state.current,
        deadline_us=None,
        latest_us=_latest(state),
    )
    text = (
        f"cut at {stretch.from_us} us: what starts from there is replaced by version {state.next}"
    )
    return _withdrawing(_moved(new, now_us, text, Write(record_of(new))), now_us)


def _withdrawing(step: Step, now_us: int) -> Step:
    """Take back what is replaced before the new version begins: a record between the two says that it is done."""
    state = step.state
    assert state.next is not None and state.leaving is not None and state.since_us is not None  # noqa: PT018 (types)
    new = replace(state, phase=Phase.RETIRING)
    before = (Withdraw(state.leaving, state.since_us), MakeReady(state.next))
    after = (Write(record_of(new)), Release(state.next), Retire(state.leaving))
    found = _moved(new, now_us, f'version "{new.leaving}" retires', *before, *after)
    return Step(new, (*step.instructions, *found.instructions), (*step.entries, *found.entries))


def _released(state: State) -> tuple[Instruction, ...]:
    return (Release(state.current), *(() if state.next is None else (Release(state.next),)))


def _beyond(state: State, event: Beyond, now_us: int) -> Step:
    if (
        state.phase is not Phase.OVERLAPPING
        or event.unit in state.closed
        or event.unit not in state.units
    ):
        return Step(state)
    assert state.leaving is not None
    new = replace(state, closed=state.closed | {event.unit})
    text = f'"{event.unit}" has read all that version "{state.leaving}" owns'
    return _moved(new, now_us, text, Close(state.leaving, event.unit))


def _drained(state: State, event: Drained, now_us: int) -> Step:
    if (
        state.phase is not Phase.OVERLAPPING
        or event.unit in state.drained
        or event.unit not in state.units
    ):
        return Step(state)
    new = replace(state, drained=state.drained | {event.unit})
    step = _moved(
        new, now_us, f'"{event.unit}" has put out all that version "{state.leaving}" owns'
    )
    return _retiring(step, now_us) if new.drained >= set(new.units) else step


def _retiring(step: Step, now_us: int) -> Step:
    assert step.state.leaving is not None
    new = replace(step.state, phase=Phase.RETIRING)
    found = _moved(
        new,
        now_us,
        f'version "{new.leaving}" retires',
        Write(record_of(new)),
        Retire(step.state.leaving),
    )
    return Step(new, (*step.instructions, *found.instructions), (*step.entries, *found.entries))


def _retired(state: State, _: Retired, now_us: int) -> Step:
    if state.phase is not Phase.RETIRING:
        return Step(state)
    new = State(
        Phase.RUNNING,
        state.staying,
        state.owners.since(state.staying),
        number=state.number,
        firsts={name: first for name, first in state.firsts.items() if name == state.staying},
        homes={name: homes for name, homes in state.homes.items() if name == state.staying},
        latest_us=state.latest_us,
    )
    return _moved(new, now_us, f'version "{new.current}" is the current one', Write(record_of(new)))


# versions that fail


def _failed(state: State, event: Failed, now_us: int) -> Step:
    if event.version == state.next and state.phase in _BEFORE_THE_CUT and not state.share:
        return _abort(state, now_us, event.why)
    # Past the cut it goes forward only: a version that fails is started again, as any job is.
    return Step(state)


# after a crash


def record_of(state: State) -> Record:
    """Return what of a state must be durable."""
    return Record(
        number=state.number,
        phase=state.phase,
        current=state.current,
        owners=state.owners,
        next=state.next,
        units=state.units,
        step_us=state.step_us,
        share=state.share,
        leaving=state.leaving,
        firsts=dict(state.firsts),
        homes=dict(state.homes),
        since_us=state.since_us,
        latest_us=state.latest_us,
        consent=state.consent,
    )


def recover(record: Record, now_us: int) -> Step:
    """Return where a job stands whose driver died, and what to do before anything else."""
    state = State(
        record.phase,
        record.current,
        record.owners,
        number=record.number,
        next=record.next,
        units=record.units,
        step_us=record.step_us,
        share=record.share,
        wanted=record.share,
        firsts=record.firsts,
        leaving=record.leaving,
        homes=record.homes,
        since_us=record.since_us,
        latest_us=record.latest_us,
        consent=record.consent,
    )
    match record.phase:
        case Phase.RUNNING:
            return Step(state, (Release(state.current),))
        case Phase.PREPARING | Phase.SHADOWING:
            aborted = _abort(state, now_us, "the driver stopped before the cut")
            return replace(aborted, instructions=(Release(state.current), *aborted.instructions))
        case Phase.OVERLAPPING if state.since_us is not None:
            return _withdrawing(
                _moved(state, now_us, "the switch goes on after a stop of the driver"), now_us
            )
        case Phase.SHARING | Phase.OVERLAPPING:
            return _moved(
                state, now_us, "the switch goes on after a stop of the driver", *_released(state)
            )
        case Phase.RETIRING:
            assert state.leaving is not None
            instructions = (Release(state.staying), Retire(state.leaving))
            return _moved(
                state, now_us, "the switch goes on after a stop of the driver", *instructions
            )
    raise InternalError(
        f"a record says that a switch is {record.phase}, which leaves nothing behind"
    )


# Each handler takes the event of its type, which a table cannot say.
_HANDLERS: Final[Mapping[type, Callable[[State, Any, int], Step]]] = {
    SwitchRequested: _requested,
    AbortRequested: _abort_requested,
    ShareRequested: _share_requested,
    Held: _held,
    Failed: _failed,
    Reported: _reported,
    Confirmed: _confirmed,
    Passed: _passed,
    FirstFound: _first_found,
    Beyond: _beyond,
    Drained: _drained,
    Retired: _retired,
    Removed: _removed,
    Tick: _tick,
}
