"""The status of a job: its state, its driver's numbers and its inboxes in one `JobStatus`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from millstream.clock import iso
from millstream.engine.inboxes.inboxes import Inboxes
from millstream.engine.jobs.folders import Folders
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.status import (
    GroupStatus,
    InboxStatus,
    JobStatus,
    RuntimeStatus,
    SourceStatus,
)
from millstream.engine.managed_job import ManagedJob
from millstream.engine.switch_service import switch_status
from millstream.engine.unread import unread


class DriverNumbers(msgspec.Struct, frozen=True):
    """What a driver reports: `RunStatistics`."""

    groups: tuple[GroupStatus, ...] = ()
    sources: dict[str, SourceStatus] = {}
    late: int = 0
    dead: int = 0
    waiting: int = 0
    notices: tuple[str, ...] = ()
    runtimes: tuple[RuntimeStatus, ...] = ()


def job_status(
    managed: ManagedJob, inboxes: Inboxes, folders: Folders, *, node: int, of: int
) -> JobStatus:
    """Return a job as its engine, node `node` of `of`, sees it."""
    stored, job, driver = managed.stored, managed.job, managed.driver
    numbers = msgspec.convert(managed.statistics, DriverNumbers)
    gone = job.state is JobState.UNDEPLOYED
    opened = inboxes.job(managed.name)
    here = () if gone else opened.status()
    return JobStatus(
        id=stored.id,
        name=stored.name,
        state=job.state,
        reason=job.reason or _trouble(here) or opened.missing(),
        flush=job.flush,
        node=node,
        of=of,
        deployed_at=iso(stored.deployed_at),
        since=iso(job.since),
        restarts=job.restarts,
        pid=driver.pid if driver is not None and managed.running else None,
        groups=numbers.groups,
        sources=_with_inboxes(numbers.sources, here),
        late=numbers.late,
        dead=numbers.dead,
        waiting=numbers.waiting,
        notices=numbers.notices,
        unprocessed=0 if gone else unread(managed, folders.flow(managed.name)),
        inboxes=here,
        producers=inboxes.producers(managed.name),
        copies=() if gone else opened.copies(),
        version=str(managed.current),
        switch=switch_status(managed.switch),
        runtimes=numbers.runtimes if managed.running else tuple(map(_stopped, numbers.runtimes)),
    )


def _stopped(runtime: RuntimeStatus) -> RuntimeStatus:
    """Return a runtime of a job that has no driver now, and so none of its runtimes."""
    state = "ended" if runtime.state == "ended" else "stopped"
    return msgspec.structs.replace(runtime, state=state, pid=None)


def _trouble(inboxes: Sequence[InboxStatus]) -> str | None:
    """Return what keeps a job from taking events, if anything does."""
    found = next((one for one in inboxes if one.error is not None), None)
    if found is None:
        return None
    return f"inbox {found.source}/{found.partition} takes nothing: {found.error}"


def _with_inboxes(
    sources: dict[str, SourceStatus], inboxes: Sequence[InboxStatus]
) -> dict[str, SourceStatus]:
    """Return the numbers of sources, with those of inboxes, which the driver does not know."""
    found = dict(sources)
    for name in {one.source for one in inboxes}:
        ours = [one for one in inboxes if one.source == name]
        found[name] = SourceStatus(
            rows=sum(one.rows for one in ours),
            refused=sum(one.refused for one in ours),
            ended=name in sources and sources[name].ended,
            error=next((one.error for one in ours if one.error is not None), None),
            waiting=next((one.away for one in ours if one.away is not None), None),
        )
    return found
