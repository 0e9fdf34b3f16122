"""Records that a Kafka sink has staged and decided on, without Spark."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from millstream.brokers.connection import connection
from millstream.connectors.kafka import epochs
from millstream.connectors.kafka.decision import Decision, StagedFile
from millstream.connectors.kafka.publishing import (
    SENDER,
    SEQUENCE,
    Deliveries,
    Place,
    Publisher,
    Transactions,
)
from millstream.connectors.kafka.staged import KEY, RECORD, SIZE, SPOILT, VALUE, StageRecords
from support.kafka import consume, new_topic

SCHEMA = pa.schema(
    [
        (KEY, pa.binary()),
        (VALUE, pa.binary()),
        (SPOILT, pa.string()),
        (SIZE, pa.int64()),
        (RECORD, pa.string()),
    ]
)
EPOCHS = "millstream.epochs"
KEYS = 5


def place(servers: str, topic: str | None = None, *, limit: int = 1_000_000) -> Place:
    """Return a topic, a new one unless it is named, and make sure of the topic of epochs."""
    link = connection(servers, options={"reconnect.backoff.max.ms": 500})
    epochs.ensure(link, EPOCHS)
    return Place("out", link, topic or new_topic(servers, 3), EPOCHS, limit)


def staged(folder: Path, first: int, rows: int, *, size: int = 20) -> list[StagedFile]:
    """Stage records with rising numbers as values, and their key among the five."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = range(first, first + rows)
    columns = [
        [b"k%d" % (n % KEYS) for n in numbers],
        [b"%d" % n + b" " * size for n in numbers],
        *([None] * rows for _ in range(3)),
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    (answer,) = StageRecords(str(folder), f"e{first}", 1_000_000).write(iter([batch]))
    return [StagedFile(row["file"], row["rows"], row["bytes"]) for row in answer.to_pylist()]


def decision(folder: Path, epoch: int, sender: str, *, rows: int = 100, parts: int = 1) -> Decision:
    """Decide on an epoch with so many rows in each of its parts: its values follow on."""
    first = epoch * rows * parts
    files = [staged(folder, first + rows * part, rows) for part in range(parts)]
    return Decision(sender, epoch, tuple(tuple(some) for some in files))


def transactions(where: Place, sender: str) -> Transactions:
    return Transactions(where, sender, threading.Event())


def deliveries(where: Place, sender: str) -> Deliveries:
    return Deliveries(where, sender, threading.Event())


def publish(publisher: Publisher, decisions: Sequence[Decision], folder: Path) -> None:
    for one in decisions:
        publisher.publish(one, folder)


def values(servers: str, topic: str, *, committed: bool = True) -> list[int]:
    """Return what readers find, sorted."""
    return sorted(int(m.value() or b"") for m in consume(servers, topic, committed=committed))


def check_order(servers: str, topic: str) -> None:
    """Check that the values of every sender and key rise, and so do the numbers of a partition."""
    keys: dict[object, list[int]] = defaultdict(list)
    numbers: dict[object, list[int]] = defaultdict(list)
    for message in consume(servers, topic):
        headers = dict(message.headers() or [])
        keys[headers[SENDER], message.key()].append(int(message.value() or b""))
        numbers[headers[SENDER], message.partition()].append(int(headers[SEQUENCE] or b""))
    for found in (*keys.values(), *numbers.values()):
        assert found == sorted(found)
