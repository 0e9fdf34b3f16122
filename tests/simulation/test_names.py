"""Clients under one name, under every trouble that seeds can draw; and with a rule broken."""

from __future__ import annotations

import pytest

from millstream.links.claims import Turn, above, again, turn
from simulation.links.names import Rules, World, violation

SEEDS = 10_000


@pytest.mark.slow
def test_every_seed_keeps_all_promises() -> None:
    for seed in range(SEEDS):
        assert violation(seed) is None, f"seed {seed}"


def test_the_first_seeds_keep_them_and_clients_do_replace_each_other() -> None:
    replaced = taken_over = lost = 0
    for seed in range(500):
        world = World(seed, Rules())
        world.run()
        replaced += sum(one.replaced for one in world.clients)
        taken_over += any(len({who for _, who in one.journal}) > 1 for one in world.inboxes)
        lost += world.loss > 0
    assert min(replaced, taken_over, lost) > 100, (replaced, taken_over, lost)


def anyone(current: int, asked: int) -> Turn:
    found = turn(current, asked)
    return Turn.ITS_OWN if found is Turn.REPLACED else found


def alike(mine: int, found: list[int], _: int) -> int | None:
    return again(mine, found, 1)


def below_its_own(mine: int, found: list[int], chance: int) -> int | None:
    highest = max(found, default=0)
    return None if highest == mine else above(highest, chance)


BROKEN = {
    "an older client may go on": (Rules(turn=anyone), {"own"}),
    "two that count alike are the same": (Rules(again=alike), {"own", "jam"}),
    "a client may be refused for itself": (Rules(again=below_its_own), {"jam"}),
    "rows do not take a name over": (Rules(with_rows=False), {"own"}),
    "claims are lost in a crash": (Rules(durable=False), {"own"}),
}


@pytest.mark.parametrize(("rules", "promises"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_noticed(rules: Rules, promises: set[str]) -> None:
    found = next((one for seed in range(2000) if (one := violation(seed, rules))), None)
    assert found is not None, "2,000 seeds notice nothing"
    assert found.promise in promises
