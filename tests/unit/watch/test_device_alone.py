"""A device without peers: skip strategies, time-outs, and what is on its disk."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from millstream.patterns.edge import EdgePattern
from millstream.patterns.pattern import Pattern
from millstream.watch.device import Complete, Device
from millstream.watch.messages import Records

SECOND = 1_000_000
AB = Pattern("p").begin("a", "kind = 'a'").followed_by("b", "kind = 'b'").within("10 seconds")
AB = AB.emit("a.number as first, b.number as last")
SKIPPING = AB.skip_past_last()


class Watched:
    """A device and its disk."""

    def __init__(self, pattern: Pattern) -> None:
        self.edge = EdgePattern.of(pattern, schema=None, time="at", key=())
        self.disk: list[bytes] = []
        self.device = Device([self.edge], "A", "A1")
        self.number = 0

    def see(self, kinds: str) -> list[dict[str, Any]]:
        found: list[Complete] = []
        for kind in kinds:
            self.number += 1
            row = {"kind": kind, "number": self.number}
            at = self.number * SECOND
            found += self.device.event(("s", self.number), at, row)
            self.sync()
        return [dict(one.event) for one in found]

    def sync(self) -> None:
        records = self.device.records()
        if records is not None:
            self.disk.append(msgspec.msgpack.encode(records))

    def restart(self, *, snapshot: bool = False) -> None:
        if snapshot:
            self.disk = [msgspec.msgpack.encode(self.device.snapshot())]
        self.device = Device([self.edge], "A", "A2")
        for record in self.disk:
            self.device.restore(msgspec.msgpack.decode(record, type=Records))


def pairs(found: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(one["first"], one["last"]) for one in found]


def test_a_skip_strategy_drops_other_runs() -> None:
    assert pairs(Watched(AB).see("aab")) == [(1, 3), (2, 3)]
    assert pairs(Watched(SKIPPING).see("aab")) == [(1, 3)]


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("pattern", [AB, SKIPPING])
def test_runs_survive_a_restart(pattern: Pattern, snapshot: bool) -> None:
    for cut in range(1, 6):
        whole, halved = Watched(pattern), Watched(pattern)
        wanted = whole.see("aabxab")
        found = halved.see("aabxab"[:cut])
        halved.restart(snapshot=snapshot)
        assert found + halved.see("aabxab"[cut:]) == wanted


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("pattern", [AB, SKIPPING])
def test_what_was_not_delivered_before_a_crash_is_known_after_it(
    pattern: Pattern, snapshot: bool
) -> None:
    watched = Watched(pattern)
    watched.see("ab")
    watched.restart(snapshot=snapshot)
    (left,) = watched.device.undelivered
    assert left.event["last"] == 2
    watched.device.delivered(left.id)
    watched.sync()
    watched.restart(snapshot=snapshot)
    assert watched.device.undelivered == []


def test_an_event_that_comes_again_after_a_restart_completes_nothing_again() -> None:
    watched = Watched(AB)
    watched.see("ab")
    watched.restart()
    assert watched.device.event(("s", 2), 2 * SECOND, {"kind": "b", "number": 2}) == []
    assert watched.device.event(("s", 1), 1 * SECOND, {"kind": "a", "number": 1}) == []


def test_runs_that_run_out_of_time_are_reported_once_if_the_pattern_asks_for_them() -> None:
    watched = Watched(AB.timeouts())
    watched.see("a")
    (late,) = watched.device.advance(60 * SECOND)
    assert late.event["timed_out"] is True
    assert late.at == 11 * SECOND
    assert watched.device.advance(70 * SECOND) == []
    plain = Watched(AB)
    plain.see("a")
    assert plain.device.advance(60 * SECOND) == []


def test_a_run_that_only_waits_times_out_once() -> None:
    """The automaton of a flow forks where it waits for an optional block."""
    pattern = Pattern("p").begin("a", "kind = 'a'").followed_by("o", "kind = 'o'").optional()
    pattern = pattern.followed_by("b", "kind = 'b'").within("10 seconds").timeouts()
    watched = Watched(pattern)
    watched.see("ax")
    assert len(watched.device.advance(60 * SECOND)) == 1


def test_finished_runs_are_forgotten_in_time() -> None:
    watched = Watched(AB)
    for _ in range(200):
        watched.see("ab")
    assert len(list(watched.device.matchers["p"])) < 30
