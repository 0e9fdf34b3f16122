"""Where the compiled kernel is kept, and whether it is there: compiling it takes some 20 seconds.

It is compiled once for a user, a machine and a release, by whoever needs it first: before the first
match of a program, while Spark starts for a flow, or in the background when an engine starts.
Nothing here loads the compiler.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from millstream.storage import caches

#: What is shown to someone who waits.
NOTE: Final = "compiling the pattern kernel, once per machine (about 20 s)"
_KERNEL: Final = Path(__file__).parent / "kernel"


@cache
def digest(folder: Path = _KERNEL) -> str:
    """Return a text that changes with the kernel: functions of one file are part of another's."""
    sources = sorted(folder.glob("*.py"))
    content = b"".join(source.name.encode() + source.read_bytes() for source in sources)
    return hashlib.sha256(content).hexdigest()[:12]


def folder(kernel: Path = _KERNEL) -> Path:
    """Return the folder of compiled kernels: in numba's cache folder if one is set, else in the user's.

    It has a folder of its own for its content: numba alone looks at the times of files, and compiles
    again wherever these are others.

    Raises:
        RuntimeError: The user has no home.
    """
    given = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    caches = Path(given) if given else Path.home() / ".cache"
    return caches / "millstream" / f"kernel-{digest(kernel)}"


def ready() -> bool:
    """Tell whether the kernel need not be compiled, or cannot be kept anyway."""
    try:
        return _mark().exists()
    except (PackageNotFoundError, RuntimeError):
        return True


def mark_ready() -> None:
    """Remember that the kernel has been compiled, and remove kernels that nobody has used for long."""
    try:
        mark = _mark()
        mark.parent.mkdir(parents=True, exist_ok=True)
        caches.hold(mark.parent)
        mark.touch()
        caches.tidy(mark.parent.parent)
    except (PackageNotFoundError, RuntimeError, OSError):
        return  # then it is compiled again


def _mark() -> Path:
    # Another processor needs other code, and homes may be shared.
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    return folder() / f"{platform.node()}-{python}-numba{version('numba')}-{digest()}.ready"


def begin() -> subprocess.Popen[bytes] | None:
    """Compile the kernel in a process beside this one; None if it is ready."""
    if ready():
        return None
    command = [sys.executable, "-m", "millstream.patterns.warm"]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
