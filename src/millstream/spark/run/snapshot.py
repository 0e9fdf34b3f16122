"""What a file or a folder holds, as a short text to compare."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

#: Static tables above this size are not read to tell whether they changed.
LARGE_BYTES: Final = 64 << 20


def snapshot(path: Path) -> str:
    """Return a text that changes with the content of a static table."""
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    total = hashlib.sha256()
    for file in files:
        status = file.stat()
        total.update(f"{file.relative_to(path.parent)} {status.st_size}\n".encode())
        # A large file is known by when it was written: reading it at every start would take too
        # long.
        total.update(
            file.read_bytes() if status.st_size < LARGE_BYTES else str(status.st_mtime_ns).encode()
        )
    return total.hexdigest()
