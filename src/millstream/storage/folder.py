"""A folder of the local disk as a storage.

    put             write .<name>.<random>, sync, rename it to <name>, sync the folder
    put_if_absent   write .<name>.<random>, sync, link it to <name>, sync the folder
    put_together    the steps of `put`, each for all files: the names first, the folders after them

A crash leaves the old content or the new one, and at worst a file whose name begins with a dot.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from millstream.errors import InternalError
from millstream.storage.disk import REAL, Disk, make_folder
from millstream.storage.lock import FileClaim

_GONE = (FileNotFoundError, NotADirectoryError)


@dataclass(frozen=True, slots=True)
class Folder:
    """Files below `path`, which is made when something is put."""

    path: Path
    disk: Disk = REAL

    def read(self, name: str) -> bytes | None:
        try:
            return self._file(name).read_bytes()
        except _GONE:
            return None

    def put(self, name: str, content: bytes) -> None:
        file = self._file(name)
        self.disk.rename(self._written(file, content), file)
        self.disk.sync_folder(file.parent)

    def put_if_absent(self, name: str, content: bytes) -> bool:
        file = self._file(name)
        fresh = self._written(file, content)
        try:
            self.disk.link(fresh, file)
        except FileExistsError:
            return False
        else:
            return True
        finally:
            # Also for the loser: what it finds must not vanish in a crash, and the winner may not
            # have synced it yet.
            self.disk.remove(fresh)
            self.disk.sync_folder(file.parent)

    def list(self, folder: str = "") -> list[str]:
        path = self._file(folder) if folder else self.path
        try:
            names = sorted(one.name for one in path.iterdir() if one.is_file())
        except _GONE:
            return []
        prefix = f"{folder}/" if folder else ""
        return [f"{prefix}{name}" for name in names if not name.startswith(".")]

    def sizes(self, folder: str = "") -> dict[str, int]:
        found: dict[str, int] = {}
        for within, folders, files in os.walk(self._file(folder) if folder else self.path):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for file in (Path(within, name) for name in files if not name.startswith(".")):
                with suppress(*_GONE):  # meanwhile
                    found[file.relative_to(self.path).as_posix()] = file.stat().st_size
        return dict(sorted(found.items()))

    def delete(self, name: str) -> None:
        self.disk.remove(self._file(name))

    def delete_all(self, folder: str) -> None:
        shutil.rmtree(self._file(folder), ignore_errors=True)

    def version(self, name: str) -> str | None:
        try:
            status = self._file(name).stat()
        except _GONE:
            return None
        return f"{status.st_ino}-{status.st_mtime_ns}"

    def claim(self, name: str, *, timeout: float = 0.0) -> FileClaim | None:
        file = self._file(name)
        make_folder(self.disk, file.parent)
        return FileClaim.take(file, timeout)

    def _file(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        if not parts or any(part.startswith((".", "/")) for part in parts):
            raise InternalError(f'"{name}" cannot be the name of a stored file')
        return self.path.joinpath(*parts)

    def _fresh(self, file: Path) -> Path:
        """Return a name for a new file beside `file`."""
        make_folder(self.disk, file.parent)
        return file.with_name(f".{file.name}.{uuid.uuid4().hex[:12]}")

    def _written(self, file: Path, content: bytes) -> Path:
        """Return a new file with this content beside `file`, synced."""
        fresh = self._fresh(file)
        opened = self.disk.open(fresh)
        try:
            opened.append([content])
            opened.sync()
        finally:
            opened.close()
        return fresh

    def _linked(self, file: Path, known: Path) -> Path | None:
        """Return another name for a synced file, beside `file`; None if it cannot have one there."""
        fresh = self._fresh(file)
        try:
            self.disk.link(known, fresh)
        except OSError:  # another file system, or more names than a file can have
            return None
        return fresh


class StoredFile(NamedTuple):
    """What is to be put into a folder."""

    folder: Folder
    name: str
    content: bytes

    def put(self) -> None:
        self.folder.put(self.name, self.content)


def put_together(files: Sequence[StoredFile], named: Callable[[], object] = lambda: None) -> None:
    """Put files as `Folder.put` does, which then wait for the disk together.

    Those with the same content are one file with several names, and their folders are synced after all
    of them have their names: a file system writes down all that has changed for the first, and has
    nothing left to do for the others. A crash may leave some of the files.

    Args:
        files: What to put, and where.
        named: Called after each file has its name.
    """
    known: dict[bytes, Path] = {}
    fresh: list[Path] = []
    for folder, name, content in files:
        file, same = folder._file(name), known.get(content)
        linked = None if same is None else folder._linked(file, same)
        fresh.append(linked or folder._written(file, content))
        known.setdefault(content, fresh[-1])
    for (folder, name, _), one in zip(files, fresh, strict=True):
        folder.disk.rename(one, folder._file(name))
        named()
    for parent, folder in {one.folder._file(one.name).parent: one.folder for one in files}.items():
        folder.disk.sync_folder(parent)
