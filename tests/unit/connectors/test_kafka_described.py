from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.connectors.kafka import Kafka
from millstream.errors import InvalidOption, MillstreamError, SecretMissing
from millstream.flow.describe import describe
from millstream.flow.dump import dump
from millstream.flow.load import load
from millstream.flow.named_secrets import check_secrets
from millstream.flow.stages import Source

DDL = "id bigint, customer string, headers map<string,string>, at timestamp"


def flow_of(spec: Kafka) -> ms.Flow:
    flow = ms.Flow("shop")
    flow.source("orders", spec, time="at", key="customer").sink("rows", ms.memory())
    return flow


WHOLE = ms.kafka(
    "orders",
    DDL,
    servers="b1:9093,b2:9093",
    format="avro",
    registry="https://shop@registry:8081",
    registry_password=ms.secret("registry"),
    start={1: 5, 0: 7},
    stop="latest",
    metadata={"key": "customer", "headers": "headers", "timestamp": "at"},
    tombstones=True,
    loss="accept",
    group="shop",
    user="shop",
    password=ms.secret("kafka-password"),
    ca="ca.pem",
    options={"socket.timeout.ms": 9000},
)


@pytest.mark.parametrize(
    "spec",
    [
        WHOLE,
        ms.kafka("orders", DDL, servers="b:1"),
        ms.kafka("orders", DDL, servers="b:1", start=datetime(2026, 1, 2, tzinfo=UTC)),
        ms.kafka(
            "o", DDL, servers="b:1", format="protobuf", schema_file="a.proto", message="shop.Order"
        ),
    ],
)
def test_yaml_and_back(spec: Kafka, tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(dump(flow_of(spec)))
    stage = load(path).stages["orders"]
    assert isinstance(stage, Source)
    assert stage.origin == spec


def test_a_description_holds_no_secret_and_says_where_the_topic_is() -> None:
    found = describe(flow_of(WHOLE))["stages"][0]["origin"]
    assert found["connection"]["password"] == {"secret": "kafka-password"}
    assert (found["kind"], found["topic"], WHOLE.text) == ("kafka", "orders", "kafka orders")


def test_secrets_of_the_connection_are_looked_for_before_a_flow_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MILLSTREAM_SECRET_REGISTRY", "x")
    monkeypatch.delenv("MILLSTREAM_SECRET_KAFKA_PASSWORD", raising=False)
    with pytest.raises(SecretMissing, match='source "orders": secret "kafka-password"'):
        check_secrets(flow_of(WHOLE))


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        ({"format": "jsonl"}, 'no format "jsonl"'),
        ({"start": "yesterday"}, 'cannot start at "yesterday"'),
        ({"start": "2026-01-01T00:00:00"}, "has no zone"),
        ({"start": {0: -1}}, "is not an offset"),
        ({"stop": "never"}, 'cannot stop at "never"'),
        ({"metadata": {"keys": "customer"}}, 'knows no "keys"'),
        ({"metadata": {"key": "client"}}, 'the column "client"'),
        ({"metadata": {"offset": "customer"}}, "of type string"),
        ({"metadata": {"key": "customer", "topic": "customer"}}, "the same column"),
        ({"format": "raw"}, "fills one column"),
        ({"format": "avro"}, "needs a schema"),
        ({"format": "avro", "registry": "registry:8081"}, "not the address"),
        ({"format": "protobuf", "schema_file": "a.proto"}, "name of a message"),
        ({"format": "avro", "registry": "https://"}, "not the address"),
        ({"format": "avro", "registry": "https://[x"}, "not the address"),
        ({"format": "avro", "registry": "https://a:b@c"}, "holds a password"),
        ({"format": "avro", "registry": "https://a@c", "registry_password": "b"}, "not a secret"),
        (
            {"format": "avro", "registry": "https://c", "registry_password": ms.secret("b")},
            "has no user",
        ),
        ({"schema_file": "a.avsc"}, 'schema_file= is for format "avro"'),
        ({"registry": "https://c"}, 'registry= is for format "avro"'),
        ({"message": "shop.Order"}, 'message= is for format "protobuf"'),
        ({"loss": "ignore"}, "means nothing"),
        ({"options": {"auto.offset.reset": "latest"}}, "cannot be set"),
    ],
)
def test_what_cannot_work_is_refused(arguments: dict[str, Any], fact: str) -> None:
    with pytest.raises(InvalidOption, match=fact) as found:
        ms.kafka("orders", DDL, **{"servers": "b:1", **arguments})
    assert found.value.hint
    assert "a:b" not in str(found.value)


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("start: {a: 1}", "is not an offset of a partition"),
        ("start: {0: x}", "is not an offset of a partition"),
        ("start: {0: -1}", "is not an offset of a partition"),
        ("registry_password: hush", "is not a secret"),
    ],
)
def test_what_is_wrong_in_yaml_is_an_error_with_its_place(
    line: str, fact: str, tmp_path: Path
) -> None:
    path = tmp_path / "flow.yaml"
    source = f"{{kafka: o, servers: 'b:1', schema: id bigint, {line}}}"
    path.write_text(f"name: shop\nsources:\n  o: {source}\nsinks:\n  s: {{from: o, memory:}}\n")
    with pytest.raises(MillstreamError, match=rf"(?s){fact}.*flow.yaml:"):
        load(path)
