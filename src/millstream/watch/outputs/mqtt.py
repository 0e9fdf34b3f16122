"""MQTT: complex events as messages of JSON, with quality of service 1.

An event is delivered when the broker has acknowledged it. The broker may pass it on twice, and so
may a watcher that was killed: the run's id tells.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from millstream.errors import OutputAway
from millstream.watch.mqtt import Broker
from millstream.watch.outbox import Entry

_TIMEOUT_S: Final = 10.0


class MqttOutput:
    """Publishes complex events under one topic."""

    def __init__(self, broker: Broker, client: str, *, timeout: float = _TIMEOUT_S) -> None:
        self.name = f"mqtt {broker}"
        self._broker, self._timeout = broker, timeout
        self._client_id = client
        self._made: Any = None  # a client of paho-mqtt
        self._connected = threading.Event()
        self._why = "no answer"

    def deliver(self, entries: Sequence[Entry]) -> None:
        client = self._client()
        if not self._connected.wait(self._timeout):
            raise OutputAway(f"{self._broker} cannot be reached: {self._why}")
        until = time.monotonic() + self._timeout
        sent = [client.publish(self._broker.topic, entry.json, qos=1) for entry in entries]
        for one in sent:
            try:
                one.wait_for_publish(max(0.0, until - time.monotonic()))
            except (RuntimeError, ValueError) as error:
                self.close()
                raise OutputAway(f"{self._broker} took nothing: {error}") from error
            if not one.is_published():
                self.close()  # with it, the messages that it would send by itself
                raise OutputAway(f"{self._broker} did not acknowledge in time")

    def _client(self) -> Any:
        if self._made is None:
            self._made = self._broker.connection(self._client_id)
            self._made.on_connect = self._on_connect
            self._made.on_disconnect = lambda *_: self._connected.clear()
            self._made.connect_async(self._broker.host, self._broker.port, keepalive=30)
            self._made.loop_start()
        return self._made

    def _on_connect(
        self, _client: Any, _data: object, _flags: object, code: Any, _more: object
    ) -> None:
        if code.is_failure:
            self._why = str(code)
        else:
            self._connected.set()

    def close(self) -> None:
        if self._made is not None:
            self._made.disconnect()
            self._made.loop_stop()
            self._made = None
            self._connected.clear()


def make(rest: str, *, device: str, **_context: object) -> MqttOutput:
    """Return the output for a URL."""
    return MqttOutput(Broker.parse(rest), f"millstream-{device}-out")
