"""What a run does beside its batches."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from millstream.spark.run.upkeep import AGAIN_S, QUIET_S, Rest


def test_a_run_rests_once_after_its_last_batch() -> None:
    rest = Rest(began=0.0)
    assert not rest.begins(5.0, 5.0 + QUIET_S - 1)
    assert rest.begins(5.0, 5.0 + QUIET_S)
    assert not rest.begins(5.0, 5.0 + 10 * AGAIN_S)


def test_a_run_that_has_had_no_batch_rests_as_well() -> None:
    rest = Rest(began=100.0)
    assert not rest.begins(0.0, 101.0)
    assert rest.begins(0.0, 100.0 + QUIET_S)


def test_a_run_with_a_batch_now_and_then_does_not_rest_each_time() -> None:
    rest = Rest(began=0.0)
    assert rest.begins(1.0, 1.0 + QUIET_S)
    assert not rest.begins(30.0, 31.0 + QUIET_S)
    assert rest.begins(30.0, 1.0 + QUIET_S + AGAIN_S)


@given(st.lists(st.floats(0, 500), max_size=20))
def test_each_rest_follows_another_batch_and_comes_long_after_the_one_before(
    batches: list[float],
) -> None:
    rest, noticed = Rest(began=0.0), list[tuple[float, float]]()
    for now in range(0, 2000, 3):
        last = max((at for at in batches if at <= now), default=0.0)
        if rest.begins(last, float(now)):
            noticed.append((last, float(now)))
    assert noticed
    assert all(now - last >= QUIET_S for last, now in noticed)
    pairs = list(itertools.pairwise(noticed))
    assert all(one[0] < two[0] and two[1] - one[1] >= AGAIN_S for one, two in pairs)
