"""Switches of an engine's jobs from one version to the next."""

from __future__ import annotations

from millstream.engine.jobs.status import JobStatus
from millstream.engine.jobs.switch_record import Planned
from millstream.engine.shared_queries import SharedQueries
from millstream.switch.request import SwitchRequest


class JobSwitching(SharedQueries):
    """What changes the version of a job. Any thread may call."""

    def plan_switch(self, job: str, request: SwitchRequest) -> Planned:
        """Return what a switch to another version would do; nothing changes.

        Raises:
            FlowError: The new version has a mistake.
            InvalidTransition: The job does not run.
        """
        return self._open.runner.switches.plan(self._managed(job), request)

    def switch_planned(self, job: str) -> tuple[float, Planned] | None:
        """Return the last plan of a switch that was asked for or begun since the start, and when."""
        return self._found(job).planned

    def switch(self, job: str, request: SwitchRequest) -> JobStatus:
        """Begin to replace the running version; `status` shows the progress.

        Raises:
            FlowError: The new version has a mistake.
            SwitchImpossible: It cannot replace the running version.
            SwitchRefused: A switch is going on, there is nothing to switch, or no version to go
                back to.
            InvalidTransition: The job does not run.
        """
        managed = self._managed(job)
        self._open.runner.switches.begin(managed, request)
        return self._status(managed)

    def end_when_quiet(self, job: str) -> JobStatus:
        """Let a switch end without events: sources that are idle pass their time on.

        Raises:
            SwitchRefused: There is none.
        """
        managed = self._managed(job)
        self._open.runner.switches.end_when_quiet(managed)
        return self._status(managed)

    def abort_switch(self, job: str) -> JobStatus:
        """Abort a switch, which is possible until its cut.

        Raises:
            SwitchRefused: There is none, or it is past its cut.
        """
        managed = self._managed(job)
        self._open.runner.switches.abort(managed)
        return self._status(managed)
