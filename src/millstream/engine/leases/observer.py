"""What an engine has seen of the others, and what to do about each job after a look.

A look changes what is known here; nothing else does. What to do is a step for each job:

    TAKE     claim it, right behind the log that was seen, then run it
    HOLD     it is ours, and its driver is away: claim it again for ourselves, so that it stays ours
    RENEW    it is ours, and its driver has not claimed it yet: append
    LOSE     another engine has it: stop the driver, close the inboxes, forget it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from millstream.engine.leases import rules
from millstream.engine.leases.rules import EngineView, JobView, Watched
from millstream.joblog.protocol import Log


class Step(Enum):
    """What an engine does about a job."""

    TAKE = auto()
    HOLD = auto()
    RENEW = auto()
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
    logs: dict[str, Log] = field(default_factory=dict)
    _quiet: dict[str, Watched] = field(default_factory=dict)
    _engines: dict[str, tuple[EngineView, Watched]] = field(default_factory=dict)

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
            EngineView(one.id, one.cores, one.draining, seen.silent and one.id != self.me)
            for one, seen in self._engines.values()
        ]

    @property
    def jobs(self) -> list[JobView]:
        return [
            JobView(name, holder_of(log), self._quiet[name].quiet, log.state.settled is not None)
            for name, log in self.logs.items()
        ]

    def steps(self, local: Mapping[str, Local]) -> dict[str, Step]:
        """Return what to do about jobs, after a look."""
        wanted = set(rules.to_claim(self.me, self.jobs, self.engines))
        found = {name: Step.LOSE for name in local if name not in self.logs}
        for job in self.jobs:
            here = local.get(job.name)
            step = (
                self._absent(job, job.name in wanted) if here is None else self._present(job, here)
            )
            if step is not None:
                found[job.name] = step
        return found

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
            return Step.RENEW
        return None if here.running else Step.HOLD


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
