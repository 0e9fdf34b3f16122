"""What an engine answers about jobs that other engines know too."""

from __future__ import annotations

from collections.abc import Callable

from millstream.engine.job_queries import JobQueries
from millstream.engine.jobs.lifecycle import Event, Job, JobState, ResumeAsked, advance
from millstream.engine.jobs.status import JobStatus
from millstream.engine.jobs.store import JobSettings, Stored
from millstream.engine.leases.coordination import Deployment
from millstream.engine.leases.keeper import LeaseKeeper
from millstream.engine.leases.loads import EngineLoad, Measured
from millstream.engine.leases.tasks import Tasks, TaskStatus
from millstream.engine.managed_job import ManagedJob
from millstream.errors import InvalidTransition, NoSuchJob


class SharedQueries(JobQueries):
    """Which engine has which job, and jobs that rest, which any engine may resume or forget."""

    @property
    def _leases(self) -> LeaseKeeper:
        found = self._open.leases
        if found is None:
            hint = "start it with --coordination, as the other engines"
            raise InvalidTransition("this engine shares its jobs with no other", hint=hint)
        return found

    def tasks(self) -> Tasks:
        """Return which engine runs which job; an engine without a coordination runs its own."""
        leases = self._open.leases
        if leases is not None:
            shared = leases.tasks()
            known = {one.job for one in shared}
            alone = [one for one in self._alone_tasks(leases.me) if one.job not in known]
            moves, all_known = leases.moves, (*shared, *alone)
            return Tasks(
                *(leases.me, moves.begun, all_known, moves.so_far),
                engines=leases.urls,
                loads=leases.loads(),
            )
        return Tasks("", False, tuple(self._alone_tasks("")), loads=self._nodes())

    def _nodes(self) -> dict[str, EngineLoad]:
        """Return the engines that jobs were deployed on together with this one."""
        jobs = list(self._open.runner.jobs.values())
        peers = max((one.stored.settings.engines for one in jobs), key=len, default=[])
        return {f"node {node}": EngineLoad(url=one.url) for node, one in enumerate(peers)}

    def _alone_tasks(self, me: str) -> list[TaskStatus]:
        return [
            TaskStatus(job=one.name, state=str(one.state), engine=me, since=one.since, here=True)
            for one in self.jobs()
        ]

    def announce(self, url: str, measured: Callable[[], Measured | None]) -> None:
        """Let other engines know where this one is asked, and how busy it is."""
        if self._open.leases is not None:
            self._open.leases.url, self._open.leases.measured = url, measured

    def drain_tasks(self) -> Tasks:
        """Begin to move all shared jobs to other engines, one by one; `tasks` shows how it goes.

        Raises:
            InvalidTransition: This engine shares its jobs with no other.
        """
        self._leases.moves.begin()
        self._leases.look_soon()
        return self.tasks()

    def _managed(self, job: str) -> ManagedJob:
        try:
            return super()._managed(job)
        except NoSuchJob as error:
            leases = self._open.leases
            there = None if leases is None else leases.where(job)
            if there is None:
                raise
            hint = f"ask that engine: --engine {there}" if "://" in there else "millstream tasks"
            raise NoSuchJob(f'job "{job}" is not here, but on {there}', hint=hint) from error

    def _found(self, job: str) -> ManagedJob:
        try:
            return super()._found(job)
        except NoSuchJob:
            leases, name = self._open.leases, self._named(job)
            deployment = None if leases is None else leases.unclaimed(name)
            if leases is None or deployment is None:
                raise
            settled = leases.settled(name)
            state = JobState.DEPLOYED if settled is None else JobState(settled)
            return unclaimed(deployment, state)

    @property
    def shares(self) -> bool:
        """Whether this engine shares its jobs with others."""
        return self._open.leases is not None

    def _named(self, job: str) -> str:
        """Return the name of a job that all engines know; what was given, if they do not."""
        leases = self._open.leases
        return job if leases is None else leases.named(job)

    # jobs that rest

    def _rests(self, name: str) -> bool:
        """Tell whether a job is shared, and rests, and so is no engine's to run."""
        leases = self._open.leases
        return leases is not None and leases.settled(name) is not None

    def _rested(self, name: str, event: Event) -> ManagedJob:
        """Return a job that rests, which stays as it is after an event.

        Raises:
            InvalidTransition: The event makes no sense for it, or somebody would have to run it.
        """
        managed = self._found(name)
        _, orders = advance(managed.job, event, managed.job.since)
        if orders:
            hint = f"millstream resume {name} first"
            raise InvalidTransition(f'job "{name}" is {managed.job.state}, and rests', hint=hint)
        return managed

    def _resume_anywhere(self, job: str) -> JobStatus:
        managed = self._found(job)
        advance(managed.job, ResumeAsked(), managed.job.since)  # refuses what has finished
        deployment = self._leases.claims.resume(job)
        self._leases.look_soon()
        return self._status(unclaimed(deployment))

    def _forget_anywhere(self, job: str, *, purge: bool) -> JobStatus:
        with self._leases.aside(job):
            deployment = self._leases.claims.undeploy(job, purge=purge)
        return self._status(unclaimed(deployment, JobState.UNDEPLOYED))


def unclaimed(deployment: Deployment, state: JobState = JobState.DEPLOYED) -> ManagedJob:
    """Return a job that no engine has claimed yet, as its status shows it."""
    job = Job(deployment.name, state=state, since=deployment.deployed_at)
    settings = JobSettings(flow="", package="", shared=True)
    return ManagedJob(
        Stored(
            id=deployment.id,
            name=deployment.name,
            number=deployment.number,
            deployed_at=deployment.deployed_at,
            settings=settings,
            job=job,
        )
    )
