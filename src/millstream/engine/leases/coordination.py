"""What engines with the same coordination share: a folder that all of them see, or a bucket.

settings             what must be the same for all of them
deployed/<job>       what was deployed; whoever puts it first has the name
packages/<job>/<n>   the package of the nth deployment of a name
versions/<job>/<n>/  its later versions (versions.py)
numbers/<job>        how many deployments of a name there have been
engines/<id>         who is there: written again at every look
jobs/<job>/log/...   the job's numbered log: who has it, what is decided, where it rests
jobs/<job>/groups/   its checkpoints
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.clock import Clock
from millstream.engine.jobs.store import Packed
from millstream.engine.jobs.switch_record import first_version
from millstream.engine.leases.loads import Measured
from millstream.engine.leases.rules import INTERVALS
from millstream.engine.leases.versions import SharedVersions
from millstream.errors import InvalidStorage, JobExists, StorageError
from millstream.joblog import JobLog
from millstream.storage import checked_storage, storage_at

#: For how long an engine may be silent before others take its jobs, if nobody has said otherwise.
LEASE_S: Final = 9.0

_DEPLOYED: Final = "deployed"
_ENGINES: Final = "engines"
_SETTINGS: Final = "settings"


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it was deployed, for any engine to run."""

    name: str
    number: int
    deployed_at: float
    root: str | None = None
    options: dict[str, Any] = {}

    @property
    def id(self) -> str:
        return f"{self.name}-{self.number}"


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """An engine that is there. The beat counts its looks: a moment would be of its clock."""

    id: str
    beat: int
    cores: int
    url: str = ""
    draining: bool = False
    #: The states of the jobs that it runs.
    jobs: dict[str, str] = {}
    #: Its process, and where that number is one: on the same host.
    process: int = 0
    space: str = ""
    #: How busy it is; None if it has not measured that, or is of an earlier release.
    measured: Measured | None = None


@dataclass(frozen=True, slots=True)
class TakenJob:
    """A job that an engine has claimed, and is to run."""

    deployment: Deployment
    #: The package that was deployed.
    package: bytes
    #: All versions with their packages; none if it was never switched.
    versions: Packed = ()
    #: The number of the version that was deployed.
    first: int = 1


class _Settings(msgspec.Struct, frozen=True):
    lease_s: float


class Coordination:
    """The storage that engines share. Any thread may call; everything may raise StorageError."""

    def __init__(self, address: str, lease_s: float | None = None, *, clock: Clock) -> None:
        """Use an address, once it is known that all engines there wait equally long.

        Without `lease_s` that is what they do, or the default.

        Raises:
            InvalidStorage: Other engines there have another lease.
            StorageError: It does not answer, or lets two callers put one name.
        """
        self.address = address if "://" in address else str(Path(address).resolve())
        self.address = self.address.rstrip("/")
        self._storage, self._clock = checked_storage(self.address), clock
        self.versions = SharedVersions(self._storage)
        self.lease_s = self._agreed(lease_s)

    def _agreed(self, wanted: float | None) -> float:
        ours = msgspec.json.encode(_Settings(wanted or LEASE_S))
        self._storage.put_if_absent(_SETTINGS, ours)
        found = msgspec.json.decode(self._storage.read(_SETTINGS) or ours, type=_Settings).lease_s
        if wanted not in (None, found):
            msg = f"engines at {self.address} have leases of {found:g} s"
            raise InvalidStorage(msg, hint=f"leave --lease out, or give --lease {found:g}")
        return found

    @property
    def now(self) -> float:
        """The moment, in seconds since 1970: for people to read."""
        return self._clock.now_us() / 1e6

    @property
    def jobs_address(self) -> str:
        """Where the logs and checkpoints of all jobs are."""
        return f"{self.address}/jobs"

    # jobs

    def names(self) -> list[str]:
        """Return the names of the jobs that are deployed."""
        return [name.rpartition("/")[2] for name in self._storage.list(_DEPLOYED)]

    def deployment(self, name: str) -> Deployment | None:
        found = self._storage.read(f"{_DEPLOYED}/{name}")
        return None if found is None else msgspec.json.decode(found, type=Deployment)

    def next_number(self, name: str) -> int:
        return int(self._storage.read(f"numbers/{name}") or b"0") + 1

    def deploy(self, deployment: Deployment, package: bytes) -> None:
        """Let all engines know a job; its package comes first.

        Raises:
            JobExists: A job of that name is deployed.
        """
        name = deployment.name
        if self.deployment(name) is not None:
            raise _exists(name)
        self._storage.put(_package(deployment), package)
        content = msgspec.json.encode(deployment)
        if not self._storage.put_if_absent(f"{_DEPLOYED}/{name}", content):
            raise _exists(name)

    def package(self, deployment: Deployment) -> bytes:
        """Return the package of a job.

        Raises:
            StorageError: It is not there any more.
        """
        found = self._storage.read(_package(deployment))
        if found is None:
            raise StorageError(f'the package of job "{deployment.name}" is gone')
        return found

    def taken(self, name: str, generation: int, record: str | None) -> TakenJob | None:
        """Return a job that was claimed, to run it; None if it is not deployed any more.

        `generation` is the claim, `record` that of the job's switches.
        """
        deployment = self.deployment(name)
        if deployment is None:
            return None
        package, number = self.package(deployment), deployment.number
        known = self.versions.read(name, number, generation)
        packages = [self.versions.package(name, number, one.settings.package) for one in known]
        versions = tuple(zip(known, (one or package for one in packages), strict=True))
        if known:
            self.versions.write(name, number, generation, known)
        return TakenJob(deployment, package, versions, first_version(record))

    def undeploy(self, deployment: Deployment, *, purge: bool) -> None:
        """Forget a job, which nobody runs; its log stays, so that those who sleep find it taken."""
        name = deployment.name
        self._storage.put(f"numbers/{name}", str(deployment.number).encode())
        self._storage.delete(f"{_DEPLOYED}/{name}")
        self._storage.delete(_package(deployment))
        self.versions.forget(name)
        if purge:
            self._storage.delete_all(f"jobs/{name}/groups")

    def log(self, name: str, engine: str) -> JobLog:
        """Return the log of a job, for an engine."""
        place = storage_at(f"{self.jobs_address}/{name}")
        return JobLog(place, clock=self._clock, renew_every=self.lease_s / INTERVALS, engine=engine)

    # engines

    def show(self, presence: Presence) -> None:
        """Show that an engine is there."""
        self._storage.put(f"{_ENGINES}/{presence.id}", msgspec.json.encode(presence))

    def engines(self) -> list[Presence]:
        """Return the engines that are there, or have not been for long."""
        found = [self._storage.read(name) for name in self._storage.list(_ENGINES)]
        return [msgspec.json.decode(one, type=Presence) for one in found if one is not None]

    def leave(self, engine: str) -> None:
        """Forget an engine."""
        with contextlib.suppress(StorageError):
            self._storage.delete(f"{_ENGINES}/{engine}")


def _package(deployment: Deployment) -> str:
    return f"packages/{deployment.name}/{deployment.number}"


def _exists(name: str) -> JobExists:
    hint = "undeploy it first, or deploy under another name: --name"
    return JobExists(f'job "{name}" is deployed already', hint=hint)
