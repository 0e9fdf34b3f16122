"""The status of a job: its state, its driver's numbers and its inboxes in one `JobStatus`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
from millstream.engine.jobs.store import MOST_UNREAD
from millstream.engine.managed_job import ManagedJob
from millstream.engine.switch_service import switch_status
from millstream.errors import JournalError
from millstream.journal import journal_at


class _Numbers(msgspec.Struct, frozen=True):
    """What a driver reports: `RunStatistics`."""

    groups: tuple[GroupStatus, ...] = ()
    sources: dict[str, SourceStatus] = {}
    late: int = 0
    dead: int = 0
    runtimes: tuple[RuntimeStatus, ...] = ()


def job_status(
    managed: ManagedJob, inboxes: Inboxes, folders: Folders, *, node: int, of: int
) -> JobStatus:
    """Return a job as its engine, node `node` of `of`, sees it."""
    stored, job, driver = managed.stored, managed.job, managed.driver
    numbers = msgspec.convert(managed.statistics, _Numbers)
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
        unprocessed=0 if gone else _unprocessed(managed, numbers, folders.flow(managed.name)),
        inboxes=here,
        copies=() if gone else opened.copies(),
        version=str(managed.current),
        switch=switch_status(managed.switch),
        runtimes=numbers.runtimes if managed.running else tuple(map(_stopped, numbers.runtimes)),
    )


def too_far_behind(managed: ManagedJob, folders: Folders) -> bool:
    """Tell whether more rows wait than the job was deployed to let wait."""
    most = managed.stored.settings.options.get(MOST_UNREAD)
    if most is None:
        return False
    numbers = msgspec.convert(managed.statistics, _Numbers)
    return _unprocessed(managed, numbers, folders.flow(managed.name)) >= int(most)


def _unprocessed(managed: ManagedJob, numbers: _Numbers, folder: Path) -> int:
    """Return how many rows are not processed: by the driver's numbers, or the journals.

    The driver's engine, which has copies of all partitions, counts them; the others count nothing
    twice.
    """
    if not managed.job.driver:
        return 0
    if managed.job.ready_at is not None and managed.fresh:
        return max((group.lag_rows for group in numbers.groups), default=0)
    return sum(_behind(file.parent) for file in sorted(folder.glob("journals/*/source.json")))


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
        )
    return found


def _behind(path: Path) -> int:
    """Return how many rows of a source some group has not processed."""
    try:
        read = journal_at(path)
        reader = read.reader()
        views = [reader.partition(number) for number in range(reader.description.partitions)]
        readers = [one.positions for one in read.committed()]
        done = [
            min((r.get(n, view.begin) for r in readers), default=view.begin)
            for n, view in enumerate(views)
        ]
        return sum(
            view.rows(max(passed, view.begin), view.end)
            for passed, view in zip(done, views, strict=True)
        )
    except (JournalError, OSError):
        return 0
