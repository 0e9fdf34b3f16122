from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from millstream.brokers.connection import Connection, connection, from_yaml
from millstream.errors import InvalidOption, SecretMissing
from millstream.flow.document import read
from millstream.secrets import secret

WHOLE = connection(
    "b1:9093,b2:9093",
    user="shop",
    password=secret("kafka-password"),
    mechanism="SCRAM-SHA-256",
    ca="/etc/ca.pem",
    certificate="/etc/shop.pem",
    certificate_key=secret("kafka-key"),
    options={"socket.timeout.ms": 9000, "log.connection.close": False},
)


def test_a_connection_without_a_login_is_plain() -> None:
    found = connection("localhost:9092").configuration()
    assert found == {"bootstrap.servers": "localhost:9092", "security.protocol": "PLAINTEXT"}


def test_a_user_logs_in_with_scram_unless_another_mechanism_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MILLSTREAM_SECRET_KAFKA_PASSWORD", "hush")
    found = connection("b:1", user="shop", password=secret("kafka-password")).configuration()
    assert found["security.protocol"] == "SASL_PLAINTEXT"
    assert found["sasl.mechanisms"] == "SCRAM-SHA-512"
    assert (found["sasl.username"], found["sasl.password"]) == ("shop", "hush")


def test_all_arguments_become_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_SECRET_KAFKA_PASSWORD", "hush")
    monkeypatch.setenv("MILLSTREAM_SECRET_KAFKA_KEY", "-----BEGIN")
    assert WHOLE.configuration() == {
        "bootstrap.servers": "b1:9093,b2:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-256",
        "sasl.username": "shop",
        "sasl.password": "hush",
        "ssl.ca.location": "/etc/ca.pem",
        "ssl.certificate.location": "/etc/shop.pem",
        "ssl.key.pem": "-----BEGIN",
        "socket.timeout.ms": "9000",
        "log.connection.close": "false",
    }


def test_a_secret_without_a_value_is_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MILLSTREAM_SECRET_KAFKA_PASSWORD", raising=False)
    with pytest.raises(SecretMissing, match="kafka-password"):
        WHOLE.configuration()


def test_yaml_and_back(tmp_path: Path) -> None:
    tree = {
        key: {"secret": value.name} if hasattr(value, "variable") else value
        for key, value in WHOLE.to_yaml().items()
    }
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(tree))
    entry = read(tmp_path / "a.yaml")
    assert from_yaml(entry) == WHOLE
    entry.finish()
    assert connection("b:1").to_yaml() == {"servers": "b:1"}


def test_a_description_has_names_of_secrets_only() -> None:
    assert WHOLE.described()["password"] == {"secret": "kafka-password"}
    assert set(WHOLE.described()) == {one.name for one in dataclasses.fields(Connection)}


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        ({"servers": "localhost"}, '"localhost" is not the address of a Kafka broker'),
        ({"servers": "kafka://b:1"}, "is not the address"),
        ({"password": "hush", "user": "me"}, "is not a secret"),
        ({"user": "me"}, "go together"),
        ({"mechanism": "PLAIN"}, "has no user"),
        ({"certificate": "a.pem"}, "certificate_key go together"),
        ({"options": {"isolation.level": "read_uncommitted"}}, "aborted transactions"),
        ({"options": {"enable.auto.commit": True}}, "cannot be set"),
        ({"options": {"group.id": "x"}}, "an argument of its own"),
        ({"options": {"ssl.keystore.password": "x"}}, "cannot be set in a flow"),
        ({"options": {"plugin.library.paths": "/tmp/x.so"}}, "loads no libraries"),
        ({"options": {"enable.ssl.certificate.verification": False}}, "claims to be"),
    ],
)
def test_what_cannot_work_is_refused(arguments: dict[str, object], fact: str) -> None:
    with pytest.raises(InvalidOption, match=fact) as found:
        connection(**{"servers": "b:1", **arguments})  # type: ignore[arg-type]
    assert found.value.hint


def test_an_unknown_mechanism_is_refused() -> None:
    with pytest.raises(InvalidOption, match="GSSAPI"):
        connection("b:1", user="me", password=secret("x"), mechanism="GSSAPI")


def test_a_connection_is_described_without_a_client() -> None:
    code = (
        "import sys; from millstream.brokers import connection, clients, errors;"
        "connection.connection('b:1').configuration(); print('confluent_kafka' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
