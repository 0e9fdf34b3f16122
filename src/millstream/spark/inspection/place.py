"""Where a job keeps its groups, and which of several versions of a group is in use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from millstream.errors import AlreadyRunning, NotThere
from millstream.joblog import JobLog
from millstream.joblog.entries import NOBODY, State
from millstream.spark.io.checkpoint import Checkpoint, recorded
from millstream.spark.run.claim import claim
from millstream.spark.run.version import placed
from millstream.storage import Folder, Storage, storage_at
from millstream.switch.record import Homes, Record, decode


@dataclass(frozen=True)
class JobPlace:
    """The folder of a flow or a job, and where its checkpoints are instead, if they are not there."""

    name: str
    folder: Path
    address: str | None = None

    def again(self) -> JobPlace:
        """Return the same place, to be read again."""
        return JobPlace(self.name, self.folder, self.address)

    @property
    def storage(self) -> Storage:
        return storage_at(self.address or self.folder)

    @cached_property
    def log(self) -> State | None:
        """What the job's log amounts to; None if it has none."""
        found = JobLog(self.storage).peek()
        return None if found.generation == NOBODY else found

    @cached_property
    def record(self) -> Record | None:
        """The record of the job's switches; None if there never was one."""
        found = Folder(self.folder / "switch").read("record")
        if self.log is not None and self.log.switch is not None:
            found = self.log.switch.encode()
        return None if found is None else decode(found)

    @property
    def homes(self) -> Homes:
        """Where the groups and journals of the version that runs are."""
        record = self.record
        return Homes() if record is None else record.homes.get(record.current, Homes())

    @cached_property
    def groups(self) -> list[str]:
        """The folders of all groups: those of another version have its name behind an `@`."""
        if self.address is None:
            found = (self.folder / "groups").glob("*/group.json")
            return sorted(path.parent.name for path in found)
        names = [name.split("/") for name in self.storage.sizes("groups")]
        return sorted(parts[1] for parts in names if parts[2:] == ["group.json"])

    @property
    def current(self) -> list[str]:
        """The folders of the groups of the version that runs."""
        homes = self.homes.groups
        return [one for one in self.groups if placed(one.partition("@")[0], homes) == one]

    def journal(self, name: str) -> Path:
        """Return the folder of a journal."""
        return self.folder / "journals" / placed(name, self.homes.journals)

    def checkpoint(self, group: str) -> Checkpoint:
        """Return the checkpoint of a group: that of the version which runs, or of GROUP@VERSION.

        Raises:
            NotThere: There is none.
        """
        name = group if "@" in group else placed(group, self.homes.groups)
        folder, address = self.folder / "groups" / name, None
        if self.address is not None:
            address = f"{self.address}/groups/{name}"
        # Looked up, never put together: the name may come from outside.
        record = recorded(address or folder) if name in self.groups else None
        if record is None:
            known = ", ".join(f"{self.name}.{one}" for one in self.groups)
            what = f'group "{self.name}.{group}"' if group else f'flow "{self.name}"'
            place = self.address or self.folder.parent
            if known and not group:
                fact = f'"{self.name}" is a flow, and each of its groups has a checkpoint'
                raise NotThere(fact, hint=f"name one: {known}")
            hint = f"there are {known}" if known else "run the flow first"
            raise NotThere(f"there is no checkpoint of a {what} in {place}", hint=hint)
        own = name.partition("@")[0]
        return Checkpoint(folder, own, record["checkpoint"], record["description"], address)


@contextmanager
def stopped(place: JobPlace) -> Iterator[None]:
    """Hold a job's folder, so that nobody runs it meanwhile.

    Raises:
        AlreadyRunning: Somebody does.
    """
    held = claim(place.folder, place.name)
    try:
        if place.log is not None and not place.log.released:
            msg = f'job "{place.name}" is run by {place.log.holder}, or was when it ended'
            raise AlreadyRunning(msg, hint="stop it there: millstream run releases the job")
        yield
    finally:
        held.release()


def job_place(data: Path, name: str, storage: str | None = None) -> JobPlace:
    """Return where a flow of a run, or a job of an engine, keeps its groups under a data folder."""
    run, job = data / name, data / "jobs" / name / name
    folder = job if job.is_dir() and not (run / "groups").is_dir() else run
    return JobPlace(name, folder, None if storage is None else f"{storage.rstrip('/')}/{name}")
