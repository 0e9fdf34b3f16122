"""The rows of a job that wait for its driver, and how many more may."""

from __future__ import annotations

from pathlib import Path

import msgspec

from millstream.engine.jobs.folders import Folders
from millstream.engine.jobs.status import GroupStatus
from millstream.engine.jobs.store import MOST_UNREAD
from millstream.engine.managed_job import ManagedJob
from millstream.errors import JournalError
from millstream.journal import journal_at


class _Numbers(msgspec.Struct, frozen=True):
    """Of what a driver reports, how far its groups are."""

    groups: tuple[GroupStatus, ...] = ()


def allowance(managed: ManagedJob, folders: Folders, taken: int) -> int | None:
    """Return how many rows may come before more wait than the job was deployed to let wait.

    None if there is no limit. `taken` is how many rows the inboxes have taken: what came since the
    driver has counted waits too.
    """
    most = managed.stored.settings.options.get(MOST_UNREAD)
    if most is None or not managed.job.driver:
        return None
    uncounted = max(0, taken - managed.taken[0]) if _reported(managed) else 0
    return max(0, int(most) - unread(managed, folders.flow(managed.name)) - uncounted)


def unread(managed: ManagedJob, folder: Path) -> int:
    """Return how many rows are not processed: by the driver's numbers, or the journals.

    The driver's engine, which has copies of all partitions, counts them; the others count nothing
    twice.
    """
    if not managed.job.driver:
        return 0
    if _reported(managed):
        groups = msgspec.convert(managed.statistics, _Numbers).groups
        return max((group.lag_rows for group in groups), default=0)
    return sum(_behind(file.parent) for file in sorted(folder.glob("journals/*/source.json")))


def _reported(managed: ManagedJob) -> bool:
    """Tell whether the numbers are those of the driver that runs now."""
    return managed.job.ready_at is not None and managed.fresh


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
