"""What every kind of journal promises: the same checks run on all of them, through the seam alone.

A kind brings a fixture `empty`: a journal that does not exist yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta

import pyarrow as pa
import pytest

from millstream.errors import (
    AlreadyWriting,
    CorruptStaging,
    Ended,
    JournalMissing,
    NullKey,
    NullTime,
    PositionTrimmed,
    SchemaConflict,
)
from millstream.journal import DeadLetter, Journal, Kind, PartitionReader, PartitionWriter
from millstream.journal.base import Claim, Staged

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("value", pa.int64())])


def rows(*times: int | None) -> pa.RecordBatch:
    values = [None if time is None else time * 10 for time in times]
    return pa.record_batch(
        [pa.array(times, SCHEMA.field("at").type), pa.array(values, pa.int64())], schema=SCHEMA
    )


def values(reader: PartitionReader, start: int, stop: int) -> list[int]:
    parts = reader.read(start, stop, ["value"])
    return [
        value
        for part in parts
        if part.batch is not None
        for value in part.batch.column(0).to_pylist()
    ]


def everything(journal: Journal) -> list[list[int]]:
    """Return the values of each partition."""
    reader = journal.reader()
    parts = [reader.partition(number) for number in range(reader.description.partitions)]
    return [values(part, part.begin, part.end) for part in parts]


Open = Callable[[int], PartitionWriter]


class JournalChecks:
    """Subclass it and give a fixture `empty`."""

    @pytest.fixture
    def journal(self, empty: Journal) -> Journal:
        """Make a journal of two partitions."""
        empty.create(SCHEMA, partitions=2, time="at")
        return empty

    @pytest.fixture
    def grouped(self, empty: Journal) -> Journal:
        """Make a journal of two partitions that groups write."""
        empty.create(SCHEMA, partitions=2, time="at", written_by="group")
        return empty

    @pytest.fixture
    def writer(self, journal: Journal) -> Iterator[Open]:
        """Open writers, which are closed at the end."""
        with ExitStack() as stack:
            yield lambda partition: stack.enter_context(journal.writer(partition))

    # declaring

    def test_a_journal_is_there_once_it_is_made(self, empty: Journal) -> None:
        assert not empty.exists()
        with pytest.raises(JournalMissing):
            empty.describe()
        made = empty.create(SCHEMA, partitions=2, time="at")
        assert empty.exists()
        assert empty.describe() == empty.create(SCHEMA, partitions=2, time="at") == made
        assert (made.schema, made.partitions, made.time) == (SCHEMA, 2, "at")

    def test_only_nullable_columns_can_be_added(self, journal: Journal, writer: Open) -> None:
        writer(0).append("a", 0, rows(1))
        wider = SCHEMA.append(pa.field("note", pa.string()))
        assert journal.create(wider, partitions=2, time="at").version == 1
        (part,) = journal.reader().partition(0).read(0, 1)
        assert part.batch is not None
        assert part.batch.to_pylist()[0]["note"] is None
        again = journal.create(SCHEMA, partitions=2, time="at")
        assert again.version == 1, "who knows the columns of before gets the wider one"
        with pytest.raises(SchemaConflict):
            journal.create(pa.schema([("at", SCHEMA.field("at").type)]), partitions=2, time="at")

    def test_a_journal_that_grows_keeps_its_rows_and_its_floor(self, journal: Journal) -> None:
        for partition in range(2):
            with journal.writer(partition) as writer:
                writer.append("a", 0, rows(10 + partition))
        grown = journal.grow(3, lateness_us=2)
        assert (grown.partitions, grown.lasting) == (3, 2)
        assert journal.grow(2).partitions == 3
        assert everything(journal) == [[100], [110], []]
        fresh = journal.reader().partition(2)
        assert fresh.state_at(fresh.end).floor == 8

    # rows

    def test_what_is_appended_is_read_by_position(self, journal: Journal, writer: Open) -> None:
        one = writer(0)
        assert one.append("a", 0, rows(1, 2, 3)).position == 0
        assert one.append("b", 0, rows(4)).position == 3
        reader = journal.reader().partition(0)
        assert (reader.begin, reader.end, one.end) == (0, 4, 4)
        assert values(reader, 0, 4) == [10, 20, 30, 40]
        assert values(reader, 1, 3) == [20, 30]
        assert journal.reader().partition(1).end == 0

    def test_repeats_are_accepted_and_not_stored(self, journal: Journal, writer: Open) -> None:
        one = writer(0)
        one.append("a", 0, rows(1, 2))
        again = one.append("a", 0, rows(1, 2))
        assert (again.rows, again.stored) == (2, 0)
        partly = one.append("a", 1, rows(2, 3))
        assert (partly.rows, partly.stored) == (2, 1)
        assert values(journal.reader().partition(0), 0, 9) == [10, 20, 30]
        assert (one.highest("a"), one.highest("b")) == (2, -1)

    def test_repeats_are_known_after_the_writer_was_opened_again(
        self, journal: Journal, writer: Open
    ) -> None:
        one = writer(0)
        one.append("a", 0, rows(1, 2))
        one.close()
        again = writer(0)
        assert again.append("a", 0, rows(1, 2, 3)).stored == 1
        assert values(journal.reader().partition(0), 0, 9) == [10, 20, 30]

    def test_queued_rows_are_acknowledged_in_order(self, journal: Journal, writer: Open) -> None:
        one = writer(0)
        futures = [one.append_nowait("a", n, rows(n + 1)) for n in range(20)]
        assert [future.result().position for future in futures] == list(range(20))

    def test_a_reader_follows_the_writer(self, journal: Journal, writer: Open) -> None:
        one, reader = writer(0), journal.reader().partition(0)
        for n in range(5):
            one.append("a", n, rows(n + 1))
            assert reader.end == n + 1
            assert values(reader, n, n + 1) == [(n + 1) * 10]

    def test_state_and_times_are_exact_to_the_row(self, journal: Journal, writer: Open) -> None:
        writer(0).append("a", 0, rows(10, 30, 20, 40))
        reader = journal.reader().partition(0)
        assert [reader.state_at(p).running_max for p in range(5)] == [None, 10, 30, 30, 40]
        assert [reader.first_above(moment, 0, 4) for moment in (5, 10, 30, 40)] == [0, 1, 3, 4]
        assert [reader.position_at_time(moment) for moment in (5, 30, 31, 41)] == [0, 1, 3, 4]

    def test_an_instruction_takes_a_position_and_raises_the_floor(
        self, journal: Journal, writer: Open
    ) -> None:
        one = writer(0)
        one.append("a", 0, rows(1))
        one.instruct(Kind.IDLE, 7)
        one.append("a", 1, rows(9))
        reader = journal.reader().partition(0)
        assert [part.kind for part in reader.read(0, 3)] == [Kind.ROWS, Kind.IDLE, Kind.ROWS]
        assert [reader.state_at(p).floor for p in range(4)] == [None, None, 7, 7]

    def test_progress_raises_what_is_known_of_a_sender_without_a_row(
        self, journal: Journal, writer: Open
    ) -> None:
        one = writer(0)
        one.append("a", 0, rows(5))
        one.instruct(Kind.IDLE, 3)
        before = journal.reader().partition(0).state_at(2)
        one.instruct(Kind.PROGRESS, sender="a", seq=41)
        one.instruct(Kind.PROGRESS, sender="a", seq=40)
        one.instruct(Kind.PROGRESS, sender="b", seq=0)
        assert (one.highest("a"), one.highest("b"), one.end) == (41, 0, 4)
        assert one.append("a", 41, rows(6, 7)).stored == 1
        one.close()
        again = writer(0)
        assert (again.highest("a"), again.highest("b")) == (42, 0)
        reader = journal.reader().partition(0)
        assert [entry.kind for entry in reader.entries(0, 9)][2:4] == [Kind.PROGRESS] * 2
        assert [entry.last_seq for entry in reader.entries(2, 4)] == [41, 0]
        assert [part.kind for part in reader.read(2, 4)] == [Kind.PROGRESS] * 2
        after = reader.state_at(4)
        assert (after.running_max, after.floor) == (before.running_max, before.floor) == (5, 3)
        assert (values(reader, 0, 9), reader.rows(0, 5)) == ([50, 70], 2)
        assert not journal.verify().damages

    def test_nothing_follows_the_end(self, journal: Journal, writer: Open) -> None:
        one = writer(0)
        one.instruct(Kind.END_OF_STREAM)
        with pytest.raises(Ended):
            one.append("a", 0, rows(1))
        reader = journal.reader().partition(0)
        assert reader.state_at(reader.end).ended

    def test_a_row_without_a_time_is_refused(self, journal: Journal, writer: Open) -> None:
        one = writer(0)
        with pytest.raises(NullTime):
            one.append("a", 0, rows(1, None))
        assert journal.reader().partition(0).end == 0

    def test_entries_say_who_sent_what(self, journal: Journal, writer: Open) -> None:
        writer(0).append("a", 5, rows(3, 1))
        (entry,) = journal.reader().partition(0).entries(0, 2)
        assert (entry.sender, entry.first_seq, entry.last_seq) == ("a", 5, 6)
        assert (entry.min_time, entry.max_time, entry.max_lag) == (1, 3, 2)

    def test_a_partition_has_one_writer(self, journal: Journal, writer: Open) -> None:
        writer(0)
        writer(1)
        with pytest.raises(AlreadyWriting):
            writer(0)

    def test_a_writer_that_aborts_leaves_what_was_acknowledged(self, journal: Journal) -> None:
        one = journal.writer(0)
        one.append("a", 0, rows(1))
        one.abort()
        assert everything(journal) == [[10], []]

    # claims

    def test_who_has_a_name_is_known_to_the_next_writer(self, journal: Journal) -> None:
        claims = journal.claims(0)
        assert claims.known == {}
        claims.put("a", Claim(7))
        claims.put("a", Claim(9, "till"))
        claims.put("b", Claim(3))
        assert claims.known == {"a": Claim(9, "till"), "b": Claim(3)}
        assert journal.claims(0).known == claims.known
        assert journal.claims(1).known == {}

    # epochs

    def test_an_epoch_is_there_once_it_is_published(self, grouped: Journal) -> None:
        log = grouped.epochs()
        staged = [*grouped.stage([rows(1, 2)], 0), *grouped.stage([rows(3)], 1)]
        assert everything(grouped) == [[], []]
        assert log.decide("g", 0, staged, floor=5)
        assert log.publish() == 3
        assert everything(grouped) == [[10, 20], [30]]
        log.close()

    def test_a_repeated_epoch_changes_nothing(self, grouped: Journal) -> None:
        log = grouped.epochs()
        log.decide("g", 0, grouped.stage([rows(1)], 0))
        assert not log.decide("g", 0, grouped.stage([rows(2, 3)], 1))
        log.publish()
        assert (log.last("g"), log.last("other")) == (0, -1)
        assert everything(grouped) == [[10], []]
        log.close()

    def test_a_new_driver_publishes_what_was_decided_and_nothing_else(
        self, grouped: Journal
    ) -> None:
        log = grouped.epochs()
        log.decide("g", 0, grouped.stage([rows(1)], 0))
        forgotten = grouped.stage([rows(2)], 0)
        log.close()
        log = grouped.epochs()
        assert log.recover() == 1
        assert everything(grouped) == [[10], []]
        assert log.decide("g", 1, forgotten)
        with pytest.raises(CorruptStaging):
            log.publish()
        log.close()

    def test_a_journal_has_one_driver(self, grouped: Journal) -> None:
        log = grouped.epochs()
        with pytest.raises(AlreadyWriting):
            grouped.epochs()
        log.close()
        grouped.epochs().close()

    def test_an_ended_journal_takes_no_epoch(self, grouped: Journal) -> None:
        log = grouped.epochs()
        assert log.decide("g", 0, [], ended=True)
        with pytest.raises(Ended):
            log.decide("g", 1, grouped.stage([rows(1)], 0))
        log.close()

    def test_staging_by_key_gives_equal_keys_the_same_partition(self, grouped: Journal) -> None:
        staged = grouped.stage([rows(1, 2, 1, 3, 2)], "value")
        assert sum(one.rows for one in staged) == 5
        log = grouped.epochs()
        log.decide("g", 0, staged)
        log.publish()
        first, second = everything(grouped)
        assert sorted(first + second) == [10, 10, 20, 20, 30]
        assert not set(first) & set(second)
        log.close()
        with pytest.raises(NullKey):
            grouped.stage([rows(None)], "value")

    # arrivals

    def test_an_arrival_is_stored_once_and_its_refused_rows_are_kept(
        self, journal: Journal, writer: Open
    ) -> None:
        staged = journal.stage_arrival(0, "far", 4, [rows(1, 2)], [("late", "{}")])
        held, refused = journal.checked_arrival(staged, 0, "far", 4)
        assert journal.read_refused(refused) == [("late", "{}")]
        one = writer(0)
        assert one.append_staged("far", 4, held).result().stored == 2
        assert one.append_staged("far", 4, held).result().stored == 0
        journal.discard_arrival(0, "far", 4)
        with pytest.raises(CorruptStaging):
            one.append_staged("far", 5, held)
        assert everything(journal) == [[10, 20], []]

    def test_what_was_staged_for_another_epoch_is_not_taken(self, journal: Journal) -> None:
        staged = journal.stage_arrival(0, "far", 4, [rows(1)])
        wrong: list[tuple[int, str, int]] = [(1, "far", 4), (0, "near", 4), (0, "far", 5)]
        for partition, sender, epoch in wrong:
            with pytest.raises(CorruptStaging):
                journal.checked_arrival(staged, partition, sender, epoch)
        made_up = [Staged("made up", 0, 1, 1, 0, None, None, 1, 0)]
        with pytest.raises(CorruptStaging):
            journal.checked_arrival(made_up, 0, "far", 4)

    def test_senders_that_ended_are_remembered(self, journal: Journal, writer: Open) -> None:
        writer(0)
        assert journal.ended_senders(0) == []
        journal.end_sender(0, "a")
        journal.end_sender(0, "b")
        assert journal.ended_senders(0) == ["a", "b"]
        assert journal.ended_senders(1) == []

    # dead letters

    def test_a_dead_letter_is_kept_once(self, journal: Journal) -> None:
        assert journal.dead_counts() == {}
        assert not journal.dead_journal().exists()
        letters = [DeadLetter("s", n, "late", "{}") for n in range(3)]
        for expected in (3, 0):
            with journal.dead_letters() as dead:
                assert dead.put_all(letters) == expected
        assert journal.dead_counts() == {"late": 3}
        part = journal.dead_journal().reader().partition(0)
        assert part.rows(part.begin, part.end) == 3

    # retention

    def test_readers_are_registered_by_what_they_commit(self, journal: Journal) -> None:
        journal.commit("r", [3, 4])
        journal.commit("s", {1: 7})
        journal.commit("r", [5, 4])
        found = {one.reader: dict(one.positions) for one in journal.committed()}
        assert found == {"r": {0: 5, 1: 4}, "s": {1: 7}}
        journal.forget("r")
        journal.forget("r")
        journal.commit_for(0, {"s": 2, "t": 1})
        found = {one.reader: dict(one.positions) for one in journal.committed()}
        assert found == {"s": {0: 2, 1: 7}, "t": {0: 1}}

    def test_nothing_is_trimmed_that_a_reader_needs_or_that_shall_be_kept(
        self, journal: Journal, writer: Open
    ) -> None:
        writer(0).append("a", 0, rows(1, 2, 3))
        journal.commit("r", [0, 0])
        journal.trim(keep_bytes=0)
        journal.commit("r", [3, 0])
        journal.trim()
        journal.trim(keep_for=timedelta(days=1))
        assert everything(journal) == [[10, 20, 30], []]

    def test_a_position_that_was_trimmed_is_an_error(self, journal: Journal, writer: Open) -> None:
        one = writer(0)
        one.append("a", 0, rows(1))
        wider = SCHEMA.append(pa.field("note", pa.string()))
        journal.create(wider, partitions=2, time="at")  # what is removed is up to the kind
        one.append("a", 1, rows(2).append_column("note", pa.array(["x"])))
        trimmed = journal.trim_to(0, 2)
        part = journal.reader().partition(0)
        assert part.begin == trimmed.positions
        if trimmed.positions:
            with pytest.raises(PositionTrimmed):
                list(part.read(0, 1))
        assert values(part, 1, 2) == [20]
        assert one.highest("a") == 1

    # health

    def test_a_journal_in_numbers(self, journal: Journal, writer: Open) -> None:
        writer(0).append("a", 0, rows(5, 3))
        writer(1).instruct(Kind.END_OF_STREAM)
        journal.commit("r", [1, 0])
        found = journal.summary()
        first, second = found.partitions
        assert (found.rows, first.rows, first.end, first.highest) == (2, 2, 2, {"a": 1})
        assert (first.min_time, first.running_max, first.ended, second.ended) == (3, 5, False, True)
        assert [(one.reader, one.lag) for one in found.readers] == [("r", 2)]

    def test_a_sound_journal_is_verified_and_needs_no_repair(
        self, journal: Journal, writer: Open
    ) -> None:
        one = writer(0)
        one.append("a", 0, rows(1, 2, 3))
        one.close()
        found = journal.verify()
        assert (found.damages, found.rows, found.lost) == ((), 3, 0)
        assert journal.repair() == []
        assert everything(journal) == [[10, 20, 30], []]
