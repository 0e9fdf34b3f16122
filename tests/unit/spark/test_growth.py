"""Offsets that were logged before a journal got more partitions."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from msgspec import convert, to_builtins
from pyspark.sql.streaming.datasource import ReadMaxRows

from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.growth import grow
from millstream.journal.kinds.files.writer import Writer
from millstream.spark.io.control import Control, Orders, Question
from millstream.spark.io.source import JournalStreamReader, Offset, ReadSettings, padded

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC"))])
LATENESS = 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two partitions, at 50 and 40."""
    create(tmp_path / "j", SCHEMA, partitions=2, time="at")
    append(tmp_path / "j", 0, 10, 30, 50)
    append(tmp_path / "j", 1, 20, 40)
    return tmp_path / "j"


def append(path: Path, partition: int, *times: int) -> None:
    with Writer.open(path, partition) as writer:
        batch = pa.RecordBatch.from_arrays([pa.array(times, SCHEMA[0].type)], schema=SCHEMA)
        writer.append("s", writer.highest("s") + 1, batch)


def source(path: Path, control: Path | None = None) -> JournalStreamReader:
    how = None if control is None else str(control)
    return JournalStreamReader(
        ReadSettings("j", str(path), ("at",), "{}", "at", LATENESS, False, 100, 1, control=how)
    )


def following(reader: JournalStreamReader, start: Offset | None = None) -> Offset:
    known = reader.initialOffset() if start is None else to_builtins(start)
    return convert(reader.latestOffset(known, ReadMaxRows(100)), Offset)


def test_positions_that_are_missing_are_the_beginning() -> None:
    assert padded((3, 4), 4) == (3, 4, 0, 0)
    assert padded((3, 4), 2) == (3, 4)
    later = Offset("j", (9, 9, 1), None, 1)
    assert later.begun(Offset("j", (3, 4), None, 1)) == (3, 4, 0)
    assert Offset("j", (9, 9, 1), None, 1, first=(5, 6)).begun(None) == (5, 6, 0)
    assert later.begun(None) is None


def test_the_new_partitions_are_read_from_their_beginning_and_the_floor_never_falls(
    path: Path,
) -> None:
    reader = source(path)
    before = following(reader)
    assert (before.positions, before.floor) == ((2, 2), 25), (
        "what lies above the slowest and the lateness waits"
    )
    grow(path, 4, lateness_us=LATENESS)
    between = following(reader, before)
    assert (between.positions, between.floor) == ((2, 2, 1, 1), 25)
    append(path, 2, 60)
    append(path, 3, 36, 60)
    append(path, 1, 60)
    after = following(reader, between)
    assert (after.positions, after.floor) == ((3, 2, 1, 2), 35)
    (task,) = reader.partitions(to_builtins(before), to_builtins(after))
    assert [(one.partition, one.start, one.stop) for one in task.ranges] == [
        (0, 2, 3),
        (2, 0, 1),
        (3, 0, 2),
    ]


def test_a_batch_that_was_logged_before_is_read_as_it_was(path: Path) -> None:
    reader = source(path)
    first = reader.initialOffset()
    before = following(reader)
    wanted = reader.partitions(first, to_builtins(before))
    grow(path, 4, lateness_us=LATENESS)
    assert reader.partitions(first, to_builtins(before)) == wanted


def test_a_source_that_is_asked_answers_for_all_partitions(path: Path, tmp_path: Path) -> None:
    reader, control = source(path, tmp_path / "c"), Control(tmp_path / "c")
    control.order(Orders())
    before = following(reader)
    grow(path, 4, lateness_us=LATENESS)
    for question in (Question("report", 1, 10, stop=True), Question("confirm", 1, 10, 4, 50)):
        control.order(Orders(question=question))
        following(reader, before)
        answer = control.answered("j")
        assert answer is not None
        assert len(answer.highest) == 4


def test_a_version_that_was_told_where_to_begin_reads_the_new_partitions_whole(
    path: Path, tmp_path: Path
) -> None:
    reader, control = source(path, tmp_path / "c"), Control(tmp_path / "c")
    control.order(Orders(held=True))
    held = following(reader)
    control.order(Orders(first={"j": (1, 1)}))
    grow(path, 3, lateness_us=LATENESS)
    found = following(reader, held)
    assert (found.first, found.positions) == ((1, 1), (2, 2, 1))
    (task,) = reader.partitions(to_builtins(held), to_builtins(found))
    assert [(one.partition, one.start) for one in task.ranges] == [(0, 1), (1, 1), (2, 0)]
