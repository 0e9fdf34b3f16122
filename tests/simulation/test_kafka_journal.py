"""A journal in Kafka with lost, delayed and repeated records; and with a rule broken, which must be noticed."""

from __future__ import annotations

import pytest

from millstream.journal.kinds.kafka.log import Counting, IndexRecord, Owner, Steps, ToIndex, What
from simulation.kafka_journal.world import Rules, World, first_violation, violation

SEEDS = 400


def test_every_seed_keeps_all_promises() -> None:
    for seed in range(SEEDS):
        assert violation(seed) is None, f"seed {seed}"


@pytest.mark.soak
def test_ten_thousand_seeds_keep_all_promises() -> None:
    for seed in range(10_000):
        assert violation(seed) is None, f"seed {seed}"


def test_the_seeds_reach_all_that_can_happen_and_store_rows() -> None:
    seen: set[str] = set()
    stored = fenced = 0
    for seed in range(200):
        world = World(seed)
        world.run()
        seen |= world.seen
        stored += len(world.promised)
        fenced += sum("is fenced" in line for line in world.story)
    wanted = {"start", "takeover", "crash", "arrival", "late arrival", "delayed", "lost"}
    assert wanted | {"ack lost", "new leader", "repeated", "trim"} == seen
    assert stored > 2_000
    assert fenced > 20


# broken rules


class AnyGeneration(Counting):
    """Counts what zombies write."""

    def take(self, offset: int, record: IndexRecord) -> bool:
        self.next = offset + 1
        if record.what is What.CLAIM:
            self.generation = offset
            return True
        if self.truncated and record.what is What.SNAPSHOT:
            self.position, self.truncated = record.position, False
        counts = record.position == self.position
        self.position += record.count if counts else 0
        return counts


class AnyPosition(Counting):
    """Counts what does not join on."""

    def take(self, offset: int, record: IndexRecord) -> bool:
        self.position = (
            record.position if record.what in (What.ENTRY, What.SNAPSHOT) else self.position
        )
        return super().take(offset, record)


class BelievesDeliveries(Owner):
    """Acknowledges what was delivered, without a look at what others have written in between."""

    def append(self, records: list[IndexRecord]) -> Steps:  # type: ignore[override]
        offsets = yield ToIndex(records)
        for offset, record in zip(offsets, records, strict=True):
            self.counting.position += record.count
            self.counting.next = offset + 1
            self.fresh.append((offset, record))


class ReadsBeforeItClaims(Owner):
    """Goes on from what it has read before its claim."""

    def claim(self) -> Steps:
        (offset,) = yield ToIndex([IndexRecord(What.CLAIM)])
        self.generation = self.counting.generation = offset
        self.counting.next = offset + 1


@pytest.mark.parametrize(
    "rules",
    [
        Rules(counting=AnyGeneration),
        Rules(counting=AnyPosition),
        Rules(owner=BelievesDeliveries),
        Rules(owner=ReadsBeforeItClaims),
        Rules(data_first=False),
        Rules(claims_again=False),
        Rules(remembers=False),
        Rules(sure_of_snapshots=False),
    ],
    ids=lambda rules: next(
        f"{name}={getattr(value, '__name__', value)}"
        for name, value in vars(rules).items()
        if value != getattr(Rules(), name)
    ),
)
def test_a_broken_rule_is_noticed(rules: Rules) -> None:
    assert first_violation(rules, 1_000) is not None
