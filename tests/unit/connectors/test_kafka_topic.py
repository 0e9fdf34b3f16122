"""A Kafka topic as the target of a sink: its description, in Python and in YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.connectors.kafka import KafkaTopic
from millstream.errors import InvalidOption
from millstream.flow.describe import describe
from millstream.flow.dump import dump
from millstream.flow.load import load
from millstream.secrets import secret


def flow_with(target: KafkaTopic) -> ms.Flow:
    flow = ms.Flow("shop")
    orders = flow.source("orders", ms.inbox("k string, v long"))
    orders.sink("out", target)
    return flow


FULL: dict[str, Any] = {
    "servers": "a:9092,b:9092",
    "key": "k",
    "format": "raw",
    "value": "v",
    "headers": {"trace": "k"},
    "guarantee": "at-least-once",
    "partitioner": "crc32",
    "partitions": 6,
    "epochs": "shop.epochs",
    "user": "shop",
    "password": secret("kafka-password"),
    "tls": True,
    "options": {"compression.type": "zstd"},
}


@pytest.mark.parametrize(
    "target",
    [
        ms.kafka_topic("alerts", servers="a:9092"),
        ms.kafka_topic("alerts", **FULL),
        ms.kafka_topic("alerts", servers="a:9092", headers=["k"], format="csv"),
        ms.kafka_topic("alerts", servers="a:9092", format="avro", schema_file="alert.avsc"),
        ms.kafka_topic(
            "alerts",
            servers="a:9092",
            format="avro",
            registry="https://u@h:8081",
            registry_password=secret("registry"),
        ),
    ],
)
def test_yaml_has_all_of_it(target: KafkaTopic, tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(dump(flow_with(target)))
    assert load(file).sinks["out"].target == target


def test_a_raw_value_is_the_column_value_unless_another_is_named() -> None:
    assert ms.kafka_topic("t", servers="a:1", format="raw").value == "value"


def test_no_secret_and_no_value_of_one_is_in_a_description() -> None:
    target = describe(flow_with(ms.kafka_topic("alerts", **FULL)))["sinks"][0]["target"]
    assert target["kind"] == "kafka_topic"
    assert target["connection"]["password"] == {"secret": "kafka-password"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"format": "xml"}, 'a Kafka topic cannot have the format "xml"'),
        ({"guarantee": "once"}, 'cannot have the guarantee "once"'),
        ({"partitioner": "md5"}, 'cannot have the partitioner "md5"'),
        ({"partitions": 0}, "cannot have 0 partitions"),
        ({"value": "v"}, 'value="v" is for format "raw"'),
        ({"format": "avro"}, "a Kafka topic of Avro needs a schema"),
        ({"schema_file": "a.avsc"}, 'schema_file= is for format "avro", and the format is "json"'),
        ({"format": "avro", "registry": "host:8081"}, "is not the address of a schema registry"),
        ({"epochs": "alerts"}, "cannot hold results and epochs"),
        ({"epochs": "a b"}, '"a b" cannot be the name of a Kafka topic'),
        ({"options": {"transactional.id": "x"}}, "cannot be set"),
    ],
)
def test_what_does_not_go_together_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        ms.kafka_topic("alerts", **{"servers": "a:9092", **wrong})
