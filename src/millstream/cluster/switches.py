"""The switches of a job on a cluster: planned, begun, aborted, waited for."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from millstream.cluster.client import PAUSE_S, PLANNING_S, Progress, job_path
from millstream.cluster.engines import Engines
from millstream.engine.jobs.lifecycle import SETTLED
from millstream.engine.jobs.package import pack
from millstream.engine.jobs.status import JobStatus, SwitchStatus, VersionStatus
from millstream.engine.jobs.switch_record import OVER
from millstream.errors import EngineAway, NoSuchJob
from millstream.switch.cut import WHOLE
from millstream.switch.request import SwitchRequest


class SwitchPlanned(msgspec.Struct, frozen=True):
    """What a switch would do: as data, and as text."""

    plan: dict[str, Any]
    text: str


class JobSwitches(Engines):
    """What a cluster is asked about switches."""

    def plan_switch(
        self, job: str, flow: Path | None, request: SwitchRequest | None = None
    ) -> SwitchPlanned:
        """Return what a switch of a job would do; without a flow, to the version before.

        Nothing is touched.

        Raises:
            FlowError: The new version has a mistake.
            InvalidTransition: The job does not run.
        """
        body, driver = _body(flow, request or SwitchRequest()), self._driver(job)
        return driver.post(job_path(job, "switch/plan"), SwitchPlanned, body, extra=PLANNING_S)

    def switch(
        self, job: str, flow: Path | None, request: SwitchRequest | None = None
    ) -> JobStatus:
        """Begin to replace the running version of a job; `wait_switch` waits until that is done.

        Args:
            job: Its name or id.
            flow: The new version; None goes back, or gives the one that shares the keys another
                share.
            request: What is asked for.

        Raises:
            FlowError: The new version has a mistake.
            SwitchImpossible: It cannot replace the running version.
            SwitchRefused: A switch is going on, there is nothing to switch, or no version to go
                back to.
        """
        body, driver = _body(flow, request or SwitchRequest()), self._driver(job)
        return driver.post(job_path(job, "switch"), JobStatus, body, extra=PLANNING_S)

    def end_when_quiet(self, job: str) -> JobStatus:
        """Let the switch that is going on end without events, once its sources are idle.

        Raises:
            SwitchRefused: There is none.
        """
        body = {"until_quiet": True}
        return self._driver(job).post(job_path(job, "switch"), JobStatus, body)

    def abort_switch(self, job: str) -> JobStatus:
        """Abort a switch before its cut, or end a shadow.

        Raises:
            SwitchRefused: There is none, or it is past its cut.
        """
        return self._driver(job).delete(job_path(job, "switch"), JobStatus)

    def versions(self, job: str) -> list[VersionStatus]:
        """Return the versions of a job, oldest first, each with the switch that led to it."""
        return self._driver(job).get(job_path(job, "versions"), list[VersionStatus])

    def wait_switch(
        self, job: str, timeout: float | None = None, *, progress: Progress | None = None
    ) -> JobStatus:
        """Wait until no switch of a job is going on, or the time is over; return the job.

        A new version that is to have a share of the keys is waited for until it has it. An engine
        that is away meanwhile is waited for, for a minute; a job that another engine takes over is
        followed there.
        """
        engine, answered_at = self._driver(job), time.monotonic()
        self._tasks_at(engine.url)
        until = None if timeout is None else answered_at + timeout
        while True:
            try:
                status = engine.get(job_path(job), JobStatus)
            except (EngineAway, NoSuchJob) as error:
                engine = self._follow(job, engine, error, answered_at)
                continue
            answered_at = time.monotonic()
            if progress is not None:
                progress(status)
            over = status.switch is None or status.switch.state in OVER or _shared(status.switch)
            if over or status.state in SETTLED or (until is not None and answered_at >= until):
                return status
            time.sleep(PAUSE_S)


def _shared(switch: SwitchStatus) -> bool:
    """Tell whether the new version has the share of the keys that it is to have."""
    return switch.phase == "sharing" and switch.share == switch.wanted


def _body(flow: Path | None, request: SwitchRequest) -> dict[str, Any]:
    """Return a request as an engine gets it."""
    body: dict[str, Any] = {"consent": request.consent, "limit": request.timeout.total_seconds()}
    if flow is not None:
        body |= {"package": pack(flow), "root": str(flow.resolve().parent)}
    elif request.share is None:
        body["back"] = True
    if request.share is not None:
        body["share"] = request.share / WHOLE
    if request.states:
        body["states"] = request.states
    if request.since is not None:
        body["since"] = request.since
    if request.until_quiet:
        body["until_quiet"] = True
    if request.duration is not None:
        body["shadow"] = request.duration.total_seconds()
    if (trial := request.trial) is not None:
        body["probation"] = {
            "seconds": trial.seconds,
            "back": trial.back,
            "errors": trial.limits.errors,
            "dead_letters": trial.limits.dead_letters,
            "lag_seconds": trial.limits.lag_s,
        }
    return body
