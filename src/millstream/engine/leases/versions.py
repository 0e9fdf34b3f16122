"""The versions of a job, for the engine that runs it next.

versions/<job>/<deployment>/packages/<name>      the package of a version, put before it is known
versions/<job>/<deployment>/known/<generation>   all versions, as the engine with that claim knows them

Whoever takes a job reads what the last claim before its own has left, and writes under its own. So
an engine that has lost the job, and does not know it yet, changes nothing that others read. Where a
switch stands is decided by the record in the job's log alone: a version that it does not know was
never begun, and what is known here catches up when a driver comes up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from millstream.engine.jobs.store import Version
from millstream.storage import Storage

_DECODER: Final = msgspec.json.Decoder(tuple[Version, ...])


class SharedVersions:
    """The versions of jobs that engines share. Any thread may call; all may raise StorageError."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def put_package(self, job: str, deployment: int, name: str, package: bytes) -> None:
        """Keep the package of a version that is about to be known."""
        self._storage.put(f"{_folder(job, deployment)}/packages/{name}", package)

    def package(self, job: str, deployment: int, name: str) -> bytes | None:
        """Return the package of a version; None if it is the one that was deployed."""
        return self._storage.read(f"{_folder(job, deployment)}/packages/{name}")

    def write(
        self, job: str, deployment: int, generation: int, versions: Iterable[Version]
    ) -> None:
        """Let the next engine know all versions, as whoever has the claim `generation` does."""
        # What paths count from is in the deployment; else it is a folder of this engine.
        kept = [
            msgspec.structs.replace(one, settings=msgspec.structs.replace(one.settings, root=None))
            for one in versions
        ]
        place = f"{_folder(job, deployment)}/known"
        self._storage.put(f"{place}/{generation:012d}", msgspec.json.encode(kept))
        for name in self._storage.list(place):
            if int(name.rpartition("/")[2]) < generation:
                self._storage.delete(name)

    def read(self, job: str, deployment: int, before: int) -> tuple[Version, ...]:
        """Return all versions as the last claim before one has left them; none: no switches."""
        names = self._storage.list(f"{_folder(job, deployment)}/known")
        for name in sorted(names, reverse=True):
            if int(name.rpartition("/")[2]) <= before:
                found = self._storage.read(name)
                if found is not None:
                    return _DECODER.decode(found)
        return ()

    def forget(self, job: str) -> None:
        """Forget the versions of a job that is undeployed."""
        self._storage.delete_all(f"versions/{job}")


def _folder(job: str, deployment: int) -> str:
    return f"versions/{job}/{deployment}"
