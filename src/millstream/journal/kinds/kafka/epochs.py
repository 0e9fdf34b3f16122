"""Epochs of groups: tasks write their rows into the data topic, and the driver publishes the places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import xxhash

from millstream.errors import CorruptStaging
from millstream.journal.base import Description, Staged
from millstream.journal.kinds.files.description import describe
from millstream.journal.kinds.files.epochs import EpochLog
from millstream.journal.kinds.files.staging import PartitionOf, StagedFile, split_batches
from millstream.journal.kinds.files.writer import Writer
from millstream.journal.kinds.kafka.following import Topics
from millstream.journal.kinds.kafka.local import CACHE
from millstream.journal.kinds.kafka.records import Place, Stored, pack_places
from millstream.journal.kinds.kafka.topics import Limits
from millstream.journal.kinds.kafka.wire import appender, fetcher
from millstream.journal.kinds.kafka.writer import KafkaWriter, cut, placed

if TYPE_CHECKING:
    from typing_extensions import Buffer

_STAGED: Final = "kafka:"


class StagedRecords(StagedFile):
    """Gathers one partition's rows into large batches and writes them to the data topic."""

    def __init__(
        self, topics: Topics, limit: int, partition: int, description: Description
    ) -> None:
        self._topics, self._limit, self._places = topics, limit, list[Place]()
        super().__init__(Path(), partition, description, CACHE)

    def _open(self) -> None:
        """There is nothing to open."""

    def _put(self, message: pa.Buffer) -> None:
        pieces = cut(message, self._limit)
        spot = self._topics.data(self._partition)
        offsets = appender(self._topics.connection).append(spot, pieces)
        self._places += [placed(*one) for one in zip(pieces, offsets, strict=True)]

    def _close(self) -> str:
        return staged_name(self._places)

    def discard(self) -> None:
        """Leave what was written: nothing names it, and retention removes it."""


def stage(
    topics: Topics,
    limit: int,
    batches: Iterable[pa.RecordBatch],
    partition_of: PartitionOf | None = None,
) -> list[Staged]:
    """Write rows into the data topic, and return their places by partition."""
    description = describe(topics.path)
    found: dict[int, StagedRecords] = {}
    for partition, batch in split_batches(batches, description, partition_of):
        if partition not in found:
            found[partition] = StagedRecords(topics, limit, partition, description)
        found[partition].add(batch)
    return [found[partition].finish() for partition in sorted(found)]


def staged_name(places: Sequence[Place]) -> str:
    """Return places as the name of something staged.

    Example:
        >>> staged_name([Place(7, 100, 255)])
        'kafka:7-100-255'
    """
    return _STAGED + ";".join("-".join(map(str, place)) for place in places)


def staged_places(name: str) -> list[Place]:
    """Return the places that a name of something staged says.

    Raises:
        CorruptStaging: It is no such name.
    """
    try:
        if not name.startswith(_STAGED):
            raise ValueError(name)
        texts = [one.split("-") for one in name.removeprefix(_STAGED).split(";")]
        return [Place(int(offset), int(length), int(sum_)) for offset, length, sum_ in texts]
    except ValueError:
        msg = f'"{name}" was not staged in Kafka'
        raise CorruptStaging(msg, hint="publish what staging has answered, as it is") from None


class KafkaEpochLog(EpochLog):
    """The decisions about a journal, and the writers of its partitions."""

    def __init__(self, topics: Topics, limits: Limits, **settings: Any) -> None:
        self._topics, self._limits = topics, limits
        #: What lies before these offsets was staged before this driver recovered.
        self._left: dict[int, int] = {}
        super().__init__(describe(topics.path), **settings)

    def _writer(self, partition: int, **settings: Any) -> Writer:
        return KafkaWriter(self._topics, self._limits, self.description, partition, **settings)

    def _discard_rest(self) -> None:
        """Refuse, from now on, what was staged and not decided."""
        super()._discard_rest()
        reader = fetcher(self._topics.connection)
        partitions = range(self.description.partitions)
        self._left = {p: reader.watermarks(self._topics.data(p))[1] for p in partitions}

    def _staged(self, staged: Sequence[Staged]) -> Sequence[Buffer]:
        found = [(item, staged_places(item.file)) for item in staged]
        for item, places in found:
            if any(place.offset < self._left.get(item.partition, 0) for place in places):
                msg = (
                    f"rows for partition {item.partition} were staged for a driver before this one"
                )
                raise CorruptStaging(msg, hint="the batch has to run again")
        return [Stored(pack_places(places)) for _, places in found]

    def _checksum(self, buffers: Sequence[Buffer]) -> int:
        """Return a checksum of the places: each of them has one of its data."""
        return xxhash.xxh3_64_intdigest(b"".join(bytes(buffer) for buffer in buffers))

    def _remove(self, staged: Iterable[Staged]) -> None:
        """Leave it: retention removes what nothing names."""
