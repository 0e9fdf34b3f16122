"""Which senders have ended in a partition: a line each in `DIR/p0000/ends`, with a checksum."""

from __future__ import annotations

from pathlib import Path

from millstream.journal.kinds.files.layout import partition_folder
from millstream.journal.kinds.files.lines import checked_line, parse_lines, sound_end, sound_values
from millstream.storage.disk import Disk


def ends_file(folder: Path) -> Path:
    return folder / "ends"


def read_ends(path: Path, partition: int, disk: Disk) -> list[str]:
    """Return the senders that have ended."""
    file = ends_file(partition_folder(path, partition))
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        return []
    lines = parse_lines(raw)
    if sound_end(lines) < len(raw):  # torn by a crash: what is written after it would be unsound
        opened = disk.open(file)
        opened.truncate(sound_end(lines))
        opened.close()
    return [str(value) for value in sound_values(lines)]


def add_end(path: Path, partition: int, sender: str, disk: Disk) -> None:
    """Note that a sender has ended; it is durable when this returns."""
    file = ends_file(partition_folder(path, partition))
    opened = disk.open(file)
    try:
        opened.append([checked_line(sender)])
        opened.sync()
    finally:
        opened.close()
    disk.sync_folder(file.parent)
