"""Devices with a network that does its worst; and with a rule broken, which must be noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millstream.watch import choice, device, matcher, runs
from millstream.watch.changes import ChangeLog
from millstream.watch.messages import LIVE
from millstream.watch.runs import Run
from simulation.watch.world import PATTERNS, World, story, violation

SEEDS = 300


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


def nothing_passed_on(log: ChangeLog[Any]) -> Callable[..., int]:
    """What another device said is not passed on."""
    append = ChangeLog.append

    def broken(self: ChangeLog[Any], entry: Any, *, known_to: str | None = None) -> int:
        return self.end if known_to is not None else append(self, entry, known_to=known_to)

    return broken


def never_asked(contact: Any, now: int, *, asks: bool, resync: bool = False) -> Any:
    """RESET is ignored."""
    return choice_heard(contact, now, asks=False, resync=resync)


choice_heard = choice.heard


def published_again(self: Any) -> list[Any]:
    """Nothing is published after a restart."""
    return []


BROKEN: list[tuple[Any, str, Any, set[str]]] = [
    (matcher, "better", revived, {"agree", "once", "exact"}),
    (matcher, "better", halted_first, {"agree", "exact"}),
    (matcher, "better", by_arrival, {"agree", "exact"}),
    (matcher._Absorbing, "_grown", not_recalled, {"exact"}),
    (ChangeLog, "append", nothing_passed_on(None), {"agree"}),  # type: ignore[arg-type]
    (choice, "heard", never_asked, {"agree", "exact"}),
    (device.Device, "undelivered", property(published_again), {"published"}),
    (device.Device, "restore", lambda self, records: None, {"exact", "once", "agree", "published"}),
]


@pytest.mark.parametrize(
    ("owner", "name", "broken", "promises"),
    [pytest.param(*one, id=f"{place}-{one[1]}") for place, one in enumerate(BROKEN)],
)
def test_a_broken_rule_is_noticed(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, broken: Any, promises: set[str]
) -> None:
    monkeypatch.setattr(owner, name, broken)
    found = next((one for seed in range(400) if (one := violation(seed)) is not None), None)
    assert found is not None, "400 seeds notice nothing"
    assert found.promise in promises, found
