"""What every kind of journal promises: the same checks run on all of them.

A kind brings a `Bench`: it makes an empty journal and opens writers and readers of its partitions.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa
import pytest

from millstream.errors import AlreadyWriting, Ended, NullTime
from millstream.journal.base import JournalReader, JournalWriter, Kind

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("value", pa.int64())])


class Bench(Protocol):
    """One journal of two partitions, empty at first, with SCHEMA and time column "at"."""

    def writer(self, partition: int) -> JournalWriter: ...
    def reader(self, partition: int) -> JournalReader: ...


def rows(*times: int | None) -> pa.RecordBatch:
    values = [None if time is None else time * 10 for time in times]
    return pa.record_batch(
        [pa.array(times, SCHEMA.field("at").type), pa.array(values, pa.int64())], schema=SCHEMA
    )


def values(reader: JournalReader, start: int, stop: int) -> list[int]:
    parts = reader.read(start, stop, ["value"])
    return [
        value
        for part in parts
        if part.batch is not None
        for value in part.batch.column(0).to_pylist()
    ]


class JournalChecks:
    """Subclass it and give a fixture `bench`."""

    def test_what_is_appended_is_read_by_position(self, bench: Bench) -> None:
        writer = bench.writer(0)
        assert writer.append("a", 0, rows(1, 2, 3)).position == 0
        assert writer.append("b", 0, rows(4)).position == 3
        reader = bench.reader(0)
        assert (reader.begin, reader.end, writer.end) == (0, 4, 4)
        assert values(reader, 0, 4) == [10, 20, 30, 40]
        assert values(reader, 1, 3) == [20, 30]
        assert bench.reader(1).end == 0

    def test_repeats_are_accepted_and_not_stored(self, bench: Bench) -> None:
        writer = bench.writer(0)
        writer.append("a", 0, rows(1, 2))
        again = writer.append("a", 0, rows(1, 2))
        assert (again.rows, again.stored) == (2, 0)
        partly = writer.append("a", 1, rows(2, 3))
        assert (partly.rows, partly.stored) == (2, 1)
        assert values(bench.reader(0), 0, 9) == [10, 20, 30]
        assert (writer.highest("a"), writer.highest("b")) == (2, -1)

    def test_repeats_are_known_after_the_writer_was_opened_again(self, bench: Bench) -> None:
        writer = bench.writer(0)
        writer.append("a", 0, rows(1, 2))
        writer.close()
        again = bench.writer(0)
        assert again.append("a", 0, rows(1, 2, 3)).stored == 1
        assert values(bench.reader(0), 0, 9) == [10, 20, 30]

    def test_queued_rows_are_acknowledged_in_order(self, bench: Bench) -> None:
        writer = bench.writer(0)
        futures = [writer.append_nowait("a", n, rows(n + 1)) for n in range(20)]
        assert [future.result().position for future in futures] == list(range(20))

    def test_a_reader_follows_the_writer(self, bench: Bench) -> None:
        writer, reader = bench.writer(0), bench.reader(0)
        for n in range(5):
            writer.append("a", n, rows(n + 1))
            assert reader.end == n + 1
            assert values(reader, n, n + 1) == [(n + 1) * 10]

    def test_state_and_times_are_exact_to_the_row(self, bench: Bench) -> None:
        bench.writer(0).append("a", 0, rows(10, 30, 20, 40))
        reader = bench.reader(0)
        assert [reader.state_at(p).running_max for p in range(5)] == [None, 10, 30, 30, 40]
        assert [reader.first_above(moment, 0, 4) for moment in (5, 10, 30, 40)] == [0, 1, 3, 4]
        assert [reader.position_at_time(moment) for moment in (5, 30, 31, 41)] == [0, 1, 3, 4]

    def test_an_instruction_takes_a_position_and_raises_the_floor(self, bench: Bench) -> None:
        writer = bench.writer(0)
        writer.append("a", 0, rows(1))
        writer.instruct(Kind.IDLE, 7)
        writer.append("a", 1, rows(9))
        reader = bench.reader(0)
        assert [part.kind for part in reader.read(0, 3)] == [Kind.ROWS, Kind.IDLE, Kind.ROWS]
        assert [reader.state_at(p).floor for p in range(4)] == [None, None, 7, 7]

    def test_nothing_follows_the_end(self, bench: Bench) -> None:
        writer = bench.writer(0)
        writer.instruct(Kind.END_OF_STREAM)
        with pytest.raises(Ended):
            writer.append("a", 0, rows(1))
        reader = bench.reader(0)
        assert reader.state_at(reader.end).ended

    def test_a_row_without_a_time_is_refused(self, bench: Bench) -> None:
        writer = bench.writer(0)
        with pytest.raises(NullTime):
            writer.append("a", 0, rows(1, None))
        assert bench.reader(0).end == 0

    def test_entries_say_who_sent_what(self, bench: Bench) -> None:
        bench.writer(0).append("a", 5, rows(3, 1))
        (entry,) = bench.reader(0).entries(0, 2)
        assert (entry.sender, entry.first_seq, entry.last_seq) == ("a", 5, 6)
        assert (entry.min_time, entry.max_time, entry.max_lag) == (1, 3, 2)

    def test_a_partition_has_one_writer(self, bench: Bench) -> None:
        bench.writer(0)
        bench.writer(1)
        with pytest.raises(AlreadyWriting):
            bench.writer(0)
