"""Addresses of topics are one line of text, with names of secrets and no values."""

from __future__ import annotations

import pytest

from millstream.brokers.address import parse, written
from millstream.brokers.connection import connection
from millstream.errors import InvalidOption
from millstream.secrets import Secret


@pytest.mark.parametrize(
    "address",
    [
        "kafka://b:9092/orders",
        "kafka://b1:9092,b2:9092/shop.orders-1_x",
        "kafka://shop@b:9093/orders?password=kafka-password&mechanism=PLAIN&tls=true",
        "kafka://b:9093/orders?certificate_key=k&ca=%2Fca.pem&certificate=%2Fc.pem&tls=true",
    ],
)
def test_an_address_says_all_that_a_connection_is_made_of(address: str) -> None:
    assert written(*parse(address)) == address


def test_a_login_is_a_user_and_the_name_of_a_secret() -> None:
    found, topic = parse("kafka://shop@b:9093/orders?password=kafka-password&tls=true")
    made = connection("b:9093", user="shop", password=Secret("kafka-password"), tls=True)
    assert (found, topic) == (made, "orders")


@pytest.mark.parametrize(
    ("address", "fact"),
    [
        ("kafka://b:9092", "is not the address of a topic"),
        ("kafka://b:9092/a/b", "is not the address of a topic"),
        ("kafka://b:9092/..", "is not the address of a topic"),
        ("s3://b/a", "is not the address of a topic"),
        ("kafka:///orders", "is not the address of a Kafka broker"),
        ("kafka://u:secret@b:9092/t", "has a password in it"),
        ("kafka://b:9092/t?acks=0", 'has "acks"'),
        ("kafka://u@b:9092/t", "user and password go together"),
    ],
)
def test_what_is_wrong_is_named(address: str, fact: str) -> None:
    with pytest.raises(InvalidOption, match=fact) as caught:
        parse(address)
    assert "secret@" not in str(caught.value)
