"""The topics of a journal: made with the settings that they need, and checked at the start."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from millstream.brokers import topics
from millstream.brokers.clients import PATIENCE_S, admin, describe
from millstream.brokers.connection import Connection
from millstream.brokers.errors import translated
from millstream.errors import SchemaConflict, TopicChanged, TopicMissing
from millstream.storage.disk import REAL, write_whole

INDEX: Final = ".index"
DEAD: Final = ".dead"
#: A dead letter is one record: its topic takes larger ones than brokers do unasked.
_LETTER: Final = 8 * 2**20
#: What a topic must have, or it loses rows on its own.
_NEEDED: Final = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "unclean.leader.election.enable": "false",
}
_LIMITS: Final = "limits.json"
#: Dead letters are put while senders wait.
_SOON_S: Final = 5.0
_SMALLEST: Final = 64 * 1024
#: What a record has around its value, and a batch around its records.
_AROUND: Final = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What the topics of a journal take: the bytes of a record's value."""

    data: int
    index: int
    #: The ids of both topics, which are others if they are made again.
    ids: tuple[str, ...] = ()


def keep(folder: Path, limits: Limits) -> None:
    """Keep what topics take in a folder: whoever writes from this host asks there."""
    write_whole(REAL, folder / _LIMITS, json.dumps(asdict(limits)).encode())


def known(folder: Path) -> Limits | None:
    """Return what topics take, if that is known here."""
    try:
        found = json.loads((folder / _LIMITS).read_bytes())
        return Limits(**{**found, "ids": tuple(found.get("ids", ()))})
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return None


def check_same(folder: Path, topic: str, now: Limits) -> None:
    """Refuse topics that are others than those that this host has a copy of.

    Raises:
        TopicChanged: Somebody has deleted them.
    """
    before = known(folder)
    if before is None or not before.ids or before.ids == now.ids:
        return
    gone = topic if before.ids[0] != now.ids[0] else index_topic(topic)
    msg = f'topic "{gone}" was deleted and made again: it has lost rows of journal "{folder}"'
    raise TopicChanged(msg, hint="give the journal another name; what was not read is gone")


def index_topic(topic: str) -> str:
    return f"{topic}{INDEX}"


def dead_topic(topic: str) -> str:
    return f"{topic}{DEAD}"


def there(connection: Connection, topic: str) -> bool:
    """Return whether both topics exist."""
    try:
        for name in (topic, index_topic(topic)):
            describe(connection, name)
    except TopicMissing:
        return False
    return True


def make(connection: Connection, topic: str, partitions: int) -> None:
    """Make the topics that are missing, with as many replicas as there are brokers, up to three."""
    for name in (topic, index_topic(topic)):
        topics.make(connection, name, partitions, _NEEDED)
    until = time.monotonic() + PATIENCE_S
    while not there(connection, topic) and time.monotonic() < until:
        time.sleep(0.05)  # what was made is known to all brokers a moment later


def make_dead(connection: Connection, topic: str) -> int:
    """Make the topic of dead letters if it is missing, and return how large a letter may be.

    Raises:
        SchemaConflict: It has a setting with which letters would be lost.
    """
    name = dead_topic(topic)
    topics.make(
        connection, name, 1, {**_NEEDED, "max.message.bytes": str(_LETTER)}, patience=_SOON_S
    )
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return checked(
                name, topics.settings(connection, name), describe(connection, name).replicas
            )
        except TopicMissing:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def grow(connection: Connection, topic: str, partitions: int) -> None:
    """Give both topics more partitions, if they have fewer."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

    client = admin(connection)
    for name in (topic, index_topic(topic)):
        if len(describe(connection, name).partitions) < partitions:
            asked = client.create_partitions([NewPartitions(name, partitions)])
            try:
                asked[name].result(PATIENCE_S)
            except KafkaException as error:
                raise translated(error, f'topic "{name}" at {connection.servers}') from None


def check(connection: Connection, topic: str, partitions: int) -> Limits:
    """Check that the topics keep what they are given, and return what they take.

    Raises:
        SchemaConflict: They have too few partitions, or a setting with which rows would be lost.
    """
    limits: list[int] = []
    ids: list[str] = []
    for name in (topic, index_topic(topic)):
        found = describe(connection, name)
        if len(found.partitions) < partitions:
            msg = f'topic "{name}" has {len(found.partitions)} partitions, the journal {partitions}'
            raise SchemaConflict(msg, hint="give the topic more partitions, or the journal another")
        limits.append(checked(name, topics.settings(connection, name), found.replicas))
        ids.append(found.id)
    return Limits(limits[0], limits[1], tuple(ids))


def checked(name: str, found: Mapping[str, str], replicas: int) -> int:
    """Check a topic's settings, and return how large a value may be.

    Raises:
        SchemaConflict: With one of them rows would be lost.

    Example:
        >>> good = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
        >>> checked("t", good | {"max.message.bytes": "1048588"}, replicas=1)
        1047564
    """
    for key, wanted in _NEEDED.items():
        if found.get(key, wanted) != wanted:
            msg = f'topic "{name}" has {key}={found[key]}, and would lose rows of the journal'
            raise SchemaConflict(msg, hint=f"set {key}={wanted} on the topic")
    in_sync = int(found.get("min.insync.replicas", "1"))
    if in_sync > replicas:
        msg = f'topic "{name}" has min.insync.replicas={in_sync} and {replicas} replicas'
        raise SchemaConflict(msg, hint=f"set min.insync.replicas={topics.in_sync(replicas)}")
    if replicas > 1 and in_sync < 2:
        msg = f'topic "{name}" has {replicas} replicas and min.insync.replicas={in_sync}'
        hint = "set min.insync.replicas=2: with 1, a broker that dies takes acknowledged rows along"
        raise SchemaConflict(msg, hint=hint)
    largest = int(found.get("max.message.bytes", "1048588"))
    if largest < _SMALLEST:
        msg = f'topic "{name}" takes records of {largest} bytes'
        raise SchemaConflict(msg, hint=f"set max.message.bytes={2**20} or more")
    return largest - _AROUND
