"""The broker that the other tests of Kafka use, and that `make kafka` starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.brokers import clients
from millstream.brokers.connection import connection
from millstream.errors import TopicMissing
from millstream.testing.jars import digest_of
from millstream.testing.kafka import broker
from support.kafka import consume, new_topic, produce

pytestmark = pytest.mark.kafka


def test_what_is_produced_is_consumed(kafka: str) -> None:
    topic = new_topic(kafka, 2)
    produce(kafka, topic, [b"a", b"b"], partition=0)
    produce(kafka, topic, [b"c"], partition=1)
    assert [message.value() for message in consume(kafka, topic)] == [b"a", b"b", b"c"]


@pytest.mark.slow
def test_a_killed_broker_comes_back_with_its_topics(tmp_path: Path) -> None:
    with broker(tmp_path / "kafka") as running:
        topic = new_topic(running.servers)
        produce(running.servers, topic, [b"before"])
        running.kill()
        running.start()
        produce(running.servers, topic, [b"after"])
        found = [message.value() for message in consume(running.servers, topic)]
    assert found == [b"before", b"after"]


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
