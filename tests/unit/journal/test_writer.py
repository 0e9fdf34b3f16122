from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.clock import ManualClock
from millstream.errors import (
    AlreadyWriting,
    CorruptIndex,
    Ended,
    InternalError,
    JournalMissing,
    NullTime,
    SchemaConflict,
    WriterClosed,
)
from millstream.journal.base import Accepted, Kind
from millstream.journal.kinds.files import commit_queue, drafts
from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.index import SIZE, map_entries, read_header
from millstream.journal.kinds.files.layout import (
    data_file,
    index_file,
    partition_folder,
    segment_positions,
)
from millstream.journal.kinds.files.mark import mark_file
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.writer import Writer
from millstream.journal.rows import conform
from millstream.storage.disk import RealDisk, RealFile


def names(path: Path, partition: int = 0) -> list[str]:
    reader = Reader(path).partition(partition)
    parts = reader.read(reader.begin, reader.end, ["name"])
    return [
        name
        for part in parts
        if part.batch is not None
        for name in part.batch.column(0).to_pylist()
    ]


def test_rows_are_stored_at_consecutive_positions(journal: Path, batch: Any) -> None:
    with Writer.open(journal) as writer:
        assert writer.append("a", 0, batch(1, 2)) == Accepted(rows=2, position=0, stored=2)
        assert writer.append("b", 0, batch(3)) == Accepted(rows=1, position=2, stored=1)
        assert writer.end == 3


def test_a_repeated_batch_is_accepted_and_not_stored(journal: Path, batch: Any) -> None:
    with Writer.open(journal) as writer:
        writer.append("a", 0, batch(1, 2))
        assert writer.append("a", 0, batch(1, 2)) == Accepted(rows=2, position=2, stored=0)
    assert names(journal) == ["1", "2"]


def test_a_partly_seen_batch_is_sliced(journal: Path, batch: Any) -> None:
    with Writer.open(journal) as writer:
        writer.append("a", 0, batch(1, 2))
        assert writer.append("a", 1, batch(2, 3, 4)) == Accepted(rows=3, position=2, stored=2)
    assert names(journal) == ["1", "2", "3", "4"]


def test_a_gap_in_the_sequence_is_allowed(journal: Path, batch: Any) -> None:
    with Writer.open(journal) as writer:
        writer.append("a", 0, batch(1))
        assert writer.append("a", 10, batch(2)).stored == 1
        assert writer.append("a", 5, batch(3)).stored == 0
        assert writer.highest("a") == 10


def test_senders_do_not_disturb_each_other(journal: Path, batch: Any) -> None:
    with Writer.open(journal) as writer:
        writer.append("a", 7, batch(1))
        assert writer.append("b", 0, batch(2)).stored == 1
        assert (writer.highest("a"), writer.highest("b"), writer.highest("c")) == (7, 0, -1)


def test_an_empty_batch_is_accepted(journal: Path, batch: Any) -> None:
    with Writer.open(journal) as writer:
        assert writer.append("a", 0, batch()) == Accepted(rows=0, position=0, stored=0)


def test_what_senders_have_sent_is_known_after_reopening(journal: Path, batch: Any) -> None:
    with Writer.open(journal) as writer:
        writer.append("a", 0, batch(1, 2))
        writer.instruct(Kind.IDLE, 5)
    with Writer.open(journal) as writer:
        assert (writer.highest("a"), writer.end, writer.floor, writer.running_max) == (1, 3, 5, 2)
        assert writer.generation == 2
        assert writer.append("a", 0, batch(1, 2, 9)).stored == 1


def test_what_senders_have_sent_is_known_from_the_newest_segment_alone(
    journal: Path, batch: Any
) -> None:
    with Writer.open(journal, segment_bytes=500) as writer:
        writer.append("quiet", 0, batch(1))
        for n in range(10):
            writer.append("busy", n, batch(n))
    segments = segment_positions(journal / "p0000")
    assert len(segments) > 3
    for first in segments[:-1]:
        index_file(journal / "p0000", first).unlink()
        data_file(journal / "p0000", first).unlink()
    with Writer.open(journal) as writer:
        assert (writer.highest("quiet"), writer.highest("busy"), writer.end) == (0, 9, 11)


def test_a_null_time_refuses_the_batch_and_names_the_row(journal: Path, batch: Any) -> None:
    with Writer.open(journal) as writer:
        with pytest.raises(NullTime, match="row 1"):
            writer.append("a", 0, batch(1, None, 3))
        assert writer.append("a", 0, batch(1)).stored == 1


def test_a_null_time_far_behind_in_a_large_batch_leaves_nothing_of_it(
    journal: Path, batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafts, "ENTRY_ROWS", 2)
    with Writer.open(journal) as writer:
        with pytest.raises(NullTime):
            writer.append("a", 0, batch(1, 2, 3, None))
        assert (writer.end, writer.highest("a")) == (0, -1)
        assert writer.append("a", 0, batch(1)).stored == 1
    assert names(journal) == ["1"]


def test_a_large_batch_is_cut_into_entries(
    journal: Path, batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafts, "ENTRY_ROWS", 2)
    with Writer.open(journal) as writer:
        assert writer.append("a", 0, batch(1, 5, 3, 4, 9)) == Accepted(5, 0, 5)
    entries = list(Reader(journal).partition(0).entries(0, 5))
    assert [(e.position, e.rows, e.first_seq, e.last_seq) for e in entries] == [
        (0, 2, 0, 1),
        (2, 2, 2, 3),
        (4, 1, 4, 4),
    ]
    assert [(e.running_max_before, e.running_max_after, e.max_lag) for e in entries] == [
        (None, 5, -4),
        (5, 5, 2),
        (5, 9, -4),
    ]


def test_columns_in_another_order_and_missing_nullable_ones_are_fitted(journal: Path) -> None:
    times = pa.array([1], pa.timestamp("us", "UTC"))
    with Writer.open(journal) as writer:
        writer.append("a", 0, pa.record_batch({"name": ["x"], "at": times}))
        writer.append("a", 1, pa.record_batch({"at": times}))
        dictionary = pa.array(["y"]).dictionary_encode()
        writer.append(
            "a",
            2,
            pa.record_batch(
                {"at": times.cast(pa.timestamp("s", "UTC"), safe=False), "name": dictionary}
            ),
        )
    assert names(journal) == ["x", None, "y"]


def test_an_unknown_column_is_refused(journal: Path) -> None:
    with Writer.open(journal) as writer, pytest.raises(SchemaConflict, match='"other"'):
        writer.append("a", 0, pa.record_batch({"other": [1]}))


def test_a_value_that_does_not_fit_is_refused(journal: Path) -> None:
    with Writer.open(journal) as writer, pytest.raises(SchemaConflict, match='"at"'):
        writer.append("a", 0, pa.record_batch({"at": ["no time"]}))


def test_a_negative_sequence_number_is_refused(journal: Path, batch: Any) -> None:
    with Writer.open(journal) as writer, pytest.raises(SchemaConflict):
        writer.append("a", -1, batch(1))


def test_a_floor_that_does_not_rise_is_not_stored(journal: Path) -> None:
    with Writer.open(journal) as writer:
        writer.instruct(Kind.IDLE, 5)
        assert writer.instruct(Kind.IDLE, 5) == Accepted(0, 1, 0)
        writer.instruct(Kind.WATERMARK, 4)
        assert writer.end == 1


def test_an_instruction_of_a_sender_is_taken_once(journal: Path) -> None:
    with Writer.open(journal) as writer:
        writer.instruct(Kind.IDLE, 5, sender="a", seq=3)
        writer.instruct(Kind.IDLE, 9, sender="a", seq=3)
        assert (writer.end, writer.floor) == (1, 5)


def test_nothing_follows_the_end_of_the_stream(journal: Path, batch: Any) -> None:
    with Writer.open(journal) as writer:
        writer.append("a", 0, batch(1))
        writer.instruct(Kind.END_OF_STREAM)
        writer.instruct(Kind.END_OF_STREAM)
        assert writer.ended
        assert writer.end == 2
        with pytest.raises(Ended):
            writer.append("a", 1, batch(2))
        with pytest.raises(Ended):
            writer.instruct(Kind.IDLE, 9)
        assert writer.append("a", 0, batch(1)).rows == 1


def test_a_second_writer_is_told_who_has_the_partition(journal: Path) -> None:
    with Writer.open(journal), pytest.raises(AlreadyWriting, match=str(os.getpid())):
        Writer.open(journal)


def test_a_second_writer_can_wait(journal: Path) -> None:
    first = Writer.open(journal)
    threading.Timer(0.1, first.close).start()
    with Writer.open(journal, timeout=10) as second:
        assert second.generation == 2


def test_the_lock_goes_with_the_process(journal: Path) -> None:
    code = f"from millstream.journal.kinds.files.writer import Writer; import os; w = Writer.open({str(journal)!r}); os._exit(9)"
    subprocess.run([sys.executable, "-c", code], check=False)
    Writer.open(journal).close()


def test_a_partition_that_is_not_there_is_named(journal: Path) -> None:
    with pytest.raises(JournalMissing, match="no partition 3"):
        Writer.open(journal, 3)
    with pytest.raises(JournalMissing):
        Writer.open(journal / "elsewhere")


def test_a_closed_writer_says_so(journal: Path, batch: Any) -> None:
    writer = Writer.open(journal)
    writer.close()
    writer.close()
    with pytest.raises(WriterClosed):
        writer.append("a", 0, batch(1))


def test_closing_writes_what_is_queued(journal: Path, batch: Any) -> None:
    with Writer.open(journal) as writer:
        futures = [writer.append_nowait("a", n, batch(n)) for n in range(50)]
    assert [future.result().position for future in futures] == list(range(50))
    assert names(journal) == [str(n) for n in range(50)]


class SlowDisk(RealDisk):
    """Lets a test hold the disk back, and counts what was synced."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()
        self.syncs = 0

    def open(self, path: Path) -> RealFile:
        disk = self

        class File(RealFile):
            def sync(self) -> None:
                disk.free.wait()
                disk.syncs += 1
                super().sync()

        return File(path)


def test_what_is_queued_while_the_disk_works_is_synced_together(journal: Path, batch: Any) -> None:
    disk = SlowDisk()
    with Writer.open(journal, disk=disk) as writer:
        writer.append("a", 0, batch(0))
        disk.free.clear()
        futures = [writer.append_nowait("a", n, batch(n)) for n in range(1, 100)]
        before = disk.syncs
        assert not any(future.done() for future in futures)
        assert not writer.append_nowait("a", 50, batch(50)).done(), (
            "a repeat counts when what it repeats does"
        )
        disk.free.set()
        writer.flush()
        assert all(future.done() for future in futures)
        assert disk.syncs - before <= 4


def test_a_full_queue_holds_the_sender_back(
    journal: Path, batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_queue, "QUEUE_LENGTH", 5)
    disk = SlowDisk()
    with Writer.open(journal, disk=disk) as writer:
        disk.free.clear()
        sent: list[int] = []

        def send() -> None:
            for n in range(100):
                writer.append_nowait("a", n, batch(n))
                sent.append(n)

        thread = threading.Thread(target=send)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        assert len(sent) < 20
        disk.free.set()
        thread.join()
    assert len(names(journal)) == 100


def test_several_threads_append_and_each_sender_keeps_its_order(journal: Path, batch: Any) -> None:
    with Writer.open(journal) as writer:

        def send(sender: str) -> None:
            for n in range(50):
                writer.append(sender, n, batch(n, names=[f"{sender}{n}"]))

        threads = [threading.Thread(target=send, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = names(journal)
    for sender in "abcd":
        assert [name for name in found if name.startswith(sender)] == [
            f"{sender}{n}" for n in range(50)
        ]


def test_a_segment_is_an_arrow_stream(journal: Path, batch: Any) -> None:
    with Writer.open(journal) as writer:
        writer.append("a", 0, batch(1, 2))
        writer.append("a", 2, batch(3))
    with pa.OSFile(str(data_file(journal / "p0000", 0))) as source:
        assert pa.ipc.open_stream(source).read_all().column("name").to_pylist() == ["1", "2", "3"]


def test_a_torn_tail_is_cut(journal: Path, batch: Any) -> None:
    with Writer.open(journal) as writer:
        writer.append("a", 0, batch(1, 2))
    with (
        index_file(journal / "p0000", 0).open("ab") as index,
        data_file(journal / "p0000", 0).open("ab") as data,
    ):
        index.write(b"x" * (SIZE + 20))
        data.write(b"half a batch")
    with Writer.open(journal) as writer:
        assert (writer.recovered.entries, writer.recovered.data_bytes) == (2, 12)
        writer.append("a", 2, batch(3))
    assert names(journal) == ["1", "2", "3"]


def test_damage_before_the_mark_is_not_taken_for_a_torn_tail(journal: Path, batch: Any) -> None:
    with Writer.open(journal) as writer:
        writer.append("a", 0, batch(1, 2))
        writer.append("a", 2, batch(3))
    index = index_file(journal / "p0000", 0)
    raw = bytearray(index.read_bytes())
    raw[read_header(index).length + 20] ^= 1
    index.write_bytes(raw)
    with pytest.raises(CorruptIndex, match="entry 0"):
        Writer.open(journal)
    assert index.read_bytes() == raw


def test_without_a_mark_everything_sound_is_found(journal: Path, batch: Any) -> None:
    with Writer.open(journal) as writer:
        writer.append("a", 0, batch(1, 2))
    mark_file(journal / "p0000").unlink()
    assert names(journal) == ["1", "2"]
    with Writer.open(journal) as writer:
        assert writer.end == 2


def test_columns_that_were_added_meanwhile_are_taken_over(
    journal: Path, batch: Any, schema: pa.Schema
) -> None:
    with Writer.open(journal) as writer:
        writer.append("a", 0, batch(1))
        wider = schema.append(pa.field("extra", pa.int64()))
        create(journal, wider, time="at")
        writer.append("a", 1, batch(2).append_column("extra", pa.array([7])))
        writer.append("a", 2, batch(3))
    reader = Reader(journal).partition(0)
    extras = [row["extra"] for part in reader.read(0, 3) for row in part.batch.to_pylist()]  # type: ignore[union-attr]
    assert extras == [None, 7, None]
    assert len(segment_positions(journal / "p0000")) == 2


def test_the_append_time_is_the_clocks(journal: Path, batch: Any) -> None:
    with Writer.open(journal, clock=ManualClock(77)) as writer:
        writer.append("a", 0, batch(1))
    assert next(Reader(journal).partition(0).entries(0, 1)).appended_at == 77


def test_a_journal_without_a_time_takes_any_rows(tmp_path: Path) -> None:
    create(tmp_path, pa.schema([("value", pa.int64())]))
    with Writer.open(tmp_path) as writer:
        writer.append("a", 0, pa.record_batch({"value": [1, None]}))
    reader = Reader(tmp_path).partition(0)
    assert reader.state_at(1).running_max is None
    assert [part.batch.num_rows for part in reader.read(1, 2) if part.batch is not None] == [1]


def test_what_is_queued_cannot_be_taken_back(journal: Path, batch: Any) -> None:
    disk = SlowDisk()
    with Writer.open(journal, disk=disk) as writer:
        disk.free.clear()
        futures = [writer.append_nowait("a", n, batch(n)) for n in range(5)]
        assert not futures[-1].cancel()
        disk.free.set()
        writer.flush()
    assert len(names(journal)) == 5


def test_aborting_says_so_to_those_who_wait(journal: Path, batch: Any) -> None:
    writer = Writer.open(journal, background=False)
    future = writer.append_nowait("a", 0, batch(1))
    writer.abort()
    with pytest.raises(WriterClosed):
        future.result()
    assert names(journal) == []


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pa.array([1], pa.timestamp("us")), pa.date32()),
        (pa.array([1.255]), pa.decimal128(10, 2)),
        (pa.array([{"a": 1, "b": 2}]), pa.struct([("a", pa.int64())])),
    ],
)
def test_a_cast_that_would_lose_something_in_silence_is_refused(
    given: pa.Array, wanted: pa.DataType
) -> None:
    with pytest.raises(SchemaConflict, match="cannot be stored"):
        conform(pa.RecordBatch.from_arrays([given], names=["x"]), pa.schema([("x", wanted)]))


def test_two_columns_of_one_name_are_refused() -> None:
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(SchemaConflict, match="two columns"):
        conform(twice, pa.schema([("x", pa.int64())]))


def test_versions_that_do_not_know_progress_read_it_as_a_watermark_that_raises_nothing(
    journal: Path, batch: Any
) -> None:
    with Writer.open(journal) as writer:
        writer.append("a", 0, batch(1))
        writer.instruct(Kind.WATERMARK, 1)
        writer.instruct(Kind.PROGRESS, sender="a", seq=9)
        folder = partition_folder(journal, 0)
        file = index_file(folder, 0)
        watermark, progress = map_entries(file, read_header(file))[1:]
    assert (watermark["kind"], progress["kind"]) == (Kind.WATERMARK, Kind.WATERMARK)
    assert progress["floor_after"] == watermark["floor_after"]
    assert (progress["last_seq"], progress["count"]) == (9, 1)
    with Writer.open(journal) as writer, pytest.raises(InternalError):
        writer.instruct(Kind.PROGRESS, 5)
