"""What lies in the user's cache folder, for how long, and who may remove it.

    ~/.cache/millstream/spark-...        Spark's folder as links, archives of its classes (spark/session/home.py)
    ~/.cache/millstream/kernel-...       compiled kernels (patterns/kernel_cache.py)

Each environment, release and Java has its own, up to 180 MB each. Whoever uses one holds it, and
whoever writes a new one removes those that nobody has used for two weeks. A process that holds one
keeps it until the process ends, however long that takes: Java opens some of Spark's files late.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

#: How long things are kept that nobody uses.
KEPT_S: Final = 14 * 86_400.0
#: Things that were held less than this ago need not be marked again.
_MARKED_S: Final = 86_400.0
#: How names of things begin that are removed, and of what processes leave that are killed as they
#: write (`tmp` up to version 0.2). What tests and tools have fetched stays.
_OURS: Final = ("spark-", "kernel-", ".spark-", ".removed-", "tmp")

_held: dict[Path, int] = {}


def hold(path: Path) -> None:
    """Mark a file or folder as used now, and keep it from being removed while this process lives.

    What does not exist, or may not be opened, is not held. Look at what is in it after this.
    """
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        before, _held[path] = _held.get(path), fd
        if before is not None:
            os.close(before)  # perhaps of one that has been replaced
        fcntl.flock(fd, fcntl.LOCK_SH)
        if os.fstat(fd).st_mtime < time.time() - _MARKED_S:
            os.utime(fd)


def expired(used_at: float, now: float) -> bool:
    """Tell whether something that was last used at `used_at` may go."""
    return used_at < now - KEPT_S


def tidy(folder: Path, now: float | None = None) -> list[Path]:
    """Remove from `folder` what of ours was not used for long and is not held; return what it was."""
    now = time.time() if now is None else now
    try:
        found = [path for path in folder.iterdir() if path.name.startswith(_OURS)]
    except OSError:
        return []
    return [path for path in found if not _part(path) and _removed(path, now)]


def _part(path: Path) -> bool:
    """Tell whether a file goes with another one: the size of an archive with the archive."""
    return path.suffix == ".json" and path.with_suffix(".jsa").exists()


def _removed(path: Path, now: float) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    # Under another name first: others find it whole or not at all.
    gone = path.with_name(f".removed-{os.getpid()}-{path.name}")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not expired(os.fstat(fd).st_mtime, now):
            return False
        path.rename(gone)
    except OSError:  # someone holds it, or removes it as well
        return False
    finally:
        os.close(fd)
    if path.suffix == ".jsa":
        path.with_suffix(".json").unlink(missing_ok=True)
    _remove(gone)
    return True


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
