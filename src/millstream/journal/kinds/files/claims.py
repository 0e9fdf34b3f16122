"""Who has which sender's name in a partition: a line for each claim in `DIR/p0000/claims`.

A line has a checksum, the sender, its incarnation and the key that has the name. The last one of a
sender counts; of incarnations, the highest. The file is written again when most lines are outdated.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from millstream.journal.base import Claim
from millstream.journal.kinds.files.layout import partition_folder
from millstream.storage.disk import REAL, Disk, write_whole

_log = logging.getLogger(__name__)


class ClaimsFile:
    """The claims of a partition (`kind.ClaimLog` says what it promises)."""

    def __init__(self, path: Path, partition: int, disk: Disk = REAL) -> None:
        self._file, self._disk = partition_folder(path, partition) / "claims", disk
        raw = self._file.read_bytes() if self._file.exists() else b""
        self._known, self._lines = _parse(raw, self._file), raw.count(b"\n")

    @property
    def known(self) -> Mapping[str, Claim]:
        return self._known

    def put(self, sender: str, claim: Claim) -> None:
        changed = {**self._known, sender: claim}
        if self._lines > 64 and self._lines > 2 * len(changed):
            whole = b"".join(_line(*item) for item in changed.items())
            write_whole(self._disk, self._file, whole)
            self._lines = len(changed)
        else:
            self._append(_line(sender, claim))
        self._known = changed

    def _append(self, line: bytes) -> None:
        fresh = not self._file.exists()
        file = self._disk.open(self._file)
        try:
            # What a crash has left of a line must not spoil this one.
            torn = file.size() > 0 and not self._file.read_bytes().endswith(b"\n")
            file.append([b"\n" if torn else b"", line])
            file.sync()
        finally:
            file.close()
        if fresh:
            self._disk.sync_folder(self._file.parent)
        self._lines += 1


def _line(sender: str, claim: Claim) -> bytes:
    body = json.dumps([sender, claim.incarnation, claim.key]).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _parse(raw: bytes, file: Path) -> dict[str, Claim]:
    known: dict[str, Claim] = {}
    for line in raw.split(b"\n"):
        checksum, _, body = line.partition(b" ")
        if line and checksum != b"%08x" % zlib.crc32(body):
            _log.warning("a line of %s is damaged, and left out", file)
        elif line:
            sender, incarnation, key = [*json.loads(body), None][:3]
            before = known.get(sender, Claim())
            highest = max(before.incarnation, incarnation)
            known[sender] = replace(before, incarnation=highest, key=key or before.key)
    return known
