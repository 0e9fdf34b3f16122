"""The topic that says which epochs are in: a record for each sender, written with its results.

    key     <job>/<sink>/<checkpoint>       also the sender's transactional id
    value   {"epoch": 7, "part": 0, "of": 1, "writer": "host:4711:5f3a"}

It is compacted, so it stays small, and it has one partition that counts. Whoever starts to write
writes the last record once more with its own name. So a process that was asleep finds that another
has taken its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from millstream.brokers import clients, topics
from millstream.brokers.connection import Connection
from millstream.brokers.errors import translated
from millstream.connectors.kafka.decision import Published
from millstream.errors import BrokerAway, RunError, TopicMissing

if TYPE_CHECKING:
    from confluent_kafka import Message

PARTITION: Final = 0


class Hanging(Exception):
    """A transaction of the sender is over, and the broker has lost the records that end it.

    A broker that is killed after it has prepared a commit, and comes back alone, may forget to
    write them. What the transaction holds is complete, since its record here is sent last.
    """

    def __init__(self, state: Published) -> None:
        self.state = state


#: How long a question may take.
_PATIENCE_S: Final = 20.0
_POLL_S = 0.5
_SETTINGS: Final = {
    "cleanup.policy": "compact",
    # Records that are no longer needed can go after an hour, not a week: a start reads all of them.
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}


def ensure(link: Connection, topic: str) -> None:
    """Make the topic of epochs if there is none.

    Raises:
        RunError: There is one that forgets.
    """
    try:
        policy = topics.settings(link, topic)["cleanup.policy"]
    except TopicMissing:
        topics.make(link, topic, 1, _SETTINGS)
        return
    if policy != "compact":
        hint = (
            f"kafka-configs.sh --bootstrap-server {link.servers} --alter --entity-type topics "
            f"--entity-name {topic} --add-config cleanup.policy=compact"
        )
        msg = f'topic "{topic}" has cleanup.policy={policy}: it would forget which epochs are in'
        raise RunError(msg, hint=hint)


def published(
    link: Connection, topic: str, sender: str, going: Callable[[], bool], timeout: float
) -> Published:
    """Return how far a sender's records are in.

    Call it when no transaction of the sender is open. Transactions of others hide what follows
    them until they end; this waits until everything that is there now can be read.

    Raises:
        BrokerAway: It took too long, or `going` returns False.
        BrokerError: The broker refuses.
        Hanging: What hides the rest is a transaction of the sender itself.
    """
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    place = f'topic "{topic}" at {link.servers}'
    deadline = time.monotonic() + timeout
    reader = clients.consumer(link, _reading(sender))
    found, key = Published(), sender.encode()
    try:
        end = _end(link, topic, stable=False)
        reader.assign([TopicPartition(topic, PARTITION, 0)])
        reached = 0
        while reached < end:
            if not going() or time.monotonic() > deadline:
                raise BrokerAway(f"{place} does not answer in time: a transaction is open there")
            message = reader.poll(_POLL_S)
            if message is None:
                # The broker is slow; or an open transaction, which begins here, hides the rest.
                if reached >= _end(link, topic, stable=True):
                    first = _first(link, topic, reached)
                    if first is not None and first.key() == key:
                        raise Hanging(Published.from_json(first.value() or b""))
                continue
            error, offset, value = message.error(), message.offset() or 0, message.value()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            reached = offset if error is not None else offset + 1
            if error is None and message.key() == key and value is not None:
                found = Published.from_json(value)
    except KafkaException as error:
        raise translated(error, place) from None
    finally:
        reader.close()
    return found


def _first(link: Connection, topic: str, offset: int) -> Message | None:
    """Return the first record from an offset on, be it committed or not."""
    from confluent_kafka import TopicPartition

    reader = clients.consumer(link, _reading("first", "read_uncommitted"))
    try:
        reader.assign([TopicPartition(topic, PARTITION, offset)])
        found = reader.poll(_PATIENCE_S)
    finally:
        reader.close()
    return None if found is None or found.error() is not None else found


def _reading(sender: str, level: str = "read_committed") -> dict[str, Any]:
    return {
        "group.id": f"millstream-epochs/{sender}",
        "isolation.level": level,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        # The end is reported once an answer is empty, which a broker would hold back for longer.
        "fetch.wait.max.ms": 10,
    }


def _end(link: Connection, topic: str, *, stable: bool) -> int:
    """Return where the partition ends, or where the first transaction that is open begins."""
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

    where, admin = TopicPartition(topic, PARTITION), clients.admin(link)
    level = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
    asked = admin.list_offsets(
        {where: OffsetSpec.latest()},  # type: ignore[no-untyped-call]
        isolation_level=level,
        request_timeout=_PATIENCE_S,
    )
    return int(asked[where].result(_PATIENCE_S + 5).offset)
