"""The folder in which Spark meets its Python workers, over Unix sockets that nobody else can reach.

Over TCP, Spark takes the first that connects to the port of a task's state for its worker. Whoever
still looks for a server that had this port, say a client of Kafka, would make the task wait for
ever.

    /tmp/millstream-UID/SESSION/.UUID.sock

A path of a socket has up to 107 bytes, so these do not lie in the folder of a job. A session locks
its folder while its process lives; what killed processes have left is removed by the next session.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path("/tmp")  # noqa: S108, a folder of the user in it; TMPDIR may be long


@cache
def folder() -> Path | None:
    """Return the folder of this process; None if there cannot be one."""
    try:
        found, _ = make(_ROOT)
    except OSError:
        return None
    if found is not None:
        atexit.register(shutil.rmtree, found, ignore_errors=True)
    return found


def make(root: Path) -> tuple[Path | None, int]:
    """Make a folder in the user's own; return it and the lock on it, which is kept open.

    There is none if the user's folder is another's, or open to others.
    """
    mine = root / f"millstream-{os.getuid()}"
    with suppress(FileExistsError):
        mine.mkdir(mode=0o700)
    found = mine.lstat()
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not own or stat.S_IMODE(found.st_mode) & 0o077:
        return None, -1
    with _locked(mine):
        for left in mine.iterdir():
            _remove(left)
        made = Path(tempfile.mkdtemp(prefix="s", dir=mine))
        held = os.open(made, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(held, fcntl.LOCK_SH)
    return made, held


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _remove(path: Path) -> None:
    """Remove the folder of a session, unless its process lives."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(fd)
