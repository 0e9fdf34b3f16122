"""Devices with a network that does its worst; and with a rule broken, which must be noticed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from millstream.watch import choice, device, matcher, runs
from millstream.watch.device import Sharing
from millstream.watch.matcher import KeyRuns
from millstream.watch.messages import LIVE
from millstream.watch.runs import Run
from simulation.watch.world import PATTERNS, SECOND, World, states, story, violation

SEEDS = 150


@pytest.mark.slow
def test_every_seed_keeps_all_promises() -> None:
    for seed in range(SEEDS):
        found = violation(seed)
        if found is not None:
            pytest.fail(f"seed {seed}: {found}\n" + "\n".join(story(seed)[-40:]), pytrace=False)


@pytest.mark.soak
def test_ten_thousand_seeds_keep_all_promises() -> None:
    for seed in range(SEEDS, 10_000):
        found = violation(seed)
        if found is not None:
            pytest.fail(f"seed {seed}: {found}\n" + "\n".join(story(seed)[-40:]), pytrace=False)


def test_the_same_seed_is_the_same_story() -> None:
    for seed in range(5):
        assert story(seed) == story(seed)


def test_the_seeds_reach_every_pattern_fault_and_message() -> None:
    lines, kinds = [], set()
    for seed in range(80):
        world = World(seed)
        world.run()
        lines += world.lines
        kinds.add(world.kind)
    assert kinds == set(PATTERNS)
    for wanted in (
        "SYNC",
        "PING",
        "RESYNC",
        "with RESET",
        "cut off",
        "loses its disk",
        "crashes before it has written",
        "completes",
        "publishes",
    ):
        assert any(wanted in line for line in lines), wanted


class Day(World):
    """Twenty-four hours: an event every few seconds, a fault every few minutes, a short memory."""

    faults_s = 86_400.0
    settled_s = faults_s + 400.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.kind = "sequence"
        self.pattern = PATTERNS[self.kind]
        self.sharing = Sharing(recall=600 * SECOND, limit=100)
        self.loss, self.repeat, self.slow, self.crashes, self.empty = 0.05, 0.05, 2.0, 1, False
        self.most = 0

    def _plan(self) -> None:
        at, number = 0.0, 0
        while at < self.faults_s:
            at, number = at + self.random.expovariate(1 / 10), number + 1
            row = {"kind": self.random.choice("abcd")}
            event = ("sensor", number), round(at * SECOND), row
            self.events.append(event)
            self.after(at, partial(self.sense, event))
        for minute in range(5, 24 * 60, 5):
            self.after(60.0 * minute, self.random.choice([self.crash, self.cut]))
            self.after(60.0 * minute + 30, self.measure)

    def measure(self) -> None:
        for node in self.nodes.values():
            for one in [] if node.device is None else node.device.matchers.values():
                runs = one.keys.get((), KeyRuns(()))
                self.most = max(self.most, len(runs.live) + len(runs.done), len(runs.remembered))

    def check(self) -> None:
        assert set(self.published) == set(self.alone())
        recent = {
            event_id for event_id, at, _ in self.events if at > (self.faults_s - 300) * SECOND
        }
        known = [
            {one: state for one, state in states(node.device).items() if one.first in recent}
            for node in self.nodes.values()
            if node.device is not None
        ]
        assert known[0] == known[1] == known[-1]
        assert known[0]


@pytest.mark.soak
def test_a_day_ends_with_what_one_device_would_have_found_and_in_bounded_memory() -> None:
    day = Day(1)
    day.run()
    assert len(day.published) > 50
    assert day.most < 600, "of 8,600 events, what is an hour old is forgotten"


# broken rules


def revived(known: Run, other: Run) -> Run:
    """A late update revives a finished run."""
    return other if other.status == LIVE else runs.better(known, other)


def halted_first(known: Run, other: Run) -> Run:
    """What is known stays, whatever another device knows."""
    return known


def by_arrival(known: Run, other: Run) -> Run:
    """Of histories of the same length the one that comes last stays."""
    best = runs.better(known, other)
    return other if known.status == other.status and known.link.depth == other.link.depth else best


def not_recalled(self: Any, run: Run) -> tuple[Run, list[Run]]:
    """A run that is learned of is not offered what was seen before."""
    return run, []


_heard, _succeeded = choice.heard, choice.succeeded


def reset_unheard(contact: Any, now: int, *, asks: bool, resync: bool = False) -> Any:
    """RESET on a message is ignored."""
    return _heard(contact, now, asks=False, resync=resync)


def reset_unanswered(contact: Any, now: int, *, asks: bool = False) -> Any:
    """RESET on an acknowledgement is ignored."""
    return _succeeded(contact, now)


Change = tuple[Any, str, Any]
REVIVED: Change = (matcher, "better", revived)
DEAF: Change = (matcher, "better", halted_first)
BY_ARRIVAL: Change = (matcher, "better", by_arrival)
NOT_RECALLED: Change = (matcher._Absorbing, "_grown", not_recalled)
NO_RESET = (choice, "heard", reset_unheard), (choice, "succeeded", reset_unanswered)
NOT_PUBLISHED: Change = (device.Device, "undelivered", property(lambda self: []))
NO_DISK: Change = (device.Device, "restore", lambda self, records: None)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("changes", "promises"),
    [
        pytest.param([REVIVED], {"agree", "once", "exact"}, id="a late update revives a run"),
        pytest.param([DEAF], {"agree", "exact"}, id="what is known stays"),
        pytest.param([BY_ARRIVAL], {"agree", "exact"}, id="the last message wins"),
        pytest.param([NOT_RECALLED], {"exact"}, id="events are not recalled"),
        pytest.param(NO_RESET, {"agree", "exact"}, id="no reset"),
        pytest.param([NOT_PUBLISHED], {"published"}, id="not published after a restart"),
        pytest.param([NO_DISK], {"exact", "once", "agree", "published"}, id="no disk"),
    ],
)
def test_a_broken_rule_is_noticed(
    monkeypatch: pytest.MonkeyPatch, changes: list[Change], promises: set[str]
) -> None:
    for owner, name, broken in changes:
        monkeypatch.setattr(owner, name, broken)
    found = next((one for seed in range(1_500) if (one := violation(seed)) is not None), None)
    assert found is not None, "1,500 seeds notice nothing"
    assert found.promise in promises, found
