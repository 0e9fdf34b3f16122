"""The life of a job: pure rules, from (job, event) to (job, orders).

               Deployed              DriverReady
    DEPLOYED ────────────▶ STARTING ─────────────▶ RUNNING ──── Finished ───▶ FINISHED
                             ▲   │                   │ │                          ▲
                   PauseOver │   │ DriverDied        │ │                          │ Finished
                             │   ▼                   │ │ DrainAsked               │
                          RESTARTING ◀── DriverDied ─┘ └──────────────▶ DRAINING ─┤
                             │                                            │       │ Drained
                             │ the 8th death, or a hopeless one           │       ▼
                             └─────────────▶ FAILED ◀─────────────────────┘    DRAINED
                                               │ ResumeAsked                      │ ResumeAsked
                                               └──────────▶ STARTING ◀────────────┘

    FINISHED, DRAINED, FAILED, DEPLOYED, and by force all others ── UndeployAsked ──▶ UNDEPLOYED
    all of them, if another engine has the job ────────────────────────── Lost ───────▶ MOVED

Inboxes are open in all states but UNDEPLOYED, so nobody upstream ever waits for one that is gone;
they take nothing (they answer "full", and senders hold on to what they have) from when a job is to
drain until it is resumed. A job that drains with `flush` has END_OF_STREAM in every partition: it
FINISHES, and never takes an event again. Of a job that is fed by runtimes of its own (`hosted`)
these end first, so its inboxes stay open: the driver ends each when nobody has anything more for
it. A driver that dies while its job drains is started again and drains on.

The job is written down before its orders are carried out, and every order can be carried out twice:
an engine that dies between any two steps begins again with `EngineStarted`, whose orders lead on
from the state that was written.

A job of a cluster has its driver on one engine; the others hold inboxes only (`driver` is False). A
peer that does not answer while a job drains is missed, after a time limit: the job names it, and
blocks nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from millstream.errors import InvalidTransition, JobBusy

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
WAITING_S: Final = 5.0
MOST_DEATHS: Final = 8
GOOD_RUNNING_S: Final = 300.0


class JobState(StrEnum):
    """Where a job is in its life."""

    DEPLOYED = "deployed"
    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    DRAINING = "draining"
    DRAINED = "drained"
    FINISHED = "finished"
    FAILED = "failed"
    UNDEPLOYED = "undeployed"
    #: It is another engine's now.
    MOVED = "moved"


#: States in which a job has, or will have, a driver.
ALIVE: Final = frozenset(
    {JobState.STARTING, JobState.RUNNING, JobState.RESTARTING, JobState.DRAINING}
)
#: States that a job leaves only when it is asked to.
SETTLED: Final = frozenset({JobState.DRAINED, JobState.FINISHED, JobState.FAILED})


@dataclass(frozen=True, slots=True)
class Job:
    """A job, as it is written down. Moments are seconds since 1970."""

    name: str
    state: JobState = JobState.DEPLOYED
    since: float = 0.0
    driver: bool = True
    flush: bool = False
    #: Whether its inboxes take events.
    intake: bool = True
    #: Whether its driver hosts runtimes, which feed its inboxes.
    hosted: bool = False
    #: Deaths of the driver in a row without progress; in all, `restarts`.
    deaths: int = 0
    #: The batches of its checkpoints when the driver died last.
    committed: int = 0
    restarts: int = 0
    reason: str | None = None
    #: When the driver became ready, if it is.
    ready_at: float | None = None
    #: When it may be started again, while it may not.
    paused_until: float | None = None
    #: The engine is closing: drivers end, and begin again with the next engine.
    stopping: bool = False
    missed: tuple[str, ...] = ()
    #: Once it is undeployed: whether its journals go too.
    purge: bool = False


# events


@dataclass(frozen=True, slots=True)
class Deployed:
    """All engines have the job's inboxes: it can begin, here with a driver or without."""

    driver: bool = True


@dataclass(frozen=True, slots=True)
class DriverReady:
    """The driver runs the flow."""


@dataclass(frozen=True, slots=True)
class DriverDied:
    """The driver is gone, or could not be started.

    `hopeless` if it would fail in the same way again; `waiting` if another engine has to come
    first, or room on the disk: that is no fault of the job's, and is not counted. `committed` are
    all batches of its checkpoints, if it has reported them; `caught_up` if nothing was left to do.
    """

    reason: str
    hopeless: bool = False
    waiting: bool = False
    committed: int | None = None
    caught_up: bool = False


@dataclass(frozen=True, slots=True)
class PauseOver:
    """The time that `StartDriver` was to wait is over."""


@dataclass(frozen=True, slots=True)
class DrainAsked:
    """The user wants the job to process what it has; with `flush` also to end."""

    flush: bool = False


@dataclass(frozen=True, slots=True)
class Drained:
    """All that was taken is processed."""


@dataclass(frozen=True, slots=True)
class Finished:
    """All sources have ended, and all that they brought is processed."""


@dataclass(frozen=True, slots=True)
class ResumeAsked:
    """The user wants a drained or failed job to go on."""


@dataclass(frozen=True, slots=True)
class UndeployAsked:
    """The user wants the job removed; by `force` even if that loses what is `unprocessed`."""

    force: bool = False
    purge: bool = False
    unprocessed: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """Another engine has the job, or is to have it: nothing of it runs here any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class EngineStarted:
    """A new engine has found the job in its store: whatever ran before is gone."""


@dataclass(frozen=True, slots=True)
class EngineStopping:
    """The engine closes; the job goes on with the next one."""


@dataclass(frozen=True, slots=True)
class PeerMissed:
    """Another engine of the job has not answered for too long while the job was draining."""

    peer: str


Event = (
    Deployed
    | DriverReady
    | DriverDied
    | PauseOver
    | DrainAsked
    | Drained
    | Finished
    | ResumeAsked
    | UndeployAsked
    | Lost
    | EngineStarted
    | EngineStopping
    | PeerMissed
)


# orders: each may be given twice


@dataclass(frozen=True, slots=True)
class StartDriver:
    """Start a driver, if there is none; with `after_s`, only raise `PauseOver` after that time."""

    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StopDriver:
    """Let the driver stop between two batches; kill it if that takes too long."""


@dataclass(frozen=True, slots=True)
class KillDriver:
    """End the driver at once."""


@dataclass(frozen=True, slots=True)
class DrainDriver:
    """Stop the driver's sources and process the rest, once what was taken is durable and here.

    With `flush`, end the sources.
    """

    flush: bool = False


@dataclass(frozen=True, slots=True)
class OpenInboxes:
    """Open the job's inboxes that live here, and let them be found."""


@dataclass(frozen=True, slots=True)
class CloseInboxes:
    """Write what was taken, and release the inboxes."""


@dataclass(frozen=True, slots=True)
class PauseIntake:
    """Take no more events."""


@dataclass(frozen=True, slots=True)
class OpenIntake:
    """Take events again."""


@dataclass(frozen=True, slots=True)
class EndIntake:
    """Write END_OF_STREAM into every partition, however long the disk refuses."""


@dataclass(frozen=True, slots=True)
class RemoveFiles:
    """Remove files and logs, with `purge` also journals and checkpoints; then forget the job.

    The logs of a job that is another engine's stay, for people to read.
    """

    purge: bool = False
    logs: bool = True


Order = (
    StartDriver
    | StopDriver
    | KillDriver
    | DrainDriver
    | OpenInboxes
    | CloseInboxes
    | PauseIntake
    | OpenIntake
    | EndIntake
    | RemoveFiles
)

Step = tuple[Job, list[Order]]


def advance(job: Job, event: Event, now: float) -> Step:  # noqa: C901, PLR0911 (a table)
    """Return the job after an event, and what to do about it. What changes nothing has no orders.

    Raises:
        InvalidTransition: The user asked for what makes no sense in this state.
        JobBusy: It would lose events.
    """
    match event:
        case Deployed():
            return _deployed(job, event, now)
        case DriverReady():
            return _ready(job, now)
        case DriverDied():
            return _died(job, event, now)
        case PauseOver():
            return _pause_over(job, now)
        case DrainAsked():
            return _drain_asked(job, event, now)
        case Drained():
            return _drained(job, now)
        case Finished():
            return _finished(job, now)
        case ResumeAsked():
            return _resume_asked(job, now)
        case UndeployAsked():
            return _undeploy_asked(job, event, now)
        case Lost():
            return _lost(job, event, now)
        case EngineStarted():
            return _engine_started(job, now)
        case EngineStopping():
            return _engine_stopping(job)
        case PeerMissed():
            return _peer_missed(job, event, now)


def _to(job: Job, state: JobState, now: float, **changes: object) -> Job:
    since = job.since if state is job.state else now
    # `changes` are fields of Job, by name.
    return replace(job, state=state, since=since, **changes)  # type: ignore[arg-type]


# starting and dying


def _deployed(job: Job, event: Deployed, now: float) -> Step:
    if job.state is not JobState.DEPLOYED:
        return job, []
    if not event.driver:
        return _to(job, JobState.RUNNING, now, driver=False), [OpenInboxes()]
    return _to(job, JobState.STARTING, now), [OpenInboxes(), StartDriver()]


def _ready(job: Job, now: float) -> Step:
    if job.state not in ALIVE:
        return job, []
    up = replace(job, ready_at=now, paused_until=None)
    if job.state is JobState.DRAINING:
        return up, [DrainDriver(job.flush)]
    if job.stopping:
        return up, [StopDriver()]
    return _to(up, JobState.RUNNING, now, reason=None), []


def _ran_well(job: Job, now: float) -> bool:
    return job.ready_at is not None and now - job.ready_at >= GOOD_RUNNING_S


def _progressed(job: Job, event: DriverDied, now: float) -> bool:
    """Tell whether a job got on since the death before, or has run for long.

    Whoever kills it, it is not failing: one that stands still is.
    """
    got_on = event.committed is not None and event.committed != job.committed
    return got_on or event.caught_up or _ran_well(job, now)


def _died(job: Job, event: DriverDied, now: float) -> Step:
    if job.state not in ALIVE:
        return job, []
    counted = 0 if event.waiting else 1
    deaths = counted if _progressed(job, event, now) else job.deaths + counted
    dead = replace(
        job,
        deaths=deaths,
        committed=job.committed if event.committed is None else event.committed,
        restarts=job.restarts + counted,
        ready_at=None,
        reason=event.reason,
    )
    if event.hopeless or deaths >= MOST_DEATHS:
        return _to(dead, JobState.FAILED, now, paused_until=None), []
    if job.stopping:
        return dead, []
    pause = WAITING_S if event.waiting else min(FIRST_PAUSE_S * 2 ** (deaths - 1), LONGEST_PAUSE_S)
    state = JobState.DRAINING if job.state is JobState.DRAINING else JobState.RESTARTING
    return _to(dead, state, now, paused_until=now + pause), [StartDriver(pause)]


def pause_is_over(job: Job, now: float) -> bool:
    """Tell whether the pause before the next start is over; if the clock was set back, it is."""
    until = job.paused_until
    return until is not None and not now < until <= now + LONGEST_PAUSE_S


def _pause_over(job: Job, now: float) -> Step:
    if job.state not in ALIVE or job.stopping or not pause_is_over(job, now):
        return job, []
    state = JobState.DRAINING if job.state is JobState.DRAINING else JobState.STARTING
    return _to(job, state, now, paused_until=None), [StartDriver()]


# draining and ending


def _drain_asked(job: Job, event: DrainAsked, now: float) -> Step:
    match job.state:
        case JobState.FINISHED:
            return job, []
        case JobState.DRAINED if not event.flush:
            return job, []
        case JobState.DRAINING if event.flush <= job.flush:
            return job, []
        case JobState.DEPLOYED | JobState.UNDEPLOYED:
            raise InvalidTransition(f'job "{job.name}" is {job.state} and has nothing to drain')
        case JobState.FAILED:
            hint = f"millstream resume {job.name}, then drain it; or undeploy it"
            raise InvalidTransition(f'job "{job.name}" has failed and cannot drain', hint=hint)
    orders: list[Order] = _flushed(job) if event.flush else [PauseIntake()]
    # A new drain asks everybody again.
    missed = job.missed if job.state is JobState.DRAINING else ()
    flush, intake = event.flush, event.flush and job.hosted
    draining = _to(job, JobState.DRAINING, now, flush=flush, intake=intake, missed=missed)
    if not job.driver:
        return draining, orders
    if job.ready_at is not None:
        return draining, [*orders, DrainDriver(event.flush)]
    # One that starts, or waits to be started, gets the order when it is ready.
    starting = job.state is not JobState.DRAINED
    return draining, orders if starting else [*orders, StartDriver()]


def _flushed(job: Job) -> list[Order]:
    """Return what becomes of the inboxes of a job that is to end."""
    return [OpenIntake()] if job.hosted else [PauseIntake(), EndIntake()]


def _drained(job: Job, now: float) -> Step:
    if job.state is not JobState.DRAINING:
        # Drained because the engine closes: it goes on with the next one.
        if job.stopping and job.state in ALIVE:
            return (replace(job, ready_at=None), [StopDriver()])
        return (job, [])
    down = replace(job, ready_at=None, paused_until=None)
    if job.flush:
        # The flush was asked for after the driver had drained: it has to be there for the end as
        # well.
        return (down, [StopDriver(), StartDriver()]) if job.driver else (down, [])
    return _to(down, JobState.DRAINED, now, deaths=0, reason=None), [StopDriver()]


def _finished(job: Job, now: float) -> Step:
    if job.state not in ALIVE:
        return job, []
    down = replace(job, ready_at=None, paused_until=None, deaths=0, reason=None)
    return _to(down, JobState.FINISHED, now), [StopDriver()]


def _peer_missed(job: Job, event: PeerMissed, now: float) -> Step:
    if job.state is not JobState.DRAINING or event.peer in job.missed:
        return job, []
    missed = (*job.missed, event.peer)
    reason = f"{', '.join(missed)} did not answer: what is there is not processed"
    down = replace(job, missed=missed, ready_at=None, paused_until=None, reason=reason)
    # What is there cannot be processed, nor ended. Without a driver, and nothing to end, all is
    # done that is to be.
    state = JobState.FAILED if job.driver or job.flush else JobState.DRAINED
    return _to(down, state, now), [StopDriver()]


# going on and going away


def _resume_asked(job: Job, now: float) -> Step:
    match job.state:
        case JobState.STARTING | JobState.RUNNING | JobState.RESTARTING:
            return job, []
        case JobState.DRAINED | JobState.FAILED:
            fresh = replace(job, deaths=0, reason=None, ready_at=None, paused_until=None, missed=())
            if job.flush:
                return _to(fresh, JobState.DRAINING, now), [
                    OpenInboxes(),
                    *_flushed(job),
                    *_driver(job),
                ]
            state = JobState.STARTING if job.driver else JobState.RUNNING
            return _to(fresh, state, now, intake=True), [OpenInboxes(), OpenIntake(), *_driver(job)]
        case JobState.FINISHED:
            hint = f"millstream undeploy {job.name}, and deploy it again"
            msg = f'job "{job.name}" has finished: its sources have ended permanently'
            raise InvalidTransition(msg, hint=hint)
        case JobState.DRAINING:
            hint = f"millstream wait {job.name}, then resume it"
            raise InvalidTransition(f'job "{job.name}" is still draining', hint=hint)
    raise InvalidTransition(f'job "{job.name}" is {job.state} and cannot be resumed')


def _driver(job: Job) -> list[Order]:
    return [StartDriver()] if job.driver else []


def _undeploy_asked(job: Job, event: UndeployAsked, now: float) -> Step:
    if job.state is JobState.UNDEPLOYED:
        return job, []
    if job.state in ALIVE and not event.force:
        left = "" if not event.unprocessed else f"; {events(event.unprocessed)} not processed yet"
        hint = f"millstream drain {job.name} && millstream undeploy {job.name}, or --force"
        raise JobBusy(f'job "{job.name}" is {job.state}{left}', hint=hint)
    gone = _to(job, JobState.UNDEPLOYED, now, ready_at=None, paused_until=None, purge=event.purge)
    return gone, removed(gone)


def removed(job: Job) -> list[Order]:
    """Return what becomes of a job that is no longer here; its logs stay if another engine has it."""
    return [KillDriver(), CloseInboxes(), RemoveFiles(job.purge, job.state is JobState.UNDEPLOYED)]


def _lost(job: Job, event: Lost, now: float) -> Step:
    if job.state in (JobState.UNDEPLOYED, JobState.MOVED):
        return job, []
    gone = replace(job, reason=event.reason, ready_at=None, paused_until=None)
    gone = _to(gone, JobState.MOVED, now)
    return gone, removed(gone)


def events(count: int) -> str:
    """Return a number of events with its verb: "1 event is", "1,204 events are"."""
    return f"{count:,} event is" if count == 1 else f"{count:,} events are"


# the engine itself


def _engine_started(job: Job, now: float) -> Step:
    deaths = 0 if _ran_well(job, now) else job.deaths
    job = replace(job, stopping=False, ready_at=None, paused_until=None, deaths=deaths)
    if job.state is JobState.UNDEPLOYED:
        return job, removed(job)
    orders: list[Order] = [OpenInboxes(), OpenIntake() if job.intake else PauseIntake()]
    if job.flush and job.state is not JobState.FINISHED and not job.hosted:
        orders.append(EndIntake())
    if job.state not in ALIVE:
        return job, orders
    state = JobState.DRAINING if job.state is JobState.DRAINING else JobState.STARTING
    if not job.driver:
        return job, orders
    return _to(job, state, now), [*orders, StartDriver()]


def _engine_stopping(job: Job) -> Step:
    stopping = replace(job, stopping=True)
    if job.state not in ALIVE:
        return stopping, []
    if job.ready_at is None:
        # One that is not ready yet has nothing to drain, and reads no commands before Spark is up.
        return stopping, [PauseIntake(), KillDriver()]
    # A job that is draining has that order already.
    drain: list[Order] = [] if job.state is JobState.DRAINING else [DrainDriver()]
    return stopping, [PauseIntake(), *drain]
