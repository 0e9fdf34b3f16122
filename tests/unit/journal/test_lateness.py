from __future__ import annotations

import numpy as np
import pytest

from millstream.journal.base import FOREVER
from millstream.journal.lateness import late_mask, max_lag


def times(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def test_a_row_exactly_the_lateness_behind_is_not_late() -> None:
    assert late_mask(times(100, 90, 89), None, 10).tolist() == [False, False, True]


def test_rows_are_compared_with_the_maximum_before_them_only() -> None:
    assert late_mask(times(50, 100, 50), 55, 10).tolist() == [False, False, True]


def test_a_late_row_does_not_lower_the_maximum() -> None:
    assert late_mask(times(100, 10, 20, 95), None, 10).tolist() == [False, True, True, False]


def test_a_row_below_the_floor_is_late_and_one_at_it_is_not() -> None:
    assert late_mask(times(4, 5, 6), None, 10, floor=5).tolist() == [True, False, False]


def test_the_first_row_of_a_partition_is_never_late() -> None:
    assert late_mask(times(1), None, 0).tolist() == [False]
    assert late_mask(times(), 5, 0).tolist() == []


@pytest.mark.parametrize(
    ("values", "before", "floor", "lag"),
    [
        ((5,), None, None, None),
        ((5,), 7, None, 2),
        ((5, 9, 6), None, None, 3),
        ((5, 9, 6), 20, None, 15),
        ((5, 9), 1, None, -4),
        ((5, 9), 1, 6, FOREVER),
        ((), 1, 6, None),
    ],
)
def test_the_largest_lag_is_that_of_the_row_furthest_behind(
    values: tuple[int, ...], before: int | None, floor: int | None, lag: int | None
) -> None:
    assert max_lag(times(*values), before, floor) == lag
