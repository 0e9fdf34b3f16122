"""A piece of an index that travels to a task: with it, another host fetches the rows from Kafka.

It has the entries of a range, where their data is, and the name of a secret where the broker wants one, never
its value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa

from millstream.brokers.connection import Connection
from millstream.journal.base import Description, PartitionState, Slice
from millstream.journal.kinds.files.description import parsed
from millstream.journal.kinds.files.entry_data import Described
from millstream.journal.kinds.files.index import DTYPE
from millstream.journal.kinds.files.layout import description_file
from millstream.journal.kinds.files.reader import PartitionReader
from millstream.journal.kinds.files.segments import Maps, Segment
from millstream.journal.kinds.kafka.following import Topics
from millstream.journal.kinds.kafka.reader import FetchedData, KafkaPartitionReader
from millstream.journal.kinds.kafka.records import Address, Place
from millstream.journal.kinds.kafka.wire import fetcher

_NOTHING = PartitionState(None, None, ended=False, last_append_at=None)


@dataclass(frozen=True, slots=True)
class KafkaExcerpt:
    """What a task needs to read a range (`kind.Excerpt` says what it promises)."""

    connection: Connection
    topic: str
    partition: int
    described: bytes
    before: PartitionState
    entries: bytes
    addresses: tuple[bytes, ...]

    @property
    def place(self) -> str:
        return f'topic "{self.topic}" at {self.connection.servers}'

    @property
    def description(self) -> Description:
        return parsed(Path(self.topic), self.described)

    @property
    def schema(self) -> pa.Schema:
        return self.description.schema

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Iterator[Slice]:
        return _ExcerptReader(self).read(start, stop, columns)


def excerpt(topics: Topics, reader: PartitionReader, start: int, stop: int) -> KafkaExcerpt:
    """Return the piece of the index that a range needs."""
    before, entries, addresses = cast("KafkaPartitionReader", reader).excerpt(start, stop)
    return KafkaExcerpt(
        topics.connection,
        topics.topic,
        reader.partition,
        description_file(topics.path).read_bytes(),
        before or _NOTHING,
        entries,
        addresses,
    )


class _Known(Described):
    """A description that is known already."""

    def __init__(self, description: Description) -> None:
        self.path, self.description = description.path, description


class _Piece(Segment):
    """Entries that are in no file; they were compared with their checksums where they come from."""

    def __init__(self, entries: bytes, path: Path) -> None:
        self.index_path = self.data_path = path
        self.entries = np.frombuffer(entries, DTYPE)

    def check_entry(self, number: int) -> None:
        """They are sound."""


class _ExcerptData(FetchedData):
    def __init__(self, found: KafkaExcerpt, described: Described) -> None:
        topics = Topics(described.path, found.connection, found.topic)
        super().__init__(topics, found.partition, described, Maps())
        self._addresses = found.addresses

    def _places(self, segment: Segment, number: int) -> Sequence[Place]:
        del segment
        return Address.unpack(self._addresses[number]).places


class _ExcerptReader(PartitionReader):
    """Reads the range of an excerpt, and nothing else."""

    def __init__(self, found: KafkaExcerpt) -> None:
        self.partition, self._found = found.partition, found
        self._described = _Known(found.description)
        self._data = _ExcerptData(found, self._described)
        self._piece = _Piece(found.entries, self._described.path)

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Iterator[Slice]:
        try:
            yield from super().read(start, stop, columns)
        finally:
            if start < stop:
                fetcher(self._found.connection).rest()

    def _walk(self, start: int, stop: int) -> Iterator[tuple[Segment, int]]:
        for number, entry in enumerate(self._piece.entries):
            position, count = int(entry["position"]), int(entry["count"])
            if position < stop and start < position + count:
                yield self._piece, number

    def _state_before(self, segment: Segment, number: int) -> PartitionState:
        return super()._state_before(segment, number) if number else self._found.before
