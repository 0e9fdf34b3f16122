"""Keeping the copy of an index up to date, where no writer of this host does it."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from millstream.brokers.clients import PATIENCE_S
from millstream.brokers.connection import Connection
from millstream.errors import CorruptIndex, JournalMissing, RecordsGone
from millstream.journal.base import Description
from millstream.journal.kinds.files.description import adopt, describe, schema_count
from millstream.journal.kinds.files.layout import description_file, partition_folder
from millstream.journal.kinds.kafka.local import CACHE, LocalIndex, opened, wipe
from millstream.journal.kinds.kafka.log import Counting, Found, What
from millstream.journal.kinds.kafka.records import description_in, memo, pack, unpack
from millstream.journal.kinds.kafka.topics import index_topic
from millstream.journal.kinds.kafka.wire import Spot, appender, fetcher
from millstream.storage.disk import make_folder
from millstream.storage.lock import FileClaim, held

_PATIENCE_S: Final = 10.0
_AT_ONCE: Final = 2000


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of a journal and the folder with its copy: all that there is to know of it."""

    path: Path
    connection: Connection
    topic: str

    def data(self, partition: int) -> Spot:
        return Spot(self.topic, partition)

    def index(self, partition: int) -> Spot:
        return Spot(index_topic(self.topic), partition)

    def folder(self, partition: int) -> Path:
        return partition_folder(self.path, partition)

    def read(self, partition: int, start: int, stop: int) -> list[Found]:
        """Return the records of an index from `start` on that come at once, at least one."""
        spot = self.index(partition)
        found = fetcher(self.connection).some(spot, start)
        return [
            (at, unpack(raw, f"record {at} of {spot}")) for at, raw in found[:_AT_ONCE] if at < stop
        ]

    # its description

    def describe_in_kafka(self, description: Description) -> None:
        """Let the index hold the description, for hosts that have none."""
        record = memo(description=described_text(description.path))
        appender(self.connection).append(self.index(0), [pack(record)])

    def adopt_description(self) -> bool:
        """Take over the newest description in the index; False if there is none."""
        low, high = fetcher(self.connection).watermarks(self.index(0))
        newest: bytes | None = None
        while low < high:
            for offset, record in self.read(0, low, high):
                if (text := description_in(record)) is not None:
                    raw = base64.b64decode(text)
                    if newest is None or schema_count(raw) >= schema_count(newest):
                        newest = raw
                low = offset + 1
        if newest is not None:
            adopt(self.path, newest, disk=CACHE)
        return newest is not None

    # its copy

    def open_copy(self, partition: int) -> tuple[LocalIndex, Counting]:
        """Open the copy of an index, with its lock held, and return how far it goes."""
        folder = self.folder(partition)
        make_folder(CACHE, folder)
        schemas = describe(self.path).schemas
        low, _ = fetcher(self.connection).watermarks(self.index(partition))
        begin = self.read(partition, low, low + 1)[0] if low > 0 else None
        if begin is not None and begin[1].what is not What.SNAPSHOT:
            msg = f"{self.index(partition)} begins with offset {low}, which is no snapshot"
            hint = "its beginning was deleted by something else: check the topic's retention"
            raise CorruptIndex(msg, file=str(self.index(partition)), offset=low, hint=hint)
        copy = opened(folder, schemas, begin)
        counting = copy.counting(low)
        if counting is None or (begin is not None and begin[1].position > copy.state.position):
            copy.close()
            wipe(folder)
            copy = opened(folder, schemas, begin)
            counting = copy.counting(low)
        assert counting is not None
        return copy, counting


def described_text(path: Path) -> str:
    """Return the description of a journal as records have it."""
    return base64.b64encode(description_file(path).read_bytes()).decode()


@dataclass(slots=True)
class Follower:
    """Adds to the copy of a partition what is new in Kafka, when asked."""

    topics: Topics
    partition: int
    _seen: int = field(default=-1)

    def follow(self, timeout: float = PATIENCE_S) -> None:
        """Bring the copy up to date, unless a writer of this host does.

        Raises:
            BrokerAway: No broker has answered for `timeout` seconds.
        """
        folder = self.topics.folder(self.partition)
        if held(folder / "lock"):
            self._seen = -1
            return
        spot = self.topics.index(self.partition)
        _, high = fetcher(self.topics.connection).watermarks(spot, timeout)
        if high == self._seen:
            return
        make_folder(CACHE, folder)
        claim = FileClaim.take(folder / "copy.lock", _PATIENCE_S)
        if claim is None:
            return  # a writer has come, or another process does it
        try:
            self._catch_up(high)
        except RecordsGone:  # what was to be read was deleted meanwhile: begin where it begins now
            self._catch_up(high)
        finally:
            claim.release()
        self._seen = high

    def _catch_up(self, high: int) -> None:
        copy, counting = self.topics.open_copy(self.partition)
        try:
            while counting.next < high:
                found = self.topics.read(self.partition, counting.next, high)
                counted = [(at, one) for at, one in found if counting.take(at, one)]
                take(self.topics, copy, counted)
        finally:
            copy.close()


def take(topics: Topics, copy: LocalIndex, counted: list[Found]) -> None:
    """Add records to the copy; if there are columns that it does not know, ask for them first."""
    versions = [
        int.from_bytes(record.body[2:4], "little")
        for _, record in counted
        if record.what is What.ENTRY
    ]
    if versions and max(versions) >= len(copy.schemas):
        if not topics.adopt_description():
            raise JournalMissing(f'topic "{topics.topic}" has no description of its journal')
        copy.schemas = list(describe(topics.path).schemas)
    copy.take(counted)
