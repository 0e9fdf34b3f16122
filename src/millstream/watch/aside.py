"""What was put aside: rows that are no events, and complex events that an output refuses for ever.

    <data>/aside/<name>.jsonl      a line for each: when, why, and the record

A file that is full takes no more; what comes then is only counted. Move it away to make room.
"""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.clock import iso
from millstream.storage.disk import REAL, make_folder

#: How large a file may become: whoever sends rows that are no events must not fill the disk.
MOST_BYTES: Final = 64 << 20


class Aside:
    """A file of records that were put aside; durable when `put` returns."""

    def __init__(self, folder: Path | None, name: str, *, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        file = re.sub(r"[^\w.-]+", "_", name) + ".jsonl"
        self.path = None if folder is None else folder / file
        self._guard = threading.Lock()
        self.count = 0

    def put(self, reason: str, record: bytes, **more: Any) -> None:
        """Keep a record with the reason; without a folder it is only counted."""
        self.count += 1
        if self.path is None:
            return
        text = record.decode(errors="replace")
        line = {"at": iso(time.time()), "reason": reason, **more, "record": text}
        with self._guard:
            make_folder(REAL, self.path.parent)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                if os.fstat(descriptor).st_size < self._most:
                    os.write(descriptor, msgspec.json.encode(line) + b"\n")
                    os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
