"""Make a failing scenario small: leave out whatever it fails without."""

from __future__ import annotations

from collections.abc import Iterator

from simulation.switch.scenario import Scenario
from simulation.switch.world import OURS, Rules, violation


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
    for part in ("faults", "wishes", "arrivals"):
        yield from (one.without(part, number) for number in range(len(getattr(one, part))))
