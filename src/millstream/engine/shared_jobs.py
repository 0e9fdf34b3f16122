"""The jobs of an engine that other engines know too: what the keeper of leases does with them."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

from millstream.engine.deployment import Deployments
from millstream.engine.inboxes.inboxes import Inboxes
from millstream.engine.job_runner import JobRunner
from millstream.engine.jobs import lifecycle as life
from millstream.engine.leases.coordination import TakenJob
from millstream.engine.leases.keeper import Here
from millstream.engine.managed_job import ManagedJob
from millstream.engine.orders import STOP_S
from millstream.errors import EngineClosed

#: How long a driver that does not stop in time may take to be killed.
_KILLED_S: Final = 15.0


class SharedJobs:
    """Starts, stops and forgets jobs, as leases come and go."""

    def __init__(self, deployments: Deployments, runner: JobRunner, inboxes: Inboxes) -> None:
        self._deployments, self._runner, self._inboxes = deployments, runner, inboxes

    def here(self) -> dict[str, Here]:
        """Return the jobs in the engine that other engines know too."""
        return {
            name: Here(managed.job.state, managed.running)
            for name, managed in list(self._runner.jobs.items())
            if managed.stored.settings.shared and managed.job.state is not life.JobState.MOVED
        }

    def adopt(self, taken: TakenJob) -> None:
        """Run a job, which this engine has claimed."""
        self._deployments.adopt(taken)

    def stop(self, job: str) -> None:
        """Take no more events for a job, and let its driver stop; it has when this returns."""
        managed = self._runner.jobs.get(job)
        if managed is None:
            return
        self._inboxes.job(job).pause(lambda: f'job "{job}" moves to another engine')
        self._inboxes.job(job).settle()
        self._runner.call(partial(self._runner.orders.stop_driver, managed))
        with self._runner.changed:
            self._runner.changed.wait_for(lambda: managed.leaving is None, STOP_S + _KILLED_S)

    def restart(self, job: str, why: str) -> None:
        """End a job's driver, which hangs, and start it again."""
        managed = self._runner.jobs.get(job)
        if managed is not None:
            with contextlib.suppress(EngineClosed):
                self._runner.call(partial(self._runner.end_driver, managed, why))

    def lose(self, job: str, why: str) -> None:
        """End a job's driver, close its inboxes, and forget it."""
        managed = self._runner.jobs.get(job)
        if managed is not None:
            with contextlib.suppress(EngineClosed):
                self._runner.call(partial(self._lost, managed, why))

    def _lost(self, managed: ManagedJob, why: str) -> None:
        self._runner.happened(managed, life.Lost(why))
