"""Tasks share the rows of a batch: each row once, equal parts, no more tasks than run at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.spark.io.ranges import SMALLEST_TASK, Range, split

PARTITIONS = st.lists(
    st.tuples(st.integers(0, 10**12), st.sampled_from((0, 1, 7, 49_999, 50_000, 10**6))),
    min_size=1,
    max_size=70,
)


@given(PARTITIONS, st.integers(1, 32))
def test_every_row_is_read_once_in_equal_parts(parts: list[tuple[int, int]], tasks: int) -> None:
    start, stop = [at for at, _ in parts], [at + rows for at, rows in parts]
    found = split(start, stop, tasks)
    reached = dict(enumerate(start))
    for one in (one for ranges in found for one in ranges):
        assert (one.start, one.start < one.stop) == (reached[one.partition], True)
        reached[one.partition] = one.stop
    assert list(reached.values()) == stop
    sizes = [sum(one.stop - one.start for one in ranges) for ranges in found]
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert len(found) <= tasks
    filled = sum(rows > 0 for _, rows in parts)
    assert len(found) >= min(tasks, filled), "what is slow for each row runs side by side"


def test_a_partition_is_cut_only_for_many_rows() -> None:
    assert split([5], [5 + SMALLEST_TASK], 2) == [(Range(0, 5, 5 + SMALLEST_TASK),)]
    many = 2 * SMALLEST_TASK
    assert split([5], [5 + many], 2) == [
        (Range(0, 5, 5 + SMALLEST_TASK),),
        (Range(0, 5 + SMALLEST_TASK, 5 + many),),
    ]
    assert split([0, 0, 0], [10, 0, 0], 2) == [(Range(0, 0, 10),)]
    assert split([0, 0], [0, 0], 2) == []
