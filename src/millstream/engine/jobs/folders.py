"""Where an engine keeps what belongs to its jobs, and the claim on its data folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from millstream.engine.jobs.store import JobSettings
from millstream.errors import EngineRunning
from millstream.storage import Claim, Folder
from millstream.storage.private import FOLDER, PASSAGE, make_private

_LOCK: Final = "engine.lock"
#: How long to wait for an engine that releases the folder.
_LOCK_S: Final = 3.0


class Folders:
    """Where an engine keeps what belongs to its jobs."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def job(self, name: str) -> Path:
        """Return the folder of a job; it stays when the job is undeployed without `purge`."""
        return self.data / "jobs" / name

    def flow(self, name: str) -> Path:
        """Return the folder of its journals and checkpoints."""
        return self.job(name) / name

    def log(self, name: str) -> Path:
        return self.job(name) / "run.log"

    @property
    def packages(self) -> Path:
        return self.data / "packages"

    @property
    def actions(self) -> Path:
        return self.data / "actions"

    @property
    def audit(self) -> Path:
        return self.data / "audit"

    def package(self, settings: JobSettings) -> Path:
        return self.packages / settings.package

    def root(self, settings: JobSettings) -> Path:
        """Return what the paths of a flow count from."""
        given = None if settings.root is None else Path(settings.root)
        return given if given is not None and given.is_dir() else self.package(settings)


def claim(data: Path) -> Claim:
    """Claim an engine's folder; wait for an engine that was stopped a moment ago to release it.

    Raises:
        EngineRunning: Another engine has it.
    """
    _make_private(data)
    storage = Folder(data)
    claimed = storage.claim(_LOCK, timeout=_LOCK_S)
    if claimed is None:
        holder = (storage.read(_LOCK) or b"").decode() or "unknown"
        hint = "stop that one first, or give this one another folder: --data"
        raise EngineRunning(f"an engine runs in {data} already, in process {holder}", hint=hint)
    return claimed


def _make_private(data: Path) -> None:
    """Let nobody else read what an engine keeps, also what an earlier version made readable.

    The programs of jobs can run as other users if the engine is root: they have to reach their files
    in packages and actions. A folder that was there before, and is no engine's, keeps its rights.
    """
    passage = PASSAGE if os.geteuid() == 0 else FOLDER
    if not data.exists() or (data / _LOCK).exists():
        make_private(data, passage)
    found = Folders(data)
    for folder, mode in (
        (data / "jobs", FOLDER),
        (found.audit, FOLDER),
        (found.packages, passage),
        (found.actions, passage),
    ):
        make_private(folder, mode)
