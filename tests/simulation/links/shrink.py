"""Make a failing scenario small: leave out whatever it fails without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from simulation.links.scenario import Scenario
from simulation.links.world import OURS, Rules, violation


def shrunk(scenario: Scenario, rules: Rules = OURS) -> Scenario:
    """Return the smallest scenario on the way down from this one that still breaks the same promise."""
    broken = violation(scenario, rules)
    assert broken is not None, "this scenario keeps all promises"
    smaller: Scenario | None = scenario
    while smaller is not None:
        scenario = smaller
        smaller = next(
            (one for one in _smaller(scenario) if _breaks(one, broken.promise, rules)), None
        )
    return scenario


def _breaks(scenario: Scenario, promise: str, rules: Rules) -> bool:
    found = violation(scenario, rules)
    return found is not None and found.promise == promise


def _smaller(one: Scenario) -> Iterator[Scenario]:
    """Return what is left without a producer, a fault, an inbox, an instruction, some rows; the largest parts first."""
    if len(one.producers) > 1:
        yield from (one.without_producer(n) for n in range(len(one.producers)))
    for n in range(len(one.faults)):
        yield replace(one, faults=one.faults[:n] + one.faults[n + 1 :])
    if len(one.inboxes) > 1 and not _named(one, len(one.inboxes) - 1):
        yield replace(one, inboxes=one.inboxes[:-1])
    for n, sends in enumerate(one.producers):
        before, after = one.producers[:n], one.producers[n + 1 :]
        for fewer in dict.fromkeys((sends.rows // 2, sends.rows - 1)):
            if fewer >= 0 and fewer < sends.rows:
                marks = tuple(mark for mark in sends.marks if mark < fewer)
                yield replace(
                    one, producers=(*before, replace(sends, rows=fewer, marks=marks), *after)
                )
        if sends.marks:
            yield replace(one, producers=(*before, replace(sends, marks=sends.marks[1:]), *after))


def _named(one: Scenario, inbox: int) -> bool:
    """Whether a fault or a local producer names an inbox."""
    return any(getattr(fault, "inbox", None) == inbox for fault in one.faults) or any(
        sends.home == inbox for sends in one.producers
    )
