"""The broker that the other tests of Kafka use, and that `make kafka` starts."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

import millstream as ms
from millstream.brokers import clients
from millstream.brokers.connection import connection
from millstream.errors import RunError, TopicMissing
from millstream.testing.jars import digest_of
from millstream.testing.kafka import VERSION, VERSIONS, Broker, broker, port_of
from support.kafka import consume, new_topic, produce, shared_broker, stop_shared_broker
from support.kafka_sink import check_order, decision, place, publish, transactions, values
from support.kafka_source import KafkaCase

pytestmark = pytest.mark.kafka


def test_what_is_produced_is_consumed(kafka: str) -> None:
    topic = new_topic(kafka, 2)
    produce(kafka, topic, [b"a", b"b"], partition=0)
    produce(kafka, topic, [b"c"], partition=1)
    assert [message.value() for message in consume(kafka, topic)] == [b"a", b"b", b"c"]


def test_the_broker_of_a_run_is_waited_for_when_it_is_stopped(tmp_path: Path) -> None:
    shared_broker(tmp_path)
    pid = json.loads((tmp_path / "kafka.json").read_text())["pid"]
    assert psutil.pid_exists(pid)
    stop_shared_broker(tmp_path)
    assert not psutil.pid_exists(pid)  # nor is it left over, dead and not waited for


@pytest.mark.slow
def test_a_killed_broker_comes_back_where_it_was_with_its_topics(tmp_path: Path) -> None:
    with broker(tmp_path / "kafka") as running:
        topic = new_topic(running.servers)
        produce(running.servers, topic, [b"before"])
        running.kill()
    with broker(tmp_path / "kafka") as again:
        produce(running.servers, topic, [b"after"])
        found = [message.value() for message in consume(running.servers, topic)]
    assert again.port == running.port
    assert found == [b"before", b"after"]


def test_a_folder_keeps_its_port_until_another_is_asked_for(tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    assert port_of(tmp_path) is None
    Broker(tmp_path, 9092)._describe(settings)
    first = settings.read_text()
    assert port_of(tmp_path) == 9092
    Broker(tmp_path, 9092)._move(settings)
    assert settings.read_text() == first
    Broker(tmp_path, 19092)._move(settings)
    assert port_of(tmp_path) == 19092
    assert settings.read_text() == first.replace(
        "PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://127.0.0.1:19092"
    )


def test_a_version_of_kafka_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"Kafka 0\.8 is not a version that is known"):
        Broker(tmp_path, 9092, version="0.8").start()


@pytest.mark.soak
@pytest.mark.parametrize("version", [one for one in VERSIONS if one != VERSION])
def test_sources_and_sinks_work_with_other_versions(version: str, tmp_path: Path) -> None:
    with broker(tmp_path / "kafka", version=version) as running:
        where, sender = place(running.servers), "job/out/c1"
        decisions = [decision(tmp_path / "staged", n, sender, parts=2) for n in range(3)]
        publish(transactions(where, sender), decisions[:2], tmp_path / "staged")
        # Another producer of the same sender: its transactions go on after those that are in.
        publish(transactions(where, sender), decisions, tmp_path / "staged")
        running.kill()
        running.start()
        assert values(running.servers, where.topic) == list(range(600))
        check_order(running.servers, where.topic)
        case = KafkaCase(tmp_path / "journal", time=None)
        spec = ms.kafka(
            where.topic, "n string", servers=running.servers, format="raw", stop="latest"
        )
        case.read(spec)
        case.read(spec)
    assert sorted(map(int, case.numbers())) == list(range(600))


def test_the_digest_of_jars_is_that_of_their_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_bytes(b"1")
    first = digest_of(tmp_path)
    (tmp_path / "a.jar").write_bytes(b"2")
    second = digest_of(tmp_path)
    (tmp_path / "a.jar").rename(tmp_path / "b.jar")
    assert len({first, second, digest_of(tmp_path)}) == 3


def test_a_cluster_and_its_topics_have_ids(kafka: str) -> None:
    here = connection(kafka)
    name = new_topic(kafka, 3)
    found = clients.describe(here, name)
    assert (found.name, found.partitions, found.replicas) == (name, (0, 1, 2), 1)
    assert found.cluster == clients.cluster_id(here)
    admin = clients.admin(here)  # which must live for as long as its question
    admin.delete_topics([name])[name].result(30)
    with pytest.raises(TopicMissing, match=name):
        clients.topic_id(here, name)
    new_topic(kafka, name=name)
    assert clients.topic_id(here, name) != found.id
