"""A run of one flow, without an engine, behind the HTTP API: `millstream run --page`.

It answers what an engine answers about its only job. What would change the job needs an engine, and
is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from millstream.clock import Clock, SystemClock, iso
from millstream.engine.driver import protocol
from millstream.engine.driver.state_reading import read
from millstream.engine.http.api import Served
from millstream.engine.http.server import Server, Serving
from millstream.engine.job_queries import journal_of
from millstream.engine.job_status import DriverNumbers
from millstream.engine.jobs.checkpoint_status import CheckpointStatus, VerifiedCheckpoint
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.pattern_status import PatternRuns
from millstream.engine.jobs.state_status import StageStatus, StateRows
from millstream.engine.jobs.status import Happening, JobStatus
from millstream.engine.leases.tasks import Tasks
from millstream.errors import InvalidTransition, NoSuchJob
from millstream.journal import Journal, journals_in
from millstream.journal.health import Summary
from millstream.links.network import Address
from millstream.plan.drawing import Drawing, drawing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.spark.flow_run import FlowRun, RunStatistics

#: Of a run that takes no events.
_NOWHERE = Address("127.0.0.1", 0)


@dataclass
class SingleRun:
    """What `Served` asks for, of one flow. The run's own thread calls `update`, others the rest."""

    running: FlowRun
    spark: SparkSession
    log: Path
    storage: str | None = None
    clock: Clock = field(default_factory=SystemClock)
    node: int = 0
    of: int = 1
    warm: int = 0
    shares: bool = False

    def __post_init__(self) -> None:
        from millstream.spark.stages.analyse import plain_types

        self.name = self.running.flow.name
        self.data = self.running.folder / "page"
        queries = self.running.queries.values()
        columns = next((plain_types(one.analysis) for one in queries), {})
        self._drawing = drawing(self.running.plan, columns)
        self._began = self.clock.now_us() / 1e6
        self._happened = [Happening(iso(self._began), "running")]
        self._numbers: dict[str, Any] = {}
        self._guard = threading.Lock()

    def update(self, numbers: RunStatistics, *, ended: bool) -> None:
        """Take the numbers of the run as they are now."""
        with self._guard:
            self._numbers = msgspec.to_builtins(numbers)
            if ended and len(self._happened) == 1:
                self._happened.append(Happening(iso(self.clock.now_us() / 1e6), "finished"))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Refuse what only an engine can do."""
        if name.startswith("_"):
            raise AttributeError(name)

        def refuse(*args: object, **named: object) -> Any:  # noqa: ARG001 (whatever is asked for)
            hint = "start one (millstream engine), and deploy the flow there (millstream deploy)"
            raise InvalidTransition(f'flow "{self.name}" runs without an engine', hint=hint)

        return refuse

    @property
    def address(self) -> Address:
        return self.running.address or _NOWHERE

    def jobs(self) -> list[JobStatus]:
        return [self.status(self.name)]

    def _check(self, job: str) -> None:
        if job != self.name:
            raise NoSuchJob(f'there is no job "{job}"', hint=f'this is flow "{self.name}" alone')

    def status(self, job: str) -> JobStatus:
        self._check(job)
        with self._guard:
            numbers = msgspec.convert(self._numbers, DriverNumbers)
            last = self._happened[-1]
        return JobStatus(
            id=self.name,
            name=self.name,
            state=JobState(last.what),
            deployed_at=self._happened[0].at,
            since=last.at,
            groups=numbers.groups,
            sources=numbers.sources,
            late=numbers.late,
            dead=numbers.dead,
            waiting=numbers.waiting,
            notices=numbers.notices,
            unprocessed=max((one.lag_rows for one in numbers.groups), default=0),
            version=self.running.version,
        )

    def history(self, job: str) -> list[Happening]:
        self._check(job)
        return list(self._happened)

    def statistics(self, job: str) -> dict[str, Any]:
        self._check(job)
        return self._numbers

    def graph(self, job: str) -> Drawing:
        self._check(job)
        return self._drawing

    def published(self) -> dict[str, tuple[str, ...]]:
        return {self.name: self._drawing.published}

    def journals(self, job: str) -> list[Summary]:
        self._check(job)
        found = journals_in(self.running.folder / "journals")
        return [one.summary() for one in found.values()]

    def journal(self, job: str, name: str) -> Journal:
        self._check(job)
        return journal_of(self.running.folder, name)

    def flow_folder(self, job: str) -> Path:
        self._check(job)
        return self.running.folder

    def log_file(self, job: str) -> Path:
        self._check(job)
        return self.log

    def states(self, job: str) -> list[StageStatus]:
        return self._read(job, protocol.ReadState(number=0)).stages or []

    def state_rows(self, job: str, stage: str, **how: Any) -> StateRows:
        found = self._read(job, protocol.ReadState(number=0, stage=stage, **how)).rows
        assert found is not None
        return found

    def patterns(self, job: str) -> list[PatternRuns]:
        return self._read(job, protocol.ReadPatterns(0)).patterns or []

    def checkpoints(self, job: str) -> list[CheckpointStatus]:
        return self._read(job, protocol.ReadCheckpoints(0)).checkpoints or []

    def verify_checkpoint(self, job: str, group: str) -> VerifiedCheckpoint:
        found = self._read(job, protocol.ReadCheckpoints(0, group)).verified
        assert found is not None
        return found

    def _read(self, job: str, asked: protocol.Question) -> protocol.StateRead:
        self._check(job)
        found = read(self.spark, self.running, self.storage, asked)
        if found.failure is not None:
            raise protocol.error_of(found.failure)
        return found

    def tasks(self) -> Tasks:
        return Tasks("", False, ())

    def versions(self, job: str) -> list[Any]:
        self._check(job)
        return []

    def switch_planned(self, job: str) -> None:
        self._check(job)

    @property
    def binaries(self) -> Any:
        return self.programs()  # which refuses


def page_of(run: SingleRun, port: int) -> Server:
    """Return the page of a run; its token and its log of requests are beside the run's data."""
    return Server(cast("Served", run), run.data, Serving(port=port), single=True)
