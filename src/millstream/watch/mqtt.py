"""MQTT addresses, and connections to brokers that are opened again when they break.

    mqtt://user@broker:1883/plant/+/heat?client=NAME&password=SECRET
    mqtts://broker/plant/+/heat                with TLS, port 8883

`password` is the name of a secret. `client` is the name under which the broker keeps messages for
us while we are away; by default one of the device and the topic.
"""

from __future__ import annotations

import os
import select
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from millstream.errors import InvalidOption
from millstream.secrets import Secret, secret, value_of

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_SHAPE: Final = "expected mqtt://broker/topic, with ?client=NAME and ?password=SECRET if you like"


@dataclass(frozen=True, slots=True)
class Broker:
    """Where a broker is, and the topic that is meant there."""

    host: str
    port: int
    topic: str
    tls: bool = False
    user: str | None = None
    password: Secret | None = None
    client: str | None = None

    @classmethod
    def parse(cls, url: str) -> Broker:
        """Return the broker and the topic of a URL.

        Example:
            >>> Broker.parse("mqtt://broker/plant/+/heat").topic
            'plant/+/heat'

        Raises:
            InvalidOption: It is none.
        """
        parts, topic = urlsplit(url.replace("#", "%23")), ""
        topic = unquote(parts.path).lstrip("/")
        given = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.scheme not in _PORTS or not parts.hostname or not topic:
            raise InvalidOption(f'"{url}" names no topic of a broker', hint=_SHAPE)
        if parts.password or not set(given) <= {"client", "password"}:
            hint = "keep the password as a secret, and name it: ?password=NAME"
            raise InvalidOption(
                f'the broker "{parts.hostname}" is given what it cannot take', hint=hint
            )
        return cls(
            parts.hostname,
            parts.port or _PORTS[parts.scheme],
            topic,
            parts.scheme == "mqtts",
            parts.username,
            secret(given["password"]) if "password" in given else None,
            given.get("client"),
        )

    def __str__(self) -> str:
        return f"mqtt{'s' if self.tls else ''}://{self.host}:{self.port}/{self.topic}"

    def connection(self, client: str, *, manual_ack: bool = False) -> Any:
        """Return a client of paho-mqtt that is not connected; the broker keeps its session."""
        from paho.mqtt import client as paho
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        # Its own, `select.select`, cannot wait for descriptors above 1023: in a process that has
        # more open files, a connection is never made, and nothing says so.
        vars(paho)["select"] = SimpleNamespace(select=wait_for)
        made = Client(
            CallbackAPIVersion.VERSION2,
            client_id=self.client or client,
            clean_session=False,
            manual_ack=manual_ack,
        )
        made.reconnect_delay_set(1, 30)
        if self.user is not None:
            password = None if self.password is None else value_of(self.password)
            made.username_pw_set(self.user, password)
        if self.tls:
            made.tls_set(ca_certs=os.environ.get("MILLSTREAM_CA") or None)
        return made


def wait_for(
    readable: Sequence[Any], writable: Sequence[Any], _errors: Sequence[Any], timeout: float
) -> tuple[list[Any], list[Any], list[Any]]:
    """Do what `select.select` does, for descriptors of any number."""
    poll = select.poll()
    wanted: dict[int, int] = {}
    for mask, sockets in ((select.POLLIN, readable), (select.POLLOUT, writable)):
        for one in sockets:
            wanted[one.fileno()] = wanted.get(one.fileno(), 0) | mask
    for descriptor, mask in wanted.items():
        poll.register(descriptor, mask)  # ValueError if it is closed, as with `select.select`
    ready = dict(poll.poll(timeout * 1000))
    broken = select.POLLHUP | select.POLLERR
    return (
        [one for one in readable if ready.get(one.fileno(), 0) & (select.POLLIN | broken)],
        [one for one in writable if ready.get(one.fileno(), 0) & (select.POLLOUT | broken)],
        [],
    )
