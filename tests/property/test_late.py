"""A row that is late for one of two versions only is a dead letter or in results, never both."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millstream.journal import Kind, Slice
from millstream.journal.lateness import lowest_to_come
from millstream.spark.io.late import Judge
from millstream.spark.io.source import Offset, judge_of

SMALL = st.integers(0, 40)


def slice_of(times: list[int], before: int | None, floor: int | None) -> Slice:
    moments = [datetime.fromtimestamp(0, UTC) + timedelta(microseconds=one) for one in times]
    column = pa.array(moments, pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays([column], names=["at"])
    return Slice(0, batch, Kind.ROWS, 1000, before, floor, floor, False, len(times))


@given(
    st.lists(SMALL, min_size=1, max_size=30),
    st.none() | SMALL,
    st.none() | SMALL,
    SMALL,
    st.integers(0, 15),
    st.integers(0, 15),
)
def test_rows_are_late_by_the_lateness_of_the_version_that_owns_their_time(
    times: list[int], before: int | None, floor: int | None, cut: int, old: int, new: int
) -> None:
    late = Judge(((None, old), (cut, new))).late(slice_of(times, before, floor), "at").tolist()
    for row, time in enumerate(times):
        highest = max([*times[:row], -1 if before is None else before])
        lateness = old if time < cut else new
        assert late[row] == (highest > time + lateness or (floor is not None and time < floor))


@given(SMALL, SMALL, st.integers(0, 15), st.integers(0, 15))
def test_the_floor_is_the_lowest_time_that_is_not_late(
    highest: int, cut: int, old: int, new: int
) -> None:
    steps = ((None, old), (cut, new))
    taken = [time for time in range(-20, 60) if highest <= time + (old if time < cut else new)]
    assert lowest_to_come(highest, steps) == min(taken)
    assert lowest_to_come(highest, steps) <= lowest_to_come(highest + 1, steps)


class View:
    """A partition whose running maximum is known."""

    begin, end, ended, floor = 0, 9, False, None

    def __init__(self, running_max: int) -> None:
        self.running_max = running_max

    def state_at(self, position: int) -> View:
        return self

    def first_above(self, moment: int, start: int, end: int) -> int:
        return start


def test_a_longer_lateness_does_not_let_rows_in_below_what_is_out() -> None:
    at = Offset("j", (3,), 100, 1)
    after = Offset("j", (5,), 100, 1)
    assert judge_of([View(100)], at, after, 0).lowest is None
    assert judge_of([View(100)], at, after, 30).lowest == 100
    leaving = Offset("j", (3,), 100, 1, owns=((None, 90, 0, 10_000),))
    assert judge_of([View(100)], leaving, after, 30).lowest is None
    part = slice_of([99, 100], 100, None)
    assert Judge(((None, 30),), lowest=100).late(part, "at").tolist() == [True, False]
