"""A journal that gets more partitions: what is there stays, and nothing that was promised to readers is broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.errors import AlreadyWriting, JournalUnreadable, SchemaConflict
from millstream.journal import Kind
from millstream.journal.base import EarlierPartitions
from millstream.journal.kinds.files.description import adopt, create, describe
from millstream.journal.kinds.files.growth import grow
from millstream.journal.kinds.files.layout import description_file, partition_folder
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.retention import commit, trim
from millstream.journal.kinds.files.writer import Writer

Batch = Callable[..., pa.RecordBatch]
LATENESS = 10


@pytest.fixture
def two(tmp_path: Path, schema: pa.Schema, batch: Batch) -> Path:
    """A journal of two partitions that have got to 100 and 70, of senders with numbers up to 4 and 9."""
    path = tmp_path / "two"
    create(path, schema, partitions=2, time="at")
    with Writer.open(path, 0) as writer:
        writer.append("a", 3, batch(90, 100))
    with Writer.open(path, 1) as writer:
        writer.append("a", 2, batch(70))
        writer.append("b", 9, batch(65))
    return path


def entries(path: Path, partition: int) -> list[tuple[Kind, int | None]]:
    reader = Reader(path).partition(partition)
    return [(entry.kind, entry.floor_after) for entry in reader.entries(0, reader.end)]


def test_it_says_how_it_was_laid_out_before(two: Path) -> None:
    grown = grow(two, 4, lateness_us=LATENESS)
    assert grown == describe(two)
    assert (grown.partitions, grown.lasting, grown.earlier) == (
        4,
        2,
        (EarlierPartitions(2, {"a": 4, "b": 9}),),
    )
    assert [Reader(two).partition(number).end for number in (0, 1)] == [2, 2]


def test_it_may_grow_again(two: Path, batch: Batch) -> None:
    grow(two, 3)
    with Writer.open(two, 2) as writer:
        writer.append("a", 20, batch(200))
    grown = grow(two, 5)
    assert grown.earlier == (
        EarlierPartitions(2, {"a": 4, "b": 9}),
        EarlierPartitions(3, {"a": 20, "b": 9}),
    )
    assert grown.lasting == 2


def test_names_that_never_come_again_are_not_kept(two: Path, batch: Batch) -> None:
    with Writer.open(two) as writer:
        writer.append("client:0123", 0, batch(200))
    assert grow(two, 4).earlier[0].until == {"a": 4, "b": 9}


def test_a_new_partition_begins_with_the_lowest_floor_of_the_others(two: Path) -> None:
    grow(two, 4, lateness_us=LATENESS)
    for number in (2, 3):
        assert entries(two, number) == [(Kind.IDLE, 60)]


def test_where_readers_have_been_promised_nothing_there_is_no_floor(
    tmp_path: Path, schema: pa.Schema
) -> None:
    for name, time in (("timed", "at"), ("timeless", None)):
        create(tmp_path / name, schema, partitions=2, time=time)
        grow(tmp_path / name, 3)
        assert entries(tmp_path / name, 2) == []


def test_one_that_has_as_many_or_has_begun_to_end_stays_as_it_is(two: Path) -> None:
    before = describe(two)
    assert grow(two, 2) == grow(two, 1) == before
    with Writer.open(two, 1) as writer:
        writer.instruct(Kind.END_OF_STREAM)
    assert grow(two, 4) == before == describe(two)


def test_nobody_may_write_it_meanwhile(two: Path) -> None:
    with Writer.open(two, 1), pytest.raises(AlreadyWriting):
        grow(two, 4)
    assert describe(two).partitions == 2


def test_making_it_again_keeps_its_partitions_and_what_they_were(
    two: Path, schema: pa.Schema
) -> None:
    grown = grow(two, 4)
    wider = schema.append(pa.field("more", pa.int64()))
    for partitions in (2, 4, 8):
        again = create(two, wider, partitions=partitions, time="at")
        assert (again.partitions, again.earlier) == (4, grown.earlier)
    assert describe(two).schemas == (schema, wider)
    assert not partition_folder(two, 4).exists()


def test_a_program_that_does_not_know_of_it_does_not_read_it(two: Path) -> None:
    grow(two, 4)
    body = json.loads(description_file(two).read_bytes())
    assert body["format"] == 2
    description_file(two).write_text(json.dumps({**body, "format": 3}))
    with pytest.raises(JournalUnreadable, match="format 3"):
        describe(two)


def test_on_several_hosts_they_stay_as_many(two: Path) -> None:
    raw = description_file(two).read_bytes()
    grow(two, 4)
    with pytest.raises(SchemaConflict, match="partitions 4, not 2"):
        adopt(two, raw)


def test_nothing_is_removed_of_a_partition_that_a_reader_does_not_know_yet(
    two: Path, batch: Batch
) -> None:
    commit(two, "reader", [2, 2])
    grow(two, 3)
    with Writer.open(two, 2, segment_bytes=1) as writer:
        for number in range(5):
            writer.append("c", number, batch(200 + number))
    assert trim(two, keep_for=timedelta(0), now=2**62).positions == 0
    assert Reader(two).partition(2).begin == 0
