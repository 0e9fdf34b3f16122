"""Which engine runs which job: asked of any engine that answers."""

from __future__ import annotations

import contextlib

from millstream.cluster.client import job_path
from millstream.cluster.engines import Engines
from millstream.engine.jobs.status import JobStatus
from millstream.engine.leases.tasks import Tasks
from millstream.errors import EngineAway, MillstreamError, NoSuchJob


class EngineTasks(Engines):
    """The tasks of engines that share a coordination."""

    def tasks(self) -> Tasks:
        """Return which engine runs which job, as the first engine that answers has seen it.

        Raises:
            EngineAway: None answers.
        """
        away: EngineAway | None = None
        for engine in self._engines:
            try:
                return engine.get("/tasks", Tasks)
            except EngineAway as error:
                away = away or error
        assert away is not None
        raise away

    def go_to(self, job: str) -> None:
        """Ask the engine that runs a job from now on, if the one that was named does not have it.

        A job that no engine runs stays the business of the one that was named.
        """
        if len(self._engines) != 1:
            return
        asked = self._engines[0]
        # Whoever asks for something else gets the error.
        with contextlib.suppress(MillstreamError):
            try:
                asked.get(job_path(job), JobStatus)
            except NoSuchJob:
                found = asked.get("/tasks", Tasks).tasks
                there = next((one.url for one in found if one.job == job and not one.here), "")
                if there:
                    self._engines = [asked.elsewhere(there)]
                    asked.close()

    def drain_tasks(self) -> Tasks:
        """Begin to move the jobs of the engine, the first one that was named, to others."""
        return self._engines[0].post("/tasks/drain", Tasks)
