"""What an engine has seen of the others, and what to do about each job after a look.

A look changes what is known here; nothing else does. What to do is a step for each job:

    TAKE     claim it, right behind the log that was seen, then run it
    HOLD     it is ours, and its driver is away: claim it again for ourselves, so that it stays ours
    RENEW    it is ours, and its driver has not claimed it yet: append
    RESTART  it is ours, and its driver hangs: it should append, and has not for as long as others
             wait; or it should claim the job, and has not for longer than a driver takes to start
    LOSE     another engine has it: stop the driver, close the inboxes, forget it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from millstream.engine.leases import rules
from millstream.engine.leases.rules import EngineView, JobView, Watched
from millstream.joblog.protocol import Log


class Step(Enum):
    """What an engine does about a job."""

    TAKE = auto()
    HOLD = auto()
    RENEW = auto()
    RESTART = auto()
    LOSE = auto()


@dataclass(frozen=True, slots=True)
class Local:
    """A job that this engine runs."""

    #: Whether its driver has the command to run it, and lives.
    running: bool
    #: The generation of the engine's own claim, if it has one.
    held: int | None


@dataclass(slots=True)
class Observer:
    """What one engine knows of all jobs and engines that have the same coordination."""

    me: str
    #: For how many looks a driver may start before it claims its job.
    patience: int = 100
    logs: dict[str, Log] = field(default_factory=dict)
    _quiet: dict[str, Watched] = field(default_factory=dict)
    _engines: dict[str, tuple[EngineView, Watched]] = field(default_factory=dict)
    _starting: dict[str, int] = field(default_factory=dict)
    _counted: bool = True

    def see_engines(self, found: Iterable[tuple[EngineView, int]], *, counted: bool = True) -> None:
        """Note the engines that are there, each with its beat."""
        seen = {}
        for one, beat in found:
            _, known = self._engines.get(one.id, (one, None))
            seen[one.id] = one, rules.watched(known, beat, counted=counted)
        self._engines = seen

    def see_jobs(
        self, deployed: Iterable[str], found: Mapping[str, Log], *, counted: bool = True
    ) -> None:
        """Note the jobs that are deployed, and the logs of those that could be read.

        A log that could not be read is not counted: nobody knows whether it has changed.
        """
        self._counted = counted
        known = {name: self.logs.get(name) for name in deployed} | dict(found)
        self.logs = {name: log for name, log in known.items() if log is not None}
        fresh = {
            name: rules.watched(self._quiet.get(name), log.end, counted=counted)
            for name, log in found.items()
        }
        self._quiet = {name: fresh.get(name) or self._quiet[name] for name in self.logs}

    @property
    def engines(self) -> list[EngineView]:
        return [
            replace(one, silent=seen.silent and one.id != self.me)
            for one, seen in self._engines.values()
        ]

    @property
    def jobs(self) -> list[JobView]:
        gone = {one.id for one in self.engines if one.gone and one.id != self.me}
        return [
            JobView(
                name,
                holder_of(log),
                self._quiet[name].quiet,
                settled=log.state.settled is not None,
                orphaned=holder_of(log) in gone,
            )
            for name, log in self.logs.items()
        ]

    def steps(self, local: Mapping[str, Local]) -> dict[str, Step]:
        """Return what to do about jobs, after a look."""
        wanted = set(rules.to_claim(self.me, self.jobs, self.engines))
        self._count_starting(local)
        found = {name: Step.LOSE for name in local if name not in self.logs}
        for job in self.jobs:
            here = local.get(job.name)
            step = (
                self._absent(job, job.name in wanted) if here is None else self._present(job, here)
            )
            if step is not None:
                found[job.name] = step
        return found

    def _count_starting(self, local: Mapping[str, Local]) -> None:
        """Count for how many looks drivers have had the command to run, and have not claimed."""
        starting = [
            name
            for name, here in local.items()
            if here.running and name in self.logs
            if here.held == self.logs[name].state.generation
        ]
        self._starting = {name: self._starting.get(name, 0) + self._counted for name in starting}

    def _absent(self, job: JobView, wanted: bool) -> Step | None:
        # What was ours before this engine was started again is ours still.
        ours = job.holder == self.me and not job.settled
        return Step.TAKE if ours or wanted else None

    def _present(self, job: JobView, here: Local) -> Step | None:
        if job.holder != self.me:
            return Step.LOSE
        if job.settled:
            return None
        if here.held == self.logs[job.name].state.generation:
            hangs = self._starting.get(job.name, 0) >= self.patience
            return Step.RESTART if hangs else Step.RENEW
        if not here.running:
            return Step.HOLD
        return Step.RESTART if job.quiet >= rules.INTERVALS else None


def holder_of(log: Log) -> str | None:
    """Return the engine that has the lease; None if it was released, or nobody ever had it.

    A driver without an engine has no id: it has the lease as "".
    """
    holder = log.state.holder
    return None if log.state.released or holder is None else holder.engine


def unchanged(seen: Log, now: Log) -> bool:
    """Tell whether nothing was appended since a look: the job may be claimed."""
    return seen.end == now.end


def same_holder(seen: Log, now: Log) -> bool:
    """Tell whether nobody has claimed a job since a look."""
    return seen.state.generation == now.state.generation
