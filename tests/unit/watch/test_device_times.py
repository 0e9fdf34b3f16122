"""What an event with a time that cannot be does to a device: nothing to the runs of the others."""

from __future__ import annotations

from millstream.patterns.edge import EdgePattern
from millstream.patterns.pattern import Pattern
from millstream.watch.device import Device

SECOND = 1_000_000
YEAR = 365 * 24 * 3600 * SECOND
NOW = 56 * YEAR
AB = Pattern("p").begin("a", "kind = 'a'").followed_by("b", "kind = 'b'").within("1 hour")


def device(name: str, peer: str) -> Device:
    edge = EdgePattern.of(AB, schema=None, time="at", key=())
    return Device([edge], name, f"{name}1", [peer])


def test_a_peer_whose_clock_is_a_year_ahead_does_not_make_others_runs_forgotten() -> None:
    a, b = device("A", "B"), device("B", "A")
    a.event(("s", 1), NOW, {"kind": "a"}, clock=NOW)
    b.event(("t", 1), NOW + YEAR, {"kind": "a"}, clock=NOW + YEAR)
    ((_, say),) = b.due(0)
    a.receive("B", say, 0, clock=NOW)
    assert {run.id.first for run in a.matchers["p"]} == {("s", 1), ("t", 1)}
    (complete,) = a.event(("s", 2), NOW + SECOND, {"kind": "b"}, clock=NOW)
    assert complete.id.first == ("s", 1)
