from __future__ import annotations

import math

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.pulse import History, Meter, Pulse, Pulses, Rates
from millstream.engine.jobs.status import GroupStatus, JobStatus, SourceStatus

MOMENT = "2026-01-01T12:00:00.000+00:00"


def job(rows: int, *, name: str = "shop", id: str = "shop-1", group: str = "hourly") -> JobStatus:
    return JobStatus(
        id=id,
        name=name,
        state=JobState.RUNNING,
        deployed_at=MOMENT,
        since=MOMENT,
        groups=(GroupStatus(group, rows_in=rows, rows_out=rows // 2, lag_rows=7),),
        sources={"orders": SourceStatus(rows)},
        unprocessed=7,
    )


def test_a_rate_is_what_was_added_over_the_last_seconds() -> None:
    meter = Meter(window_s=10)
    for second in range(31):
        rates = meter.rates(job(100 * second), ["hourly"], 1000.0 + second)
    assert rates.rows_in == 100.0
    assert rates.rows_out == 50.0
    assert (rates.groups_in, rates.sources) == ({"hourly": 100.0}, {"orders": 100.0})
    for second in range(31, 45):
        rates = meter.rates(job(3000), ["hourly"], 1000.0 + second)
    assert rates.rows_in == 0.0


def test_a_driver_that_begins_again_makes_no_rate_below_zero() -> None:
    meter = Meter()
    meter.rates(job(5_000), ["hourly"], 0.0)
    assert meter.rates(job(10), ["hourly"], 1.0).rows_in == 0.0
    assert meter.rates(job(30), ["hourly"], 2.0).rows_in == 20.0


def test_only_rows_that_leave_the_flow_are_rows_out_of_the_job() -> None:
    meter = Meter()
    meter.rates(job(0), [], 0.0)
    rates = meter.rates(job(100), [], 1.0)
    assert (rates.rows_out, rates.groups_out) == (0.0, {"hourly": 50.0})


@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 30)), min_size=1, max_size=40))
def test_no_rate_is_negative_or_no_number(looks: list[tuple[int, float]]) -> None:
    meter, now = Meter(), 1e9
    for rows, passed in looks:
        now += passed
        rates = meter.rates(job(rows), ["hourly"], now)
        assert rates.rows_in >= 0
        assert math.isfinite(rates.rows_in)


def test_points_have_a_distance_and_the_oldest_go() -> None:
    history = History(points=3, every_s=5)
    pulses = [Pulse(job(n), Rates(n, n, {}, {"hourly": n}, {"hourly": n})) for n in range(6)]
    added = [
        history.add(one, 100.0 + at) for one, at in zip(pulses, (0, 2, 5, 10, 12, 15), strict=True)
    ]
    assert added == [True, False, True, True, False, True]
    series = history.series()
    assert series.at == [105.0, 110.0, 115.0]
    assert series.groups["hourly"]["rows_in"] == [2.0, 3.0, 5.0]
    assert series.groups["hourly"]["watermark_ms"] == [None, None, None]
    lines = history.lines(2)
    assert (lines.at, lines.lag_rows) == ([110.0, 115.0], [7.0, 7.0])


def test_a_group_that_has_ended_is_behind_no_clock() -> None:
    history = History()
    for at, finished in ((1000.0, False), (1005.0, True)):
        group = GroupStatus("hourly", watermark_ms=900_000, finished=finished)
        now = msgspec.structs.replace(job(1), groups=(group,))
        history.add(Pulse(now, Meter().rates(now, [], at)), at)
    assert history.series().groups["hourly"]["watermark_ms"] == [900_000.0, None]


def test_a_group_that_came_later_has_no_values_before_and_one_that_left_is_forgotten() -> None:
    history = History(points=4, every_s=1)
    for at in range(2):
        history.add(Pulse(job(at), Rates(0, 0, {}, {"hourly": 1}, {"hourly": 1})), float(at))
    other = Rates(0, 0, {}, {"daily": 1}, {"daily": 1})
    history.add(Pulse(job(9, group="daily"), other), 2.0)
    found = history.series().groups
    assert found["hourly"]["rows_in"] == [1.0, 1.0, None]
    assert found["daily"]["rows_in"] == [None, None, 1.0]
    for at in range(3, 10):
        history.add(Pulse(job(9, group="daily"), other), float(at))
    assert list(history.series().groups) == ["daily"]


def test_jobs_that_are_gone_are_forgotten_and_one_of_the_same_name_begins_again() -> None:
    pulses = Pulses()
    pulses.take([job(0)], {}, 0.0)
    pulses.take([job(100)], {}, 5.0)
    assert len(pulses.series("shop-1").at) == 2
    (found,) = pulses.take([job(50, id="shop-2")], {}, 10.0)
    assert found.rates.rows_in == 0.0
    assert pulses.series("shop-1").at == []
    assert pulses.lines("shop-2", 60).at == [10.0]
