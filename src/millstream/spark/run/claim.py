"""One run at a time: the claim on a flow's data folder."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from millstream.errors import AlreadyRunning


@dataclass
class Claim:
    """A claim on a folder; it ends with `release` or with the process."""

    _file: int | None

    @classmethod
    def take(cls, folder: Path, flow: str) -> Claim:
        """Claim the folder of a flow.

        Raises:
            AlreadyRunning: Another process has it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, 32).decode() or "unknown"
            os.close(file)
            raise AlreadyRunning(
                f'flow "{flow}" is running already, in process {holder}',
                hint="stop that one first, or run this one with another --data folder",
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, str(os.getpid()).encode(), 0)
        return cls(file)

    def release(self) -> None:
        """Let others have the folder."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
