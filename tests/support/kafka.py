"""One Kafka broker for all tests of a run, and helpers to make, fill and read topics.

Tests that kill, pause or fill a broker start one of their own: `millstream.testing.kafka.broker`.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.testing.kafka import Broker, free_port

_FILE = "kafka.json"
#: Kept: a process that nobody refers to any more while it runs is a warning of Python's.
_started: list[Broker] = []


def shared_broker(folder: Path) -> str:
    """Return the address of the run's broker, which the first worker that asks for it starts."""
    with (folder / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file = folder / _FILE
        if not file.exists():
            broker = Broker(folder / "kafka", free_port())
            broker.start()
            _started.append(broker)
            assert broker.process is not None
            file.write_text(json.dumps({"servers": broker.servers, "pid": broker.process.pid}))
        return str(json.loads(file.read_text())["servers"])


def stop_shared_broker(folder: Path) -> None:
    """Stop the run's broker, if there is one."""
    file = folder / _FILE
    if file.exists():
        pid = json.loads(file.read_text())["pid"]
        file.unlink()
        ours = next((one for one in _started if one.process and one.process.pid == pid), None)
        if ours is not None:
            ours.kill()  # and waits for it
            _started.remove(ours)
        else:
            os.kill(pid, signal.SIGKILL)


def new_topic(servers: str, partitions: int = 1, *, name: str | None = None, **config: str) -> str:
    """Make a topic with a name of its own; `config` has underscores for dots."""
    found = name or f"t-{uuid.uuid4().hex[:10]}"
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([NewTopic(found, partitions, 1, config=settings)])
    made[found].result(30)
    return found


def produce(
    servers: str,
    topic: str,
    values: Iterable[bytes | None],
    *,
    partition: int = 0,
    keys: Iterable[bytes | None] | None = None,
    headers: Mapping[str, bytes] | None = None,
    timestamp: int = 0,
) -> None:
    """Put records into a partition of a topic; all are there when this returns."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    failed: list[object] = []
    given = iter(keys) if keys is not None else iter(lambda: None, 0)
    for value, key in zip(values, given, strict=False):
        producer.produce(
            topic,
            value,
            key,
            partition,
            on_delivery=lambda error, _: failed.append(error) if error else None,
            timestamp=timestamp,
            headers=dict(headers or {}),
        )
        producer.poll(0)
    assert producer.flush(30) == 0
    assert not failed, failed


def consume(servers: str, topic: str, *, committed: bool = True) -> list[Message]:
    """Return all records that a reader sees now, partition by partition, in their order."""
    isolation = "read_committed" if committed else "read_uncommitted"
    settings = {"bootstrap.servers": servers, "group.id": uuid.uuid4().hex}
    consumer = Consumer(
        {
            **settings,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    found: dict[int, list[Message]] = {}
    try:
        partitions = sorted(consumer.list_topics(topic, 30).topics[topic].partitions)
        found = {number: [] for number in partitions}
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        open_ = set(partitions)
        while open_:
            message = consumer.poll(30)
            if message is None:
                pytest.fail(f"partitions {sorted(open_)} of {topic} have no end within 30 s")
            error, number = message.error(), message.partition()
            assert number is not None
            if error is None:
                found[number].append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                open_.discard(number)
            else:
                raise AssertionError(str(error))
    finally:
        consumer.close()
    return [message for some in found.values() for message in some]
