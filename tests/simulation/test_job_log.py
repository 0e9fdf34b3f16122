"""A job's log under sleep, crashes and lost answers; and with a rule broken, which must be noticed."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from dataclasses import replace
from typing import Any

import pytest

from millstream.errors import StorageAway, TakenOver
from millstream.joblog import protocol
from millstream.joblog.entries import AnyEntry, Claim, Decided, Decision, decode, encode
from millstream.joblog.protocol import Log, Numbers, Put, Read, Request
from simulation.job_log.world import World, violation

SEEDS = 1_000
SOAK_SEEDS = 10_000

Rule = Generator[Request, Any, Any]


def _all_keep(seeds: Iterable[int]) -> None:
    for seed in seeds:
        found = violation(seed)
        assert found is None, f"seed {seed}: {found}"


def test_every_seed_keeps_all_promises() -> None:
    _all_keep(range(SEEDS))


@pytest.mark.soak
def test_ten_thousand_seeds_keep_all_promises() -> None:
    _all_keep(range(SOAK_SEEDS))


def test_the_same_seed_is_the_same_story() -> None:
    first, second = World(7), World(7)
    first.run()
    second.run()
    assert first.published == second.published
    kinds = [[type(decode(one)) for one in world.history.values()] for world in (first, second)]
    assert kinds[0] == kinds[1]


def test_the_seeds_reach_what_they_are_for() -> None:
    worlds = [World(seed) for seed in range(100)]
    for world in worlds:
        world.run()
    assert sum(len(world.published) for world in worlds) > 300
    for reached in ("takeovers", "freed", "lost", "claimed", "void"):
        assert sum(getattr(world, reached) for world in worlds) > 5, reached


# broken rules


def lost_answer_is_success(number: int, content: bytes) -> Rule:
    try:
        if (yield Put(number, content)):
            return content
    except StorageAway:
        return content
    return (yield Read(number))


def claim_unseen(entry: Claim) -> Rule:
    """A claim that does not look whether its slot had been freed."""
    content = encode(entry)
    while True:
        log = yield from protocol.load()
        if (yield from protocol.take(log.end, content)) == content:
            return protocol._extended(log, entry)


def claim_unread(entry: Claim) -> Rule:
    """A claim after entries that it has not read."""
    content = encode(entry)
    log = yield from protocol.load()
    while (yield from protocol.take(log.end, content)) != content:
        log = replace(log, end=log.end + 1)
    if any(number > log.end for number in (yield Numbers())):
        raise TakenOver("")
    return protocol._extended(log, entry)


def step_past_claims(log: Log, entry: AnyEntry) -> Rule:
    content = encode(entry)
    while (yield from protocol.take(log.end, content)) != content:
        log = replace(log, end=log.end + 1)
    return replace(protocol._extended(replace(log), entry), end=log.end + 1), True


def decide_again(log: Log, key: str, decided: Decided) -> Rule:
    """A decision that does not look whether an entry of its own came first."""
    entry = Decision(generation=log.state.generation, key=key, decided=decided)
    return (yield from protocol.append(log, entry))


def decide_later(log: Log, key: str, decided: Decided) -> Rule:
    """An epoch that is published before it is in the log."""
    state = log.state
    protocol_state = protocol.after(
        state, log.end, Decision(generation=state.generation, key=key, decided=decided)
    )
    yield Read(log.end)
    return replace(log, state=protocol_state)


def claims_freed(numbers: Iterable[int], _claims: Collection[int], summary: int) -> list[int]:
    return sorted(number for number in numbers if number < summary)


def slots_before_claims_freed(
    numbers: Iterable[int], claims: Collection[int], summary: int
) -> list[int]:
    return sorted(number for number in numbers if number < summary and number not in claims)


def summary_freed(numbers: Iterable[int], claims: Collection[int], summary: int) -> list[int]:
    return protocol_removable(numbers, claims, summary + 1)


protocol_removable = protocol.removable

BROKEN = [
    ("take", lost_answer_is_success),
    ("claim", claim_unseen),
    ("claim", claim_unread),
    ("step", step_past_claims),
    ("decide", decide_again),
    ("decide", decide_later),
    ("removable", claims_freed),
    ("removable", slots_before_claims_freed),
    ("removable", summary_freed),
]


@pytest.mark.parametrize(("rule", "broken"), BROKEN, ids=[one[1].__name__ for one in BROKEN])
def test_a_broken_rule_is_noticed(rule: str, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, rule, broken)
    assert any(violation(seed) is not None for seed in range(2_000)), "2,000 seeds notice nothing"
