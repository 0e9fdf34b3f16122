"""Leases under pauses, crashes, jumping clocks and lost answers; and with a rule broken, which must be noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from millstream.engine.leases import observer as observing
from millstream.engine.leases import rules
from millstream.engine.leases.observer import Local, Observer, Step
from millstream.engine.leases.rules import EngineView, JobView, Watched
from millstream.joblog import protocol
from millstream.joblog.protocol import Log
from simulation.job_log.world import Broken
from simulation.leases.world import World, violation

SEEDS = 100
SOAK_SEEDS = 10_000


def _all_keep(seeds: Iterable[int]) -> None:
    for seed in seeds:
        found = violation(seed)
        assert found is None, f"seed {seed}: {found}"


def test_every_seed_keeps_all_promises() -> None:
    _all_keep(range(SEEDS))


@pytest.mark.soak
def test_ten_thousand_seeds_keep_all_promises() -> None:
    _all_keep(range(SOAK_SEEDS))


def calm(seed: int) -> str | None:
    """Return what goes wrong in a world in which only drivers die."""
    world = World(seed, calm=True)
    try:
        world.run()
    except Broken as error:
        return str(error)
    if world.balance() > 1:
        return "one engine has more jobs than its part"
    if any(book.moves for book in world.books.values()):
        return "a job has moved from an engine that lives"
    return None


def test_jobs_are_balanced_and_stay_where_they_are() -> None:
    assert [found for seed in range(30) if (found := calm(seed)) is not None] == []


def test_the_same_seed_is_the_same_story() -> None:
    first, second = World(7), World(7)
    for world in (first, second):
        world.run()
    assert first.seen == second.seen
    assert first.time == second.time


def test_the_seeds_reach_what_they_are_for() -> None:
    seen: Counter[str] = Counter()
    moves = 0
    for seed in range(40):
        world = World(seed)
        world.run()
        seen += world.seen
        moves += sum(book.moves for book in world.books.values())
    assert moves > 30
    wanted = [
        *(step.name for step in Step),
        "crash",
        "driver died",
        "driver hangs",
        "a look failed",
    ]
    assert all(seen[name] > 5 for name in wanted), seen
    assert sum(seen[name] for name in seen if name.startswith("driver: ")) > 5


# broken rules


def claims_all_at_once(
    me: str, jobs: Sequence[JobView], _engines: Sequence[EngineView]
) -> list[str]:
    return [job.name for job in jobs if job.free_for is not None and me]


def counts_nothing(known: Watched | None, mark: int, *, counted: bool = True) -> Watched:
    return Watched(mark)


def counts_twice(known: Watched | None, mark: int, *, counted: bool = True) -> Watched:
    if known is None or known.mark != mark:
        return Watched(mark, 2)
    return Watched(mark, known.quiet + 3)


def always(seen: Log, now: Log) -> bool:
    return True


def any_generation(log: Log, generation: int) -> bool:
    return True


_steps = Observer.steps


def without(step: Step) -> Any:
    def steps(self: Observer, local: Mapping[str, Local]) -> dict[str, Step]:
        return {name: one for name, one in _steps(self, local).items() if one is not step}

    return steps


_see_engines = Observer.see_engines


def all_gone(
    self: Observer, found: Iterable[tuple[EngineView, int]], *, counted: bool = True
) -> None:
    seen = [(replace(one, gone=one.id != self.me), beat) for one, beat in found]
    _see_engines(self, seen, counted=counted)


BROKEN = [
    ("claims all at once", rules, "to_claim", claims_all_at_once),
    ("counts nothing", rules, "watched", counts_nothing),
    ("counts twice", rules, "watched", counts_twice),
    ("claims behind another log", observing, "unchanged", always),
    ("holds what another has", observing, "same_holder", always),
    ("drives what another has", protocol, "of_generation", any_generation),
    ("does not hold", Observer, "steps", without(Step.HOLD)),
    ("does not lose", Observer, "steps", without(Step.LOSE)),
    ("does not renew", Observer, "steps", without(Step.RENEW)),
    ("does not restart", Observer, "steps", without(Step.RESTART)),
    ("takes all for gone", Observer, "see_engines", all_gone),
]


@pytest.mark.parametrize(
    ("where", "rule", "broken"), [one[1:] for one in BROKEN], ids=[one[0] for one in BROKEN]
)
def test_a_broken_rule_is_noticed(
    where: Any, rule: str, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, rule, broken)
    for seed in range(1_000):
        if violation(seed) is not None or calm(seed) is not None:
            return
    pytest.fail("1,000 seeds notice nothing")
