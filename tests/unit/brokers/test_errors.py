from __future__ import annotations

import builtins
import os
import pickle
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from millstream.brokers import clients, errors
from millstream.brokers.connection import connection
from millstream.errors import (
    BrokerAway,
    BrokerError,
    BrokerNotTrusted,
    LoginRefused,
    MissingExtra,
    RecordTooLarge,
    TopicForbidden,
    TopicMissing,
)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._TRANSPORT, BrokerAway),
        (KafkaError._TIMED_OUT, BrokerAway),
        (KafkaError.LEADER_NOT_AVAILABLE, BrokerAway),
        (KafkaError._DESTROY_BROKER, BrokerAway),
        (KafkaError._AUTHENTICATION, LoginRefused),
        (KafkaError._SSL, BrokerNotTrusted),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicMissing),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, TopicForbidden),
        (KafkaError.MSG_SIZE_TOO_LARGE, RecordTooLarge),
        (KafkaError.INVALID_REQUEST, BrokerError),
    ],
)
def test_an_error_of_kafka_becomes_one_of_ours(code: int, kind: type[BrokerError]) -> None:
    found = errors.translated(KafkaException(KafkaError(code)), 'topic "orders" at b:1')
    assert type(found) is kind
    assert found.message.startswith('topic "orders" at b:1 ')


def test_the_names_of_all_codes_are_those_of_the_library() -> None:
    assert [name for name in errors._KINDS if not hasattr(KafkaError, name)] == []


def test_what_the_client_reported_explains_a_timeout() -> None:
    trouble = clients.Trouble()
    trouble(KafkaError(KafkaError._AUTHENTICATION, "Authentication failed"))
    trouble(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    late = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    assert type(errors.translated(late, "the broker", trouble.last)) is LoginRefused
    refused = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert type(errors.translated(refused, "the broker", trouble.last)) is TopicForbidden


def test_a_failed_handshake_is_not_a_broker_that_is_away() -> None:
    text = "ssl://b:1/bootstrap: SSL handshake failed: certificate verify failed"
    error = KafkaError(KafkaError._TRANSPORT, text)
    assert type(errors.translated(error, "the broker")) is BrokerNotTrusted
    assert not errors.away(error)
    assert errors.away(KafkaError(KafkaError._TRANSPORT, "Connection refused"))


def test_a_broker_that_is_not_there_is_away() -> None:
    with pytest.raises(BrokerAway, match=r"127\.0\.0\.1:1"):
        clients.cluster_id(connection("127.0.0.1:1"), timeout=0.5)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("confluent_kafka"):
            raise ImportError(name, name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match="confluent_kafka") as found:
        clients.admin(connection("b:1"))
    assert found.value.hint == "pip install 'millstream[kafka]'"


def _made() -> object:
    return object()


def test_a_client_belongs_to_its_process() -> None:
    kept = clients.PerProcess(_made)
    assert kept.get() is kept.get()
    assert pickle.loads(pickle.dumps(kept)).get() is not kept.get()
    mine = kept.get()
    kept._made = os.getpid() + 1, mine
    assert kept.get() is not mine
