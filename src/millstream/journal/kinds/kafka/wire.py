"""Reading and writing one partition of a topic, by offset.

Producers are idempotent and wait for all replicas in sync. Clients belong to the process that made
them: what holds one makes another after a fork.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.brokers.clients import PATIENCE_S, PerProcess, Trouble, admin, consumer, producer
from millstream.brokers.connection import Connection
from millstream.brokers.errors import away, translated
from millstream.errors import BrokerAway, MillstreamError, RecordsGone, TopicMissing

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from typing_extensions import Buffer

#: How long a producer tries: brokers are restarted meanwhile.
DELIVERY_S: Final = 120.0
#: How long a reader waits for a record that is there.
READ_S: Final = 60.0
_PAUSE_S: Final = 0.05
_READ_AT_ONCE: Final = 500
_AHEAD: Final = 1000
_QUEUED_KB: Final = 16 * 1024
_PRODUCER: Final[dict[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,
    "compression.type": "lz4",
    "delivery.timeout.ms": int(DELIVERY_S * 1000),
    "message.max.bytes": 100 * 2**20,  # the topic's limit decides, and `topics.py` knows it
    "queue.buffering.max.kbytes": 256 * 1024,
}
#: What a client says of a partition that was made a moment ago, or whose broker is changing.
_FRESH: Final = frozenset(
    {"_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE"}
    | {"NOT_LEADER_FOR_PARTITION", "_DESTROY_BROKER", "_UNKNOWN_BROKER"}
)
_CONSUMER: Final[dict[str, Any]] = {
    "group.id": "millstream-journal",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_uncommitted",
    "queued.max.messages.kbytes": _QUEUED_KB,
    "fetch.message.max.bytes": 4 * 2**20,
    "fetch.wait.max.ms": 10,
    "check.crcs": True,
}


@dataclass(frozen=True, slots=True)
class Spot:
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f'partition {self.partition} of topic "{self.topic}"'


class Appender:
    """Appends to partitions, in order; one thread at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._trouble = Trouble()
        self._producer: Producer = producer(connection, dict(_PRODUCER), self._trouble)
        self._guard = threading.Lock()
        self._known: set[Spot] = set()

    def append(
        self,
        spot: Spot,
        values: Sequence[Buffer],
        *,
        keys: Sequence[bytes] | None = None,
        patience: float = DELIVERY_S + PATIENCE_S,
    ) -> list[int]:
        """Append values and return their offsets; they are durable when this returns.

        Raises:
            MillstreamError: Some, all or none of them may be there, or may come later.
        """
        offsets: list[int] = [-1] * len(values)
        failed: list[Any] = []
        left = [len(values)]

        def delivered(number: int, error: Any, message: Any) -> None:
            left[0] -= 1
            if error is not None:
                failed.append(error)
            else:
                offsets[number] = message.offset()

        place, until = f"{spot} at {self._connection.servers}", time.monotonic() + patience
        if not self._guard.acquire(timeout=patience):
            raise BrokerAway(f"{place} has not answered for {patience:.0f} s")
        try:
            self._know(spot, until)
            for number, value in enumerate(values):
                key = None if keys is None else keys[number]
                self._produce(spot, value, key, lambda e, m, n=number: delivered(n, e, m))
            while left[0] and time.monotonic() < until:
                self._producer.poll(min(_PAUSE_S, patience))
        finally:
            self._guard.release()
        if failed or left[0]:
            if not failed:
                raise BrokerAway(f"{place} has not answered for {patience:.0f} s")
            raise translated(failed[0], place, self._trouble.last)
        return offsets

    def _know(self, spot: Spot, until: float) -> None:
        """Ask for a partition before the first record: the client may not know a new one."""
        from confluent_kafka import KafkaException

        until = min(until, time.monotonic() + PATIENCE_S)
        while spot not in self._known:
            left = max(_PAUSE_S, until - time.monotonic())
            try:
                found = self._producer.list_topics(spot.topic, left).topics[spot.topic]
            except KafkaException as error:
                place = f"{spot} at {self._connection.servers}"
                raise translated(error, place, self._trouble.last) from None
            if found.error is None and spot.partition in found.partitions:
                self._known.add(spot)
            elif time.monotonic() > until:
                raise TopicMissing(f"{spot} does not exist at {self._connection.servers}")
            else:
                time.sleep(_PAUSE_S)

    def _produce(self, spot: Spot, value: Buffer, key: bytes | None, report: Any) -> None:
        while True:
            try:
                self._producer.produce(
                    spot.topic, bytes(value), key, partition=spot.partition, on_delivery=report
                )
            except BufferError:  # the queue is full: what is in it has to go first
                self._producer.poll(_PAUSE_S)
            else:
                self._producer.poll(0)
                return

    def close(self) -> None:
        """Give up what is not delivered: nobody waits for it any more."""
        self._producer.purge()
        self._producer.flush(1)


class Fetcher:
    """Reads partitions by offset, in one thread; it goes on where it was, if that is wanted."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._trouble = Trouble()
        self._consumer: Consumer = consumer(connection, dict(_CONSUMER), self._trouble)
        self._at: tuple[Spot, int] | None = None
        self._waiting: list[tuple[int, bytes]] = []
        self._known: set[Spot] = set()

    def read(self, spot: Spot, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        """Yield the records of [start, stop), waiting for those that are not visible yet."""
        while start < stop:
            found = self.some(spot, start)
            for offset, value in found:
                if offset >= stop:
                    return
                yield offset, value
            start = found[-1][0] + 1

    def some(self, spot: Spot, start: int) -> list[tuple[int, bytes]]:
        """Return records from `start` on, at least one.

        Raises:
            RecordsGone: They were deleted.
            BrokerAway: There are none after a while.
        """
        self._go(spot, start)
        until = time.monotonic() + READ_S
        while True:
            found = [one for one in self._waiting if one[0] >= start]
            self._waiting = []
            if found:
                self._at = (spot, found[-1][0] + 1)
                return found
            if time.monotonic() > until:
                raise self._late(spot, start)
            self._poll(spot, start)

    def one(self, spot: Spot, offset: int) -> bytes:
        """Return one record; what was read with it is kept for the next question."""
        if self._waiting and self._at is not None and self._at[0] == spot:
            for number, (at, value) in enumerate(self._waiting):
                if at == offset:
                    del self._waiting[: number + 1]
                    return value
        found = self.some(spot, offset)
        self._waiting = found[1:]
        if found[0][0] != offset:
            raise RecordsGone(f"record {offset} of {spot} is gone")
        return found[0][1]

    def rest(self) -> None:
        """Stop reading ahead."""
        if self._at is not None:
            self._consumer.unassign()
            self._at, self._waiting = None, []

    def watermarks(self, spot: Spot, timeout: float = PATIENCE_S) -> tuple[int, int]:
        """Return the first offset, and the one after the last that is visible."""
        from confluent_kafka import KafkaException, TopicPartition

        asked = TopicPartition(spot.topic, spot.partition)
        until = time.monotonic() + timeout
        while True:
            left = max(_PAUSE_S, until - time.monotonic())
            try:
                found = self._consumer.get_watermark_offsets(asked, left, cached=False)
                if found is None:
                    raise BrokerAway(f"{self._place(spot)} does not say how far it goes")
                return int(found[0]), int(found[1])
            except KafkaException as error:
                # A broker that dies while it is asked may be back: it is asked again, as by the client
                # itself if it is away before.
                again = error.args[0].name() in _FRESH or away(error.args[0])
                if not again or time.monotonic() > until:
                    raise translated(error, self._place(spot), self._trouble.last) from None
                with suppress(KafkaException):  # asked again, it says what is wrong
                    self._consumer.list_topics(spot.topic, left)
                time.sleep(_PAUSE_S)

    def _go(self, spot: Spot, start: int) -> None:
        from confluent_kafka import TopicPartition

        if self._at is not None and self._at[0] == spot:
            begin = self._waiting[0][0] if self._waiting else self._at[1]
            if begin <= start <= self._at[1] + _AHEAD:
                return
        if spot not in self._known:
            # By this question the client learns which broker has it; else it takes 0.7 s to do so.
            self.watermarks(spot)
            self._known.add(spot)
        self._consumer.assign([TopicPartition(spot.topic, spot.partition, start)])
        self._at, self._waiting = (spot, start), []

    def _poll(self, spot: Spot, start: int) -> None:
        first = self._consumer.poll(_PAUSE_S)
        if first is None:
            return
        # `consume` waits until it has as many as were asked for.
        for message in (first, *self._consumer.consume(_READ_AT_ONCE, 0)):
            error = message.error()
            about = (message.topic(), message.partition())
            if about[0] is not None and about != (spot.topic, spot.partition):
                continue  # of a partition that was read before: its errors may come late
            if error is None:
                self._waiting.append((message.offset() or 0, message.value() or b""))
            elif error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
                self._at = None
                low, high = self.watermarks(spot)
                msg = f"{self._place(spot)} has the records {low} to {high}, {start} is asked for"
                raise RecordsGone(msg, hint="were records deleted, or the topic made again?")
            elif not away(error):
                self._at = None
                raise translated(error, self._place(spot), self._trouble.last)

    def _late(self, spot: Spot, start: int) -> MillstreamError:
        self._at = None
        msg = f"{self._place(spot)} has not answered with record {start} for {READ_S:.0f} s"
        return BrokerAway(msg, hint="is the broker running, and in reach?")

    def _place(self, spot: Spot) -> str:
        return f"{spot} at {self._connection.servers}"


class _OfThread(threading.local):
    """What a thread reads with: two that took turns with one would begin again with each turn."""

    def __init__(self) -> None:
        self.fetchers: dict[Connection, PerProcess[Fetcher]] = {}


_here = _OfThread()
_appenders: dict[Connection, PerProcess[Appender]] = {}


def fetcher(connection: Connection) -> Fetcher:
    """Return this thread's reader of a cluster."""
    return _here.fetchers.setdefault(connection, PerProcess(lambda: Fetcher(connection))).get()


def appender(connection: Connection) -> Appender:
    """Return this process's appender, for what is written without being a partition's writer."""
    return _appenders.setdefault(connection, PerProcess(lambda: Appender(connection))).get()


def delete_before(connection: Connection, offsets: dict[Spot, int]) -> None:
    """Delete the records before some offsets."""
    from confluent_kafka import KafkaException, TopicPartition

    asked = [TopicPartition(spot.topic, spot.partition, at) for spot, at in offsets.items()]
    client = admin(connection)
    for one, future in client.delete_records(asked).items():
        try:
            future.result(PATIENCE_S)
        except KafkaException as error:
            place = f'partition {one.partition} of topic "{one.topic}"'
            raise translated(error, place) from None
