"""Whose turn it is under a sender's name: one client at a time, the newest one.

A named client takes its name over before it sends, with an incarnation above all that an inbox has
seen. Rows of an older incarnation are refused from then on, so two clients under one name cannot
both hear that their rows are stored. A restart is a new incarnation too, and continues.

    below the inbox's    refused: a newer client has the name
    the same             taken
    above it             taken; the name is this client's now
    none                 a client of an earlier version, or HTTP: it takes the name over with the
                         first row that is new

An incarnation is a count and, in its low bits, a random part, so that two clients that count alike
differ; without a random part it is that of those who have none. The file is synced before
anything of a new incarnation is taken:

    DIR/p0000/claims     a line for each claim: checksum, sender, incarnation, the key that has it
"""

from __future__ import annotations

import json
import logging
import secrets
import zlib
from collections.abc import Collection
from enum import Enum
from pathlib import Path
from typing import Final

from millstream.errors import SenderReplaced
from millstream.storage.disk import REAL, Disk, write_whole

_log = logging.getLogger(__name__)
_BITS: Final = 24
_FURTHEST: Final = 1 << 20
"""How many claims an inbox may have missed; more are a peer that wants to use the numbers up."""


class Turn(Enum):
    """What an inbox makes of a request's incarnation."""

    ITS_OWN = "its own"
    TAKES_OVER = "takes over"
    REPLACED = "replaced"


def above(incarnation: int, chance: int | None = None) -> int:
    """Return an incarnation above one, different from all that others choose.

    >>> above(0, 5) == (1 << 24) + 5, above((1 << 24) + 77, 5) == (2 << 24) + 5
    (True, True)
    """
    low = 1 + secrets.randbelow((1 << _BITS) - 1) if chance is None else chance
    return ((incarnation >> _BITS) + 1 << _BITS) + low


def again(mine: int, found: Collection[int], chance: int | None = None) -> int | None:
    """Return the incarnation to ask with next; None if those that answered let us have the name.

    It is above all that we asked with before: an inbox may have taken one whose answer was lost, and
    would refuse us for it.

    >>> again(above(0, 5), [above(0, 5)]), again(above(0, 5), [], 3) == above(above(0, 5), 3)
    (None, True)
    """
    highest = max(found, default=0)
    return None if highest == mine else above(max(highest, mine), chance)


def turn(current: int, asked: int) -> Turn:
    """Return whose turn it is while a name's incarnation is `current`, and `asked` comes."""
    if asked == current or (asked == 0 and current % (1 << _BITS) == 0):
        return Turn.ITS_OWN
    if asked == 0:
        return Turn.TAKES_OVER
    near = (asked >> _BITS) - (current >> _BITS) <= _FURTHEST
    return Turn.TAKES_OVER if asked > current and near else Turn.REPLACED


class Claims:
    """The incarnations of a partition's senders. Its inbox's guard is held."""

    def __init__(self, file: Path, *, disk: Disk = REAL) -> None:
        self._file, self._disk = file, disk
        self._known, self._keys = _read(file)
        self._lines = file.read_bytes().count(b"\n") if file.exists() else 0

    def current(self, sender: str) -> int:
        """Return a sender's incarnation; 0: it never had one."""
        return self._known.get(sender, 0)

    def turn(self, sender: str, asked: int) -> Turn:
        """Return what a request of this incarnation may do.

        Raises:
            SenderReplaced: Another client has the name.
        """
        found = turn(self.current(sender), asked)
        if found is Turn.REPLACED:
            hint = "give each program that runs at the same time a name of its own"
            raise SenderReplaced(f'another client sends as "{sender}" now', hint=hint)
        return found

    def take(self, sender: str, asked: int) -> int:
        """Give a name to an incarnation, if it may have it; return whose it is, durably."""
        current = self.current(sender)
        if turn(current, asked) is Turn.TAKES_OVER:
            current = asked or above(current, 0)
            self._write(sender, current, self.key(sender))
            self._known[sender] = current
        return current

    def key(self, sender: str) -> str | None:
        """Return the key that has a sender's name because it was the first to use it."""
        return self._keys.get(sender)

    def bind(self, sender: str, key: str) -> None:
        """Give a sender's name to a key, durably."""
        self._write(sender, self.current(sender), key)
        self._keys[sender] = key

    def _write(self, sender: str, incarnation: int, key: str | None) -> None:
        names = self._known.keys() | self._keys.keys() | {sender}
        if self._lines > 64 and self._lines > 2 * len(names):
            lines = {one: _line(one, self.current(one), self.key(one)) for one in names}
            lines[sender] = _line(sender, incarnation, key)
            write_whole(self._disk, self._file, b"".join(lines.values()))
            self._lines = len(lines)
            return
        fresh = not self._file.exists()
        file = self._disk.open(self._file)
        try:
            # What a crash has left of a line must not spoil this one.
            torn = file.size() > 0 and not self._file.read_bytes().endswith(b"\n")
            file.append([b"\n" if torn else b"", _line(sender, incarnation, key)])
            file.sync()
        finally:
            file.close()
        if fresh:
            self._disk.sync_folder(self._file.parent)
        self._lines += 1


def _line(sender: str, incarnation: int, key: str | None) -> bytes:
    body = json.dumps([sender, incarnation, key]).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _read(file: Path) -> tuple[dict[str, int], dict[str, str]]:
    """Return the incarnations of senders, and their keys."""
    known: dict[str, int] = {}
    keys: dict[str, str] = {}
    for line in file.read_bytes().split(b"\n") if file.exists() else ():
        checksum, _, body = line.partition(b" ")
        if line and checksum != b"%08x" % zlib.crc32(body):
            _log.warning("a line of %s is damaged, and left out", file)
        elif line:
            sender, incarnation, key = [*json.loads(body), None][:3]
            known[sender] = max(known.get(sender, 0), incarnation)
            if key is not None:
                keys[sender] = key
    return known, keys
