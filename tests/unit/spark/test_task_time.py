from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql.types import LongType
from pyspark.sql.udf import UserDefinedFunction

from millstream.spark.batch_clock import BatchClock
from millstream.spark.stages.timed_functions import TimedCalls, _timed
from millstream.spark.task_time import (
    PYTHON,
    STAGING,
    STATE,
    ProgramSeen,
    TaskReports,
    Timed,
    _Adding,
    _Latest,
    measured,
    on_the_wall,
)


class Ticking:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def accumulator(how: AccumulatorParam[Any], number: int = 0) -> Accumulator[Any]:
    return Accumulator(number, {}, how)


def test_waiting_for_rows_and_for_those_who_take_them_does_not_count() -> None:
    time, worked = Ticking(), accumulator(_Adding())

    def rows() -> Iterator[int]:
        for one in range(3):
            time.now += 10  # what is before it takes its time
            yield one

    def work(batches: Iterator[int]) -> Iterator[int]:
        for one in batches:
            time.now += 1
            yield one
        time.now += 5

    for _ in Timed(work, STAGING, worked, time)(rows()):
        time.now += 100  # what is behind it too
    assert worked.value == {STAGING: 8.0, "tasks": 1.0}


def test_what_a_function_makes_of_nothing_is_passed_on() -> None:
    worked = accumulator(_Adding())
    assert list(Timed(lambda batches: batches, PYTHON, worked)([1, None, 2])) == [1, None, 2]


def test_calls_are_reported_when_they_have_taken_a_millisecond() -> None:
    time, worked = Ticking(), accumulator(_Adding())

    def work(seconds: float, *, fails: bool = False) -> float:
        time.now += seconds
        if fails:
            raise ValueError("no")
        return seconds

    timed = TimedCalls(work, worked, time)
    assert timed(0.0004) == 0.0004
    assert worked.value == {}
    with pytest.raises(ValueError, match="no"):
        timed(0.25, fails=True)
    assert worked.value == pytest.approx({PYTHON: 0.2504})


def test_a_function_that_is_called_to_be_random_later_is_so_when_timed() -> None:
    worked = accumulator(_Adding())
    function = UserDefinedFunction(lambda n: n, LongType())
    assert _timed(function, worked) is (known := _timed(function, worked))
    assert known.deterministic
    function.asNondeterministic()
    assert not _timed(function, worked).deterministic


def test_a_part_of_what_is_measured_is_put_down_to_itself_alone() -> None:
    worked = accumulator(_Adding())
    with measured(worked, STATE), measured(worked, PYTHON, within=STATE):
        pass
    assert worked.value[PYTHON] > 0
    assert 0 <= worked.value[STATE] < 1
    with measured(None, PYTHON):
        """Nobody wants to know."""


def test_tasks_that_run_at_once_share_the_clock_on_the_wall() -> None:
    worked = {STAGING: 4.0, PYTHON: 2.0, "tasks": 2.0}
    assert on_the_wall(worked, 10.0, cores=4) == {STAGING: 2.0, PYTHON: 1.0}
    assert on_the_wall(worked | {"tasks": 8.0}, 10.0, cores=4) == {STAGING: 1.0, PYTHON: 0.5}
    assert on_the_wall(worked, 1.5, cores=4) == {STAGING: 1.0, PYTHON: 0.5}


@given(
    st.dictionaries(st.sampled_from([PYTHON, STAGING, STATE, "tasks"]), st.floats(-10, 1e6)),
    st.floats(0, 1e4),
    st.integers(1, 64),
)
def test_causes_are_never_more_than_the_time_that_went_by(
    worked: dict[str, float], seconds: float, cores: int
) -> None:
    found = on_the_wall(worked, seconds, cores)
    assert all(one >= 0 for one in found.values())
    assert sum(found.values()) <= seconds * (1 + 1e-9)


def test_a_batch_is_divided_by_what_its_own_tasks_report() -> None:
    time, worked = Ticking(), accumulator(_Adding())
    clock = BatchClock(time)
    clock.tasks = TaskReports(worked, accumulator(_Latest(), 1), cores=2)
    for staging in (1.0, 3.0):
        with clock.running():
            clock.passed("logged")
            worked.add({PYTHON: 2.0, STAGING: staging, "tasks": 2.0})
            time.now += 8
            clock.passed("staged")
    assert clock.seconds["python"] == 2.0
    assert clock.seconds["staging"] == 2.0
    assert clock.seconds["running"] == 12.0


def test_the_latest_of_each_program_is_known_and_no_more_than_some() -> None:
    seen = accumulator(_Latest())
    for number in range(1000):
        worker = number % 300
        one = ProgramSeen("score", "host", worker, 7, 1, number, 0, float(number))
        seen.add({("score", "host", worker): one})
    assert len(seen.value) == 256
    assert max(one.rows for one in seen.value.values()) == 999
    assert min(one.rows for one in seen.value.values()) == 1000 - 256
