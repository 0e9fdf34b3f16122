"""Which senders have ended in a partition: a line each in `DIR/p0000/ends`, with a checksum."""

from __future__ import annotations

from pathlib import Path

from millstream.journal.kinds.files.layout import partition_folder
from millstream.journal.kinds.files.senders import checked_line, checked_lines
from millstream.storage.disk import Disk


def _file(path: Path, partition: int) -> Path:
    return partition_folder(path, partition) / "ends"


def read_ends(path: Path, partition: int, disk: Disk) -> list[str]:
    """Return the senders that have ended."""
    file = _file(path, partition)
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        return []
    values, used = checked_lines(raw)
    if used < len(raw):  # torn by a crash: what is written after it would never be read
        opened = disk.open(file)
        opened.truncate(used)
        opened.close()
    return [str(value) for value in values]


def add_end(path: Path, partition: int, sender: str, disk: Disk) -> None:
    """Note that a sender has ended; it is durable when this returns."""
    file = _file(path, partition)
    opened = disk.open(file)
    try:
        opened.append([checked_line(sender)])
        opened.sync()
    finally:
        opened.close()
    disk.sync_folder(file.parent)
