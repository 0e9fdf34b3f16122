"""Brings decided records into a topic: in transactions, or at least once without.

    transactions    init -> read the topic of epochs -> claim it
                    begin -> records of a part -> the record of the epoch -> commit, for each part

Whatever fails, the producer is thrown away and the first line begins again: to make a producer of the
same transactional id ends the transaction of the one before, committed or not, and the topic of
epochs then says which it was. So there is one way to go on after an error, a restart of the broker
and a crash of this process.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.brokers import clients, errors
from millstream.brokers.connection import Connection
from millstream.connectors.kafka import epochs
from millstream.connectors.kafka.decision import Decision, Published
from millstream.connectors.kafka.staged import records_of
from millstream.errors import BrokerAway, LinkClosed, MillstreamError, RunError, TopicMissing
from millstream.spark.failpoints import passing

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

_log = logging.getLogger(__name__)
_Found = TypeVar("_Found")

SENDER: Final = "millstream-sender"
SEQUENCE: Final = "millstream-sequence"

#: How long one call takes at most: a run that is stopped waits for no longer.
TRY_S: Final = 5.0
#: After so long without an end the broker aborts a transaction.
TRANSACTION_S: Final = 60.0
_TOLD_EVERY_S: Final = 60.0
_PARTITIONERS: Final = {
    "murmur2": "murmur2_random",
    "crc32": "consistent_random",
    "fnv1a": "fnv1a_random",
}
#: Names of errors that say: this producer is over, its successor may go on.
_OVER: Final = frozenset(
    {
        "_FENCED",
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "UNKNOWN_PRODUCER_ID",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "INVALID_TXN_STATE",
        "TRANSACTION_ABORTABLE",
        "TRANSACTION_COORDINATOR_FENCED",
        "CONCURRENT_TRANSACTIONS",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "KAFKA_STORAGE_ERROR",
        "_MSG_TIMED_OUT",
        "_INCONSISTENT",
        "_STATE",
        "_PURGE_QUEUE",
        "_PURGE_INFLIGHT",
    }
)


@dataclass(frozen=True, slots=True)
class Place:
    """A topic that a sink writes, and what is known of it."""

    sink: str
    connection: Connection
    topic: str
    epochs: str
    #: The largest batch of records that the topic takes.
    limit: int
    partitioner: str = "murmur2"

    @property
    def text(self) -> str:
        return f'topic "{self.topic}" at {self.connection.servers}'

    def settings(self) -> dict[str, Any]:
        """Return the settings of a producer that loses nothing and keeps the order."""
        usual = {"compression.type": "lz4", "linger.ms": 20}
        given = dict(self.connection.options)
        return {
            **{name: value for name, value in usual.items() if name not in given},
            "acks": "all",
            "enable.idempotence": True,
            "message.max.bytes": max(self.limit, 1000),
            "queue.buffering.max.kbytes": max(128 << 10, 2 * self.limit >> 10),
            "queue.buffering.max.messages": 0,
            "partitioner": _PARTITIONERS[self.partitioner],
            "delivery.report.only.error": True,
        }


class Publisher(ABC):
    """Publishes what one sender has decided."""

    def __init__(self, place: Place, sender: str, stopping: threading.Event) -> None:
        self._place = place
        self._sender = sender
        self._stopping = stopping
        self._producer: Producer | None = None
        self._failed: KafkaError | None = None

    @abstractmethod
    def published(self) -> Published:
        """Return how far the topic says that the sender's records are in."""

    @abstractmethod
    def publish(self, decision: Decision, folder: Path) -> None:
        """Publish what a decision names and the topic does not hold; waits for the broker.

        Raises:
            LinkClosed: The run was stopped meanwhile.
            BrokerError: The broker refuses, and will next time.
            RunError: Another process publishes in our place.
        """

    def close(self) -> None:
        """Throw the producer away with what it has not sent; what is open stays open."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    # for those that publish

    def _made(self, settings: dict[str, Any]) -> Producer:
        producer = clients.producer(
            self._place.connection,
            {**self._place.settings(), **settings, "on_delivery": self._delivered},
        )
        self._producer, self._failed = producer, None
        return producer

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None and self._failed is None:
            self._failed = error

    def _produce(self, producer: Producer, decision: Decision, part: int, folder: Path) -> None:
        topic, sender = self._place.topic, self._sender.encode()
        sequence, produce = decision.number(part), producer.produce
        for file in decision.parts[part]:
            for key, value, headers in records_of(folder / file.name):
                headers += [(SENDER, sender), (SEQUENCE, b"%d" % sequence)]
                sequence += 1
                while True:
                    try:
                        produce(topic, value, key, headers=headers)
                        break
                    except BufferError:
                        self._progress(producer)

    def _flush(self, producer: Producer) -> None:
        """Wait until all records are delivered, or have failed."""
        from confluent_kafka import KafkaException

        since = time.monotonic()
        while producer.flush(0.5):
            self._progress(producer)
            if time.monotonic() - since > TRY_S:
                self._check_topic()
                since = time.monotonic()
        if self._failed is not None:
            raise KafkaException(self._failed)

    def _progress(self, producer: Producer) -> None:
        from confluent_kafka import KafkaException

        producer.poll(0.05)
        if self._failed is not None:
            raise KafkaException(self._failed)
        self._check_going()

    def _check_topic(self) -> None:
        """Look whether the topic is there: a producer would wait for one that is not."""
        clients.describe(self._place.connection, self._place.topic, timeout=TRY_S)

    def _check_going(self) -> None:
        if self._stopping.is_set():
            raise LinkClosed(f'sink "{self._place.sink}" was stopped while it wrote')

    def _fatal(self, error: SystemError) -> KafkaError:
        """Return what librdkafka calls fatal: it is raised beneath the callbacks of deliveries.

        One of these may take the exception away; the producer still has it then.
        """
        from confluent_kafka import KafkaException

        if isinstance(error.__cause__, KafkaException):
            return error.__cause__.args[0]  # type: ignore[no-any-return]
        if self._failed is not None:
            return self._failed
        try:
            if self._producer is not None:
                self._producer.begin_transaction()
        except KafkaException as found:
            return found.args[0]  # type: ignore[no-any-return]
        raise error

    def _until(self, attempt: Callable[[], _Found]) -> _Found:
        """Try until it is done, each time with another producer."""
        from confluent_kafka import KafkaException

        told = -_TOLD_EVERY_S
        while True:
            try:
                self._check_going()
                return attempt()
            except KafkaException as error:
                reason: MillstreamError = self._judged(self._failed or error.args[0])
            except SystemError as error:
                reason = self._judged(self._fatal(error))
            except BrokerAway as error:
                reason = error
            self.close()
            if time.monotonic() - told >= _TOLD_EVERY_S:
                told = time.monotonic()
                _log.warning('sink "%s" waits: %s', self._place.sink, reason)
            self._stopping.wait(0.2)

    def _judged(self, error: KafkaError) -> MillstreamError:
        """Return the reason to try again, or raise the one not to."""
        reason = errors.translated(error, self._place.text)
        again = errors.away(error) or error.txn_requires_abort() or error.name() in _OVER
        if again and not isinstance(reason, TopicMissing):
            return reason
        self.close()
        raise reason


class Transactions(Publisher):
    """Publishes each part once, for readers of committed records."""

    def __init__(self, place: Place, sender: str, stopping: threading.Event) -> None:
        super().__init__(place, sender, stopping)
        self._me = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._state = Published()
        self._hanging = False
        #: Who may have written the last record of the sender, if none has taken our place.
        self._expected: frozenset[str] | None = None

    def published(self) -> Published:
        self._until(self._opened)
        return self._state

    def publish(self, decision: Decision, folder: Path) -> None:
        def attempt() -> None:
            producer = self._opened()
            for part in range(len(decision.parts)):
                if not self._state.holds(decision.epoch, part):
                    self._transaction(producer, decision, part, folder)

        self._until(attempt)

    def _transaction(self, producer: Producer, decision: Decision, part: int, folder: Path) -> None:
        producer.begin_transaction()
        self._produce(producer, decision, part, folder)
        self._commit(producer, Published(decision.epoch, part, len(decision.parts), self._me))
        passing("committed")

    def _opened(self) -> Producer:
        """Return a producer that alone writes for the sender, and know what is in."""
        if self._producer is not None:
            return self._producer
        self._check_topic()
        limit_ms = int(TRANSACTION_S * 1000)
        settings = {"transactional.id": self._sender, "transaction.timeout.ms": limit_ms}
        producer = self._made(settings)
        self._patiently(producer.init_transactions)
        state = self._read()
        self._check_alone(state)
        if state.writer != self._me or self._hanging:
            self._expected = frozenset({state.writer, self._me})
            producer.begin_transaction()
            self._commit(producer, Published(state.epoch, state.part, state.of, self._me))
        self._expected, self._state = frozenset({self._me}), state
        return producer

    def _read(self) -> Published:
        """Return what is in. A transaction of ours that the broker forgot to end is still open."""
        link, topic = self._place.connection, self._place.epochs
        timeout, self._hanging = TRANSACTION_S + 4 * TRY_S, False
        try:
            return epochs.published(link, topic, self._sender, self._going, timeout)
        except epochs.Hanging as found:
            # The next commit ends it too, as it was meant to be.
            self._hanging = True
            return found.state

    def _going(self) -> bool:
        return not self._stopping.is_set()

    def _check_alone(self, state: Published) -> None:
        if self._expected is not None and state.writer not in self._expected:
            self.close()
            msg = f'sink "{self._place.sink}" is written by another process, {state.writer}'
            raise RunError(msg, hint="stop one of them: both run the same job from one checkpoint")

    def _commit(self, producer: Producer, state: Published) -> None:
        key = self._sender.encode()
        # The record of the epoch is sent last: where it is, the others are.
        self._flush(producer)
        producer.produce(self._place.epochs, state.to_json(), key, epochs.PARTITION)
        passing("produced")
        self._flush(producer)
        self._patiently(producer.commit_transaction)
        self._state = state

    def _patiently(self, call: Callable[[float], None]) -> None:
        """Call it again while there is no answer, for as long as a transaction lasts."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + TRANSACTION_S
        while True:
            try:
                return call(TRY_S)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
                self._check_going()


class Deliveries(Publisher):
    """Publishes each part at least once: after an error, all of it again, with the same numbers."""

    def __init__(self, place: Place, sender: str, stopping: threading.Event) -> None:
        super().__init__(place, sender, stopping)
        self._state = Published()

    def published(self) -> Published:
        return self._state

    def publish(self, decision: Decision, folder: Path) -> None:
        def attempt() -> None:
            if self._producer is None:
                self._check_topic()
            producer = self._producer or self._made({})
            for part in range(len(decision.parts)):
                if not self._state.holds(decision.epoch, part):
                    self._produce(producer, decision, part, folder)
                    passing("produced")
                    self._flush(producer)
                    self._state = Published(decision.epoch, part, len(decision.parts))
                    passing("committed")

        self._until(attempt)
