"""An engine as it is asked over HTTP: the threads that answer, and what they ask of the engine."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import anyio.to_thread

from millstream.engine.access.audit import AuditLog
from millstream.engine.access.caller import Caller
from millstream.engine.http.limits import RequestLimits
from millstream.engine.http.live import Live
from millstream.engine.http.metrics import Metrics
from millstream.engine.http.openapi import Operation
from millstream.engine.http.shared import Shared
from millstream.engine.inboxes.intake import Intake
from millstream.engine.jobs.checkpoint_status import CheckpointStatus, VerifiedCheckpoint
from millstream.engine.jobs.lifecycle import SETTLED, JobState
from millstream.engine.jobs.pattern_status import PatternRuns
from millstream.engine.jobs.state_status import StageStatus, StateRows
from millstream.engine.jobs.status import (
    EngineStatus,
    Happening,
    JobStatus,
    Peer,
    Place,
    Prepared,
    VersionStatus,
)
from millstream.engine.jobs.store import Binary
from millstream.engine.jobs.switch_record import Planned
from millstream.engine.leases.tasks import Tasks
from millstream.engine.programs.binaries import Binaries
from millstream.engine.schemes.guests import GuestOrder, GuestStatus
from millstream.journal import Journal
from millstream.journal.health import Summary
from millstream.links.client import Client
from millstream.links.keys import KeyPair
from millstream.links.network import Address
from millstream.plan.drawing import Drawing
from millstream.switch.request import SwitchRequest

HTML: Final = "text/html"
_SLICE_S: Final = 1.0
_THREADS: Final = 32
_SENDING: Final = 16


class Served(Protocol):
    """What the API asks of an engine; see `engine.Engine`."""

    node: int
    of: int
    data: Path

    @property
    def address(self) -> Address: ...
    @property
    def warm(self) -> int: ...
    @property
    def shares(self) -> bool: ...
    def deploy(
        self, package: bytes, *, name: str | None, root: str | None, options: dict[str, Any]
    ) -> JobStatus: ...
    def prepare(
        self,
        package: bytes,
        *,
        name: str | None,
        root: str | None,
        options: dict[str, Any],
        binaries: dict[str, str] | None,
    ) -> Prepared: ...
    def begin(
        self, job: str, places: dict[str, list[Place]], *, driver: bool, engines: list[Peer]
    ) -> JobStatus: ...
    def host(self, job: str, node: str, order: GuestOrder) -> GuestStatus: ...
    def jobs(self) -> list[JobStatus]: ...
    def status(self, job: str) -> JobStatus: ...
    def wait(self, job: str, timeout: float | None) -> JobStatus: ...
    def history(self, job: str) -> list[Happening]: ...
    def statistics(self, job: str) -> dict[str, Any]: ...
    def graph(self, job: str) -> Drawing: ...
    def published(self) -> Mapping[str, Sequence[str]]: ...
    def journals(self, job: str) -> list[Summary]: ...
    def journal(self, job: str, name: str) -> Journal: ...
    def states(self, job: str) -> list[StageStatus]: ...
    def state_rows(
        self, job: str, stage: str, *, key: str | None, at: int | None, limit: int
    ) -> StateRows: ...
    def patterns(self, job: str) -> list[PatternRuns]: ...
    def checkpoints(self, job: str) -> list[CheckpointStatus]: ...
    def verify_checkpoint(self, job: str, group: str) -> VerifiedCheckpoint: ...
    def flow_folder(self, job: str) -> Path: ...
    def log_file(self, job: str) -> Path: ...
    def drain(self, job: str, *, flush: bool) -> JobStatus: ...
    def resume(self, job: str) -> JobStatus: ...
    def settled(self, job: str, state: JobState) -> JobStatus: ...
    def missed(self, job: str, peer: str) -> JobStatus: ...
    def undeploy(self, job: str, *, force: bool, purge: bool) -> JobStatus: ...
    def stop(self, *, force: bool) -> None: ...
    def tasks(self) -> Tasks: ...
    def drain_tasks(self) -> Tasks: ...
    def plan_switch(self, job: str, request: SwitchRequest) -> Planned: ...
    def switch_planned(self, job: str) -> tuple[float, Planned] | None: ...
    def switch(self, job: str, request: SwitchRequest) -> JobStatus: ...
    def abort_switch(self, job: str) -> JobStatus: ...
    def end_when_quiet(self, job: str) -> JobStatus: ...
    def versions(self, job: str) -> list[VersionStatus]: ...
    @property
    def binaries(self) -> Binaries: ...
    def users(self) -> dict[str, list[str]]: ...
    def remove_binary(self, name: str, version: int | None) -> list[Binary]: ...
    def drop_content(self, sha256: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, read and checked: all parameters by name, and the body."""

    values: dict[str, Any]
    caller: Caller
    body: Any = None
    media: str = ""

    @property
    def job(self) -> str:
        return str(self.values["job"])


@dataclass(frozen=True, slots=True)
class Text:
    """An answer that is not JSON; `packed` is the same for who takes gzip."""

    body: bytes
    media: str
    headers: Mapping[str, str] = field(default_factory=dict)
    packed: bytes | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer that goes on until whoever asked leaves."""

    parts: AsyncIterator[bytes]
    media: str


class Api:
    """An engine behind HTTP. The event loop's thread calls `answer`, nothing else."""

    def __init__(
        self,
        engine: Served,
        about: Callable[[int, float], EngineStatus],
        *,
        limits: RequestLimits,
        stop: Callable[[], None],
        audit: AuditLog,
        keys: KeyPair | None = None,
        watchers: Sequence[str] = (),
    ) -> None:
        self.watchers = watchers
        self.shared = Shared()
        self.engine = engine
        self.audit = audit
        self.limits = limits
        self.stop = stop
        self.stopping = False
        self._about = about
        self.intake = Intake(lambda: engine.address, keys=keys, at_once=_SENDING)
        self.metrics = Metrics(self.about, engine.jobs, engine.journals, engine.tasks)
        self.live = Live(self.about, engine.jobs, engine.published)
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._sending = anyio.CapacityLimiter(_SENDING)
        self._waiting = anyio.CapacityLimiter(limits.waiting)

    def connect(self, sender: str) -> Client:
        """Return a client of this engine's inboxes, under a name of ours."""
        return self.intake.connect(sender, self.limits.room_seconds)

    def about(self) -> EngineStatus:
        return self._about(len(self.engine.jobs()), self.live.rows_in)

    async def answer(self, operation: Operation, asked: Asked) -> Any:
        """Carry out an operation and return the answer.

        Raises:
            MillstreamError: It cannot be done.
        """
        if inspect.iscoroutinefunction(operation.call):
            return await operation.call(self, asked)  # it waits without a thread of its own
        limiter = self._sending if operation.sending else self._threads
        return await anyio.to_thread.run_sync(operation.call, self, asked, limiter=limiter)

    async def wait(self, asked: Asked) -> JobStatus:
        """Wait until a job has settled, the limit is over or the engine stops."""
        until = anyio.current_time() + asked.values["limit"]
        while True:
            # In slices: an engine that stops need not wait for those who wait.
            slice_s = max(0.0, min(_SLICE_S, until - anyio.current_time()))
            status = await anyio.to_thread.run_sync(
                self.engine.wait, asked.job, slice_s, limiter=self._waiting
            )
            settled = status.state in SETTLED or status.state is JobState.UNDEPLOYED
            if settled or self.stopping or anyio.current_time() >= until:
                return status
