"""The writer of a partition: that of the kind `files`, whose log is in Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import xxhash

from millstream.errors import RecordTooLarge
from millstream.journal.base import Description
from millstream.journal.kinds.files.log import Item, PartitionLog, Recovery
from millstream.journal.kinds.files.senders import Senders
from millstream.journal.kinds.files.writer import Writer
from millstream.journal.kinds.kafka.following import Topics, described_text, take
from millstream.journal.kinds.kafka.local import CACHE, KnownSenders
from millstream.journal.kinds.kafka.log import (
    FromIndex,
    IndexRecord,
    Owner,
    Steps,
    ToData,
    ToIndex,
    What,
)
from millstream.journal.kinds.kafka.noted import known, unsent
from millstream.journal.kinds.kafka.records import (
    EntryBody,
    Place,
    Stored,
    memo,
    pack,
    pack_snapshot,
    unpack_places,
)
from millstream.journal.kinds.kafka.topics import Limits
from millstream.journal.kinds.kafka.wire import Appender
from millstream.storage.lock import Lock

if TYPE_CHECKING:
    from typing_extensions import Buffer

_PATIENCE_S: Final = 30.0


@dataclass(slots=True)
class _Pieces:
    """The data of some entries on its way: its pieces, and whose they are."""

    values: list[Buffer]
    places: list[list[Place]]
    of: list[int]


class KafkaLog:
    """The log of one partition: what `PartitionLog` is for files."""

    def __init__(self, topics: Topics, partition: int, limits: Limits) -> None:
        self._topics, self._partition, self._limits = topics, partition, limits
        self._appender = Appender(topics.connection)
        self._lock: Lock | None = None
        try:
            folder = topics.folder(partition)
            what = f'the copy of partition {partition} of journal "{topics.path}"'
            self._lock = Lock(folder / "copy.lock", CACHE, what=what, timeout=_PATIENCE_S)
            self._copy, counting = topics.open_copy(partition)
            self._owner = Owner(counting, uuid.uuid4().hex)
            self._run(self._owner.claim())
            self._send_noted()
        except BaseException:
            self.close()
            raise
        self.recovery = Recovery(0, 0)

    @property
    def state(self) -> Any:
        """The state after all that counts: `files.index.State`."""
        return self._copy.state

    @property
    def senders(self) -> KnownSenders:
        return self._copy.senders

    @property
    def schemas(self) -> list[Any]:
        return self._copy.schemas

    @schemas.setter
    def schemas(self, schemas: list[Any]) -> None:
        self._copy.schemas = schemas

    def commit(self, items: Sequence[Item]) -> None:
        """Write entries; they are durable and count when this returns.

        Raises:
            Fenced: Another writer has the partition.
            BrokerError: Some, all or none of them may count: open the log again.
        """
        if not items:
            return
        if self._copy.rolls_before(items[0].record):
            self._snapshot()
        position, places = self._copy.state.position, self._stored(items)
        records: list[IndexRecord] = []
        for item, found in zip(items, places, strict=True):
            named = self.senders.sent() if not records else ()
            body = EntryBody(item.record, tuple(found), named).pack()
            if len(body) > self._limits.index:
                msg = f"an index entry has {len(body)} bytes, the topic takes {self._limits.index}"
                raise RecordTooLarge(msg, hint="let the topic of the index take larger records")
            records.append(self._owner.record(What.ENTRY, position, item.record.count, body))
            position += item.record.count
        self._run(self._owner.append(records))

    def _send_noted(self) -> None:
        """Let the index have what this host has noted in its folder alone."""
        memos = unsent(self._topics.path, self._partition, self._topics.folder(self._partition))
        if memos:
            records = [pack(memo(**one)) for one in memos]
            self._appender.append(self._topics.index(self._partition), records)

    def _snapshot(self) -> None:
        described = described_text(self._topics.path) if self._partition == 0 else None
        folder = self._topics.folder(self._partition)
        noted = known(self._topics.path, self._partition, folder).memos()
        body = pack_snapshot(self._copy.state, self.senders.names, described, noted)
        if len(body) <= self._limits.index:  # if it does not fit, the index is not cut here
            record = self._owner.record(What.SNAPSHOT, self._copy.state.position, 0, body)
            self._run(self._owner.append([record]))

    def _stored(self, items: Sequence[Item]) -> list[list[Place]]:
        """Write the data of entries that is not in Kafka yet, and return the places of all of it."""
        pieces = _Pieces([], [[] for _ in items], [])
        for number, item in enumerate(items):
            for buffer in item.buffers:
                if isinstance(buffer, Stored):
                    pieces.places[number] += unpack_places(buffer)
                    continue
                for piece in cut(buffer, self._limits.data):
                    pieces.values.append(piece)
                    pieces.of.append(number)
        if pieces.values:
            offsets = self._appender.append(self._topics.data(self._partition), pieces.values)
            for number, value, offset in zip(pieces.of, pieces.values, offsets, strict=True):
                pieces.places[number].append(placed(value, offset))
        return pieces.places

    def _run(self, steps: Steps) -> None:
        """Do what an owner asks for; the copy gets all that counts, also if it fails in between."""
        answer: Any = None
        try:
            while True:
                answer = self._done(steps.send(answer))
        except StopIteration:
            pass
        finally:
            take(self._topics, self._copy, self._owner.taken())

    def _done(self, asked: ToData | ToIndex | FromIndex) -> Any:
        match asked:
            case ToIndex(records):
                spot = self._topics.index(self._partition)
                return self._appender.append(spot, [pack(record) for record in records])
            case FromIndex(start, stop):
                return self._topics.read(self._partition, start, stop)
            case ToData(values):
                return self._appender.append(self._topics.data(self._partition), values)

    def close(self) -> None:
        self._appender.close()
        if hasattr(self, "_copy"):
            self._copy.close()
        if self._lock is not None:
            self._lock.release()


def cut(buffer: Buffer, size: int) -> list[Buffer]:
    """Return a buffer in pieces of at most this size.

    Example:
        >>> [bytes(piece) for piece in cut(b"abcde", 2)]
        [b'ab', b'cd', b'e']
    """
    view = memoryview(buffer).cast("B")
    return [view[begin : begin + size] for begin in range(0, view.nbytes, size)]


def placed(value: Buffer, offset: int) -> Place:
    """Return the place of a value that was written at an offset."""
    return Place(offset, memoryview(value).nbytes, xxhash.xxh3_64_intdigest(value))


class KafkaWriter(Writer):
    """The one writer of a partition (`kind.PartitionWriter` says what it promises)."""

    def __init__(
        self,
        topics: Topics,
        limits: Limits,
        description: Description,
        partition: int,
        **settings: Any,
    ) -> None:
        self._topics, self._limits = topics, limits
        super().__init__(description, partition, **{**settings, "disk": CACHE})

    def _opened(
        self, folder: Path, description: Description, segment_bytes: int
    ) -> tuple[PartitionLog, Senders]:
        del folder, description, segment_bytes
        log = KafkaLog(self._topics, self.partition, self._limits)
        return cast("PartitionLog", log), log.senders  # it has what a writer uses of one

    def _release(self) -> None:
        self._log.close()
        self._lock.release()
