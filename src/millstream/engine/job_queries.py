"""What can be asked about the jobs of an engine, deployed or not."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from millstream.clock import iso
from millstream.engine.driver.protocol import (
    Question,
    ReadCheckpoints,
    ReadPatterns,
    ReadState,
    StateRead,
)
from millstream.engine.job_status import job_status
from millstream.engine.jobs import lifecycle as life
from millstream.engine.jobs.checkpoint_status import CheckpointStatus, VerifiedCheckpoint
from millstream.engine.jobs.folders import Folders
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.pattern_status import PatternRuns
from millstream.engine.jobs.state_status import StageStatus, StateRows
from millstream.engine.jobs.status import Happening, JobStatus, VersionStatus
from millstream.engine.managed_job import ManagedJob
from millstream.engine.parts import Parts
from millstream.engine.programs.binaries import Binaries
from millstream.engine.switch_service import version_statuses
from millstream.errors import (
    EngineClosed,
    InvalidTransition,
    JournalMissing,
    NoSuchJob,
    NotThere,
)
from millstream.journal import Journal, journals_in
from millstream.journal.health import Summary
from millstream.links.network import Address
from millstream.plan.drawing import Drawing

#: How long a driver may take to read state: it runs batches meanwhile.
STATE_S: Final = 120.0


class JobQueries:
    """The questions; nothing changes by them. Any thread may ask.

    `Engine` inherits them beside what changes jobs: whoever has an engine asks it, in one place.
    """

    node: int
    of: int
    _folders: Folders
    _parts: Parts | None

    @property
    def _open(self) -> Parts:
        if self._parts is None:
            raise EngineClosed("the engine is not started, or closed")
        return self._parts

    @property
    def warm(self) -> int:
        """How many drivers are in reserve, ready for the next jobs."""
        return self._open.runner.drivers.warm

    @property
    def address(self) -> Address:
        """Where this engine's inboxes are."""
        return self._open.inboxes.address

    @property
    def binaries(self) -> Binaries:
        """The programs that this engine keeps."""
        return self._open.binaries

    def jobs(self) -> list[JobStatus]:
        """Return the jobs that are deployed, in the order of their deployment."""
        deployed = sorted(
            self._open.runner.jobs.values(),
            key=lambda managed: (managed.stored.deployed_at, managed.stored.id),
        )
        return [self._status(managed) for managed in deployed]

    def status(self, job: str) -> JobStatus:
        """Return a job, by its name or its id; undeployed ones by their id.

        Raises:
            NoSuchJob: There is none.
        """
        return self._status(self._found(job))

    def _managed(self, job: str) -> ManagedJob:
        """Return a deployed job by its name or id."""
        jobs = self._open.runner.jobs
        found = jobs.get(job) or next(
            (managed for managed in list(jobs.values()) if managed.stored.id == job), None
        )
        if found is not None:
            return found
        known = [
            name for managed in list(jobs.values()) for name in (managed.name, managed.stored.id)
        ]
        close = difflib.get_close_matches(job, known, 1)
        deployed = ", ".join(sorted(jobs)) or "none"
        hint = f'did you mean "{close[0]}"?' if close else f"jobs that are deployed: {deployed}"
        raise NoSuchJob(f'there is no job "{job}"', hint=hint)

    def _status(self, managed: ManagedJob) -> JobStatus:
        parts = self._open
        return job_status(managed, parts.inboxes, self._folders, node=self.node, of=self.of)

    def _found(self, job: str) -> ManagedJob:
        """Return a job by its name or id, also one that is undeployed."""
        try:
            return self._managed(job)
        except NoSuchJob:
            stored = self._open.store.job(job)
            if stored is None:
                raise
            return ManagedJob(stored)

    def wait(self, job: str, timeout: float | None = None) -> JobStatus:
        """Wait until a job is FINISHED, DRAINED, FAILED or UNDEPLOYED, or `timeout`; return it."""
        managed, runner = self._found(job), self._open.runner

        def settled() -> bool:
            return (
                self._parts is None
                or managed.job.state in life.SETTLED
                or managed.job.state is JobState.UNDEPLOYED
            )

        with runner.changed:
            runner.changed.wait_for(settled, timeout)
        return self._status(managed)

    def logs(self, job: str, lines: int = 100) -> list[str]:
        """Return the last lines of a job's log."""
        log = self.log_file(job)
        text: list[str] = []
        for file in (log, log.with_name(f"{log.name}.1")):
            if len(text) < lines and file.is_file():
                text = [*file.read_text(errors="replace").splitlines()[-lines:], *text]
        return text[-lines:] if lines > 0 else []

    def history(self, job: str) -> list[Happening]:
        """Return what has happened to a job, oldest first."""
        noted = self._open.store.history(self._found(job).stored.id)
        return [Happening(iso(one.at), one.what, one.detail) for one in noted]

    def statistics(self, job: str) -> dict[str, Any]:
        """Return the last numbers of the driver, as `RunStatistics` has them; empty without any."""
        return self._found(job).statistics

    def graph(self, job: str) -> Drawing:
        """Return the graph of the version that runs, or ran last.

        Raises:
            NotThere: It has not run since the engine was started.
        """
        found = self._found(job)
        if found.drawing is None:
            hint = "ask again when it runs; millstream plan draws the graph of a file"
            raise NotThere(f'job "{found.name}" has not run since the engine started', hint=hint)
        return found.drawing

    def published(self) -> dict[str, Sequence[str]]:
        """Return, by job, the groups whose results leave the flow; only of those that are known."""
        jobs = list(self._open.runner.jobs.values())
        return {one.name: one.drawing.published for one in jobs if one.drawing is not None}

    def journals(self, job: str) -> list[Summary]:
        """Return a job's journals that are on this engine, in numbers."""
        folder = self._folders.flow(self._found(job).name)
        return [one.summary() for one in journals_in(folder / "journals").values()]

    def journal(self, job: str, name: str) -> Journal:
        """Return a journal of a job that is on this engine; with ".dead", its dead letters.

        Raises:
            JournalMissing: There is none.
        """
        return journal_of(self._folders.flow(self._found(job).name), name)

    def states(self, job: str) -> list[StageStatus]:
        """Return the stages of a job that keep state, as its driver reads them.

        Raises:
            InvalidTransition: The job does not run.
        """
        return self._read_state(job, ReadState(number=0)).stages or []

    def state_rows(
        self, job: str, stage: str, *, key: str | None, at: int | None, limit: int
    ) -> StateRows:
        """Return the state of a stage, as the job's driver reads it.

        Raises:
            InvalidTransition: The job does not run.
            NotThere: It has no such stage, or no such batch (any more).
        """
        asked = ReadState(number=0, stage=stage, key=key, at=at, limit=limit)
        found = self._read_state(job, asked).rows
        if found is None:
            raise NotThere(f'job "{job}" has no stage "{stage}" with state')
        return found

    def patterns(self, job: str) -> list[PatternRuns]:
        """Return the patterns of a job with their live runs, as its driver reads them.

        Raises:
            InvalidTransition: The job does not run.
        """
        return self._read_state(job, ReadPatterns(0)).patterns or []

    def checkpoints(self, job: str) -> list[CheckpointStatus]:
        """Return the checkpoints of a job's groups, as its driver reads them.

        Raises:
            InvalidTransition: The job does not run.
        """
        return self._read_state(job, ReadCheckpoints(0)).checkpoints or []

    def verify_checkpoint(self, job: str, group: str) -> VerifiedCheckpoint:
        """Compare a group's checkpoint with all that it names, by the job's driver.

        Raises:
            InvalidTransition: The job does not run.
            NotThere: It has no such group.
        """
        found = self._read_state(job, ReadCheckpoints(0, group)).verified
        assert found is not None
        return found

    def _read_state(self, job: str, asked: Question) -> StateRead:
        managed = self._managed(job)
        if managed.driver is None or not managed.running:
            hint = "where its data folder is, millstream state shows it: give --data, not --engine"
            raise InvalidTransition(f'job "{managed.name}" does not run', hint=hint)
        return managed.driver.read_state(asked, STATE_S)

    def flow_folder(self, job: str) -> Path:
        """Return the folder of a job's journals and checkpoints."""
        return self._folders.flow(self._found(job).name)

    def log_file(self, job: str) -> Path:
        """Return the log of a job's driver."""
        return self._folders.log(self._found(job).name)

    def versions(self, job: str) -> list[VersionStatus]:
        """Return the versions of a job, oldest first."""
        managed = self._found(job)
        return version_statuses(list(managed.versions.values()), managed.current)

    def users(self) -> dict[str, list[str]]:
        """Return, by the hash of a program, the jobs that have it in any version."""
        found: dict[str, list[str]] = {}
        for managed in list(self._open.runner.jobs.values()):
            settings = [
                managed.stored.settings,
                *(version.settings for version in list(managed.versions.values())),
            ]
            for sha256 in {sha256 for one in settings for sha256 in one.binaries.values()}:
                found.setdefault(sha256, []).append(managed.name)
        return found


def journal_of(folder: Path, name: str) -> Journal:
    """Return a journal of the flow in a folder; with ".dead", its dead letters.

    Raises:
        JournalMissing: There is none.
    """
    # Looked up, never put together: the name comes from outside.
    found = journals_in(folder / "journals")
    whole = name.removesuffix(".dead")
    if whole not in found:
        hint = f"there are {', '.join(found)}" if found else "it has none on this engine"
        raise JournalMissing(f'job "{folder.name}" has no journal "{whole}"', hint=hint)
    wanted = found[whole] if whole == name else found[whole].dead_journal()
    if not wanted.exists():
        raise JournalMissing(f'journal "{folder.name}.{whole}" has no dead letters')
    return wanted
