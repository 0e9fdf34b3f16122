"""What a version on probation may do, and what it may not."""

from __future__ import annotations

from millstream.switch.probation import Limits, Sample, verdict

LIMITS = Limits(errors=1, dead_letters=10, lag_s=20.0, growing_s=10.0)


def lags(*seconds: float, every: float = 2.0) -> list[Sample]:
    return [Sample(at=1000.0 + every * n, lag_s=one) for n, one in enumerate(seconds)]


def test_a_version_that_does_as_before_is_well_however_much_there_was_before() -> None:
    assert verdict([], LIMITS) is None
    same = Sample(at=0.0, restarts=9, dead=5_000, lag_s=300.0)
    assert verdict([same, Sample(at=60.0, restarts=9, dead=5_000, lag_s=300.0)], LIMITS) is None


def test_deaths_of_the_driver_count_from_the_beginning_of_the_probation() -> None:
    first = Sample(at=0.0, restarts=3)
    assert verdict([first, Sample(at=1.0, restarts=4)], LIMITS) is None
    said = verdict([first, Sample(at=1.0, restarts=5)], LIMITS)
    assert said == "its driver has died 2 times, and 1 are allowed"


def test_dead_letters_above_the_limit_are_too_many() -> None:
    first = Sample(at=0.0, dead=100)
    assert verdict([first, Sample(at=1.0, dead=110)], LIMITS) is None
    said = verdict([first, Sample(at=1.0, dead=1_311)], LIMITS)
    assert said == "it has made 1,211 dead letters, and 10 are allowed"


def test_a_lag_that_grows_all_the_time_and_is_large_is_a_version_that_cannot_keep_up() -> None:
    said = verdict(lags(5, 9, 13, 17, 21, 25), LIMITS)
    assert said == "it is 25 s behind and falls further behind"


def test_a_lag_that_is_small_or_short_or_goes_up_and_down_is_none() -> None:
    assert verdict(lags(1, 3, 5, 7, 9, 11), LIMITS) is None, "small"
    assert verdict(lags(5, 15, 25, 35), LIMITS) is None, "too short to tell"
    assert verdict(lags(5, 15, 25, 35, 20, 45), LIMITS) is None, "it has caught up in between"
    assert verdict(lags(100, 90, 80, 70, 60, 50), LIMITS) is None, "it catches up"
    assert verdict(lags(5, 100, every=60.0), LIMITS) is None, "two samples are no trend"
