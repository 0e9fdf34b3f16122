"""What a device has on its disk: a snapshot of its state, and a log of what changed since.

    <n>.snapshot    magic, checksum, the state
    <n>.log         magic, mark, checksum; then for each record: mark, length, checksum, the record,
                    and after it a note that it is synced: mark, 0, a number that no record has

A record is synced when `append` returns: only then may anything that it speaks of leave the device.
When the log is over its limit, the next pair begins: its empty log, then its snapshot, then the old
pair is removed. The pair with the highest snapshot counts, so a crash at any point leaves the old
state or the new one.

One record is one write and one sync, so only the last one can be torn. A bad record with a good one,
or a note, after it was once synced: that is rot, and nothing is guessed. The note itself is not
synced, which would take as long again: if the power fails right after a record, and the record rots
too, it is taken for a torn one. The mark is random for every log, so that the search for what comes
after is not misled by what records contain.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.errors import AlreadyRunning, StateDamaged, StateNotWritten
from millstream.storage import Claim, Folder
from millstream.storage.disk import REAL, Disk, DiskFile

_SNAPSHOT: Final = b"MSWATCH1"
_LOG: Final = b"MSWLOG01"
_MARK: Final = 8
_HEAD: Final = struct.Struct("<8s8sI")
_SUM: Final = struct.Struct("<8sI")
_RECORD: Final = struct.Struct("<8sII")
_SYNCED: Final = zlib.crc32(b"synced")
_EMPTY: Final = "move the folder away to start empty: the peers send what they know"


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a folder holds: the snapshot, the records after it, how many bytes of a torn one."""

    snapshot: bytes | None = None
    records: tuple[bytes, ...] = ()
    torn: int = 0


class Store:
    """The files of one device in a folder of its own, which one process uses at a time.

    Raises:
        AlreadyRunning: Another process uses the folder.
    """

    def __init__(self, folder: Path, *, limit: int, disk: Disk = REAL) -> None:
        self._folder, self._limit, self._disk = folder, limit, disk
        self._storage = Folder(folder, disk)
        self._number = 0
        self._log: DiskFile | None = None
        self._mark = b""
        claim = self._storage.claim("running")
        if claim is None:
            holder = (self._storage.read("running") or b"").decode(errors="replace")
            msg = f'the state in "{folder}" is in use by process {holder or "?"}'
            raise AlreadyRunning(msg, hint="stop it first, or give this watcher another folder")
        self._claim: Claim = claim

    def recover(self) -> Recovered:
        """Return what the folder holds.

        Raises:
            StateDamaged: A file is damaged at a place that was once synced.
        """
        numbers = sorted(_numbers(self._storage, ".snapshot"), reverse=True)
        if not numbers:
            return Recovered()
        self._number = numbers[0]
        snapshot, log = (self._folder / f"{numbers[0]}.{end}" for end in ("snapshot", "log"))
        state = _snapshot(snapshot)
        records, torn = _records(log)
        return Recovered(state, tuple(records), torn)

    def begin(self, snapshot: bytes) -> None:
        """Store a state, with an empty log after it, and remove what was before.

        Raises:
            StateNotWritten: The disk refused; the state before is still there.
        """
        number = self._number + 1
        try:
            self._close_log()
            self._log = self._new_log(self._folder / f"{number}.log")
            checked = _SUM.pack(_SNAPSHOT, zlib.crc32(snapshot))
            self._storage.put(f"{number}.snapshot", checked + snapshot)
        except OSError as error:
            self._close_log()
            raise self._not_written(error) from error
        self._number = number
        for end in (".snapshot", ".log"):
            for old in _numbers(self._storage, end) - {number}:
                self._storage.delete(f"{old}{end}")

    def append(self, record: bytes) -> None:
        """Add a record, which is on disk when this returns.

        Raises:
            StateNotWritten: The disk refused; the record may or may not be there, and the next
                thing to do is `begin`.
        """
        if self._log is None:
            raise StateNotWritten("the log is closed", hint="begin with a snapshot")
        head = _RECORD.pack(self._mark, len(record), zlib.crc32(record, len(record)))
        try:
            self._log.append([head, record])
            self._log.sync()
        except OSError as error:
            self._close_log()
            raise self._not_written(error) from error
        try:
            self._log.append([_RECORD.pack(self._mark, 0, _SYNCED)])
        except OSError:
            self._close_log()  # half a note may be there: the next thing is a snapshot

    @property
    def full(self) -> bool:
        """Whether the next thing to do is `begin`: the log is over its limit, or has failed."""
        return self._log is None or self._log.size() > self._limit

    @property
    def log_bytes(self) -> int:
        return 0 if self._log is None else self._log.size()

    def close(self) -> None:
        self._close_log()
        self._claim.release()

    def _new_log(self, path: Path) -> DiskFile:
        self._mark = os.urandom(_MARK)
        file = self._disk.open(path)
        file.truncate(0)  # of a crash before its snapshot was written
        head = _LOG + self._mark
        file.append([_HEAD.pack(_LOG, self._mark, zlib.crc32(head))])
        file.sync()
        self._disk.sync_folder(self._folder)
        return file

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _not_written(self, error: OSError) -> StateNotWritten:
        msg = f'the state could not be written to "{self._folder}": {error.strerror or error}'
        return StateNotWritten(msg, hint="make room, or repair the disk; it is tried again")


def _numbers(storage: Folder, end: str) -> set[int]:
    found = (name.removesuffix(end) for name in storage.list() if name.endswith(end))
    return {int(name) for name in found if name.isdigit()}


def _snapshot(file: Path) -> bytes:
    content = file.read_bytes()
    if len(content) < _SUM.size:
        raise _damaged(file, len(content))
    magic, checksum = _SUM.unpack_from(content)
    state = content[_SUM.size :]
    if magic != _SNAPSHOT or zlib.crc32(state) != checksum:
        raise _damaged(file, 0)
    return state


def _records(file: Path) -> tuple[list[bytes], int]:
    """Return the records of a log, and how many bytes of a torn one are at its end."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise StateDamaged(f'"{file}" is missing', hint=_EMPTY) from None
    if len(content) < _HEAD.size:
        raise _damaged(file, len(content))
    magic, mark, checksum = _HEAD.unpack_from(content)
    if magic != _LOG or zlib.crc32(content[: len(magic) + _MARK]) != checksum:
        raise _damaged(file, 0)
    records, at = [], _HEAD.size
    while at < len(content):
        record = _record(content, mark, at)
        # A note may be lost together with all of the record after it, or without that.
        if _noted(content, mark, at) or (
            record is None and _record(content, mark, at + _RECORD.size) is not None
        ):
            at += _RECORD.size
            continue
        if record is None:
            if _good_after(content, mark, at):
                raise _damaged(file, at)
            break
        records.append(record)
        at += _RECORD.size + len(record)
    return records, len(content) - at


def _record(content: bytes, mark: bytes, at: int) -> bytes | None:
    if len(content) - at < _RECORD.size:
        return None
    found, length, checksum = _RECORD.unpack_from(content, at)
    record = content[at + _RECORD.size : at + _RECORD.size + length]
    # The length begins the checksum: one that is wrong is not taken for another record's.
    good = found == mark and len(record) == length and zlib.crc32(record, length) == checksum
    return record if good else None


def _noted(content: bytes, mark: bytes, at: int) -> bool:
    """Tell whether there is a note that all before it is synced."""
    return content[at : at + _RECORD.size] == _RECORD.pack(mark, 0, _SYNCED)


def _good_after(content: bytes, mark: bytes, at: int) -> bool:
    while (at := content.find(mark, at + 1)) >= 0:
        if _record(content, mark, at) is not None or _noted(content, mark, at):
            return True
    return False


def _damaged(file: Path, at: int) -> StateDamaged:
    return StateDamaged(f'"{file}" is damaged at byte {at}', hint=_EMPTY)
