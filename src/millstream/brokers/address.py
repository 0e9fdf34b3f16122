"""Addresses of topics as one line of text: where they are, and who we are there.

    kafka://b1:9092,b2:9092/orders
    kafka://shop@b1:9093/orders?password=kafka-password&tls=true

`password` and `certificate_key` are names of secrets, never their values.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from millstream.brokers.connection import Connection, connection
from millstream.errors import InvalidOption
from millstream.secrets import Secret

SCHEME: Final = "kafka://"
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_SECRETS: Final = ("password", "certificate_key")
_WORDS: Final = ("mechanism", "ca", "certificate")
_HINT: Final = "write kafka://host:9092/topic"


def parse(address: str) -> tuple[Connection, str]:
    """Return the connection and the topic of an address.

    Raises:
        InvalidOption: It is none.

    Example:
        >>> found, topic = parse("kafka://b1:9092,b2:9092/orders")
        >>> found.servers, topic
        ('b1:9092,b2:9092', 'orders')
    """
    url = urlsplit(address)
    topic = unquote(url.path.removeprefix("/"))
    if url.scheme != "kafka" or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise InvalidOption(f'"{address}" is not the address of a topic', hint=_HINT)
    user, _, servers = url.netloc.rpartition("@")
    if ":" in user:
        msg = "the address of a topic has a password in it"
        raise InvalidOption(msg, hint="name a secret: kafka://user@host:9092/topic?password=NAME")
    given = dict(parse_qsl(url.query))
    unknown = given.keys() - {*_SECRETS, *_WORDS, "tls"}
    if unknown:
        known = ", ".join((*_SECRETS, *_WORDS, "tls"))
        msg = f'the address of topic "{topic}" has "{min(unknown)}"'
        raise InvalidOption(msg, hint=f"it may have {known}")
    password = Secret(given["password"]) if "password" in given else None
    key = Secret(given["certificate_key"]) if "certificate_key" in given else None
    made = connection(
        servers,
        user=unquote(user) or None,
        password=password,
        tls=given.get("tls", "false") == "true",
        mechanism=given.get("mechanism"),
        ca=given.get("ca"),
        certificate=given.get("certificate"),
        certificate_key=key,
    )
    return made, topic


def written(found: Connection, topic: str) -> str:
    """Return the address of which `parse` makes the same.

    Example:
        >>> written(*parse("kafka://shop@b:9093/orders?password=kafka-password&tls=true"))
        'kafka://shop@b:9093/orders?password=kafka-password&tls=true'
    """
    user = "" if found.user is None else f"{quote(found.user, safe='')}@"
    given = {
        name: value.name if isinstance(value, Secret) else str(value)
        for name in (*_SECRETS, *_WORDS)
        if (value := getattr(found, name)) is not None
    }
    if found.tls:
        given["tls"] = "true"
    query = f"?{urlencode(given)}" if given else ""
    return f"{SCHEME}{user}{found.servers}/{topic}{query}"
