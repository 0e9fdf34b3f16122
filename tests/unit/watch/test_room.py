"""How many runs of peers a device has room for."""

from __future__ import annotations

import msgspec
import pytest

import millstream as ms
from millstream.errors import DeviceRefused
from millstream.patterns.edge import EdgePattern
from millstream.patterns.pattern import Pattern
from millstream.watch.device import Device, Sharing
from millstream.watch.metrics import exposition
from millstream.watch.replicator import PeerStatus

SECOND = 1_000_000
HOUR = 3600 * SECOND
AB = Pattern("p").begin("a", "kind = 'a'").followed_by("b", "kind = 'b'").within("1 hour")


def device(name: str, peer: str, most_runs: int = 1000) -> Device:
    edge = EdgePattern.of(AB, schema=None, time="at", key=["s"])
    return Device([edge], name, f"{name}1", [peer], Sharing(most_runs=most_runs))


def begin(one: Device, number: int, at: int = 0) -> None:
    one.event((one.name, number), at, {"kind": "a", "s": number})


def tell(one: Device, other: Device, elapsed: int = 0) -> None:
    """Let one device send what is due to another, and know that it arrived."""
    for _, say in one.due(elapsed):
        ack, _ = other.receive(one.name, say, elapsed)
        one.acknowledged(other.name, ack, elapsed)


def firsts(one: Device) -> set[tuple[str, int]]:
    return {run.id.first for run in one.matchers["p"]}


def test_new_runs_of_peers_are_refused_where_there_is_no_room() -> None:
    a, b = device("A", "B"), device("B", "A", most_runs=3)
    for number in range(2):
        begin(a, number)
    begin(b, 9)
    tell(a, b)
    assert firsts(b) == {("A", 0), ("A", 1), ("B", 9)}
    begin(a, 2)
    with pytest.raises(DeviceRefused, match="3 runs here, and room for 3"):
        tell(a, b)
    assert len(firsts(b)) == 3


def test_what_is_known_already_and_own_runs_need_no_room() -> None:
    a, b = device("A", "B"), device("B", "A", most_runs=2)
    for number in range(2):
        begin(a, number)
    tell(a, b)
    a.event(("A", 7), SECOND, {"kind": "b", "s": 0})
    tell(a, b)  # the first is complete now
    assert {run.status for run in b.matchers["p"]} == {0, 2}
    for number in range(5):
        begin(b, number)
    assert len(firsts(b)) == 7


def test_when_others_are_forgotten_there_is_room_again() -> None:
    a, b = device("A", "B"), device("B", "A", most_runs=2)
    for number in range(2):
        begin(a, number)
    tell(a, b)
    begin(a, 2, at=3 * HOUR)
    with pytest.raises(DeviceRefused):
        tell(a, b)
    begin(b, 9, at=3 * HOUR)  # time passes
    a.failed("B", a._number)
    tell(a, b, elapsed=10 * SECOND)
    assert firsts(b) == {("A", 2), ("B", 9)}


def test_how_many_messages_of_a_peer_were_refused_is_a_metric() -> None:
    peer = PeerStatus("B", "", False, None, None, 0, False, None, None, None, (7, "no room"))
    with ms.Watcher(AB) as watcher:
        status = msgspec.structs.replace(watcher.status(), peers=[peer])
    assert 'millstream_watch_peer_refused_total{peer="B"} 7' in exposition(status).splitlines()
