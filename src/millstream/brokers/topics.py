"""Topics of a cluster: made with as many copies as is usual, and the settings that they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from millstream.brokers.clients import PATIENCE_S, admin
from millstream.brokers.connection import Connection
from millstream.brokers.errors import translated

_MOST_COPIES: Final = 3


def copies(brokers: int) -> int:
    """Return how many copies a new topic has."""
    return min(_MOST_COPIES, brokers)


def in_sync(copies: int) -> int:
    """Return how many copies a record needs to count: if there are several, not the leader's alone.

    With one, a leader that dies takes along what it has acknowledged.
    """
    return min(2, copies)


def make(
    connection: Connection,
    name: str,
    partitions: int,
    settings: Mapping[str, str],
    *,
    patience: float = PATIENCE_S,
) -> None:
    """Make a topic, unless it is there or another makes it at the same time."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    client, place = admin(connection), f"the broker at {connection.servers}"
    try:
        count = copies(len(client.list_topics(timeout=patience).brokers))
        place = f'topic "{name}" at {connection.servers}'
        config = {"min.insync.replicas": str(in_sync(count)), **settings}
        made = client.create_topics([NewTopic(name, partitions, count, config=config)])
        made[name].result(patience)
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise translated(error, place) from None


def settings(connection: Connection, name: str) -> dict[str, str]:
    """Return the settings of a topic, be they its own or the cluster's.

    Raises:
        TopicMissing: There is none of that name.
        BrokerError: No broker answers, or it refuses.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

    # Named: a client that nobody refers to ends at once, and answers nothing.
    client = admin(connection)
    (asked,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
    try:
        entries: Mapping[str, Any] = asked.result(PATIENCE_S)
    except KafkaException as error:
        raise translated(error, f'topic "{name}" at {connection.servers}') from None
    return {key: str(entry.value) for key, entry in entries.items()}
