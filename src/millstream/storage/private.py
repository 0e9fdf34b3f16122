"""What we keep is for the user that runs us: folders 0700, files 0600.

What sinks write is the user's: it follows the umask, so that others can read results.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

FOLDER: Final = 0o700
FILE: Final = 0o600
#: Others may pass through such a folder, to what is named to them; they cannot list it.
PASSAGE: Final = 0o711


def make_private(folder: Path, mode: int = FOLDER) -> None:
    """Make a folder, or tighten one that an earlier version has made with wider rights.

    A folder of another user is left as it is.
    """
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    tighten(folder, mode)


def tighten(folder: Path, mode: int = FOLDER) -> None:
    """Take from a folder of ours the rights that go beyond `mode`, if it is there."""
    try:
        found = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    rights = stat.S_IMODE(found.st_mode)
    if found.st_uid == os.geteuid() and rights & ~mode & 0o777:
        folder.chmod(rights & mode)


def owner_only(path: str, flags: int) -> int:
    """Open a file, made for its owner alone: an `opener` of `open`."""
    return os.open(path, flags, FILE)
