"""The edits that users make to a flow: which groups each of them concerns, and for how long two versions run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

import millstream as ms
from millstream.plan.groups import plan as plan_of
from millstream.switch.changes import Change, Version
from millstream.switch.plan import SwitchPlan, switch_plan
from millstream.switch.show import table, to_json

MINUTE = timedelta(minutes=1)
DDL = "shop string, amount double, at timestamp"


@dataclass(frozen=True)
class Shop:
    """A flow with some of everything, and what can be edited in it."""

    least: int = 10
    every: str = "1 h"
    size: str | None = None
    aggregate: str = "sum(amount)"
    within: str = "10 min"
    program: str = "./name-1"
    #: Stages and sinks that are there or not.
    rounded: bool = False
    archive: bool = True
    copied: bool = False
    columns: str = DDL
    noted: int = 1
    sources: int = 1

    def version(self, snapshots: dict[str, str] | None = None) -> Version:
        flow = ms.Flow("shop", window="1 hour")
        settings = {"time": "at", "key": "shop", "lateness": "5 min", "partitions": self.sources}
        sales = flow.source("sales", ms.inbox(self.columns), **settings)  # type: ignore[arg-type]
        big = sales.sql("big", f"SELECT * FROM sales WHERE amount >= {self.least}")
        if self.rounded:
            big = big.sql("rounded", "SELECT shop, round(amount) AS amount, at FROM big")
        windows = big.window(
            "windows", every=self.every, size=self.size, by="shop", amount=self.aggregate
        )
        windows.sink("hourly", ms.jsonl("hourly"))
        if self.copied:
            windows.sink("copy", ms.csv("copy"))
        rise = (
            ms.Pattern()
            .begin("a", "amount > 1")
            .followed_by("b", "amount > a.amount")
            .within(self.within)
        )
        found = sales.match("rise", rise, emit="shop, b.amount AS peak")
        found.action("named", [self.program], input="shop", output="name string").sink(
            "alerts", ms.jsonl("alerts")
        )
        noted = sales.journal("noted", partitions=self.noted, key="shop")
        noted.window("daily", every="1 d", by="shop", n="count(*)").sink("daily", ms.jsonl("daily"))
        if self.archive:
            sales.sink("archive", ms.jsonl("archive"))
        return Version.of(plan_of(flow), snapshots)


NOW = Shop()


def switched(new: Shop, old: Shop = NOW) -> SwitchPlan:
    return switch_plan(old.version(), new.version())


def became(plan: SwitchPlan) -> dict[str, Change]:
    return {group.name: group.change for group in plan.changed}


REPLACED = Change.REPLACED


@pytest.mark.parametrize(
    ("edit", "changed", "overlap"),
    [
        ({"least": 20}, {"hourly": REPLACED}, 5 * MINUTE),
        ({"every": "20 min"}, {"hourly": REPLACED}, 5 * MINUTE),
        ({"every": "1 h", "size": "2 h"}, {"hourly": REPLACED}, 5 * MINUTE),
        ({"aggregate": "max(amount)"}, {"hourly": REPLACED}, 5 * MINUTE),
        # What the old version has begun it ends: up to its own length.
        ({"within": "30 min"}, {"alerts": REPLACED}, 15 * MINUTE),
        ({"program": "./name-2"}, {"alerts": REPLACED}, 15 * MINUTE),
        ({"rounded": True}, {"hourly": REPLACED}, 5 * MINUTE),
        ({"archive": False}, {"archive": Change.REMOVED}, 5 * MINUTE),
        # Both sinks of a stream are one group, named after the first.
        ({"copied": True}, {"hourly": REPLACED}, 5 * MINUTE),
        # A journal between two groups is each version's own then; the longer of the two is a day,
        # whose boundary is no hour.
        ({"noted": 3}, {"noted": REPLACED, "daily": REPLACED}, timedelta(days=1) + 5 * MINUTE),
    ],
)
def test_an_edit_concerns_its_group_alone(
    edit: dict[str, object], changed: dict[str, Change], overlap: timedelta
) -> None:
    plan = switched(replace(NOW, **edit))  # type: ignore[arg-type]
    assert became(plan) == changed
    assert plan.obstacles == ()
    assert plan.overlap == overlap
    assert became(switched(NOW, replace(NOW, **edit))).keys() == changed.keys(), (
        "so does the way back"
    )  # type: ignore[arg-type]


def test_fewer_partitions_between_groups_are_possible_too() -> None:
    plan = switched(replace(NOW, noted=1), replace(NOW, noted=3))
    assert plan.obstacles == ()
    (unit,) = plan.units
    assert (unit.groups, unit.private, unit.shared) == (("noted", "daily"), ("noted",), ())


def test_a_program_of_the_same_name_that_has_become_another_is_an_edit() -> None:
    old, new = (NOW.version({"./name-1": content}) for content in ("1", "2"))
    assert became(switch_plan(old, new)) == {"alerts": REPLACED}


def test_a_column_more_of_a_source_is_possible_and_one_less_is_not() -> None:
    more = replace(NOW, columns=f"{DDL}, currency string")
    assert switched(more).obstacles == ()
    (obstacle,) = switched(NOW, more).obstacles
    assert obstacle.fact == 'column "currency" of source "sales" is string and would be gone'


def test_more_partitions_of_a_source_concern_no_group() -> None:
    plan = switched(replace(NOW, sources=3))
    assert (plan.obstacles, plan.changed, plan.units, plan.notes) == ((), (), (), ())
    assert plan.grown == ('source "sales" gets 3 partitions, from 1, once the old version is gone',)
    assert table(plan).endswith("\n".join(plan.grown))
    assert to_json(plan)["grown"] == list(plan.grown)
    assert switch_plan(NOW.version(), replace(NOW, sources=3).version(), mode="shadow").grown == ()


def test_fewer_partitions_of_a_source_change_nothing_so_that_a_version_can_come_back() -> None:
    plan = switched(replace(NOW, least=20), replace(NOW, sources=3))
    assert (plan.obstacles, plan.grown) == ((), ())
    assert plan.notes == (
        'source "sales" keeps the partitions that it has: a journal can grow, and not shrink',
    )


def test_rows_are_spread_by_a_key_that_has_a_place_and_by_no_other_later() -> None:
    def version(partitions: int, key: str | None) -> Version:
        flow = ms.Flow("f")
        schema = "k string, x double, at timestamp"
        flow.source("rows", ms.inbox(schema), time="at", key=key, partitions=partitions).sink(
            "rows", ms.jsonl("rows")
        )
        return Version.of(plan_of(flow))

    (obstacle,) = switch_plan(version(1, "x"), version(2, "x")).obstacles
    assert (
        obstacle.fact == 'key "x" of source "rows" is double, which has no place among partitions'
    )
    assert switch_plan(version(1, None), version(2, "k")).obstacles == ()
    (obstacle,) = switch_plan(version(2, None), version(3, "k")).obstacles
    assert obstacle.fact == 'source "rows" is spread by nothing and would be by k'


def test_a_journal_that_others_read_keeps_its_partitions() -> None:
    def version(partitions: int, least: int) -> Version:
        flow = ms.Flow("f")
        rows = flow.source("rows", ms.inbox(DDL), time="at", key="shop")
        rows.sql("some", f"SELECT * FROM rows WHERE amount > {least}").journal(
            "noted", partitions=partitions
        )
        return Version.of(plan_of(flow))

    assert switch_plan(version(1, 1), version(1, 2)).obstacles == ()
    (obstacle,) = switch_plan(version(1, 1), version(2, 1)).obstacles
    assert (
        obstacle.fact
        == 'journal "noted", which no group of the flow reads, has 1 partitions and would have 2'
    )
