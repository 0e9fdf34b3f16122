"""What a Kafka sink has decided, and how much of it its topic holds."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from millstream.connectors.kafka.decision import (
    EPOCH_ROWS,
    Decision,
    Published,
    StagedFile,
    divided,
)

FILES = st.lists(
    st.builds(StagedFile, st.uuids().map(str), st.integers(1, 1000), st.integers(1, 100)),
    max_size=20,
)


@given(FILES, st.integers(1, 300))
def test_parts_hold_all_files_in_their_order_and_as_few_as_possible(
    files: list[StagedFile], limit: int
) -> None:
    parts = divided(files, limit)
    assert [file for part in parts for file in part] == files
    assert all(parts)
    for part, after in itertools.pairwise(parts):
        assert sum(file.bytes for file in (*part, after[0])) > limit
    assert all(len(part) == 1 or sum(file.bytes for file in part) <= limit for part in parts)


@given(FILES.filter(bool), st.integers(0, 10**6), st.integers(1, 300))
def test_records_have_numbers_that_rise_and_are_the_same_each_time(
    files: list[StagedFile], epoch: int, limit: int
) -> None:
    decision = Decision("job/sink/c", epoch, divided(files, limit))
    assert Decision.from_json(decision.to_json()) == decision
    numbers: list[int] = []
    for number, part in enumerate(decision.parts):
        first = decision.number(number)
        numbers += range(first, first + sum(file.rows for file in part))
    rows = sum(file.rows for file in files)
    assert numbers == [epoch * EPOCH_ROWS + row for row in range(rows)]


@given(st.integers(-1, 9), st.integers(1, 4), st.data())
def test_what_is_in_is_what_came_before_and_the_parts_up_to_the_last(
    epoch: int, of: int, data: st.DataObject
) -> None:
    part = data.draw(st.integers(0, of - 1))
    state = Published(epoch, part, of, "host:1:a")
    assert Published.from_json(state.to_json()) == state
    for other in range(10):
        whole = other < epoch or (other == epoch and part == of - 1)
        assert state.whole(other) == whole
        assert state.partly(other) == (other == epoch and part < of - 1)
        assert [state.holds(other, number) for number in range(of)] == [
            other < epoch or (other == epoch and number <= part) for number in range(of)
        ]


def test_of_a_sender_that_has_published_nothing_nothing_is_in() -> None:
    assert not Published().whole(0)
    assert not Published().holds(0, 0)
    assert not Published().partly(0)
