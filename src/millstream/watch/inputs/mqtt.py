"""MQTT: every message of a topic is an event, or a list of events, in JSON.

The broker keeps messages of quality of service 1 for us while we are away, since our session stays.
A message is acknowledged after its events are synced. If the acknowledgement is lost, the broker
sends the message again: with an id column (`--id`), its events count once all the same.
"""

from __future__ import annotations

import logging
import queue
from typing import Any, Final

from millstream.watch.inputs import Feed
from millstream.watch.mqtt import Broker
from millstream.watch.rows import listed

_AT_ONCE: Final = 256
_log = logging.getLogger(__name__)


class MqttInput:
    """The messages of one topic, or of all that a filter matches."""

    def __init__(self, broker: Broker, client: str) -> None:
        self.name = f"mqtt {broker}"
        self._broker = broker
        #: Messages that are not acknowledged; None: stop. The broker bounds how many they are.
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._client = broker.connection(client, manual_ack=True)
        self._client.on_connect = self._connected
        self._client.on_disconnect = self._lost
        self._client.on_connect_fail = self._not_reached
        self._client.on_message = lambda _client, _data, message: self._messages.put(message)
        self._lost_before = False

    def _connected(
        self, client: Any, _data: object, _flags: object, code: Any, _more: object
    ) -> None:
        if code.is_failure:
            _log.warning("%s refuses us: %s", self._broker, code)
            return
        if self._lost_before:
            self._lost_before = False
            _log.warning("%s is back", self._broker)
        client.subscribe(self._broker.topic, qos=1)

    def _lost(self, _client: Any, _data: object, _flags: object, code: Any, _more: object) -> None:
        if code.is_failure:
            self._lost_before = True
            _log.warning("%s is away: %s", self._broker, code)

    def _not_reached(self, _client: Any, _data: object) -> None:
        if not self._lost_before:
            self._lost_before = True
            _log.warning("%s cannot be reached; it is tried again", self._broker)

    def run(self, feed: Feed) -> None:
        self._client.connect_async(self._broker.host, self._broker.port, keepalive=30)
        self._client.loop_start()
        try:
            while (messages := self._waiting()) is not None:
                self._take(feed, messages)
        finally:
            self._client.disconnect()
            self._client.loop_stop()

    def _waiting(self) -> list[Any] | None:
        """Wait for messages, and return all that are there; None if it is time to stop."""
        found = [self._messages.get()]
        while found[-1] is not None and len(found) < _AT_ONCE and not self._messages.empty():
            found.append(self._messages.get())
        if found[-1] is None:
            return None  # what was not acknowledged comes again
        return found

    def _take(self, feed: Feed, messages: list[Any]) -> None:
        rows: list[bytes] = []
        owners: list[str] = []
        for message in messages:
            events = listed(message.payload)
            rows += events
            owners += [message.topic] * len(events)
        for bad in feed.take(rows, source=self.name):
            _log.warning("a message of %s is no event: %s", owners[bad.place], bad.reason)
        for message in messages:
            self._client.ack(message.mid, message.qos)

    def stop(self) -> None:
        self._messages.put(None)


def make(rest: str, *, device: str, **_context: object) -> MqttInput:
    """Return the input for a URL."""
    broker = Broker.parse(rest)
    return MqttInput(broker, f"millstream-{device}")
