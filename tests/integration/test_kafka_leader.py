"""Two brokers: a source whose partition is on one that is away, and a journal with copies on both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import millstream as ms
from contract.check_journal import SCHEMA, everything, rows
from millstream.brokers import topics
from millstream.brokers.connection import connection
from millstream.journal.kinds.kafka import KafkaJournal
from millstream.testing.kafka import Broker, broker, free_port
from support.kafka import produce
from support.kafka_source import DDL, KafkaCase, event, until

pytestmark = [pytest.mark.kafka, pytest.mark.soak]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[str, Broker]]:
    """The address of a cluster of two brokers, and the second of them."""
    controller = free_port()
    quorum = {"controller.quorum.voters": f"1@127.0.0.1:{controller}"}
    port = free_port()
    first = {
        **quorum,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "broker.session.timeout.ms": "1500",
        "broker.heartbeat.interval.ms": "300",
    }
    with broker(tmp_path / "one", port=port, properties=first) as one:
        away = free_port()
        here = {"process.roles": "broker", "node.id": "2", "broker.heartbeat.interval.ms": "300"}
        second = {**quorum, **here, "listeners": f"PLAINTEXT://127.0.0.1:{away}"}
        two = Broker(tmp_path / "two", away, second, one.cluster)
        two.start()
        admin = AdminClient({"bootstrap.servers": one.servers})
        try:
            until(lambda: len(admin.list_topics(timeout=10).brokers) == 2, "both brokers are there")
            yield one.servers, two
        finally:
            two.kill()
            one.kill()


def test_a_partition_without_a_leader_is_named_and_nothing_is_lost(
    pair: tuple[str, Broker], tmp_path: Path
) -> None:
    servers, two = pair
    read_without(two, servers, KafkaCase(tmp_path / "check" / "journals" / "events", partitions=2))


def test_a_journal_on_two_brokers_has_topics_that_lose_nothing(
    pair: tuple[str, Broker], tmp_path: Path
) -> None:
    journal = KafkaJournal(tmp_path / "journal", connection(pair[0]), "rows")
    journal.create(SCHEMA, time="at")
    with journal.writer(0) as writer:
        writer.append("a", 0, rows(1, 2))
    assert everything(journal) == [[10, 20]]
    found = topics.settings(journal.connection, "rows.index")
    assert found["min.insync.replicas"] == "2"


def read_without(two: Broker, servers: str, case: KafkaCase) -> None:
    """Read four partitions, one of which is on the second broker alone, which is away for a while."""
    admin = AdminClient({"bootstrap.servers": servers})
    topic = "spread"
    new = NewTopic(topic, 4, replica_assignment=[[1], [2], [1], [1]])
    admin.create_topics([new])[topic].result(30)
    for number in range(4):
        produce(servers, topic, [event(number)], partition=number)
    spec = ms.kafka(topic, DDL, servers=servers)
    with case.reading(spec) as found:
        until(lambda: sorted(case.numbers()) == [0, 1, 2, 3], "all are read")
        two.kill()
        missing = 'partition 1 of topic "spread" has no leader'
        # Whoever is at its end holds nobody up.
        until(lambda: _leaderless(admin, topic) == [1], "the partition has no leader")
        produce(servers, topic, [event(4)], partition=2)
        produce(servers, topic, [event(5)], partition=3)
        until(lambda: sorted(case.numbers()) == [0, 1, 2, 3, 4, 5], "the others go on")
        until(lambda: found.statistics().waiting == missing, "it says what it waits for")
    with case.reading(spec) as found:
        until(lambda: found.statistics().waiting == missing, "it says so from the start on")
        two.start()
        until(lambda: found.statistics().waiting is None, "it reads again")
        produce(servers, topic, [event(6)], partition=1)
        until(lambda: sorted(case.numbers()) == list(range(7)), "all partitions are read")


def _leaderless(admin: AdminClient, topic: str) -> list[int]:
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions
    return [number for number, one in found.items() if one.leader == -1]
