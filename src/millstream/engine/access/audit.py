"""The audit log of an engine: who did what, from where, and how it ended; also who was refused.

    <data>/audit/audit.jsonl        a line of JSON for each entry, appended, readable by the owner
    <data>/audit/audit.jsonl.1 ..   earlier ones, the newest first

Reading is not logged. An entry that is repeated within a minute is counted, and written once more
with the number of times: neither a producer nor somebody who tries tokens fills the log.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from millstream.clock import iso

NOBODY: Final = "nobody"
WINDOW_S: Final = 60.0
_MOST_OPEN: Final = 1_000
_FILE: Final = "audit.jsonl"
_log = logging.getLogger(__name__)


class AuditEntry(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"address": "from"}
):
    """Something that somebody did, or was refused."""

    #: ISO 8601 in UTC.
    at: str = ""
    #: The name of a token or a key; "nobody" without one that is known.
    who: str
    #: Where it came from: an IP address, or "data folder" for commands that change the folder.
    address: str
    #: The name of the operation.
    what: str
    #: "done", "refused" or "failed".
    outcome: str
    #: The request: its method and path.
    request: str = ""
    job: str | None = None
    reason: str | None = None
    #: How often it happened, in the minute up to `at`.
    times: int = 1


@dataclass(slots=True)
class Repeats:
    """Counts entries that come again within a window. Time is an argument."""

    window_s: float = WINDOW_S
    most: int = _MOST_OPEN
    _open: dict[AuditEntry, tuple[float, float, int]] = field(default_factory=dict)

    def new(self, entry: AuditEntry, now: float) -> bool:
        """Count an entry; tell whether it is the first in its window."""
        since, _, times = self._open.get(entry, (now, now, -1))
        self._open[entry] = (since, now, times + 1)
        return times < 0

    def over(self, now: float) -> list[AuditEntry]:
        """Return what was repeated in windows that are over, each with its times, and forget it."""
        every = len(self._open) > self.most
        closed = [
            (entry, last, times)
            for entry, (since, last, times) in self._open.items()
            if every or not 0 <= now - since < self.window_s
        ]
        for entry, _, _ in closed:
            del self._open[entry]
        return [
            msgspec.structs.replace(entry, at=iso(last), times=times)
            for entry, last, times in closed
            if times
        ]


class AuditLog:
    """The audit log of a data folder. Any thread may write; one that fails does not stop the engine."""

    def __init__(
        self,
        folder: Path,
        *,
        most_bytes: int = 10 << 20,
        files: int = 10,
        window_s: float = WINDOW_S,
    ) -> None:
        self._file = folder / _FILE
        self._most_bytes = most_bytes
        self._files = files
        self._repeats = Repeats(window_s)
        self._guard = threading.Lock()

    def write(self, entry: AuditEntry, now: float) -> bool:
        """Write an entry, or count it if it is a repeated one; tell which."""
        with self._guard:
            lines = self._repeats.over(now)
            new = self._repeats.new(entry, now)
            if new:
                lines.append(msgspec.structs.replace(entry, at=iso(now)))
            self._append(lines)
        return new

    def catch_up(self, now: float) -> None:
        """Write what was repeated in minutes that are over."""
        with self._guard:
            self._append(self._repeats.over(now))

    def close(self) -> None:
        """Write what was repeated, whether its minute is over or not."""
        self.catch_up(math.inf)

    def _append(self, entries: list[AuditEntry]) -> None:
        if not entries:
            return
        text = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._rotate(len(text))
            opened = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(opened, text)
            finally:
                os.close(opened)
        except OSError as error:
            _log.error("the audit log cannot be written: %s: %s", error, text.decode())

    def _rotate(self, more: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self._file.stat().st_size + more <= self._most_bytes:
                return
            for number in range(self._files - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    _earlier(self._file, number - 1).replace(_earlier(self._file, number))


def _earlier(file: Path, number: int) -> Path:
    return file if number == 0 else file.with_name(f"{file.name}.{number}")


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """Which entries one wants to see: the newest, at most `limit`."""

    job: str | None = None
    who: str | None = None
    #: As ISO 8601 in UTC, "2026-03-08T12:00:00Z".
    since: str | None = None
    limit: int = 1_000

    def matches(self, entry: AuditEntry) -> bool:
        return (
            self.job in (None, entry.job)
            and self.who in (None, entry.who)
            and (self.since is None or entry.at.rstrip("Z") >= self.since.rstrip("Z"))
        )


def read(folder: Path, query: AuditQuery) -> list[AuditEntry]:
    """Return the newest entries that match, oldest first."""
    found = deque((one for one in _entries(folder) if query.matches(one)), maxlen=query.limit)
    return list(found)


def _entries(folder: Path) -> Iterator[AuditEntry]:
    decode = msgspec.json.Decoder(AuditEntry).decode
    numbers = (
        int(file.suffix[1:]) if file.name != _FILE else 0 for file in folder.glob(f"{_FILE}*")
    )
    for number in sorted(numbers, reverse=True):
        with (
            contextlib.suppress(FileNotFoundError),
            _earlier(folder / _FILE, number).open("rb") as lines,
        ):
            for line in lines:
                with contextlib.suppress(msgspec.MsgspecError):  # cut off by a crash
                    yield decode(line)
