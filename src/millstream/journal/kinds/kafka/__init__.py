"""Journals kept in Kafka: two topics each, and a copy of the index in a folder.

`log.py` has the rules, `records.py` the bytes, `local.py` the copy.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from millstream.brokers.address import parse, written
from millstream.brokers.connection import Connection
from millstream.clock import Clock
from millstream.errors import JournalMissing
from millstream.journal.base import Committed, Description, Reasoned, Staged, Trimmed
from millstream.journal.health import Repaired, Summary, Verification
from millstream.journal.kind import PartitionWriter
from millstream.journal.kinds.files import FilesJournal, arrivals, dead, description, growth
from millstream.journal.kinds.files.layout import description_file
from millstream.journal.kinds.kafka import health, letters, marker, retention, topics
from millstream.journal.kinds.kafka.epochs import KafkaEpochLog, stage
from millstream.journal.kinds.kafka.excerpt import KafkaExcerpt, excerpt
from millstream.journal.kinds.kafka.following import Topics
from millstream.journal.kinds.kafka.noting import KafkaClaims, ended_senders, note_end
from millstream.journal.kinds.kafka.reader import KafkaReader, cached_reader
from millstream.journal.kinds.kafka.topics import Limits
from millstream.journal.kinds.kafka.writer import KafkaWriter


@dataclass(frozen=True, slots=True)
class KafkaJournal:
    """A journal in Kafka (`kind.Journal` says what its operations promise).

    What belongs to the host that writes or reads, and not to the rows, is kept in the folder, as the kind
    `files` does: arrivals, positions of readers, decisions.
    """

    path: Path
    connection: Connection
    topic: str

    @classmethod
    def marked(cls, path: Path) -> KafkaJournal:
        """Return the journal whose folder this is."""
        found = marker.read(path)
        return cls(path, found.connection, found.topic)

    @classmethod
    def in_folder(cls, path: Path, address: str) -> KafkaJournal:
        """Return the journal at an address, with its copy in a folder."""
        found, topic = parse(address)
        return cls(path, found, topic)

    @classmethod
    def at(cls, address: str) -> KafkaJournal:
        """Return the journal at an address, with a copy that this user has on this host."""
        found, topic = parse(address)
        name = xxhash.xxh3_64_hexdigest(written(found, topic).encode())
        folder = Path(tempfile.gettempdir()) / f"millstream-{os.getuid()}" / name
        return cls(folder, found, topic)

    @property
    def address(self) -> str:
        """What `journal_at` takes where there is no folder."""
        return written(self.connection, self.topic)

    @property
    def everywhere(self) -> bool:
        return True

    @property
    def _topics(self) -> Topics:
        return Topics(self.path, self.connection, self.topic)

    @property
    def _folder(self) -> FilesJournal:
        return FilesJournal(self.path)

    def _limits(self) -> Limits:
        return limits(self._topics, self.describe().partitions)

    # declaring

    def exists(self) -> bool:
        """Return whether it is there, in the folder or in Kafka."""
        if description_file(self.path).exists():
            return True
        return topics.there(self.connection, self.topic) and self._topics.adopt_description()

    def create(
        self,
        schema: pa.Schema,
        *,
        partitions: int = 1,
        time: str | None = None,
        written_by: str = "inbox",
    ) -> Description:
        marker.mark(self._topics)
        topics.make(self.connection, self.topic, partitions)
        found = topics.check(self.connection, self.topic, partitions)
        topics.check_same(self.path, self.topic, found)
        topics.keep(self.path, found)
        file = description_file(self.path)
        if not file.exists():
            self._topics.adopt_description()
        before = file.read_bytes() if file.exists() else b""
        made = description.create(
            self.path, schema, partitions=partitions, time=time, written_by=written_by
        )
        if file.read_bytes() != before:
            self._topics.describe_in_kafka(made)
        return made

    def describe(self) -> Description:
        if not self.exists():
            msg = f'there is no journal in topic "{self.topic}" at {self.connection.servers}'
            raise JournalMissing(msg, hint="millstream journal ls shows those that are there")
        return description.describe(self.path)

    def grow(
        self, partitions: int, *, lateness_us: int = 0, clock: Clock | None = None
    ) -> Description:
        if partitions > self.describe().partitions:
            topics.grow(self.connection, self.topic, partitions)
        known = limits(self._topics, partitions)

        def writer(description: Description, partition: int, **settings: Any) -> KafkaWriter:
            return KafkaWriter(self._topics, known, description, partition, **settings)

        grown = growth.grow(
            self.path, partitions, lateness_us=lateness_us, clock=clock, open_writer=writer
        )
        self._topics.describe_in_kafka(grown)
        return grown

    # rows

    def writer(
        self, partition: int = 0, *, clock: Clock | None = None, timeout: float = 0.0
    ) -> PartitionWriter:
        return KafkaWriter(
            self._topics, self._limits(), self.describe(), partition, clock=clock, timeout=timeout
        )

    def reader(self) -> KafkaReader:
        self.describe()
        return KafkaReader(self._topics)

    def cached_reader(self) -> KafkaReader:
        self.describe()
        return cached_reader(self._topics)

    def excerpt(self, partition: int, start: int, stop: int) -> KafkaExcerpt:
        return excerpt(self._topics, self.cached_reader().partition(partition), start, stop)

    # epochs

    def stage(
        self, batches: Iterable[pa.RecordBatch], partition_of: str | int | None = None
    ) -> list[Staged]:
        return stage(self._topics, self._limits().data, batches, partition_of)

    def epochs(self) -> KafkaEpochLog:
        return KafkaEpochLog(self._topics, self._limits())

    # arrivals

    def stage_arrival(
        self,
        partition: int,
        sender: str,
        epoch: int,
        batches: Iterable[pa.RecordBatch],
        refused: Sequence[Reasoned] = (),
    ) -> list[Staged]:
        return self._folder.stage_arrival(partition, sender, epoch, batches, refused)

    def checked_arrival(
        self, staged: Iterable[Staged], partition: int, sender: str, epoch: int
    ) -> tuple[list[Staged], list[Staged]]:
        return arrivals.checked(staged, partition, sender, epoch)

    def read_refused(self, staged: Iterable[Staged]) -> list[Reasoned]:
        return self._folder.read_refused(staged)

    def discard_arrival(self, partition: int, sender: str, epoch: int) -> None:
        self._folder.discard_arrival(partition, sender, epoch)

    def left_arrivals(self, partition: int, besides: Iterable[str] = ()) -> list[str]:
        return self._folder.left_arrivals(partition, besides)

    def remove_arrival(self, partition: int, name: str) -> None:
        self._folder.remove_arrival(partition, name)

    def ended_senders(self, partition: int) -> list[str]:
        return ended_senders(self._topics, partition)

    def end_sender(self, partition: int, sender: str) -> None:
        note_end(self._topics, partition, sender)

    def claims(self, partition: int) -> KafkaClaims:
        return KafkaClaims(self._topics, partition)

    # dead letters

    def dead_letters(
        self, *, clock: Clock | None = None, timeout: float = dead.TIMEOUT_S
    ) -> dead.DeadLetters:
        return letters.KafkaDeadLetters(self._topics, clock=clock, timeout=timeout)

    def dead_counts(self) -> dict[str, int]:
        letters.follow(self._topics)
        return self._folder.dead_counts()

    def dead_waiting(self) -> dict[str, int]:
        letters.follow(self._topics)
        return self._folder.dead_waiting()

    def dead_journal(self) -> FilesJournal:
        letters.follow(self._topics)
        return self._folder.dead_journal()

    # retention

    def commit(self, reader: str, positions: Mapping[int, int] | Sequence[int]) -> None:
        self._folder.commit(reader, positions)

    def commit_for(self, partition: int, positions: Mapping[str, int]) -> None:
        self._folder.commit_for(partition, positions)

    def committed(self) -> list[Committed]:
        return self._folder.committed()

    def forget(self, reader: str) -> None:
        self._folder.forget(reader)

    def trim(
        self,
        *,
        keep_for: timedelta | None = None,
        keep_bytes: int | None = None,
        look_back: timedelta = timedelta(0),
    ) -> Trimmed:
        return retention.trim(
            self._topics, keep_for=keep_for, keep_bytes=keep_bytes, look_back=look_back
        )

    def trim_to(self, partition: int, position: int) -> Trimmed:
        return retention.trim_to(self._topics, partition, position)

    # health

    def summary(self) -> Summary:
        return health.summary(self._topics, self.describe().partitions)

    def verify(self, progress: Callable[[int], None] = lambda _: None) -> Verification:
        return health.verify(self._topics, progress)

    def bytes_to_verify(self) -> int:
        partitions = range(self.describe().partitions)
        return sum(health.stored_bytes(self._topics, number) for number in partitions)

    def repair(self) -> list[Repaired]:
        return health.repair(self._topics, self.describe().partitions)


def limits(found: Topics, partitions: int) -> Limits:
    """Return what the topics take: as `create` has found it, or as it is checked now."""
    return topics.known(found.path) or topics.check(found.connection, found.topic, partitions)
