"""The bytes of programs, each under the SHA-256 of them all: what has that name is what was meant.

    <sha256>        whole, and checked
    <sha256>.part   on its way: grows from offset 0, piece by piece

A piece that comes again changes nothing, so a client whose answer was lost, or two that send the
same, do no harm.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from millstream.errors import BadBinary, NoRoom, NoSuchAction, StoreBroken

MOST_BYTES: Final = 512 << 20
#: How many may be on their way; the one that was touched longest ago gives way.
MOST_PARTS: Final = 16
SHA256: Final = "^[0-9a-f]{64}$"
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Content(msgspec.Struct, frozen=True):
    """How much of a program's bytes is here."""

    sha256: str
    bytes: int
    whole: bool


class Contents:
    """A folder of bytes by their hash. Any thread may call."""

    def __init__(self, folder: Path) -> None:
        """Open the folder; what was on its way when it was last used is gone."""
        self._folder = folder
        self._guard = threading.Lock()
        self._checked: dict[str, tuple[int, int]] = {}
        with _translated():
            folder.mkdir(parents=True, exist_ok=True)
            for part in folder.glob("*.part"):
                part.unlink()

    def status(self, sha256: str) -> Content:
        """Return how much of something is here.

        Raises:
            NoSuchAction: Nothing.
        """
        for path, whole in ((self._whole(sha256), True), (self._part(sha256), False)):
            with suppress(FileNotFoundError):
                return Content(sha256, path.stat().st_size, whole)
        hint = "millstream actions add brings one"
        raise NoSuchAction(f"no program with the SHA-256 {sha256} is here", hint=hint)

    def receive(self, sha256: str, data: bytes, *, offset: int, total: int) -> Content:
        """Take the bytes from `offset` on; with the last of `total` bytes the whole is checked.

        Raises:
            BadBinary: They are too many, leave a gap, or do not have that hash; then those before
                are gone too.
            NoRoom: The disk is full.
        """
        if not 0 < total <= MOST_BYTES:
            if total:
                hint = f"a program has at most {MOST_BYTES >> 20} MB"
            else:
                hint = "an empty file is no program"
            raise BadBinary(f"a program of {total:,} bytes is not accepted", hint=hint)
        with self._guard, _translated():
            if self._whole(sha256).is_file():
                return self.status(sha256)
            size = self._append(self._part(sha256), data, offset)
            if size >= total:
                self._finish(sha256, size, total)
            return self.status(sha256)

    def _append(self, part: Path, data: bytes, offset: int) -> int:
        self._make_way(part)
        with part.open("ab") as file:
            there = file.tell()
            if offset > there:
                msg = f"bytes {there:,} to {offset:,} of a program are missing"
                raise BadBinary(msg, hint="send them first")
            file.write(data[there - offset :])
            return file.tell()

    def _make_way(self, part: Path) -> None:
        others = sorted(
            (one for one in self._folder.glob("*.part") if one != part),
            key=lambda one: one.stat().st_mtime,
        )
        for one in others[: max(0, len(others) - MOST_PARTS + 1)]:
            one.unlink()

    def _finish(self, sha256: str, size: int, total: int) -> None:
        part = self._part(sha256)
        found = _hashed(part)
        if size != total or found != sha256:
            part.unlink()
            msg = f"{size:,} bytes with the SHA-256 {found} came, and not {total:,} with {sha256}"
            hint = "the file changed, or its bytes got lost on the way: send it again"
            raise BadBinary(msg, hint=hint)
        part.chmod(0o555)
        _sync(part)
        part.rename(self._whole(sha256))
        _sync(self._folder)

    def read(self, sha256: str, offset: int, limit: int) -> bytes:
        """Return at most `limit` bytes of a program from `offset` on; none at its end."""
        with _translated(), self.path(sha256).open("rb") as file:
            file.seek(offset)
            return file.read(limit)

    def path(self, sha256: str) -> Path:
        """Return the executable file of a program; its bytes are checked again only if it changes.

        Raises:
            NoSuchAction: It is not here.
            StoreBroken: It is damaged.
        """
        if not self.status(sha256).whole:
            hint = "send the rest"
            raise NoSuchAction(f"the program with the SHA-256 {sha256} is here in part", hint=hint)
        path = self._whole(sha256)
        seen = _seen(path)
        if self._checked.get(sha256) != seen:
            if _hashed(path) != sha256:
                hint = "remove it, and add the program again"
                raise StoreBroken(f"the file {path} is damaged", hint=hint)
            self._checked[sha256] = seen
        return path

    def checked(self, sha256: str) -> bool:
        """Tell whether `path` has nothing to read."""
        try:
            return self._checked.get(sha256) == _seen(self._whole(sha256))
        except FileNotFoundError:
            return False

    def remove(self, sha256: str) -> None:
        """Forget something, whether it is here or not."""
        with self._guard, _translated():
            for path in (self._whole(sha256), self._part(sha256)):
                path.unlink(missing_ok=True)
            self._checked.pop(sha256, None)

    def _whole(self, sha256: str) -> Path:
        if not re.fullmatch(SHA256, sha256):
            raise NoSuchAction(f'"{sha256}" is not a SHA-256', hint="it has 64 hexadecimal digits")
        return self._folder / sha256

    def _part(self, sha256: str) -> Path:
        whole = self._whole(sha256)
        return whole.with_name(f"{whole.name}.part")


def _seen(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _hashed(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            hint = "it may work when there is room"
            raise NoRoom("the engine's disk is full", hint=hint) from error
        raise StoreBroken(f"the engine's folder of programs refuses: {error}") from error
