"""What is durable about a job's switches: the record that decides, and the history.

<flow>/switch/record     where the job stands; replaced whole
<flow>/switch/history    every step with its time, a line of JSON each
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from millstream.journal.disk import REAL, make_folder, replace
from millstream.switch.machine import Entry
from millstream.switch.record import Record, decode, encode

_RECORD: Final = "record"
_HISTORY: Final = "history"


class SwitchLog:
    """The files of one job; only its driver writes them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self) -> Record | None:
        """Return the record; None if there never was a switch.

        Raises:
            ControlBroken: It is damaged.
        """
        try:
            return decode((self._folder / _RECORD).read_bytes())
        except FileNotFoundError:
            return None

    def write(self, record: Record) -> None:
        """Put a record in the place of the last one; durable when this returns."""
        make_folder(REAL, self._folder)
        replace(REAL, self._folder / _RECORD, encode(record))

    def note(self, entry: Entry) -> None:
        """Add a line to the history."""
        make_folder(REAL, self._folder)
        with (self._folder / _HISTORY).open("ab") as file:
            # What a crash has left of a line stays alone.
            file.write(b"\n" * self._torn() + msgspec.json.encode(entry) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _torn(self) -> bool:
        with (self._folder / _HISTORY).open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            return file.read(1) not in (b"", b"\n")

    def history(self) -> tuple[Entry, ...]:
        """Return the history, oldest first."""
        return tuple(self._entries())

    def _entries(self) -> Iterator[Entry]:
        try:
            lines = (self._folder / _HISTORY).read_bytes().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                yield msgspec.json.decode(line, type=Entry)
            except msgspec.MsgspecError:
                continue
