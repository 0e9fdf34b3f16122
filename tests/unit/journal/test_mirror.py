"""Copies of partitions: what they refuse, and what they do when the original is no longer what it was."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.errors import (
    AlreadyWriting,
    CopyDiffers,
    CorruptBatch,
    PositionTrimmed,
    SchemaConflict,
)
from millstream.journal.base import Kind
from millstream.journal.kinds.files.description import create, describe
from millstream.journal.kinds.files.layout import copy_file, data_file, partition_folder
from millstream.journal.kinds.files.mirror import Mirror
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.repair import repair
from millstream.journal.kinds.files.replica_chunk import Reached, ReplicaChunk
from millstream.journal.kinds.files.replica_source import ReplicaSource
from millstream.journal.kinds.files.retention import commit, commit_for, committed, trim, trim_to
from millstream.journal.kinds.files.writer import Writer

SCHEMA = pa.schema([("n", pa.int64())])


def append(writer: Writer, begin: int, end: int) -> None:
    writer.append(
        "s", begin, pa.record_batch([pa.array(range(begin, end), pa.int64())], schema=SCHEMA)
    )


def follow(original: Path, mirror: Mirror, *, most: int = 1_000) -> list[ReplicaChunk]:
    source, pieces = ReplicaSource(original, 0, most=most), []
    while not (piece := source.after(mirror.reached)).empty:
        mirror.take(piece)
        pieces.append(piece)
    mirror.sync()
    return pieces


def numbers(path: Path) -> list[int]:
    reader = Reader(path).partition(0)
    parts = reader.read(reader.begin, reader.end)
    return [
        n for part in parts if part.batch is not None for n in part.batch.column("n").to_pylist()
    ]


@pytest.fixture
def original(tmp_path: Path) -> Path:
    create(tmp_path / "original", SCHEMA)
    return tmp_path / "original"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy"


def mirrored(copy: Path) -> Mirror:
    return Mirror(copy, 0, original="tcp://10.0.0.2:7000")


def test_a_copy_of_an_original_restored_from_an_older_backup_says_where_both_end(
    original: Path, copy: Path
) -> None:
    with Writer.open(original) as writer:
        append(writer, 0, 5)
    shutil.copytree(original, original.with_name("backup"))
    mirror = mirrored(copy)
    with Writer.open(original) as writer:
        append(writer, 5, 9)
    follow(original, mirror)
    shutil.rmtree(original)
    original.with_name("backup").rename(original)
    with pytest.raises(CopyDiffers, match="it ends at 5, its copy at 9"):
        follow(original, mirror)
    with Writer.open(original) as writer:
        append(writer, 5, 12)
    with pytest.raises(CopyDiffers, match="the entry before position 9 is not that of its copy"):
        follow(original, mirror)
    assert numbers(copy) == list(range(9))


def test_a_copy_of_another_journal_is_told_so(original: Path, copy: Path, tmp_path: Path) -> None:
    with Writer.open(original) as writer:
        append(writer, 0, 5)
    mirror = mirrored(copy)
    follow(original, mirror)
    create(tmp_path / "other", SCHEMA)
    with Writer.open(tmp_path / "other") as writer:
        append(writer, 0, 3)
        writer.instruct(Kind.END_OF_STREAM)
        assert writer.end < 5
    with pytest.raises(CopyDiffers, match="ends at 4, its copy at 5"):
        ReplicaSource(tmp_path / "other", 0).after(mirror.reached)


def test_no_writer_takes_a_copy_and_no_copy_is_made_where_a_writer_was(
    original: Path, copy: Path
) -> None:
    with Writer.open(original) as writer:
        append(writer, 0, 5)
    mirror = mirrored(copy)
    follow(original, mirror)
    mirror.close()
    with pytest.raises(AlreadyWriting, match=r"copy of the one at tcp://10.0.0.2:7000"):
        Writer.open(copy)
    with pytest.raises(AlreadyWriting, match="is written here"):
        Mirror(original, 0, original="tcp://10.0.0.3:7000")
    assert not copy_file(partition_folder(original, 0)).exists()


def test_two_processes_cannot_write_one_copy(copy: Path) -> None:
    first = mirrored(copy)
    with pytest.raises(AlreadyWriting, match="is being written by"):
        mirrored(copy)
    first.close()
    mirrored(copy).close()


def test_readers_see_what_is_synced_and_no_more(original: Path, copy: Path) -> None:
    with Writer.open(original) as writer:
        append(writer, 0, 5)
        append(writer, 5, 7)
    mirror, source = mirrored(copy), ReplicaSource(original, 0)
    mirror.take(source.after(mirror.reached))
    assert mirror.reached.end == 7
    assert Reader(copy).partition(0).end == 0
    mirror.sync()
    assert numbers(copy) == list(range(7))


def test_an_entry_larger_than_a_piece_comes_in_several(original: Path, copy: Path) -> None:
    with Writer.open(original) as writer:
        append(writer, 0, 1_000)
        append(writer, 1_000, 1_001)
    mirror = mirrored(copy)
    pieces = follow(original, mirror, most=1_000)
    assert len(pieces) > 8
    assert max(len(piece.data) for piece in pieces) <= 1_000
    assert numbers(copy) == list(range(1_001))


def test_a_copy_closed_within_an_entry_goes_on_where_its_entries_end(
    original: Path, copy: Path
) -> None:
    with Writer.open(original) as writer:
        append(writer, 0, 5)
        append(writer, 5, 1_000)
    mirror, source = mirrored(copy), ReplicaSource(original, 0, most=1_000)
    for _ in range(4):
        mirror.take(source.after(mirror.reached))
    mirror.sync()
    mirror.close()
    again = mirrored(copy)
    assert again.reached.end == 5
    follow(original, again)
    assert numbers(copy) == list(range(1_000))


def test_damaged_bytes_are_not_taken(original: Path, copy: Path) -> None:
    with Writer.open(original) as writer:
        append(writer, 0, 5)
    mirror = mirrored(copy)
    piece = ReplicaSource(original, 0).after(mirror.reached)
    flipped = piece.data[:-1] + bytes([piece.data[-1] ^ 1])
    with pytest.raises(CorruptBatch, match="the batch at position 0"):
        mirror.take(replace(piece, data=flipped))
    mirror.close()
    mirror = mirrored(copy)
    piece = ReplicaSource(original, 0).after(mirror.reached)
    with pytest.raises(CorruptBatch, match="entry 0"):
        mirror.take(replace(piece, index=bytes(len(piece.index))))
    mirror.close()
    mirror = mirrored(copy)
    follow(original, mirror)
    assert numbers(copy) == list(range(5))


def test_a_piece_that_comes_twice_is_refused(original: Path, copy: Path) -> None:
    mirror, source = mirrored(copy), ReplicaSource(original, 0)
    with Writer.open(original) as writer:
        append(writer, 0, 5)
        mirror.take(source.after(mirror.reached))
        append(writer, 5, 7)
    piece = source.after(mirror.reached)
    mirror.take(piece)
    with pytest.raises(CopyDiffers, match="do not follow"):
        mirror.take(piece)


def test_a_copy_that_comes_too_late_begins_where_the_original_does(
    original: Path, copy: Path
) -> None:
    mirror = mirrored(copy)
    with Writer.open(original, segment_bytes=600) as writer:
        append(writer, 0, 5)
        follow(original, mirror)
        for begin in range(5, 50, 5):
            append(writer, begin, begin + 5)
        writer.trim(keep_bytes=0)
    follow(original, mirror)
    begin = Reader(original).partition(0).begin
    assert Reader(copy).partition(0).begin == begin > 5
    assert numbers(copy) == list(range(begin, 50))
    with pytest.raises(PositionTrimmed):
        list(Reader(copy).partition(0).read(0, 50))


def test_a_fresh_copy_of_an_empty_segment_knows_where_it_begins(original: Path, copy: Path) -> None:
    with Writer.open(original, segment_bytes=1) as writer:
        append(writer, 0, 5)
        append(writer, 5, 9)
        writer._log._begin_segment(
            0
        )  # as a crash between the new segment and its first entry leaves it
        writer.trim(keep_bytes=0)
    mirror = mirrored(copy)
    follow(original, mirror)
    reader = Reader(copy).partition(0)
    assert (reader.begin, reader.end) == (9, 9)


def test_an_empty_segment_that_is_begun_again_under_another_schema_is_copied_again(
    original: Path, copy: Path
) -> None:
    wider = SCHEMA.append(pa.field("more", pa.string()))
    mirror = mirrored(copy)
    with Writer.open(original) as writer:
        follow(original, mirror)
        create(original, wider)
        writer.append("s", 0, pa.record_batch([pa.array([1]), pa.array(["x"])], schema=wider))
    follow(original, mirror)
    assert describe(copy).schema.equals(wider)
    rows = [
        part.batch.to_pylist()
        for part in Reader(copy).partition(0).read(0, 1)
        if part.batch is not None
    ]
    assert rows == [[{"n": 1, "more": "x"}]]


def test_a_journal_declared_otherwise_is_not_copied_into(original: Path, copy: Path) -> None:
    create(copy, pa.schema([("m", pa.int64())]))
    with Writer.open(original) as writer:
        append(writer, 0, 5)
    mirror = mirrored(copy)
    with pytest.raises(SchemaConflict, match="widened otherwise on another host"):
        follow(original, mirror)


def test_names_of_senders_come_with_their_entries(original: Path, copy: Path) -> None:
    mirror = mirrored(copy)
    with Writer.open(original) as writer:
        for sender in ("x", "y"):
            writer.append(sender, 0, pa.record_batch([pa.array([1])], schema=SCHEMA))
        follow(original, mirror)
        writer.append("z", 0, pa.record_batch([pa.array([1])], schema=SCHEMA))
    mirror.close()
    mirror = mirrored(copy)
    follow(original, mirror)
    assert [entry.sender for entry in Reader(copy).partition(0).entries(0, 3)] == ["x", "y", "z"]


def test_what_was_read_at_the_copy_is_removed_at_both(original: Path, copy: Path) -> None:
    mirror = mirrored(copy)
    with Writer.open(original, segment_bytes=600) as writer:
        for begin in range(0, 50, 5):
            append(writer, begin, begin + 5)
        follow(original, mirror)
        commit(copy, "reader", {0: 30})
        trim(copy, keep_bytes=0)
        begin = mirror.begin
        assert begin is not None
        assert 0 < begin <= 30
        commit_for(original, 0, {"reader": 20})
        trim_to(original, 0, begin)
        assert Reader(original).partition(0).begin <= 20
        commit_for(original, 0, {"reader": 30})
        trim_to(original, 0, begin)
        assert Reader(original).partition(0).begin == begin
        commit_for(original, 0, {})
        assert committed(original) == []


def test_a_damaged_copy_is_removed_by_repair_and_copied_again(original: Path, copy: Path) -> None:
    with Writer.open(original) as writer:
        append(writer, 0, 5)
        append(writer, 5, 9)
    mirror = mirrored(copy)
    follow(original, mirror)
    with pytest.raises(AlreadyWriting):
        repair(copy)
    mirror.close()
    assert repair(copy) == []
    data = data_file(partition_folder(copy, 0), 0)
    data.write_bytes(data.read_bytes()[:-8] + b"damaged!")
    (mended,) = repair(copy)
    assert "copied again from tcp://10.0.0.2:7000" in mended.fact
    mirror = mirrored(copy)
    assert mirror.begin is None
    follow(original, mirror)
    assert numbers(copy) == list(range(9))


@given(
    segment=st.sampled_from([-1, 0, 5, 9, 40]),
    header=st.booleans(),
    entry=st.booleans(),
    numbers=st.tuples(*[st.sampled_from([0, 1, 2, 3, 200, 300, 1 << 62])] * 5),
)
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_place_that_no_copy_can_have_is_refused_or_answered(
    original: Path, segment: int, header: bool, entry: bool, numbers: tuple[int, ...]
) -> None:
    if Reader(original).partition(0).end == 0:
        with Writer.open(original, segment_bytes=1) as writer:
            append(writer, 0, 5)
            append(writer, 5, 9)
    source = ReplicaSource(original, 0, most=200)
    known = source._open(segment, source._marks.read()) if segment in (0, 5) else None
    entries, data, end, senders, schemas = numbers
    checksum = 0 if known is None or not 0 < entries <= len(known.segment.entries) else entries - 1
    last = 0 if known is None or not entry else int(known.segment.entries[checksum]["checksum"])
    reached = Reached(
        segment,
        known.checksum if known and header else 0,
        entries,
        last,
        data,
        end,
        senders,
        schemas,
    )
    try:
        piece = source.after(reached)
    except CopyDiffers:
        return
    assert len(piece.data) <= 200
