from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.jobs import slowness
from millstream.engine.jobs.slowness import why_slow
from millstream.spark.batch_clock import CAUSES


def test_a_group_with_time_to_spare_is_not_slow() -> None:
    assert why_slow("hourly", {"running": 0.3, "state": 0.1}, lag_rows=0, lag_seconds=0) is None
    assert why_slow("hourly", {}, lag_rows=10, lag_seconds=500) is None


def test_the_largest_cause_is_named_with_its_part_of_a_batch() -> None:
    shares = {"running": 0.2, "state": 0.6, "commit": 0.1}
    told = why_slow("hourly", shares, lag_rows=12_000, lag_seconds=45)
    assert told is not None
    assert told.startswith(
        "group hourly is busy 90 % of the time and 12,000 rows behind: "
        "keeping state takes 67 % of a batch. To try: "
    )


def test_one_that_is_behind_is_slow_sooner() -> None:
    shares = {"publishing": 0.5}
    assert why_slow("a", shares, lag_rows=0, lag_seconds=0) is None
    assert "publishing results" in (why_slow("a", shares, lag_rows=5, lag_seconds=31) or "")


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_has_an_advice_of_its_own(cause: str) -> None:
    told = why_slow("a", {cause: 1.4}, lag_rows=0, lag_seconds=0)
    assert told is not None
    assert "busy 100 % of the time" in told
    assert "look at its log" not in told


@given(st.dictionaries(st.sampled_from(CAUSES), st.floats(0, 3)), st.integers(0, 10**9))
def test_whatever_the_numbers_are_there_is_a_sentence_or_none(
    shares: dict[str, float], lag: int
) -> None:
    told = why_slow("a", shares, lag_rows=lag, lag_seconds=lag / 7)
    assert told is None or told.count(" %") == 2


def test_engines_and_drivers_know_the_same_causes() -> None:
    assert set(slowness.CAUSES) == set(CAUSES)
