"""What senders are told whose job has failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millstream.engine.jobs import lifecycle as life
from millstream.engine.managed_job import ManagedJob


@dataclass(frozen=True, slots=True)
class FailedJobs:
    """Those among all jobs of an engine, by the names of their sources."""

    jobs: Mapping[str, ManagedJob]

    def _of(self, source: str) -> ManagedJob | None:
        """Return the job of a source, if it has failed."""
        found = self.jobs.get(source.partition(".")[0])
        return found if found is not None and found.job.state is life.JobState.FAILED else None

    def notice(self, source: str) -> str | None:
        """Return what senders should know whose rows are stored, and not processed."""
        failed = self._of(source)
        if failed is None:
            return None
        resume = f'"millstream resume {failed.name}"'
        return f'job "{failed.name}" is failed; rows are stored until {resume}'

    def absent(self, source: str) -> tuple[str, str] | None:
        """Return why the inboxes of a source are not open, and what helps."""
        failed = self._of(source)
        if failed is None:
            return None
        why = f'job "{failed.name}" is failed: {failed.job.reason}'
        return why, f"remove the cause, then millstream resume {failed.name}"
