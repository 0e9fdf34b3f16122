"""Retention: what no reader needs goes from the copy of the index, then from the topics.

The index of a partition is cut right before a snapshot that counts; the data before the first record that any
entry from there on names, and a segment later than that: tasks may have written data of an epoch
that is not published yet.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from millstream.journal.base import Trimmed
from millstream.journal.kinds.files import retention
from millstream.journal.kinds.files.description import describe
from millstream.journal.kinds.files.layout import segment_positions
from millstream.journal.kinds.kafka.following import Topics
from millstream.journal.kinds.kafka.local import CACHE, addresses, data_bytes, snapshots
from millstream.journal.kinds.kafka.reader import KafkaReader
from millstream.journal.kinds.kafka.wire import Spot, delete_before


def trim(
    topics: Topics,
    *,
    keep_for: timedelta | None = None,
    keep_bytes: int | None = None,
    look_back: timedelta = timedelta(0),
) -> Trimmed:
    """Remove what no reader needs and what need not be kept, and return how much that was."""
    before = {p: lowest_offsets(topics.folder(p)) for p in range(describe(topics.path).partitions)}
    trimmed = retention.trim(
        topics.path,
        keep_for=keep_for,
        keep_bytes=keep_bytes,
        look_back=look_back,
        disk=CACHE,
        reader=lambda _: KafkaReader(topics),
        size_of=data_bytes,
    )
    if trimmed.segments:
        _delete(topics, before)
    return trimmed


def trim_to(topics: Topics, partition: int, position: int) -> Trimmed:
    """Remove what lies before a position of a partition, unless a reader needs it."""
    before = {partition: lowest_offsets(topics.folder(partition))}
    trimmed = retention.trim_to(topics.path, partition, position, disk=CACHE, size_of=data_bytes)
    if trimmed.segments:
        _delete(topics, before)
    return trimmed


def lowest_offsets(folder: Path) -> dict[int, int | None]:
    """Return the lowest offset of data that each segment names, by its first position."""
    found: dict[int, int | None] = {}
    for first in segment_positions(folder):
        offsets = [place.offset for one in addresses(folder, first) for place in one.places]
        found[first] = min(offsets, default=None)
    return found


def _delete(topics: Topics, before: dict[int, dict[int, int | None]]) -> None:
    offsets: dict[Spot, int] = {}
    for partition, lowest in before.items():
        folder = topics.folder(partition)
        begin = min(segment_positions(folder), default=0)
        index, data = cut_at(begin, snapshots(folder), lowest)
        if index is not None:
            offsets[topics.index(partition)] = index
        if data is not None:
            offsets[topics.data(partition)] = data
    if offsets:
        delete_before(topics.connection, offsets)


def cut_at(
    begin: int, snapshots: list[tuple[int, int]], lowest: dict[int, int | None]
) -> tuple[int | None, int | None]:
    """Return before which offsets index and data are deleted, if nobody needs what is before `begin`.

    Args:
        begin: The first position that is still needed.
        snapshots: Offsets and positions of those that count.
        lowest: The lowest offset of data that each segment names, by its first position.

    Example:
        >>> cut_at(20, [(9, 10), (19, 20), (29, 30)], {0: 0, 10: 10, 20: 20})
        (19, 10)
    """
    cuts = [(offset, position) for offset, position in snapshots if position <= begin]
    if not cuts:
        return None, None
    index, position = max(cuts)
    firsts = sorted(lowest)
    kept = [number for number, first in enumerate(firsts) if first >= position]
    held_back = max(0, (kept[0] if kept else len(firsts) - 1) - 1)
    needed = [at for first in firsts[held_back:] if (at := lowest[first]) is not None]
    return index, min(needed, default=None)
