"""Which offsets are read, where they go, and in which order: the pure parts of a Kafka source."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.brokers.clients import Topic
from millstream.connectors.kafka import places
from millstream.connectors.kafka.merge import Lane, due
from millstream.connectors.kafka.places import Ends
from millstream.errors import InvalidOption, RecordsGone, TopicChanged
from millstream.ingest.rows import Rows, numbered
from millstream.journal.base import EarlierPartitions

TOPIC = Topic("orders", "id-1", "cluster", (0, 1), 1)
AGAIN = Topic("orders", "id-2", "cluster", (0, 1), 1)
ENDS = Ends(10, 20)


@pytest.mark.parametrize(
    ("start", "at_time", "new", "offset"),
    [
        ("earliest", None, False, 10),
        ("latest", None, False, 20),
        ("latest", None, True, 10),
        ("2026-01-01T00:00:00+00:00", 15, False, 15),
        ("2026-01-01T00:00:00+00:00", None, False, 20),
        (((0, 12),), None, False, 12),
        (((1, 12),), None, False, 10),
        (((0, 5),), None, False, 5),
    ],
)
def test_where_a_partition_begins(
    start: places.Start, at_time: int | None, new: bool, offset: int
) -> None:
    assert places.beginning(start, 0, ENDS, at_time, new=new) == offset


def test_an_offset_behind_the_end_is_refused() -> None:
    with pytest.raises(InvalidOption, match="behind the end"):
        places.beginning(((0, 21),), 0, ENDS, None, new=False)


def test_offsets_are_of_partitions_that_the_topic_has() -> None:
    for start in ("earliest", ((0, 5), (1, 0))):
        places.check_partitions(start, TOPIC)
    with pytest.raises(InvalidOption, match='names partition 7, which topic "orders"') as found:
        places.check_partitions(((0, 5), (7, 0)), TOPIC)
    assert found.value.hint == "it has 0 to 1"


def test_the_time_of_a_start_is_in_milliseconds() -> None:
    assert places.time_ms("1970-01-01T00:00:01.5+00:00") == 1500
    assert places.time_ms("latest") is places.time_ms(((0, 1),)) is None


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.booleans())
def test_reading_goes_on_where_it_was_or_says_how_many_records_are_gone(
    offset: int, low: int, size: int, accept: bool
) -> None:
    ends = Ends(low, low + size)
    if offset > ends.high or (offset < low and not accept):
        gone = f"{low - offset} records of partition 0" if offset < low else "has lost records"
        with pytest.raises(RecordsGone, match=gone):
            places.going_on(TOPIC, 0, offset, ends, accept=accept)
    else:
        assert places.going_on(TOPIC, 0, offset, ends, accept=accept) == max(offset, low)


def test_a_topic_that_was_made_again_is_refused_with_where_it_was_read_up_to() -> None:
    known = {places.begun_of(TOPIC): 2, places.sender_of(TOPIC, 1): 41}
    places.check_same_topic(TOPIC, known)
    places.check_same_topic(AGAIN, {})
    places.check_same_topic(AGAIN, {**known, places.begun_of(AGAIN): 2})
    other = Topic("bills", "id-3", "cluster", (0,), 1)
    places.check_same_topic(other, known)
    with pytest.raises(TopicChanged, match=r"id-2 now.*id-1.*1 at offset 42") as found:
        places.check_same_topic(AGAIN, known)
    assert 'loss="accept"' in str(found.value.hint)


def test_partitions_without_a_leader_are_named() -> None:
    assert places.no_leader(TOPIC, [1]).message == 'partition 1 of topic "orders" has no leader'
    assert places.no_leader(TOPIC, [0, 1]).message.startswith("partitions 0, 1 of topic")


@given(st.integers(0, 40), st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 3))
def test_a_partition_keeps_its_home_when_the_journal_grows(
    partition: int, growth: list[int], begun: int
) -> None:
    sizes = np.cumsum(growth).tolist()
    sender = places.from_of(TOPIC, partition)
    homes = []
    for grown in range(min(begun, len(sizes) - 1), len(sizes)):
        earlier = [
            EarlierPartitions(sizes[at], {sender: 0} if at >= begun else {}) for at in range(grown)
        ]
        homes.append(places.home(TOPIC, partition, earlier, sizes[grown]))
    assert len(set(homes)) == 1
    assert homes[0] == partition % sizes[min(begun, len(sizes) - 1)]


def rows(times: list[int], first: int = 0) -> Rows:
    return numbered(pa.RecordBatch.from_pydict({"at": times}), first)


def filled(number: int, times: list[int], *, at_end: bool, cut: int = 3) -> Lane:
    lane = Lane(number, at_end=at_end)
    for at in range(0, len(times), cut):
        part = times[at : at + cut]
        lane.put(rows(part, at), np.array(part, dtype=np.int64))
    return lane


lanes = st.lists(
    st.tuples(st.lists(st.integers(0, 100), max_size=12).map(sorted), st.booleans()),
    min_size=1,
    max_size=4,
)


@given(lanes, st.integers(0, 20), st.integers(1, 5))
def test_rows_of_lanes_come_once_in_order_and_no_later_than_a_slice(
    given_lanes: list[tuple[list[int], bool]], width: int, cut: int
) -> None:
    made = [
        filled(number, times, at_end=at_end, cut=cut)
        for number, (times, at_end) in enumerate(given_lanes)
    ]
    out: dict[int, list[int]] = {number: [] for number in range(len(made))}
    highest = -1
    for lane, part in due(made, width):
        for time, number in zip(part.batch.column(0).to_pylist(), part.numbers, strict=True):
            assert time >= highest - width, "it is late because of another lane"
            highest = max(highest, time)
            assert number == len(out[lane.number])
            out[lane.number].append(time)
    held = min((times[-1] if times else -1 for times, end in given_lanes if not end), default=101)
    for number, (times, _) in enumerate(given_lanes):
        assert out[number] == [time for time in times if time <= held]
        assert len(made[number]) == len(times) - len(out[number])


def test_a_lane_that_has_nothing_yet_holds_the_others_up_until_it_is_at_its_end() -> None:
    full, empty = filled(0, [1, 2], at_end=True), Lane(1)
    assert list(due([full, empty], 5)) == []
    empty.at_end = True
    assert [len(part) for _, part in due([full, empty], 5)] == [2]


def test_rows_without_times_wait_for_nobody() -> None:
    lane = Lane(0)
    lane.put(rows([1, 2]), None)
    assert [len(part) for _, part in due([lane, Lane(1)], 5)] == [2]
