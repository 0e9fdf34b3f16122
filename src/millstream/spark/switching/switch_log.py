"""What is durable about a job's switches: the record that decides, and the history.

<flow>/switch/record     where the job stands; replaced whole
<flow>/switch/history    every step with its time, a line of JSON each
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from millstream.joblog import JobLog
from millstream.storage import Folder, Storage
from millstream.switch.machine import Entry
from millstream.switch.record import Record, decode, encode

_RECORD: Final = "record"
_HISTORY: Final = "history"


class SwitchLog:
    """The files of one job; only its driver writes them. If the job has a log, that decides."""

    def __init__(self, folder: Path, log: Callable[[], JobLog | None] = lambda: None) -> None:
        self._storage: Storage = Folder(folder)
        self._log = log

    def read(self) -> Record | None:
        """Return the record; None if there never was a switch.

        Raises:
            ControlBroken: It is damaged.
        """
        log, found = self._log(), self._storage.read(_RECORD)
        if log is not None and log.state.switch is not None:
            found = log.state.switch.encode()
        return None if found is None else decode(found)

    def write(self, record: Record) -> None:
        """Replace the last record; durable when this returns.

        Raises:
            TakenOver: Another driver has taken the job.
        """
        if (log := self._log()) is not None:
            log.note_switch(encode(record).decode())
        self._storage.put(_RECORD, encode(record))

    def note(self, entry: Entry) -> None:
        """Add a line to the history; durable when this returns."""
        known = self._storage.read(_HISTORY) or b""
        if known and not known.endswith(
            b"\n"
        ):  # torn by a crash, when lines were appended in place
            known += b"\n"
        self._storage.put(_HISTORY, known + msgspec.json.encode(entry) + b"\n")

    def history(self) -> tuple[Entry, ...]:
        """Return the history, oldest first."""
        return tuple(self._entries())

    def _entries(self) -> Iterator[Entry]:
        for line in (self._storage.read(_HISTORY) or b"").splitlines():
            try:
                yield msgspec.json.decode(line, type=Entry)
            except msgspec.MsgspecError:
                continue
