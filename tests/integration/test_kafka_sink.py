"""A flow's results in a topic of Kafka: keys, formats, headers, and rows that it cannot take."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.connectors.kafka import KafkaTopic
from millstream.errors import TopicMissing, UnknownColumn
from millstream.journal import journal_at
from millstream.journal.kinds.files.layout import dead_folder
from millstream.spark.io.targets import Epoch, SinkContext, Target, open_target
from support.kafka import consume, new_topic
from support.kafka_source import KafkaCase

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

COLUMNS = "k string, n long, raw binary, place struct<x:double,tags:array<string>>, trace string"
ROWS: list[Any] = [
    ("a", 1, b"\x00\xff", (1.5, ["p", None]), "t1"),
    (None, 2, None, None, None),
    ("ä", 3, b"", (None, []), "t3"),
]


@pytest.fixture
def opened(kafka: str, tmp_path: Path) -> Iterator[Any]:
    targets: list[Target] = []
    letters = tmp_path / "letters"
    journal_at(letters).create(pa.schema([("n", pa.int64())]), partitions=1, time=None)

    def opening(spec: KafkaTopic, frame: Any) -> Target:
        name = f"out-{tmp_path.name}"
        context = SinkContext("flow", name, tmp_path, tmp_path / "group", None, letters)
        target = open_target(spec, context)
        targets.append(target)
        target.prepare(frame.schema)
        target.recover()
        return target

    yield opening
    for target in targets:
        target.close()


def epoch(batch: int = 0) -> Epoch:
    return Epoch("job", "group", "c1", batch, None)


def test_records_have_keys_values_and_headers(spark: SparkSession, kafka: str, opened: Any) -> None:
    topic = new_topic(kafka, 3)
    frame = spark.createDataFrame(ROWS, COLUMNS)
    target = opened(ms.kafka_topic(topic, servers=kafka, key="k", headers=["trace"]), frame)
    assert target.write(frame, epoch()) == 3
    found = {json.loads(m.value() or b"")["n"]: m for m in consume(kafka, topic)}
    assert {n: m.key() for n, m in found.items()} == {1: b"a", 2: None, 3: "ä".encode()}
    assert json.loads(found[1].value() or b"") == {
        "k": "a",
        "n": 1,
        "raw": "AP8=",
        "place": {"x": 1.5, "tags": ["p", None]},
    }
    headers = {n: dict(m.headers() or []) for n, m in found.items()}
    assert [headers[n].get("trace") for n in (1, 2, 3)] == [b"t1", None, b"t3"]
    numbers = sorted(int(one["millstream-sequence"] or b"") for one in headers.values())
    assert numbers == [0, 1, 2]


def test_a_raw_value_is_its_bytes_and_null_is_none(
    spark: SparkSession, kafka: str, opened: Any
) -> None:
    topic = new_topic(kafka)
    frame = spark.createDataFrame(ROWS, COLUMNS).coalesce(1)
    spec = ms.kafka_topic(topic, servers=kafka, key="k", format="raw", value="raw")
    opened(spec, frame).write(frame, epoch())
    assert sorted((m.key() or b"", m.value()) for m in consume(kafka, topic)) == [
        (b"", None),
        (b"a", b"\x00\xff"),
        ("ä".encode(), b""),
    ]


def test_an_avro_value_is_read_back_by_a_source(
    spark: SparkSession, kafka: str, opened: Any, tmp_path: Path
) -> None:
    names = ("n", "place", "at", "price")
    types = (
        "long",
        {"type": "record", "name": "Place", "fields": [{"name": "x", "type": ["null", "double"]}]},
        {"type": "long", "logicalType": "timestamp-micros"},
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    )
    fields = [
        {"name": name, "type": ["null", kind]} for name, kind in zip(names, types, strict=True)
    ]
    schema = {"type": "record", "name": "Order", "fields": fields}
    (tmp_path / "order.avsc").write_text(json.dumps(schema))
    columns = "n long, place struct<x:double>, at timestamp, price decimal(9,2), trace string"
    rows: list[Any] = [
        (1, (1.5,), datetime(2024, 5, 4, 12, tzinfo=UTC), Decimal("12.30"), "t"),
        (2, None, None, None, None),
    ]
    frame, topic = spark.createDataFrame(rows, columns), new_topic(kafka)
    avro = {"servers": kafka, "format": "avro", "schema_file": str(tmp_path / "order.avsc")}
    target = opened(ms.kafka_topic(topic, headers=["trace"], **avro), frame)
    assert target.write(frame, epoch()) == 2
    case = KafkaCase(tmp_path / "journal", time=None)
    case.read(ms.kafka(topic, columns.rpartition(",")[0], stop="latest", **avro))
    assert sorted(case.rows()[0], key=lambda row: row["n"]) == [
        {"n": 1, "place": {"x": 1.5}, "at": rows[0][2], "price": Decimal("12.30")},
        {"n": 2, "place": None, "at": None, "price": None},
    ]


def test_a_row_that_is_too_large_is_a_dead_letter_and_the_others_are_published(
    spark: SparkSession, kafka: str, opened: Any, tmp_path: Path
) -> None:
    topic = new_topic(kafka, max_message_bytes="20000")
    # Just below the limit and just above it: what is decided is never refused by the broker.
    sizes = [10, *range(19_600, 20_000, 10), 30_000]
    frame = spark.createDataFrame([("x" * size, size) for size in sizes], "k string, n long")
    spec = ms.kafka_topic(topic, servers=kafka, options={"compression.type": "none"})
    target = opened(spec, frame)
    published = target.write(frame, epoch())
    found = {json.loads(m.value() or b"")["n"] for m in consume(kafka, topic)}
    dead = list(journal_at(dead_folder(tmp_path / "letters")).reader().partition(0).read(0, 999))
    letters = [row for part in dead if part.batch is not None for row in part.batch.to_pylist()]
    lost = {json.loads(one["record"])["n"] for one in letters}
    assert len(found) == published
    assert found | lost == set(sizes)
    assert not found & lost
    assert 30_000 in lost
    assert 10 in found
    assert "max.message.bytes is 20000" in letters[0]["reason"]


def test_a_topic_that_is_missing_is_an_error_with_the_command_that_makes_it(
    spark: SparkSession, kafka: str, opened: Any
) -> None:
    frame = spark.createDataFrame(ROWS, COLUMNS)
    with pytest.raises(TopicMissing) as found:
        opened(ms.kafka_topic("not-there", servers=kafka), frame)
    assert "kafka-topics.sh" in str(found.value.hint)
    with pytest.raises(UnknownColumn, match='no column "key"'):
        opened(ms.kafka_topic("not-there", servers=kafka, key="key"), frame)


def test_a_topic_is_made_if_the_flow_asks_for_it(
    spark: SparkSession, kafka: str, opened: Any, tmp_path: Path
) -> None:
    topic = f"made-{tmp_path.name}-{datetime.now(UTC):%H%M%S%f}"
    frame = spark.createDataFrame(ROWS, COLUMNS)
    target = opened(ms.kafka_topic(topic, servers=kafka, partitions=2, format="csv"), frame)
    target.write(frame, epoch())
    assert len(consume(kafka, topic)) == 3


def test_at_least_once_needs_no_topic_of_epochs(
    spark: SparkSession, kafka: str, opened: Any
) -> None:
    topic = new_topic(kafka, 2)
    frame = spark.createDataFrame(ROWS, COLUMNS)
    spec = ms.kafka_topic(topic, servers=kafka, guarantee="at-least-once", epochs="no-such-topic")
    target = opened(spec, frame)
    target.write(frame, epoch(0))
    target.write(frame, epoch(0))
    target.write(frame, epoch(1))
    assert len(consume(kafka, topic)) == 6


def test_two_versions_of_a_sink_write_one_topic_at_the_same_time(
    spark: SparkSession, kafka: str, opened: Any
) -> None:
    topic = new_topic(kafka, 3)
    frame = spark.range(50).selectExpr("id AS n")
    spec = ms.kafka_topic(topic, servers=kafka)
    target = opened(spec, frame)

    def version(checkpoint: str) -> None:
        for batch in range(3):
            target.write(frame, Epoch("job", "group", checkpoint, batch, None))

    threads = [threading.Thread(target=version, args=(name,)) for name in ("old", "new")]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(consume(kafka, topic)) == 300
