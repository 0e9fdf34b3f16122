"""Which runs are merged, over their sizes alone."""

from __future__ import annotations

import pytest

from millstream.state.manifest import NO_TIME, Run
from millstream.state.tiers import RATIO, due, half_gone, outlived, tier

UNIT = 100


@pytest.mark.parametrize(
    ("sizes", "begin"),
    [
        ([], None),
        ([100], None),
        ([10_000], None),
        ([10_000, 100], None),
        ([10_000, *[100] * (RATIO - 1)], None),
        # So many of one tier become one of the next.
        ([10_000, *[100] * RATIO], 1),
        ([100_000, 800, *[100] * RATIO], 2),
        ([100_000, *[800] * RATIO], 1),
        # A large one takes the small ones before it along.
        ([100_000, 100, 100, 900], 1),
        # All, when those above the oldest are as large as it is.
        ([100, 100], 0),
        ([1_000, 500, 500], 0),
    ],
)
def test_runs_of_a_size_are_merged(sizes: list[int], begin: int | None) -> None:
    assert due(sizes, UNIT) == begin


def test_shards_do_not_merge_everything_at_the_same_time() -> None:
    sizes = [1_000, 900]
    assert due(sizes, UNIT, spread=0.0) == 0
    assert due(sizes, UNIT, spread=1.0) is None


def test_runs_are_few_and_entries_are_written_seldom_however_many_there_are() -> None:
    sizes: list[int] = []
    written = 0
    for _ in range(20_000):
        sizes.append(UNIT)
        written += UNIT
        while (begin := due(sizes, UNIT)) is not None:
            sizes[begin:] = [sum(sizes[begin:])]
            written += sizes[-1]
        assert len(sizes) <= 1 + RATIO * (tier(sizes[0], UNIT) + 1)
    assert sum(sizes) == 20_000 * UNIT
    assert written / sum(sizes) < 8


def runs(*times: tuple[int, int]) -> list[Run]:
    return [Run("", 1, 1, newest, middle) for newest, middle in times]


def test_only_the_oldest_runs_leave_as_they_are() -> None:
    assert outlived(runs((5, 5), (7, 7), (9, 9)), 7) == 2
    assert outlived(runs((NO_TIME, NO_TIME), (7, 7)), 7) == 0
    assert half_gone(runs((9, 9), (9, 7)), 7) == 1
    assert half_gone(runs((9, 9), (9, 8)), 7) is None
