"""Lets other engines know the versions of jobs that they may run next."""

from __future__ import annotations

import logging
import threading
from typing import Final

from millstream.engine.jobs.store import Version
from millstream.engine.leases.versions import SharedVersions
from millstream.engine.managed_job import ManagedJob
from millstream.errors import StorageError

_log = logging.getLogger(__name__)
#: How long to wait before a storage that has refused is asked again.
_RETRY_S: Final = 1.0
_CLOSES_S: Final = 5.0


class VersionSharing:
    """What an engine shares of its jobs' versions; without a coordination that is nothing.

    Any thread may call.
    """

    def __init__(self, shared: SharedVersions | None) -> None:
        self._shared = shared
        self._changed: dict[str, ManagedJob] = {}
        self._guard, self._writing = threading.Lock(), threading.Lock()
        self._wake, self._over = threading.Event(), False
        self._thread: threading.Thread | None = None

    def add(self, managed: ManagedJob, version: Version, package: bytes) -> None:
        """Let others know a version before it begins; they do when this returns.

        Raises:
            StorageError: They could not, or nobody knows whether they do.
        """
        if self._shared is not None and managed.stored.settings.shared:
            job, number = managed.name, managed.stored.number
            self._shared.put_package(job, number, version.settings.package, package)
            self._write(managed)

    def changed(self, managed: ManagedJob) -> None:
        """Let others know soon how the versions of a job stand: nobody waits for it."""
        if self._shared is None or not managed.stored.settings.shared:
            return
        with self._guard:
            self._changed[managed.name] = managed
            if self._thread is None and not self._over:
                self._thread = threading.Thread(target=self._work, name="versions", daemon=True)
                self._thread.start()
        self._wake.set()

    def _write(self, managed: ManagedJob) -> None:
        assert self._shared is not None
        with self._writing:  # the last one writes what is true last
            if managed.lease is not None:
                versions = list(managed.versions.values())
                generation = managed.lease.generation
                self._shared.write(managed.name, managed.stored.number, generation, versions)

    def _work(self) -> None:
        over = False
        while not over:
            self._wake.wait(_RETRY_S if self._changed else None)
            self._wake.clear()
            over = self._over  # what changed before that is written once more
            with self._guard:
                changed, self._changed = self._changed, {}
            for name, managed in changed.items():
                try:
                    self._write(managed)
                except StorageError as error:
                    _log.warning("the versions of job %s are not shared yet: %s", name, error)
                    with self._guard:
                        self._changed.setdefault(name, managed)

    def close(self) -> None:
        """Write what is not written yet, if that goes soon."""
        self._over = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_CLOSES_S)
