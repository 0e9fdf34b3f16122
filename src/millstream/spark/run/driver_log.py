"""Which driver has a job that several hosts may run: its claim in the job's log."""

from __future__ import annotations

from contextlib import suppress

from millstream.clock import Clock
from millstream.errors import StorageError, TakenOver
from millstream.joblog import JobLog
from millstream.spark.run.version import RunContext
from millstream.storage import checked_storage


def take_job(ground: RunContext, storage: str | None, flow: str, clock: Clock) -> None:
    """Claim the job in its log, if it has a storage; its checkpoints are beside the log then.

    Raises:
        TakenOver: Another driver has claimed it at the same time.
        StorageError: The storage cannot be used.
    """
    if storage is None:
        return
    ground.address = f"{storage.rstrip('/')}/{flow}"
    log = JobLog(checked_storage(ground.address), clock=clock)
    log.claim()
    ground.log = log


def renew_job(ground: RunContext) -> None:
    """Let others know that this driver lives.

    Raises:
        TakenOver: Another driver has taken the job.
    """
    if ground.log is not None:
        ground.log.renew()


def release_job(ground: RunContext) -> None:
    """Let others have the job at once; who cannot let go is waited for."""
    if ground.log is not None:
        with suppress(TakenOver, StorageError):
            ground.log.release()
        ground.log = None
