"""Where a journal in Kafka is cut: before a snapshot, and its data a segment later."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.journal.kinds.kafka.retention import cut_at


def test_nothing_is_cut_without_a_snapshot() -> None:
    assert cut_at(20, [], {0: 0, 20: 5}) == (None, None)
    assert cut_at(20, [(30, 21)], {0: 0, 20: 5}) == (None, None)


@given(
    begin=st.integers(0, 60),
    snapshots=st.lists(st.integers(0, 60), unique=True).map(sorted),
    lowest=st.dictionaries(st.integers(0, 60), st.none() | st.integers(0, 1000), min_size=1),
)
def test_what_is_needed_stays(
    begin: int, snapshots: list[int], lowest: dict[int, int | None]
) -> None:
    found = [(position * 2 + 1, position) for position in snapshots]
    index, data = cut_at(begin, found, lowest)
    needed = [at for first, at in lowest.items() if first >= begin and at is not None]
    if index is not None:
        assert index in [offset for offset, position in found if position <= begin]
    if data is not None:
        assert index is not None
        assert all(data <= at for at in needed)
