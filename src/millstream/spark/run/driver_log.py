"""Which driver has a job that several hosts may run: its claim in the job's log."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from millstream.clock import Clock
from millstream.errors import InvalidStorage, StorageError, TakenOver
from millstream.joblog import JobLog, Lease, Renewal
from millstream.spark.run.version import RunContext
from millstream.storage import Folder, checked_storage

#: The file of a flow's folder that names the storage it runs with.
_PLACE: Final = "storage"
#: How long a driver may plan a switch.
PLANNING_S: Final = 120.0


def take_job(
    ground: RunContext, storage: str | None, flow: str, clock: Clock, lease: Lease | None = None
) -> None:
    """Claim the job in its log, if it has a storage; its checkpoints are beside the log then.

    With a `lease`, an engine has claimed it: the driver's claim follows that one, without waiting.

    Raises:
        TakenOver: Another driver has claimed it at the same time.
        StorageError: The storage cannot be used, or the job is elsewhere.
    """
    check_place(ground.folder, storage)
    if storage is None:
        return
    ground.address = f"{storage.rstrip('/')}/{flow}"
    found = checked_storage(ground.address)
    if lease is None:
        log = JobLog(found, clock=clock)
        log.claim()
    else:
        log = JobLog(found, clock=clock, renew_every=lease.renew_every, engine=lease.engine)
        log.follow(lease)
        ground.renewal = Renewal(log, lease.renew_every / 3)
    ground.log, ground.leased = log, lease is not None
    Folder(ground.folder).put(_PLACE, storage.rstrip("/").encode())


def check_place(folder: Path, storage: str | None) -> None:
    """Refuse to begin again on another storage: all results would be published once more.

    Raises:
        InvalidStorage: The job's checkpoints are elsewhere.
    """
    known = Folder(folder).read(_PLACE)
    if known is not None:
        kept, back = known.decode(), f"give --storage {known.decode()}"
    elif any(folder.glob("groups/*/group.json")):
        kept, back = None, "leave --storage out"
    else:
        return
    if kept != (None if storage is None else storage.rstrip("/")):
        msg = f'flow "{folder.name}" has its checkpoints in {kept or folder}'
        raise InvalidStorage(msg, hint=f"{back}; or give another --data, and it begins again")


def renew_job(ground: RunContext) -> None:
    """Let others know that this driver lives.

    Raises:
        TakenOver: Another driver has taken the job.
    """
    if ground.renewal is not None:
        ground.renewal.go_on()
    if ground.log is not None:
        ground.log.renew()


def take_time(ground: RunContext) -> None:
    """Let the lease be renewed while Spark is asked about a switch, which may take a while."""
    if ground.renewal is not None:
        ground.renewal.go_on(PLANNING_S)


def release_job(ground: RunContext) -> None:
    """Let others have the job at once; who cannot let go is waited for.

    A job with a lease is its engine's: that one may start it again, or let go of it.
    """
    if ground.renewal is not None:
        ground.renewal.end()
    if ground.log is not None:
        with suppress(TakenOver, StorageError):
            if not ground.leased:
                ground.log.release()
        ground.log = None
