"""A journal in Kafka in numbers, its damages, and the copy of its index made again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from millstream.errors import (
    BrokerAway,
    CorruptBatch,
    CorruptIndex,
    CorruptSenders,
    PositionTrimmed,
)
from millstream.journal.base import Kind
from millstream.journal.health import Damage, Repaired, Summary, Verification
from millstream.journal.kinds.files import summary as files
from millstream.journal.kinds.files.layout import index_file, segment_positions
from millstream.journal.kinds.files.reader import PartitionReader
from millstream.journal.kinds.kafka import letters
from millstream.journal.kinds.kafka.following import Follower, Topics
from millstream.journal.kinds.kafka.local import data_bytes, wipe
from millstream.journal.kinds.kafka.reader import KafkaReader
from millstream.storage.lock import FileClaim, held

_PATIENCE_S: Final = 3.0


def summary(topics: Topics, partitions: int) -> Summary:
    """Return the journal in numbers; as this host knows it, if no broker answers.

    Its bytes are those in Kafka.
    """
    letters.follow(topics)
    with suppress(BrokerAway):  # pages and commands show the journals of all jobs
        for partition in range(partitions):
            Follower(topics, partition).follow(_PATIENCE_S)
    found = files.summary(topics.path)
    return replace(
        found,
        place=f'topic "{topics.topic}" at {topics.connection.servers}',
        partitions=tuple(
            replace(part, bytes=stored_bytes(topics, part.partition)) for part in found.partitions
        ),
    )


def stored_bytes(topics: Topics, partition: int) -> int:
    """Return how many bytes of data a partition has."""
    folder = topics.folder(partition)
    return sum(data_bytes(folder, first) for first in segment_positions(folder))


def verify(topics: Topics, progress: Callable[[int], None]) -> Verification:
    """Fetch all data and compare it with its checksums."""
    reader = KafkaReader(topics)
    parts = [reader.partition(number) for number in range(reader.description.partitions)]
    damages: list[Damage] = []
    entries = rows = size = lost = 0
    for part in parts:
        begin, end = part.begin, part.end
        stored = stored_bytes(topics, part.partition)
        try:
            for entry in part.entries(begin, end):
                entries, rows = entries + 1, rows + entry.rows
                lost += entry.count if entry.kind is Kind.LOST else 0
                damages += _damage(part, entry.position, entry.stop)
        except CorruptIndex as error:
            folder = topics.folder(part.partition)
            file = index_file(folder, min(segment_positions(folder), default=0))
            damages.append(Damage(part.partition, file, error.offset, -1, 0, error.message))
        size += stored
        progress(stored)
    return Verification(tuple(damages), entries, rows, size, lost)


def _damage(part: PartitionReader, start: int, stop: int) -> list[Damage]:
    try:
        for _ in part.read(start, stop):
            pass
    except (CorruptBatch, PositionTrimmed) as error:
        entry = next(part.entries(start, stop))
        fact = error.message
        return [Damage(part.partition, entry.file, entry.offset, start, stop - start, fact)]
    return []


def repair(topics: Topics, partitions: int) -> list[Repaired]:
    """Make the copies of the index again that are damaged; what Kafka has is left as it is."""
    return [one for number in range(partitions) if (one := _repaired(topics, number)) is not None]


def _repaired(topics: Topics, partition: int) -> Repaired | None:
    folder = topics.folder(partition)
    fact = _copy_damage(topics, partition)
    if fact is None or held(folder / "lock"):
        return None
    claim = FileClaim.take(folder / "copy.lock", 10.0)
    if claim is None:
        return None
    try:
        wipe(folder)
    finally:
        claim.release()
    Follower(topics, partition).follow()
    return Repaired(partition, folder, -1, 0, f"{fact}; the copy of the index was made again", None)


def _copy_damage(topics: Topics, partition: int) -> str | None:
    try:
        part = KafkaReader(topics).partition(partition)
        for _ in part.entries(part.begin, part.end):
            pass
    except (CorruptIndex, CorruptSenders) as error:
        return error.message
    return None
