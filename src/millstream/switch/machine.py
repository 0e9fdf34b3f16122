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

from dataclasses import dataclass, replace
from typing import Final, assert_never

import msgspec

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
from millstream.switch.phases import (
    Aborting,
    Asking,
    BeforeTheCut,
    Confirming,
    Cutting,
    Job,
    Overlapping,
    Preparing,
    Replacement,
    Retiring,
    Running,
    Shadowing,
    Sharing,
    State,
    Voting,
    WithDeadline,
)
from millstream.switch.record import Phase, Record

#: So often are partitions asked that go on meanwhile; then they are stopped where they are.
MOST_ROUNDS: Final = 3
_GOES_ON: Final = "the switch continues after a stop of the driver"


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

    def then(self, other: Step) -> Step:
        """Return this step and the one after it as one."""
        return Step(
            other.state, (*self.instructions, *other.instructions), (*self.entries, *other.entries)
        )


def begun(version: str) -> State:
    """Return the state of a job whose first version runs."""
    return Running(Job(version, Owners(version)))


def advance(state: State, event: Event, now_us: int) -> Step:
    """Return the next state and what to do to get there.

    Raises:
        SwitchRefused: A user asked for something that cannot be done now; the message says what the
            switch is doing.
    """
    match event:
        case SwitchRequested():
            return _requested(state, event, now_us)
        case AbortRequested():
            return _abort_requested(state, event, now_us)
        case ShareRequested():
            return _share_requested(state, event, now_us)
        case Held() | Reported() | Confirmed() | Passed() | FirstFound():
            return _until_the_cut(state, event, now_us)
        case Beyond() | Drained() | Retired():
            return _since_the_cut(state, event, now_us)
        case Removed():
            return _removed(state, now_us) if isinstance(state, Aborting) else Step(state)
        case Failed():
            return _failed(state, event, now_us)
        case Tick():
            if isinstance(state, WithDeadline) and now_us >= state.deadline_us:
                return _abort(state, now_us, "it took too long")
            return Step(state)
    assert_never(event)


def _entry(state: State, now_us: int, text: str) -> Entry:
    return Entry(now_us, state.number, state.phase, text)


def _moved(state: State, now_us: int, text: str, *instructions: Instruction) -> Step:
    return Step(state, instructions, (_entry(state, now_us, text),))


# what users ask for


def _requested(state: State, event: SwitchRequested, now_us: int) -> Step:
    if not isinstance(state, Running):
        msg = f'a switch from version "{state.current}" to "{state.next}" is {state.phase}'
        raise SwitchRefused(msg, hint=_way_out(state))
    if event.version in {*state.owners.versions, state.current}:
        # It would publish once more what the version of that name has published.
        raise InternalError(f'a version of the name "{event.version}" has run already')
    job = replace(state.job, number=state.number + 1, homes=event.homes)
    new = Replacement(
        event.version,
        event.units,
        event.step_us,
        wanted=event.request.wanted,
        since_us=event.since_us,
        consent=event.request.consent,
        states=event.request.states,
    )
    preparing = Preparing(job, new, now_us + event.request.timeout_us, event.request.shadow)
    text = f'version "{event.version}" is prepared beside "{state.current}"'
    return _moved(preparing, now_us, text, Write(record_of(preparing)), StartHeld(event.version))


def _way_out(state: State) -> str:
    if isinstance(state, BeforeTheCut):
        return "abort it, or wait until it is done"
    if isinstance(state, Sharing):
        return "raise its share to 100%, or take it back to 0%"
    return "wait until it is done"


def _abort_requested(state: State, event: AbortRequested, now_us: int) -> Step:
    if isinstance(state, BeforeTheCut):
        return _abort(state, now_us, event.why)
    past = f"the switch is {state.phase}, past its cut"
    fact = "no switch is going on" if isinstance(state, Running) else past
    hint = "a switch back to the old version undoes it"
    raise SwitchRefused(f"there is nothing to abort: {fact}", hint=hint)


def _share_requested(state: State, event: ShareRequested, now_us: int) -> Step:
    again = isinstance(state, Voting) and state.new.share > 0
    if not (isinstance(state, Sharing) or (isinstance(state, Voting) and again)):
        msg = f"the job is {state.phase}, not sharing its keys between two versions"
        begin = "begin with a switch that has --share"
        raise SwitchRefused(msg, hint=begin if isinstance(state, Running) else _way_out(state))
    has, share = state.new.share, event.request.share or 0
    if share == has and not again:
        msg = f"the new version has {percent(has)} of the keys, and {percent(share)} were asked for"
        raise SwitchRefused(msg, hint="ask for another share, from 0% to 100%")
    if isinstance(state, Voting) and share == has:
        return _abort(state, now_us, "another one was asked for, and taken back")
    new = replace(state.new, wanted=share)
    asking = Asking(
        state.job, new, now_us + event.request.timeout_us, state.round + 1, event.voters
    )
    text = f'the share of version "{state.next}" is to be {percent(share)}'
    step = _ask(asking, now_us, text)
    return Step(state, (LetGo(),)).then(step) if again else step


# until the cut


def _until_the_cut(
    state: State, event: Held | Reported | Confirmed | Passed | FirstFound, now_us: int
) -> Step:
    """Follow an answer; one that comes too late, or to an earlier question, changes nothing."""
    match state, event:
        case Preparing(), Held(voters):
            return _held(state, voters, now_us)
        case Asking(), Reported(number, partition, highest):
            if number == state.round and partition in state.voters:
                return _reported(
                    replace(state, highest={**state.highest, partition: highest}), now_us
                )
        case Confirming(), Confirmed(number, partition):
            if number == state.round and partition in state.voters:
                return _confirmed(replace(state, confirmed=state.confirmed | {partition}), now_us)
        case Confirming(), Passed(number, partition) if number == state.round:
            asking = Asking(state.job, state.new, state.deadline_us, number + 1, state.voters)
            text = f"{partition} has passed the cut that was meant: all are asked again"
            return Step(state, (LetGo(),)).then(_ask(asking, now_us, text))
        case Cutting(), FirstFound(number, first) if number == state.round:
            return _cut(state, first, now_us)
    return Step(state)


def _held(state: Preparing, voters: frozenset[str], now_us: int) -> Step:
    job, new = state.job, state.new
    if state.shadow:
        shadowing = Shadowing(job, new)
        text = f'version "{state.next}" runs in the shadow of "{state.current}"'
        return _moved(shadowing, now_us, text, Write(record_of(shadowing)), RunShadow(state.next))
    if new.since_us is not None:
        # Nobody has to be asked: the old version goes no further.
        cutting = Cutting(job, new, state.deadline_us, 0, new.since_us)
        return _find_first(cutting, now_us, "the cut lies in the past")
    asking = Asking(job, new, state.deadline_us, 1, voters)
    return _ask(asking, now_us, f'version "{state.next}" is held')


def _ask(state: Asking, now_us: int, text: str) -> Step:
    """Ask all partitions, once more: answers to earlier questions do not count."""
    # Of partitions that run on, one may always be quicker than the question.
    stop = state.round % (MOST_ROUNDS + 1) == 0
    step = _moved(state, now_us, text, AskWindows(state.round, state.new.step_us, stop=stop))
    if state.voters:
        return step
    # Nothing runs that could have handed out anything.
    known = _confirming(state)
    return step.then(Step(known, entries=(_entry(known, now_us, "all windows are known"),))).then(
        _confirmed(known, now_us)
    )


def _reported(state: Asking, now_us: int) -> Step:
    if not state.highest.keys() >= state.voters:
        return Step(state)
    new = _confirming(state)
    question = AskConfirm(new.round, new.new.step_us, new.bound, new.cut_us)
    return _moved(new, now_us, "all windows are known", question)


def _confirming(state: Asking) -> Confirming:
    bound = cuts.bound_above(state.highest.values())
    last = state.job.last_cut_us
    if last is not None:
        # A version that is still on its way to the last cut has handed out less than that.
        bound = max(cuts.window_number(last, state.new.step_us), -1 if bound is None else bound)
    return Confirming(state.job, state.new, state.deadline_us, state.round, state.voters, bound)


def _confirmed(state: Confirming, now_us: int) -> Step:
    if not state.confirmed >= state.voters:
        return Step(state)
    cutting = Cutting(state.job, state.new, state.deadline_us, state.round, state.cut_us)
    return _find_first(cutting, now_us, "all partitions stay below the cut")


def _find_first(state: Cutting, now_us: int, text: str) -> Step:
    return _moved(state, now_us, text, FindFirst(state.round, state.cut_us))


def _failed(state: State, event: Failed, now_us: int) -> Step:
    if isinstance(state, BeforeTheCut) and event.version == state.next and not state.new.share:
        return _abort(state, now_us, event.why)
    # Past the cut it goes forward only: a version that fails is started again, as any job is.
    return Step(state)


def _abort(state: BeforeTheCut, now_us: int, why: str) -> Step:
    share = state.new.share
    if isinstance(state, Voting) and share:
        # Both versions own keys already: only the new share is aborted.
        kept = Sharing(state.job, replace(state.new, wanted=share), state.round)
        return _moved(kept, now_us, f"the share stays {percent(share)}: {why}", LetGo())
    shadow = isinstance(state, Shadowing) or (isinstance(state, Preparing) and state.shadow)
    if shadow:
        text = f'the shadow of version "{state.next}" ends: {why}'
    else:
        text = f"the switch is aborted: {why}"
    return _moved(Aborting(state.job, state.new), now_us, text, LetGo(), Remove(state.next))


def _removed(state: Aborting, now_us: int) -> Step:
    return _alone(state.job, now_us, f'version "{state.current}" runs on alone')


def _alone(job: Job, now_us: int, text: str) -> Step:
    """Return to one version, and forget where others lived."""
    homes = {name: homes for name, homes in job.homes.items() if name == job.current}
    running = Running(replace(job, homes=homes))
    return _moved(running, now_us, text, Write(record_of(running)))


# the cut, and what follows from it


def _cut(state: Cutting, first: First, now_us: int) -> Step:
    job, new, wanted = state.job, state.new, state.new.wanted
    stretch = Stretch(state.cut_us, state.current, state.next, wanted)
    if new.since_us is not None:
        return _again(state, stretch, first, now_us)
    firsts = {**job.firsts, state.next: first} if first else job.firsts
    job = replace(job, owners=job.owners.after(stretch), firsts=firsts)
    new = replace(new, share=wanted)
    text = f"cut at {state.cut_us} us: {percent(wanted)} of what starts from there belongs to {state.next}"
    leaving = {0: state.next, WHOLE: state.current}.get(wanted)
    # The record decides. The old version learns of it first: it may not read on before it knows
    # where its part ends.
    if leaving is None:
        sharing = Sharing(job, new, state.round)
        return _moved(sharing, now_us, text, Write(record_of(sharing)), *_released(sharing))
    over = Overlapping(job, new, leaving)
    step = _moved(over, now_us, text, Write(record_of(over)), *_released(over))
    return step if new.units else step.then(_retire(over, now_us))


def _again(state: Cutting, stretch: Stretch, first: First, now_us: int) -> Step:
    job = replace(
        state.job,
        owners=state.owners.again(stretch),
        firsts={**state.job.firsts, state.next: first},
        latest_us=state.job.last_cut_us,
    )
    over = Overlapping(job, replace(state.new, share=state.new.wanted), state.current)
    text = (
        f"cut at {stretch.from_us} us: what starts from there is replaced by version {state.next}"
    )
    step = _moved(over, now_us, text, Write(record_of(over)))
    return step.then(_withdraw(over, stretch.from_us, now_us))


def _withdraw(state: Overlapping, since_us: int, now_us: int) -> Step:
    """Take back what is replaced, then write a record, then let the new version begin."""
    new = Retiring(state.job, state.new, state.leaving)
    before = (Withdraw(state.leaving, since_us), MakeReady(state.next))
    after = (Write(record_of(new)), Release(state.next), Retire(state.leaving))
    return _moved(new, now_us, f'version "{new.leaving}" retires', *before, *after)


def _released(state: Sharing | Overlapping) -> tuple[Instruction, ...]:
    return Release(state.current), Release(state.next)


def _since_the_cut(state: State, event: Beyond | Drained | Retired, now_us: int) -> Step:
    match state, event:
        case Overlapping(), Beyond(unit) if unit in state.new.units and unit not in state.closed:
            new = replace(state, closed=state.closed | {unit})
            text = f'"{unit}" has read all that version "{state.leaving}" owns'
            return _moved(new, now_us, text, Close(state.leaving, unit))
        case Overlapping(), Drained(unit) if unit in state.new.units and unit not in state.drained:
            new = replace(state, drained=state.drained | {unit})
            text = f'"{unit}" has emitted all that version "{state.leaving}" owns'
            step = _moved(new, now_us, text)
            return step.then(_retire(new, now_us)) if new.drained >= set(new.new.units) else step
        case Retiring(), Retired():
            return _retired(state, now_us)
    return Step(state)


def _retire(state: Overlapping, now_us: int) -> Step:
    new = Retiring(state.job, state.new, state.leaving)
    text = f'version "{state.leaving}" retires'
    return _moved(new, now_us, text, Write(record_of(new)), Retire(state.leaving))


def _retired(state: Retiring, now_us: int) -> Step:
    job, stays = state.job, state.staying
    firsts = {name: first for name, first in job.firsts.items() if name == stays}
    job = replace(job, current=stays, owners=job.owners.since(stays), firsts=firsts)
    return _alone(job, now_us, f'version "{stays}" is the current one')


# after a crash


def record_of(state: State) -> Record:
    """Return what of a state must be durable."""
    job = state.job
    record = Record(
        number=job.number,
        phase=state.phase,
        current=job.current,
        owners=job.owners,
        firsts=dict(job.firsts),
        homes=dict(job.homes),
        latest_us=job.latest_us,
    )
    if isinstance(state, Running):
        return record
    return msgspec.structs.replace(
        record,
        next=state.new.version,
        units=state.new.units,
        step_us=state.new.step_us,
        share=state.new.share,
        leaving=state.leaving if isinstance(state, Overlapping | Retiring) else None,
        since_us=state.new.since_us,
        consent=state.new.consent,
        states=dict(state.new.states),
    )


def recover(record: Record, now_us: int) -> Step:
    """Return where a job stands whose driver died, and what to do before anything else.

    Raises:
        InternalError: The record is of a phase that leaves none, or says too little.
    """
    job = Job(
        record.current, record.owners, record.number, record.firsts, record.homes, record.latest_us
    )
    match record:
        case Record(phase=Phase.RUNNING):
            return Step(Running(job), (Release(job.current),))
        case Record(phase=Phase.PREPARING, next=str()):
            return _aborted(Preparing(job, _replacement(record), now_us), now_us)
        case Record(phase=Phase.SHADOWING, next=str()):
            return _aborted(Shadowing(job, _replacement(record)), now_us)
        case Record(phase=Phase.SHARING, next=str()):
            sharing = Sharing(job, _replacement(record))
            return _moved(sharing, now_us, _GOES_ON, *_released(sharing))
        case Record(phase=Phase.OVERLAPPING, next=str(), leaving=str(leaving)):
            return _overlapped(Overlapping(job, _replacement(record), leaving), now_us)
        case Record(phase=Phase.RETIRING, next=str(), leaving=str(leaving)):
            retiring = Retiring(job, _replacement(record), leaving)
            return _moved(retiring, now_us, _GOES_ON, Release(retiring.staying), Retire(leaving))
    raise InternalError(f"a record is of a switch that is {record.phase}, a phase that leaves none")


def _replacement(record: Record) -> Replacement:
    assert record.next is not None
    return Replacement(
        record.next,
        record.units,
        record.step_us,
        record.share,
        record.share,
        record.since_us,
        record.consent,
        record.states,
    )


def _aborted(state: Preparing | Shadowing, now_us: int) -> Step:
    aborted = _abort(state, now_us, "the driver stopped before the cut")
    return Step(state, (Release(state.current),)).then(aborted)


def _overlapped(state: Overlapping, now_us: int) -> Step:
    if state.new.since_us is None:
        return _moved(state, now_us, _GOES_ON, *_released(state))
    step = _moved(state, now_us, _GOES_ON)
    return step.then(_withdraw(state, state.new.since_us, now_us))
