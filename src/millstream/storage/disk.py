"""The disk, as an argument: what writing durably takes, and no more.

Tests bring a disk that fails at a chosen operation and then forgets what was not synced. Reading
needs no seam: files are read and mapped as they are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from millstream.storage.private import FILE, FOLDER

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MANY = 512  # below the kernel's limit of buffers in one call


class DiskFile(Protocol):
    """An open file that is written at its end."""

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write the buffers after the end; not durable before `sync`."""
        ...

    def write_at(self, offset: int, data: bytes) -> None:
        """Overwrite bytes in place; not durable before `sync`."""
        ...

    def sync(self) -> None:
        """Make everything written to this file durable."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file, or lengthen it with zeros."""
        ...

    def size(self) -> int:
        """Return where the next append goes."""
        ...

    def close(self) -> None:
        """Close the file, synced or not."""
        ...


class Disk(Protocol):
    """Opens, renames and removes; a name is durable once its folder is synced."""

    def open(self, path: Path) -> DiskFile:
        """Open for writing, made empty if it is not there."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, replacing what had it."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name.

        Raises:
            FileExistsError: Another file has it.
        """
        ...

    def remove(self, path: Path) -> None:
        """Remove a file; it is no error if it is gone."""
        ...

    def sync_folder(self, path: Path) -> None:
        """Make the names in a folder durable."""
        ...


class RealFile:
    """A file of the operating system."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE)
        self._size = os.fstat(self._fd).st_size

    def append(self, buffers: Sequence[Buffer]) -> None:
        for begin in range(0, len(buffers), _MANY):
            self._write(list(buffers[begin : begin + _MANY]))

    def _write(self, buffers: list[Buffer]) -> None:
        wanted = sum(memoryview(b).nbytes for b in buffers)
        written = os.pwritev(self._fd, buffers, self._size)
        self._size += written
        # A short write is rare (2 GiB at once, a signal, a full disk): continue with what is left.
        while written < wanted:
            rest = _after(buffers, written)
            more = os.pwritev(self._fd, rest, self._size)
            self._size += more
            buffers, wanted, written = rest, wanted - written, more

    def write_at(self, offset: int, data: bytes) -> None:
        os.pwrite(self._fd, data, offset)
        self._size = max(self._size, offset + len(data))

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._size = size

    def size(self) -> int:
        return self._size

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _after(buffers: list[Buffer], count: int) -> list[Buffer]:
    """Return what is left of `buffers` after `count` bytes."""
    rest: list[Buffer] = []
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        if count >= view.nbytes:
            count -= view.nbytes
            continue
        rest.append(view[count:])
        count = 0
    return rest


class RealDisk:
    """The machine's disk."""

    def open(self, path: Path) -> DiskFile:
        return RealFile(path)

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        target.hardlink_to(source)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_folder(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


REAL: Disk = RealDisk()


def write_whole(disk: Disk, path: Path, content: bytes) -> None:
    """Give `path` a new content, durably and all at once."""
    fresh = path.with_name(path.name + ".unfinished")
    file = disk.open(fresh)
    try:
        file.truncate(0)
        file.append([content])
        file.sync()
    finally:
        file.close()
    disk.rename(fresh, path)
    disk.sync_folder(path.parent)


def make_folder(disk: Disk, path: Path) -> None:
    """Make a folder and its missing parents, durably, for this user alone."""
    if path.is_dir():
        return
    make_folder(disk, path.parent)
    path.mkdir(mode=FOLDER, exist_ok=True)
    disk.sync_folder(path.parent)
