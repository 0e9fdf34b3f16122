"""Locks on files: one holder at a time; the kernel releases them when the process dies."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

from millstream.errors import AlreadyWriting
from millstream.storage.disk import Disk
from millstream.storage.private import FILE

_PAUSE_S = 0.01
_LEAST_S = 0.1  # `held` takes the lock for a moment


class FileClaim:
    """A file that one process holds, with that process's number in it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, file: Path, timeout: float) -> FileClaim | None:
        """Return the claim; None if another process keeps it for longer than `timeout` seconds."""
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE)
        if not _acquired(fd, timeout):
            os.close(fd)
            return None
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        return cls(fd)

    def release(self) -> None:
        """Let others have the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Lock:
    """Held from creation to `release`, with a generation that rises from holder to holder."""

    def __init__(self, file: Path, disk: Disk, *, what: str, timeout: float = 0.0) -> None:
        self._fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE)
        try:
            if not _acquired(self._fd, max(timeout, _LEAST_S)):
                raise _taken(what, _read(self._fd))
            self.generation = _read(self._fd).get("generation", 0) + 1
            self._write(file, disk)
        except BaseException:
            self.release()
            raise

    def _write(self, file: Path, disk: Disk) -> None:
        # In place: after a rename others would wait for the lock of a file without a name.
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
    """Return whether a process holds the lock."""
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


def _acquired(fd: int, timeout: float) -> bool:
    until = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(_PAUSE_S)
        else:
            return True


def _read(fd: int) -> dict[str, int]:
    try:
        holder = json.loads(os.pread(fd, 128, 0))
    except ValueError:  # empty, or torn by a crash: the generation starts again
        return {}
    return holder if isinstance(holder, dict) else {}


def _taken(what: str, holder: dict[str, int]) -> AlreadyWriting:
    pid = holder.get("pid")
    who = f"process {pid}" if pid is not None else "another process"
    hint = "stop it first: a partition has one writer"
    return AlreadyWriting(f"{what} is being written by {who}", hint=hint)
