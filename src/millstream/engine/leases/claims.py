"""The claims of an engine in the logs of jobs, and what it writes there for all engines."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Any

from millstream.engine.leases.coordination import Coordination, Deployment
from millstream.engine.leases.observer import holder_of, same_holder, unchanged
from millstream.engine.leases.rules import INTERVALS
from millstream.errors import NoSuchJob, StorageError, TakenOver
from millstream.joblog import JobLog, Lease
from millstream.joblog.protocol import Log


class Claims:
    """The logs in which an engine has the last claim. Any thread may call.

    Everything may raise StorageError, and TakenOver if another engine has the job.
    """

    def __init__(self, coordination: Coordination, me: str) -> None:
        self._shared, self.me = coordination, me
        self._logs: dict[str, JobLog] = {}
        self._guard = threading.RLock()

    def generation(self, name: str) -> int | None:
        """Return the number of the engine's own claim, as far as it knows."""
        log = self._logs.get(name)
        return None if log is None else log.generation

    def standing(self, name: str) -> tuple[int, str | None]:
        """Return the engine's own claim, and the record of the job's switches that it has found."""
        log = self._logs[name]
        return log.generation, log.state.switch

    @property
    def names(self) -> list[str]:
        return list(self._logs)

    def take(self, name: str, seen: Log) -> None:
        """Claim a job whose log is as it was seen."""
        log = self._shared.log(name, self.me)
        log.claim_if(lambda now: unchanged(seen, now))
        self._logs[name] = log

    def hold(self, name: str) -> int:
        """Have the last claim of a job that is this engine's; return its number."""
        with self._guard:
            log = self._logs.get(name)
            if log is not None:
                with contextlib.suppress(TakenOver):  # by our own driver, if we may go on
                    log.renew(now=True)
                    return log.generation
            log = self._shared.log(name, self.me)
            seen = log.glance(Log())
            if holder_of(seen) != self.me:
                raise TakenOver(f"engine {holder_of(seen)} has taken over the job")
            log.claim_if(lambda now: same_holder(seen, now))
            self._logs[name] = log
            return log.generation

    def renew(self, name: str) -> None:
        """Append to a log, if the last claim is the engine's own."""
        log = self._logs.get(name)
        if log is not None:
            log.renew(now=True)

    def forget(self, name: str) -> None:
        """Write to a log no more."""
        self._logs.pop(name, None)

    def release(self, name: str) -> None:
        """Let others have a job that is ours, and has no driver; if it is not ours, they do."""
        with contextlib.suppress(TakenOver, StorageError):
            self.hold(name)
            self._logs.pop(name).release()

    def lease(self, name: str) -> Lease:
        """Return what the driver of a job gets, which is about to start."""
        interval = self._shared.lease_s / INTERVALS
        return Lease(self._shared.jobs_address, self.me, self.hold(name), interval)

    # what all engines know

    def deploy(
        self, name: str, package: bytes, root: str | None, options: Mapping[str, Any]
    ) -> Deployment:
        """Let all engines know a job.

        Raises:
            JobExists: A job of that name is deployed.
        """
        deployment = Deployment(
            name=name,
            number=self._shared.next_number(name),
            deployed_at=self._shared.now,
            root=root,
            options=dict(options),
        )
        self._shared.deploy(deployment, package)
        if self._shared.log(name, self.me).glance(Log()).state.settled is not None:
            self.resume(name)  # as an earlier deployment has left it
        return deployment

    def settle(self, name: str, state: str) -> None:
        """Write down that a job of ours rests, and nobody is to run it."""
        self.hold(name)
        self._logs[name].settle(state)

    def resume(self, name: str) -> Deployment:
        """Let a job that rests run again, on some engine."""
        deployment = self._known(name)
        log = self._shared.log(name, self.me)
        seen = log.glance(Log())
        log.claim_if(lambda now: unchanged(seen, now))
        log.settle(None)
        log.release()
        self.forget(name)
        return deployment

    def undeploy(self, name: str, *, purge: bool) -> Deployment:
        """Forget a job that rests, or that was ours: claimed first, so that a sleeper finds out."""
        deployment = self._known(name)
        log = self._shared.log(name, self.me)
        seen = log.glance(Log())
        if holder_of(seen) not in (None, self.me) and seen.state.settled is None:
            raise TakenOver(f"engine {holder_of(seen)} has the job")
        log.claim_if(lambda now: same_holder(seen, now))
        log.settle("undeployed")
        self._shared.undeploy(deployment, purge=purge)
        log.settle(None)
        log.release()
        self.forget(name)
        return deployment

    def _known(self, name: str) -> Deployment:
        deployment = self._shared.deployment(name)
        if deployment is None:
            raise NoSuchJob(f'there is no job "{name}"')
        return deployment
