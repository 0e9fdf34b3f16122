"""The lock of a partition: one writer at a time, each with a generation of its own."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

from millstream.errors import AlreadyWriting
from millstream.journal.disk import Disk

_PAUSE_S = 0.01
_PATIENCE_S = 0.1  # someone may be asking `held` just now


class Lock:
    """Held from creation to `release`; the kernel releases it when the process dies."""

    def __init__(self, file: Path, disk: Disk, *, what: str, wait_s: float = 0.0) -> None:
        self._fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._acquire(what, time.monotonic() + max(wait_s, _PATIENCE_S))
            self.generation = _read(self._fd).get("generation", 0) + 1
            self._write(file, disk)
        except BaseException:
            self.release()
            raise

    def _acquire(self, what: str, until: float) -> None:
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                if time.monotonic() >= until:
                    raise _taken(what, _read(self._fd)) from exc
                time.sleep(_PAUSE_S)
            else:
                return

    def _write(self, file: Path, disk: Disk) -> None:
        # In place: a rename would leave the next one waiting for the lock of a file that nobody
        # sees any more.
        holder = {"generation": self.generation, "pid": os.getpid()}
        handle = disk.open(file)
        try:
            handle.write_at(0, json.dumps(holder).encode().ljust(128))
            handle.sync()
        finally:
            handle.close()

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def held(file: Path) -> bool:
    """Tell if someone holds the lock."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _read(fd: int) -> dict[str, int]:
    try:
        holder = json.loads(os.pread(fd, 128, 0))
    except (
        ValueError
    ):  # empty, or torn by a crash: the generation starts again, the lock itself is the kernel's
        return {}
    return holder if isinstance(holder, dict) else {}


def _taken(what: str, holder: dict[str, int]) -> AlreadyWriting:
    pid = holder.get("pid")
    who = f"process {pid}" if pid is not None else "another process"
    return AlreadyWriting(
        f"{what} is being written by {who}", hint="stop it first: a partition has one writer"
    )
