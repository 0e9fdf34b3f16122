"""A watcher and a real Mosquitto: nothing is lost while one of them is away."""

from __future__ import annotations

import json
import os
import queue
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

import millstream as ms
from millstream.watch.watcher import Watcher
from support.mosquitto import Mosquitto, mosquitto

HOT = ms.Pattern("hot").begin("a", "t > 90").followed_by("b", "t > a.t").within("1 hour")
HOT = HOT.emit("sensor, a.t as first, b.t as last")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path / "broker") as running:
        yield running


class Outside:
    """A client outside: sends readings, and keeps what is found."""

    def __init__(self, port: int) -> None:
        self.found: queue.Queue[dict[str, Any]] = queue.Queue()
        self._subscribed = threading.Event()
        self._client = Client(CallbackAPIVersion.VERSION2, client_id="outside", clean_session=False)
        self._client.on_message = lambda _c, _d, m: self.found.put(json.loads(m.payload))
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        self._client.subscribe("found", qos=1)
        assert self._subscribed.wait(30)

    def send(self, *readings: object, topic: str = "heat/s1") -> None:
        sent = [self._client.publish(topic, json.dumps(one), qos=1) for one in readings]
        for one in sent:
            one.wait_for_publish(30)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def outside(broker: Mosquitto) -> Iterator[Outside]:
    client = Outside(broker.port)
    yield client
    client.close()


def watching(broker: Mosquitto, tmp_path: Path, **options: Any) -> Watcher:
    at = f"mqtt://127.0.0.1:{broker.port}"
    data = tmp_path / "data"
    return Watcher(
        HOT,
        key="sensor",
        device="A",
        data=data,
        inputs=[f"{at}/heat/+"],
        outputs=[f"{at}/found"],
        **options,
    )


def reading(t: float, **more: Any) -> dict[str, Any]:
    return {"sensor": "s1", "t": t, **more}


def test_messages_become_events_and_what_is_found_a_message(
    broker: Mosquitto, outside: Outside, tmp_path: Path
) -> None:
    with watching(broker, tmp_path) as watcher:
        wait_until_subscribed(broker)
        outside.send(reading(95), [reading(50), reading(96)])
        found = outside.found.get(timeout=30)
    assert (found["sensor"], found["first"], found["last"]) == ("s1", 95, 96)
    assert watcher.node.counts.events == 3


def wait_until_subscribed(broker: Mosquitto) -> None:
    """Wait for the subscription of the watcher, which Mosquitto keeps in its log."""
    import time

    until = time.monotonic() + 30
    while "heat/+" not in (broker.folder / "log").read_text(errors="replace"):
        assert time.monotonic() < until, "the watcher has not subscribed"
        time.sleep(0.02)


def test_what_is_sent_while_the_watcher_is_away_comes_when_it_is_back(
    broker: Mosquitto, outside: Outside, tmp_path: Path
) -> None:
    with watching(broker, tmp_path):
        wait_until_subscribed(broker)
    outside.send(reading(95), reading(96))
    with watching(broker, tmp_path):
        assert outside.found.get(timeout=30)["last"] == 96


def test_what_is_found_while_the_broker_is_away_is_sent_when_it_is_back(
    broker: Mosquitto, outside: Outside, tmp_path: Path
) -> None:
    with watching(broker, tmp_path) as watcher:
        wait_until_subscribed(broker)
        broker.stop()
        assert watcher.send([reading(95), reading(96)])
        broker.start()
        assert outside.found.get(timeout=60)["last"] == 96


def test_a_message_that_is_no_event_is_put_aside_and_the_next_is_taken(
    broker: Mosquitto, outside: Outside, tmp_path: Path
) -> None:
    with watching(broker, tmp_path) as watcher:
        wait_until_subscribed(broker)
        outside.send("wrong", reading(95), reading(96))
        assert outside.found.get(timeout=30)["last"] == 96
        assert watcher.rejected == 1
    aside = (tmp_path / "data" / "aside" / "rejected.jsonl").read_text()
    assert "not a JSON object" in aside


def test_a_message_is_acknowledged_after_it_is_synced_and_not_before(
    broker: Mosquitto, outside: Outside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a watcher had not taken when it went comes to the next one."""
    first = watching(broker, tmp_path)
    asked = threading.Event()

    def refused(*_: object, **__: object) -> list[Any]:
        asked.set()
        raise ms.MillstreamError("the disk is full")

    monkeypatch.setattr(first, "take", refused)

    def run() -> None:
        with pytest.raises(ms.MillstreamError):
            first.inputs[0].run(first)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until_subscribed(broker)
    outside.send(reading(95), reading(96))
    assert asked.wait(30)
    thread.join(30)
    first.close()
    with watching(broker, tmp_path):
        assert outside.found.get(timeout=30)["last"] == 96


def test_a_process_with_many_open_files_is_served_too(broker: Mosquitto, tmp_path: Path) -> None:
    """`select` waits for descriptors up to 1023 alone."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with watching(broker, tmp_path) as watcher:
            wait_until_subscribed(broker)
            outside = Outside(broker.port)
            outside.send(reading(95), reading(96))
            assert outside.found.get(timeout=30)["last"] == 96
            outside.close()
        assert watcher.node.counts.events == 2
    finally:
        for one in held:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
