"""All joins of streams against plain Python: many rows of the same moment, in rounds, on disk and in memory."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import millstream as ms
from millstream.spark.run.stores import SHORT
from millstream.testing import flow_test

pytestmark = pytest.mark.spark

START = datetime(2020, 1, 1, tzinfo=UTC)
HOW = ("inner", "left", "right", "full", "semi")
Row = dict[str, Any]


def rounds(chance: random.Random, value: str, step: timedelta) -> list[list[Row]]:
    """Make rows of 40 steps each, of which many have the same time, a little out of order."""
    found = []
    for number in range(3):
        times = sorted(chance.randrange(40) for _ in range(60))
        found.append(
            [
                {
                    "k": chance.choice("abcd"),
                    value: number * 100 + place,
                    "at": START + step * (40 * number + time - chance.randrange(2)),
                }
                for place, time in enumerate(times)
            ]
        )
    return found


def expected(left: list[Row], right: list[Row], within: timedelta) -> dict[str, Counter[Any]]:
    """Return the values of both sides, by kind of join."""
    pairs = [
        (one["v"], other["w"])
        for one in left
        for other in right
        if one["k"] == other["k"] and abs(one["at"] - other["at"]) <= within
    ]
    met, joined = {v for v, _ in pairs}, {w for _, w in pairs}
    alone = [(row["v"], None) for row in left if row["v"] not in met]
    others = [(None, row["w"]) for row in right if row["w"] not in joined]
    found = {
        "inner": pairs,
        "left": [*pairs, *alone],
        "right": [*pairs, *others],
        "full": [*pairs, *alone, *others],
        "semi": [(v, None) for v in met],
    }
    return {how: Counter(rows) for how, rows in found.items()}


@pytest.mark.parametrize(
    "within",
    [
        pytest.param(timedelta(minutes=1), id="rocksdb"),
        pytest.param(SHORT, id="memory", marks=pytest.mark.soak),
    ],
)
def test_joins_of_every_kind_pair_what_is_near_and_keep_what_is_alone(within: timedelta) -> None:
    chance, step = random.Random(11), within / 2
    sides = [rounds(chance, "v", step), rounds(chance, "w", step)]
    flow = ms.Flow("joins")
    left, right = (
        flow.source(
            name, ms.inbox(f"k string, {value} long, at timestamp"), time="at", lateness=within
        )
        for name, value in (("left", "v"), ("right", "w"))
    )
    for how in HOW:
        left.join(f"by_{how}", right, on="k", within=within, how=how).sink(how, ms.memory())
    with flow_test(flow) as t:
        for ours, theirs in zip(*sides, strict=True):
            t.send("left", ours)
            t.send("right", theirs)
            t.results("inner")  # when all of them are processed
        t.end()
        found = {how: Counter((r["v"], r.get("w")) for r in t.results(how)) for how in HOW}
    wanted = expected(*([row for part in side for row in part] for side in sides), within)
    assert len(wanted["full"]) > len(wanted["left"]) > len(wanted["inner"]) > 100
    assert found == wanted
