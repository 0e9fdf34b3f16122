from __future__ import annotations

import gc
import pickle
import shutil
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import (
    CorruptBatch,
    CorruptIndex,
    JournalMissing,
    PositionTrimmed,
    PositionUnwritten,
)
from millstream.journal.base import FOREVER, Kind, PartitionState
from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.epochs import EpochLog
from millstream.journal.kinds.files.index import read_header
from millstream.journal.kinds.files.layout import data_file, index_file, segment_positions
from millstream.journal.kinds.files.reader import PartitionReader, Reader
from millstream.journal.kinds.files.staging import stage
from millstream.journal.kinds.files.writer import Writer


@pytest.fixture
def filled(journal: Path, batch: Any) -> Path:
    """Positions 0-2 rows, 3 an IDLE floor, 4-6 rows."""
    with Writer.open(journal) as writer:
        writer.append("a", 0, batch(10, 30, 20))
        writer.instruct(Kind.IDLE, 25)
        writer.append("a", 3, batch(40, 24, 50))
    return journal


def part(path: Path) -> PartitionReader:
    return Reader(path).partition(0)


def names(reader: PartitionReader, start: int, stop: int) -> list[str]:
    return [
        n
        for p in reader.read(start, stop)
        if p.batch is not None
        for n in p.batch.column("name").to_pylist()
    ]


@pytest.mark.parametrize(("start", "stop"), [(a, z) for a in range(8) for z in range(a, 8)])
def test_reading_is_exact_to_the_row(filled: Path, start: int, stop: int) -> None:
    held = ["10", "30", "20", None, "40", "24", "50"]
    assert names(part(filled), start, stop) == [
        name for name in held[start:stop] if name is not None
    ]


@pytest.mark.parametrize(("start", "stop"), [(a, z) for a in range(9) for z in range(9)])
def test_rows_are_counted_without_instructions(filled: Path, start: int, stop: int) -> None:
    assert part(filled).rows(start, stop) == len(names(part(filled), start, stop))


def test_a_slice_knows_where_it_is_and_what_was_before_it(filled: Path) -> None:
    found = list(part(filled).read(1, 6))
    assert [(s.position, s.stop, s.kind) for s in found] == [
        (1, 3, Kind.ROWS),
        (3, 4, Kind.IDLE),
        (4, 6, Kind.ROWS),
    ]
    assert [s.running_max_before for s in found] == [10, 30, 30]
    assert [(s.floor_before, s.floor_after) for s in found] == [(None, None), (None, 25), (25, 25)]
    assert [s.max_lag for s in found] == [10, None, FOREVER]


def test_the_state_is_exact_to_the_row(filled: Path) -> None:
    reader = part(filled)
    assert [reader.state_at(p).running_max for p in range(8)] == [None, 10, 30, 30, 30, 40, 40, 50]
    assert [reader.state_at(p).floor for p in range(8)] == [None] * 4 + [25] * 4


def test_the_first_row_above_a_moment_is_found(filled: Path) -> None:
    reader = part(filled)
    assert [reader.first_above(m, 0, 7) for m in (5, 10, 29, 30, 45, 50)] == [0, 1, 1, 4, 6, 7]
    assert reader.first_above(10, 2, 7) == 2, "already above"
    assert reader.first_above(30, 0, 3) == 3, "not before the end that was asked for"


def test_the_first_row_at_a_time_is_found(filled: Path) -> None:
    reader = part(filled)
    assert [reader.position_at_time(m) for m in (0, 10, 11, 30, 31, 50, 51)] == [
        0,
        0,
        1,
        1,
        4,
        6,
        7,
    ]


def test_an_empty_journal_has_a_state(journal: Path) -> None:
    reader = part(journal)
    assert (reader.begin, reader.end) == (0, 0)
    assert reader.state_at(0) == PartitionState(None, None, ended=False, last_append_at=None)
    assert reader.position_at_time(5) == 0
    assert list(reader.read(0, 10)) == []


def test_a_position_after_the_end_has_no_state(filled: Path) -> None:
    with pytest.raises(PositionUnwritten, match="the end is 7"):
        part(filled).state_at(8)


def test_only_the_wanted_columns_are_handed_out_in_their_order(filled: Path) -> None:
    found = next(part(filled).read(0, 3, ["name"]))
    assert found.batch is not None
    assert found.batch.schema.names == ["name"]
    found = next(part(filled).read(0, 3, ["name", "at"]))
    assert found.batch is not None
    assert found.batch.schema.names == ["name", "at"]


def test_batches_are_views_of_the_file(filled: Path) -> None:
    before = pa.total_allocated_bytes()
    kept = list(part(filled).read(0, 7))
    assert pa.total_allocated_bytes() == before
    assert len(kept) == 3


def test_a_reader_sees_what_is_written_after_it_was_opened(journal: Path, batch: Any) -> None:
    reader = part(journal)
    with Writer.open(journal, segment_bytes=1_000) as writer:
        for n in range(30):
            writer.append("a", n, batch(n))
            assert reader.end == n + 1
            assert names(reader, n, n + 1) == [str(n)]
            assert reader.state_at(n + 1).running_max == n
    assert len(segment_positions(journal / "p0000")) > 3
    assert names(reader, 0, 30) == [str(n) for n in range(30)]
    assert [reader.position_at_time(n) for n in range(30)] == list(range(30))


def test_a_reader_in_another_process_sees_each_row_once_it_is_acknowledged(
    journal: Path, batch: Any
) -> None:
    code = (
        "import sys; from millstream.journal.kinds.files.reader import Reader\n"
        f"reader = Reader({str(journal)!r}).partition(0)\n"
        "for line in sys.stdin: print(reader.end, flush=True)"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdin is not None
    assert other.stdout is not None
    with Writer.open(journal) as writer:
        for n in range(20):
            writer.append("a", n, batch(n))
            other.stdin.write("?\n")
            other.stdin.flush()
            assert int(other.stdout.readline()) == n + 1
    other.communicate()


def test_a_written_entry_that_is_not_marked_is_not_seen(filled: Path) -> None:
    # As if the writer had been stopped between writing the entry and syncing it, and is still
    # there.
    reader = part(filled)
    with Writer.open(filled):
        index = index_file(filled / "p0000", 0)
        raw = index.read_bytes()
        index.write_bytes(raw + raw[-128:])
        assert part(filled).end == 7
        assert reader.end == 7


def test_positions_that_were_trimmed_are_an_error(journal: Path, batch: Any) -> None:
    with Writer.open(journal, segment_bytes=600) as writer:
        for n in range(20):
            writer.append("a", n, batch(n))
        reader = part(journal)
        assert names(reader, 0, 20) == [str(n) for n in range(20)]
        assert writer.trim(keep_bytes=0).segments > 0
    begin = reader.begin
    assert begin > 0
    with pytest.raises(PositionTrimmed, match=f"the first is {begin}"):
        list(reader.read(0, 20))
    assert names(reader, begin, 20) == [str(n) for n in range(begin, 20)]
    assert reader.state_at(begin).running_max == begin - 1
    assert reader.position_at_time(3) == begin
    fresh = part(journal)
    with pytest.raises(PositionTrimmed):
        fresh.state_at(0)


def test_a_damaged_batch_is_reported_with_its_place_and_not_handed_out(filled: Path) -> None:
    entry = list(part(filled).entries(0, 7))[2]
    file = data_file(filled / "p0000", 0)
    raw = bytearray(file.read_bytes())
    raw[entry.offset + entry.length - 3] ^= 1
    file.write_bytes(raw)
    reader = part(filled)
    assert names(reader, 0, 4) == ["10", "30", "20"]
    with pytest.raises(CorruptBatch) as caught:
        list(reader.read(4, 7, ["at"]))
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.position, error.offset, error.file) == (4, entry.offset, str(file))


def test_a_data_file_that_is_cut_off_is_reported(filled: Path) -> None:
    file = data_file(filled / "p0000", 0)
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(CorruptBatch):
        list(part(filled).read(4, 7))


def test_checking_can_be_left_out(filled: Path) -> None:
    entry = next(part(filled).entries(0, 7))
    file = data_file(filled / "p0000", 0)
    raw = bytearray(file.read_bytes())
    raw[entry.offset + entry.length - 1] ^= 1  # padding
    file.write_bytes(raw)
    assert names(Reader(filled, check=False).partition(0), 0, 3) == ["10", "30", "20"]


def test_a_damaged_entry_is_reported(filled: Path) -> None:
    index = index_file(filled / "p0000", 0)
    raw = bytearray(index.read_bytes())
    raw[read_header(index).length + 128 + 100] ^= 1
    index.write_bytes(raw)
    with pytest.raises(CorruptIndex, match="entry 1"):
        list(part(filled).read(0, 7))


def test_older_batches_get_nulls_for_added_columns(
    filled: Path, batch: Any, schema: pa.Schema
) -> None:
    reader = part(filled)
    assert names(reader, 0, 7)
    create(filled, schema.insert(0, pa.field("extra", pa.list_(pa.int64()))), time="at")
    with Writer.open(filled) as writer:
        writer.append("a", 6, batch(60).append_column("extra", pa.array([[1, 2]])))
    rows = [row for p in part(filled).read(5, 8) for row in p.batch.to_pylist()]  # type: ignore[union-attr]
    assert [row["extra"] for row in rows] == [None, None, [1, 2]]
    assert list(rows[0]) == ["extra", "at", "name"]
    assert names(reader, 0, 8)[-1] == "60", "a reader from before the change goes on"


def test_an_epoch_of_several_batches_is_one_entry_and_is_read_by_the_row(
    tmp_path: Path, batch: Any, schema: pa.Schema
) -> None:
    create(tmp_path, schema, time="at", written_by="group")
    with EpochLog.open(tmp_path) as log:
        staged = [stage(tmp_path, [batch(50, 10)])[0], stage(tmp_path, [batch(40, 60, 20)])[0]]
        log.decide("g", 0, staged, 5)
        log.publish()
    reader = part(tmp_path)
    (entry,) = reader.entries(0, 5)
    assert (entry.kind, entry.rows, entry.min_time, entry.max_time, entry.max_lag) == (
        Kind.EPOCH,
        5,
        10,
        60,
        None,
    )
    held = ["50", "10", "40", "60", "20"]
    for start in range(6):
        for stop in range(start, 6):
            assert names(reader, start, stop) == held[start:stop]
    assert [reader.state_at(p).running_max for p in range(6)] == [None, 50, 50, 50, 60, 60]
    assert [reader.first_above(m, 0, 5) for m in (0, 49, 50, 60)] == [0, 0, 3, 5]
    assert [(s.running_max_before, s.floor_after) for s in reader.read(1, 5)] == [
        (50, None),
        (50, 5),
    ]


def test_a_cached_reader_is_the_same_until_the_journal_is_another(
    filled: Path, schema: pa.Schema
) -> None:
    first = Reader.cached(filled)
    assert Reader.cached(filled) is first
    create(filled, schema.append(pa.field("extra", pa.int64())), time="at")
    assert Reader.cached(filled) is not first


def test_the_readers_of_journals_that_are_gone_are_forgotten(
    filled: Path, tmp_path: Path, batch: Any
) -> None:
    """A driver lives through many versions and shadows, whose journals are removed."""
    gone = tmp_path / "gone"
    create(gone, Reader(filled).description.schema, time="at")
    with Writer.open(gone) as writer:
        writer.append("a", 0, batch(1, 2))
    assert names(Reader.cached(gone).partition(0), 0, 2) == ["1", "2"]
    held = weakref.ref(Reader.cached(gone))
    shutil.rmtree(gone)
    Reader.cached(filled)
    gc.collect()
    assert held() is None


def test_a_journal_that_is_not_there_is_an_error(tmp_path: Path, journal: Path) -> None:
    with pytest.raises(JournalMissing):
        Reader(tmp_path / "nothing")
    with pytest.raises(JournalMissing):
        Reader(journal).partition(1)


def test_entries_name_their_senders(filled: Path) -> None:
    assert [entry.sender for entry in part(filled).entries(0, 7)] == ["a", None, "a"]
