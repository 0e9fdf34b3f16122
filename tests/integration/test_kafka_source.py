"""Topics of a real broker as sources: every record once, and every loss an error."""

from __future__ import annotations

import io
import json
import logging
import struct
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

import millstream as ms
from millstream.errors import SourceFailed
from millstream.ingest import Ingest
from millstream.testing.connectors import ORIGIN_CHECKS, OriginCase
from millstream.testing.connectors.origins import OriginTrial
from millstream.testing.kafka import broker
from support.kafka import new_topic, produce
from support.kafka_source import DDL, NOON, KafkaCase, event, until

pytestmark = pytest.mark.kafka

Remade = Callable[[str, int, Callable[[Ingest], bool]], None]


@pytest.fixture
def case(tmp_path: Path) -> KafkaCase:
    return KafkaCase(tmp_path / "check" / "journals" / "events")


def admin_of(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers})


@pytest.mark.parametrize("check", ORIGIN_CHECKS)
@pytest.mark.parametrize("key", [None, "n"])
def test_it_keeps_to_the_contract_of_origins(
    kafka: str, tmp_path: Path, check: Callable[[OriginTrial], None], key: str | None
) -> None:
    topic = new_topic(kafka, 3, compression_type="lz4")
    rows = [{"n": n, "at": NOON + timedelta(seconds=n)} for n in range(60)]
    for number in range(3):
        produce(kafka, topic, [event(n) for n in range(60) if n % 3 == number], partition=number)
    produce(kafka, topic, [b"{", None, b"[]"], partition=1)
    spec = ms.kafka(topic, DDL, servers=kafka, stop="latest")
    check(OriginTrial(OriginCase(spec, rows, 2, "at", key), tmp_path / "journal"))


def test_bad_records_become_dead_letters_with_topic_partition_and_offset(
    kafka: str, case: KafkaCase
) -> None:
    topic = new_topic(kafka, 2)
    produce(kafka, topic, [event(0), b"{", b'{"n": 1}'], partition=1)
    case.read(ms.kafka(topic, DDL, servers=kafka, stop="latest"))
    found = sorted((row["position"], row["reason"], row["record"]) for row in case.letters())
    assert [position for position, _, _ in found] == [1, 2]
    assert found[0][1].startswith("malformed record")
    assert found[1][1] == 'time "at" is null'
    (origin,) = {row["origin"] for row in case.letters()}
    assert origin.startswith(f'topic "{topic}" (')
    assert origin.endswith(", partition 1")


def test_partitions_of_the_topic_belong_to_partitions_of_the_journal(
    kafka: str, case: KafkaCase
) -> None:
    topic = new_topic(kafka, 4)
    for number in range(4):
        produce(kafka, topic, [event(number)], partition=number)
    case.partitions = 2
    case.read(ms.kafka(topic, DDL, servers=kafka, stop="latest"))
    assert [sorted(row["n"] for row in part) for part in case.rows()] == [[0, 2], [1, 3]]


def test_a_partition_that_is_done_holds_no_other_up(kafka: str, case: KafkaCase) -> None:
    topic = new_topic(kafka, 2)
    produce(kafka, topic, [event(0)], partition=0)
    spec = ms.kafka(topic, DDL, servers=kafka, stop="latest")
    trial = OriginTrial(OriginCase(spec, [], 0, "at"), case.journal)
    produce(kafka, topic, [event(1)], partition=1)
    trial.run(steps=12)  # dies after the first rows
    case.read(spec)
    assert sorted(case.numbers()) == [0, 1]


def test_rows_of_a_key_are_in_one_partition_wherever_kafka_has_them(
    kafka: str, case: KafkaCase
) -> None:
    topic = new_topic(kafka, 2)
    produce(kafka, topic, [event(n % 5, n) for n in range(20)], partition=0)
    produce(kafka, topic, [event(n % 5, n) for n in range(20)], partition=1)
    case.partitions, case.key = 3, "n"
    case.read(ms.kafka(topic, DDL, servers=kafka, stop="latest"))
    keys = [{row["n"] for row in part} for part in case.rows()]
    assert sum(len(part) for part in keys) == 5
    assert len(case.numbers()) == 40


def test_a_backlog_is_read_in_the_order_of_time_across_partitions(
    kafka: str, case: KafkaCase
) -> None:
    topic = new_topic(kafka, 3)
    for number in range(3):
        produce(kafka, topic, [event(n, n) for n in range(3000)], partition=number)
    case.lateness = "10 s"
    case.read(ms.kafka(topic, DDL, servers=kafka, stop="latest"))
    assert len(case.numbers()) == 9000
    assert case.late() <= 10_000_000


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", [0, 1, 2, 3, 4, 5]),
        ("latest", [5]),
        ({0: 3}, [3, 4, 5]),
        (NOON + timedelta(seconds=2), [2, 3, 4, 5]),
    ],
)
def test_where_a_source_begins_is_remembered_before_its_first_row(
    kafka: str, case: KafkaCase, start: Any, expected: list[int]
) -> None:
    topic = new_topic(kafka)
    for n in range(5):
        moment = int((NOON + timedelta(seconds=n)).timestamp() * 1000)
        produce(kafka, topic, [event(n)], timestamp=moment)
    spec = ms.kafka(topic, DDL, servers=kafka, start=start)
    with case.reading(spec) as found:
        until(lambda: found.feed is not None and bool(found.feed.shown), "it begins")
    produce(kafka, topic, [event(5)])
    with case.reading(spec):
        until(lambda: case.numbers()[-1:] == [5], "it goes on")
    assert case.numbers() == expected


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        ({0: 3}, "1 records of partition 0.*offset 3"),
        ({0: 5, 1: 9}, "behind the end"),
        ({0: 5, 7: 0}, "names partition 7"),
    ],
)
def test_a_start_that_is_refused_is_not_remembered(
    kafka: str, case: KafkaCase, wrong: dict[int, int], fact: str
) -> None:
    topic = new_topic(kafka, 2)
    produce(kafka, topic, [event(n) for n in range(8)], partition=0)
    admin = admin_of(kafka)
    for removed in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        removed.result(30)
    with pytest.raises(SourceFailed, match=fact):
        case.read(ms.kafka(topic, DDL, servers=kafka, start=wrong, stop="latest"))
    case.read(ms.kafka(topic, DDL, servers=kafka, start={0: 6}, stop="latest"))
    assert case.numbers() == [6, 7]


def test_latest_of_an_empty_topic_loses_nothing_that_comes_later(
    kafka: str, case: KafkaCase
) -> None:
    topic = new_topic(kafka)
    spec = ms.kafka(topic, DDL, servers=kafka, start="latest")
    with case.reading(spec) as found:
        until(lambda: found.feed is not None and bool(found.feed.shown), "it begins")
    produce(kafka, topic, [event(0), event(1)])
    with case.reading(spec):
        until(lambda: len(case.numbers()) == 2, "both are there")


def test_what_was_passed_over_is_not_read_again(kafka: str, case: KafkaCase) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, [event(0), None, b"{", None])
    spec = ms.kafka(topic, DDL, servers=kafka, group=f"g-{topic}")
    settled = lambda found: list(found.feed._writers[0].numbers().values()).count(3) == 1  # noqa: E731
    with case.reading(spec) as found:
        until(lambda: found.feed is not None and settled(found), "progress is noted")
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": f"g-{topic}"})
    (committed,) = consumer.committed([TopicPartition(topic, 0)], 30)
    consumer.close()
    assert committed.offset == 4, "Kafka's tools can show it"


def test_only_committed_transactions_are_read(kafka: str, case: KafkaCase) -> None:
    topic = new_topic(kafka)
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic})
    producer.init_transactions(30)
    for n, commit in enumerate([True, False, True]):
        producer.begin_transaction()
        producer.produce(topic, event(n))
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    case.read(ms.kafka(topic, DDL, servers=kafka, stop="latest"))
    assert case.numbers() == [0, 2]


def test_new_partitions_are_found_and_read_from_their_beginning(
    kafka: str, case: KafkaCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.connectors.kafka.origin._LOOK_US", 200_000)
    topic = new_topic(kafka)
    spec = ms.kafka(topic, DDL, servers=kafka, start="latest")
    with case.reading(spec) as found:
        until(lambda: found.feed is not None and bool(found.feed.shown), "it begins")
        admin = admin_of(kafka)
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
        # A broker may not know yet what its controller has agreed to, and a producer asks it once.
        until(lambda: len(admin.list_topics(topic).topics[topic].partitions) == 2, "it is there")
        produce(kafka, topic, [event(7)], partition=1)
        until(lambda: case.numbers() == [7], "the new partition is read")


def test_records_that_retention_has_removed_are_an_error_with_their_number(
    kafka: str, case: KafkaCase
) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, [event(n) for n in range(3)])
    spec = ms.kafka(topic, DDL, servers=kafka)
    with case.reading(spec):
        until(lambda: len(case.numbers()) == 3, "they are read")
    produce(kafka, topic, [event(n) for n in range(3, 10)])
    admin = admin_of(kafka)
    for removed in admin.delete_records([TopicPartition(topic, 0, 8)]).values():
        removed.result(30)
    with pytest.raises(SourceFailed, match=r"5 records of partition 0.*offsets 3 to 7") as error:
        case.read(spec)
    assert 'loss="accept"' in str(error.value.hint)
    with case.reading(ms.kafka(topic, DDL, servers=kafka, loss="accept")):
        until(lambda: case.numbers() == [0, 1, 2, 8, 9], "it goes on with what is left")


def test_a_topic_that_was_made_again_is_an_error(
    kafka: str, case: KafkaCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.connectors.kafka.origin._LOOK_US", 200_000)
    topic = new_topic(kafka)
    produce(kafka, topic, [event(0), event(1)])
    spec = ms.kafka(topic, DDL, servers=kafka)
    admin = admin_of(kafka)
    reading = case.reading(spec)
    found = reading.__enter__()
    until(lambda: len(case.numbers()) == 2, "they are read")
    admin.delete_topics([topic])[topic].result(30)
    assert found.wait(60), "that the topic is deleted is not noticed"
    with pytest.raises(SourceFailed, match="does not exist"):
        reading.__exit__(None, None, None)
    new_topic(kafka, name=topic)
    produce(kafka, topic, [event(2)])
    with pytest.raises(SourceFailed, match=r"was made again.*0 at offset 2"):
        case.read(spec)
    with case.reading(ms.kafka(topic, DDL, servers=kafka, loss="accept")):
        until(lambda: case.numbers() == [0, 1, 2], "the new one is read")


@pytest.fixture
def remade(kafka: str, case: KafkaCase, monkeypatch: pytest.MonkeyPatch) -> Remade:
    """A source that has read a topic which is then made again; it looks only if something comes."""
    monkeypatch.setattr("millstream.connectors.kafka.origin._LOOK_US", 10**15)
    topic = new_topic(kafka)
    produce(kafka, topic, [event(n) for n in range(3)])

    def run(loss: str, records: int, done: Callable[[Ingest], bool]) -> None:
        with case.reading(ms.kafka(topic, DDL, servers=kafka, loss=loss)) as found:
            until(lambda: case.numbers() == [0, 1, 2], "they are read")
            admin = admin_of(kafka)
            admin.delete_topics([topic])[topic].result(30)
            new_topic(kafka, name=topic)
            produce(kafka, topic, [event(n) for n in range(100, 100 + records)])
            until(lambda: done(found), "the new topic is noticed")

    return run


@pytest.mark.parametrize("records", [2, 20])
def test_no_record_of_a_topic_that_was_made_again_is_taken_for_one_of_the_old(
    remade: Remade, case: KafkaCase, records: int
) -> None:
    with pytest.raises(SourceFailed, match=r"was made again.*0 at offset 3"):
        remade("fail", records, lambda found: found.wait(0))
    assert case.numbers() == [0, 1, 2]


def test_a_topic_that_was_made_again_is_read_from_its_start_if_that_is_accepted(
    remade: Remade, case: KafkaCase
) -> None:
    expected = [0, 1, 2, *range(100, 120)]
    remade("accept", 20, lambda _: len(case.numbers()) >= len(expected))
    assert case.numbers() == expected


def test_a_topic_that_does_not_exist_is_an_error(kafka: str, case: KafkaCase) -> None:
    with pytest.raises(SourceFailed, match=r'"no-such" at .* does not exist'):
        case.read(ms.kafka("no-such", DDL, servers=kafka))


class _Registry(BaseHTTPRequestHandler):
    """Answers as Confluent's registry does."""

    schemas: ClassVar[dict[int, Any]] = {}
    broken: ClassVar[bool] = False
    asked: ClassVar[int] = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        if self.broken:
            self.send_error(503)
            return
        found = self.schemas.get(int(self.path.rpartition("/")[2]))
        body = json.dumps({"schema": json.dumps(found)} if found else {"error_code": 40403})
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_avro_whose_schemas_are_in_a_registry(kafka: str, case: KafkaCase, registry: str) -> None:
    at = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
    old = {"type": "record", "name": "E", "fields": [{"name": "n", "type": "int"}, at]}
    new = {**old, "fields": [at, {"name": "n", "type": "long"}, {"name": "x", "type": "string"}]}
    _Registry.schemas = {1: old, 9: new}
    topic, ms_noon = new_topic(kafka), int(NOON.timestamp() * 1000)
    first = value(1, old, {"n": 1, "at": ms_noon})
    second = value(9, new, {"n": 2, "at": ms_noon, "x": "y"})
    produce(kafka, topic, [first, second, value(7, old, {"n": 3, "at": ms_noon})])
    spec = ms.kafka(topic, DDL, servers=kafka, format="avro", registry=registry, stop="latest")
    case.read(spec)
    assert case.numbers() == [1, 2]
    (letter,) = case.letters()
    assert "its schema 7 is not in the registry" in letter["reason"]


def value(number: int, schema: Any, record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return struct.pack(">bI", 0, number) + out.getvalue()


def test_a_registry_that_does_not_answer_is_waited_for_and_named_once(
    kafka: str,
    case: KafkaCase,
    registry: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millstream.connectors.kafka.origin._AGAIN_S", 0.05)
    schema = {"type": "record", "name": "E", "fields": [{"name": "n", "type": "int"}]}
    _Registry.schemas, _Registry.broken, _Registry.asked = {1: schema}, True, 0
    topic, case.time = new_topic(kafka), None
    produce(kafka, topic, [value(1, schema, {"n": 5})])
    spec = ms.kafka(topic, "n long", servers=kafka, format="avro", registry=registry)
    with case.reading(spec) as found:
        until(lambda: _Registry.asked > 5, "it asks again")
        assert "answers with status 503" in str(found.statistics().waiting)
        _Registry.broken = False
        until(lambda: case.numbers() == [5], "it goes on")
        until(lambda: found.statistics().waiting is None, "it says that it reads again")
    said = [one.message for one in caplog.records if one.name.startswith("millstream")]
    assert [len([one for one in said if what in one]) for what in ("waits", "reads again")] == [
        1,
        1,
    ]


@pytest.mark.slow
@pytest.mark.long
def test_a_broker_that_is_killed_paused_and_started_again_loses_and_repeats_nothing(
    tmp_path: Path, case: KafkaCase, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with broker(tmp_path / "kafka") as running:
        topic = new_topic(running.servers, 2)
        produce(running.servers, topic, [event(n) for n in range(50)])
        spec = ms.kafka(topic, DDL, servers=running.servers)
        with case.reading(spec) as found:
            until(lambda: len(case.numbers()) == 50, "the first are read")
            running.kill()
            until(lambda: found.statistics().waiting is not None, "it says that it waits")
            running.start()
            until(lambda: found.statistics().waiting is None, "it says that it reads again")
            produce(running.servers, topic, [event(n) for n in range(50, 60)], partition=1)
            until(lambda: len(case.numbers()) == 60, "it goes on after a kill")
            running.pause()
            time.sleep(1)  # what it does meanwhile is not the point
            running.resume()
            produce(running.servers, topic, [event(n) for n in range(60, 70)])
            until(lambda: len(case.numbers()) == 70, "it goes on after a pause")
        running.kill()
        with case.reading(spec) as found:
            until(lambda: found.statistics().waiting is not None, "a source may start first")
            running.start()
            produce(running.servers, topic, [event(n) for n in range(70, 80)])
            until(lambda: len(case.numbers()) == 80, "it begins when the broker is there")
        running.kill()  # quicker than an orderly end
    assert sorted(case.numbers()) == list(range(80))
    ours = [one for one in caplog.records if one.name.startswith("millstream")]
    assert len([one for one in ours if "waits" in one.message]) == 2
    assert len([one for one in ours if "reads again" in one.message]) == 2
