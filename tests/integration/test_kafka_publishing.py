"""Decided records come into a topic once, whatever the broker does meanwhile."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from millstream.brokers import topics
from millstream.connectors.kafka import epochs, publishing
from millstream.connectors.kafka.decision import Published
from millstream.connectors.kafka.publishing import Transactions
from millstream.errors import LinkClosed, RecordTooLarge, RunError, TopicMissing
from millstream.testing.kafka import Broker, broker
from support import kafka_sink
from support.kafka import consume, new_topic
from support.kafka_sink import (
    EPOCHS,
    check_order,
    decision,
    deliveries,
    place,
    publish,
    transactions,
    values,
)

pytestmark = pytest.mark.kafka

#: A broker looks for transactions that have lasted too long.
LOOKS_MS = "200"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that these tests may disturb; each leaves it running."""
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": LOOKS_MS}
    with broker(tmp_path_factory.mktemp("kafka") / "own", properties=often) as running:
        yield running


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "TRANSACTION_S", 4.0)
    monkeypatch.setattr(publishing, "TRY_S", 1.0)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions end of themselves soon, for tests that wait for it."""
    monkeypatch.setattr(publishing, "TRANSACTION_S", 2.0)
    monkeypatch.setattr(publishing, "TRY_S", 0.5)


@pytest.fixture
def sender() -> str:
    return f"job/out/{uuid.uuid4().hex[:12]}"


def test_an_epoch_in_several_parts_is_in_once_however_often_it_is_published(
    own: Broker, sender: str, tmp_path: Path
) -> None:
    where = place(own.servers)
    decisions = [decision(tmp_path, epoch, sender, parts=3) for epoch in range(3)]
    publish(transactions(where, sender), decisions, tmp_path)
    publish(transactions(where, sender), decisions, tmp_path)
    assert values(own.servers, where.topic) == list(range(900))
    check_order(own.servers, where.topic)


def test_a_commit_whose_answer_was_lost_is_not_repeated(
    own: Broker, sender: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, once = place(own.servers), decision(tmp_path, 0, sender)
    publisher = transactions(where, sender)
    publisher.published()
    patiently, calls = publisher._patiently, []

    def lost(call: object) -> None:
        patiently(call)  # type: ignore[arg-type]
        if not calls:
            calls.append(call)
            from confluent_kafka import KafkaError, KafkaException

            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(publisher, "_patiently", lost)
    publisher.publish(once, tmp_path)
    assert calls
    assert values(own.servers, where.topic) == list(range(100))


def test_two_versions_write_one_topic_and_do_not_fence_each_other(
    own: Broker, tmp_path: Path
) -> None:
    where = place(own.servers)
    senders = ["job/overlap/old", "job/overlap/new"]
    with ThreadPoolExecutor(2) as pool:
        for sender in senders:
            folder = tmp_path / sender.replace("/", "-")
            decisions = [decision(folder, epoch, sender) for epoch in range(20)]
            pool.submit(publish, transactions(where, sender), decisions, folder)
    assert values(own.servers, where.topic) == sorted([*range(2000), *range(2000)])
    check_order(own.servers, where.topic)


@pytest.mark.parametrize("lost", [False, True], ids=["raised", "lost"])
def test_whoever_takes_over_ends_the_one_before_with_a_clear_error(
    own: Broker, sender: str, tmp_path: Path, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lost:
        monkeypatch.setattr(Transactions, "_flush", flush_that_loses_its_error)
    where = place(own.servers)
    first, second, third = (decision(tmp_path, epoch, sender) for epoch in range(3))
    asleep, awake = transactions(where, sender), transactions(where, sender)
    asleep.publish(first, tmp_path)
    awake.publish(second, tmp_path)
    with pytest.raises(RunError, match='sink "out" is written by another process'):
        asleep.publish(second, tmp_path)
    awake.publish(third, tmp_path)
    assert values(own.servers, where.topic) == list(range(300))


_flush = Transactions._flush


def flush_that_loses_its_error(self: Transactions, producer: Any) -> None:
    """Flush as the client does at times: a callback takes away what librdkafka has raised."""
    try:
        _flush(self, producer)
    except (SystemError, KafkaException):
        self._failed = None
        raise SystemError("returned NULL without setting an exception") from None


@pytest.mark.usefixtures("soon")
def test_a_transaction_that_the_broker_ended_for_its_age_is_begun_again(
    own: Broker, sender: str, tmp_path: Path
) -> None:
    where, epoch = place(own.servers), decision(tmp_path, 0, sender)
    publisher = transactions(where, sender)
    producer = publisher._opened()
    producer.begin_transaction()
    producer.produce(where.topic, b"-1")
    producer.flush()
    until = time.monotonic() + 30
    # The marker of the abort is the second record.
    while end_of(own, where.topic) < 2:
        assert time.monotonic() < until
        time.sleep(0.1)
    publisher.publish(epoch, tmp_path)
    assert values(own.servers, where.topic) == list(range(100))


def end_of(own: Broker, topic: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer({"bootstrap.servers": own.servers, "group.id": "ends"})
    try:
        partitions = [TopicPartition(topic, number) for number in range(3)]
        return sum(reader.get_watermark_offsets(one)[1] for one in partitions)
    finally:
        reader.close()


def test_what_others_have_not_ended_is_waited_for(own: Broker, sender: str, tmp_path: Path) -> None:
    where = place(own.servers)
    settings = {"bootstrap.servers": own.servers, "transactional.id": "another"}
    other = Producer({**settings, "transaction.timeout.ms": 60_000})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(EPOCHS, Published(7).to_json(), b"job/another/c1", 0)
    other.flush()
    # Behind what is open, and so hidden by it.
    hidden = Producer({"bootstrap.servers": own.servers})
    hidden.produce(EPOCHS, Published(3, writer="me").to_json(), sender.encode(), 0)
    hidden.flush()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(epochs.published, where.connection, EPOCHS, sender, lambda: True, 60.0)
        with pytest.raises(TimeoutError):
            found.result(1.0)
        other.commit_transaction(30)
        assert found.result(30) == Published(3, writer="me")


def test_a_transaction_that_the_broker_forgot_to_end_is_ended(
    own: Broker, sender: str, tmp_path: Path
) -> None:
    where = place(own.servers)
    first, second = (decision(tmp_path, epoch, sender) for epoch in range(2))
    before, after = transactions(where, sender), transactions(where, sender)
    before.publish(first, tmp_path)
    held = before._state
    # As it looks after such a restart: its record is the first that is not ended.
    found = epochs.Hanging(held)
    read, calls = epochs.published, []

    def hidden(*arguments: object) -> Published:
        if not calls:
            calls.append(arguments)
            raise found
        return read(*arguments)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(epochs, "published", hidden)
        after.publish(second, tmp_path)
    assert calls
    assert values(own.servers, where.topic) == list(range(200))


def test_what_a_sender_itself_left_open_is_found(own: Broker, sender: str) -> None:
    where = place(own.servers)
    settings = {"bootstrap.servers": own.servers, "transactional.id": f"other-{sender}"}
    open_ = Producer({**settings, "transaction.timeout.ms": 60_000})
    open_.init_transactions(30)
    open_.begin_transaction()
    state = Published(4, 1, 2, "host:1:a")
    open_.produce(EPOCHS, state.to_json(), sender.encode(), 0)
    open_.flush()
    with pytest.raises(epochs.Hanging) as found:
        epochs.published(where.connection, EPOCHS, sender, lambda: True, 30.0)
    assert found.value.state == state
    open_.abort_transaction(30)
    assert epochs.published(where.connection, EPOCHS, sender, lambda: True, 30.0) == Published()


def test_a_broker_that_answers_slowly_hides_nothing(
    kafka: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # The first record of a topic of epochs that has only this sender, which is committed.
    where, sender = replace(place(kafka), epochs=new_topic(kafka, 1)), "job/out/slow"
    decisions = [decision(tmp_path, n, sender) for n in range(2)]
    publish(transactions(where, sender), decisions, tmp_path)
    monkeypatch.setattr(epochs, "_POLL_S", 0)
    publish(transactions(where, sender), decisions, tmp_path)
    assert values(kafka, where.topic) == list(range(200))


@pytest.mark.parametrize("kind", [transactions, deliveries])
def test_a_broker_that_is_killed_and_comes_back_has_every_record(
    own: Broker, sender: str, tmp_path: Path, kind: object
) -> None:
    where, count = place(own.servers), 60
    decisions = [decision(tmp_path, epoch, sender) for epoch in range(count)]
    done = threading.Event()
    publisher = kind(where, sender)  # type: ignore[operator]

    def all_of_them() -> None:
        for one in decisions:
            publisher.publish(one, tmp_path)
            if one.epoch == 5:
                done.set()

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(all_of_them)
        assert done.wait(60)
        own.kill()
        own.start()
        result.result(120)
    found = values(own.servers, where.topic)
    if kind is transactions:
        assert found == list(range(count * 100))
        check_order(own.servers, where.topic)
    else:
        assert sorted(set(found)) == list(range(count * 100))


@pytest.mark.usefixtures("soon")
def test_a_broker_that_stood_still_for_longer_than_a_transaction_has_every_record_once(
    own: Broker, sender: str, tmp_path: Path
) -> None:
    where = place(own.servers)
    decisions = [decision(tmp_path, epoch, sender) for epoch in range(40)]
    publisher = transactions(where, sender)
    publisher.published()
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(publish, publisher, decisions, tmp_path)
        own.pause()
        try:
            with pytest.raises(TimeoutError):
                result.result(publishing.TRANSACTION_S + 1)
        finally:
            own.resume()
        result.result(60)
    assert values(own.servers, where.topic) == list(range(4000))
    check_order(own.servers, where.topic)


def test_a_run_that_is_stopped_does_not_wait_for_a_broker(
    own: Broker, sender: str, tmp_path: Path
) -> None:
    where, stopping = place(own.servers), threading.Event()
    publisher = publishing.Transactions(where, sender, stopping)
    publisher.published()
    own.pause()
    try:
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(publisher.publish, decision(tmp_path, 0, sender), tmp_path)
            with pytest.raises(TimeoutError):
                result.result(1.0)
            stopping.set()
            with pytest.raises(LinkClosed, match='sink "out" was stopped while it wrote'):
                result.result(20)
    finally:
        own.resume()
    publish(transactions(where, sender), [decision(tmp_path, 0, sender)], tmp_path)
    assert values(own.servers, where.topic) == list(range(100))


def test_records_that_a_topic_no_longer_takes_wait_for_a_larger_limit(
    own: Broker, sender: str, tmp_path: Path
) -> None:
    where = place(own.servers)
    files = kafka_sink.staged(tmp_path, 0, 3, size=100_000)
    once = kafka_sink.Decision(sender, 0, (tuple(files),))
    alter(own, where.topic, "max.message.bytes", "2000")
    alter(own, where.topic, "compression.type", "uncompressed")
    publisher = transactions(where, sender)
    with pytest.raises(RecordTooLarge, match=f'topic "{where.topic}" .* does not accept'):
        publisher.publish(once, tmp_path)
    assert values(own.servers, where.topic) == []
    alter(own, where.topic, "max.message.bytes", "1000000")
    publisher.publish(once, tmp_path)
    assert values(own.servers, where.topic) == [0, 1, 2]


def alter(own: Broker, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": own.servers})
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_a_topic_that_is_deleted_and_made_again_gets_what_was_decided(
    own: Broker, sender: str, tmp_path: Path
) -> None:
    where = place(own.servers)
    first, second = (decision(tmp_path, epoch, sender) for epoch in range(2))
    publisher = transactions(where, sender)
    publisher.publish(first, tmp_path)
    admin = AdminClient({"bootstrap.servers": own.servers})
    admin.delete_topics([where.topic])[where.topic].result(30)
    with pytest.raises(TopicMissing, match=f'topic "{where.topic}" .* does not exist'):
        publisher.publish(second, tmp_path)
    new_topic(own.servers, 3, name=where.topic)
    publisher.publish(second, tmp_path)
    assert values(own.servers, where.topic) == list(range(100, 200))


def test_a_topic_of_epochs_that_forgets_is_refused(own: Broker) -> None:
    where = place(own.servers)
    with pytest.raises(RunError, match=r"cleanup\.policy=delete: it would forget") as found:
        epochs.ensure(where.connection, new_topic(own.servers))
    assert "--add-config cleanup.policy=compact" in str(found.value.hint)


def test_the_topic_of_epochs_is_compacted(own: Broker, sender: str, tmp_path: Path) -> None:
    where = place(own.servers)
    assert topics.settings(where.connection, EPOCHS)["cleanup.policy"] == "compact"
    publish(transactions(where, sender), [decision(tmp_path, 0, sender)], tmp_path)
    last = [m for m in consume(own.servers, EPOCHS) if m.key() == sender.encode()][-1]
    state = Published.from_json(last.value() or b"")
    assert (state.epoch, state.part, state.of) == (0, 0, 1)
