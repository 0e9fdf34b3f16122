"""An epoch of a group elsewhere is one entry of rows: whole, once, and late by its position."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import CorruptStaging, Ended
from millstream.journal.base import FOREVER, Kind
from millstream.journal.kinds.files.arrivals import checked, discard, read_refused, stage_arrival
from millstream.journal.kinds.files.description import create, describe
from millstream.journal.kinds.files.layout import staged_folder
from millstream.journal.kinds.files.reader import PartitionReader, Reader
from millstream.journal.kinds.files.verify import verify
from millstream.journal.kinds.files.writer import Writer
from millstream.journal.lateness import late_mask

SENDER = "shops/hourly/1f/out"


def staged_in(path: Path) -> list[str]:
    return [file.name for file in staged_folder(path).iterdir()]


def times_in(reader: PartitionReader, start: int = 0) -> list[int]:
    parts = [part.batch for part in reader.read(start, reader.end)]
    return [
        time
        for batch in parts
        if batch is not None
        for time in batch.column("at").cast(pa.int64()).to_pylist()
    ]


def test_an_epoch_is_one_entry_of_rows_with_its_number(journal: Path, batch: Any) -> None:
    description = describe(journal)
    staged = [
        *stage_arrival(description, 0, SENDER, 7, [batch(5, 9)]),
        *stage_arrival(description, 0, SENDER, 7, [batch(6, 4)]),
    ]
    with Writer.open(journal) as writer:
        assert writer.append_staged(SENDER, 7, staged).result().stored == 4
        assert writer.highest(SENDER) == 7
        assert writer.append_staged(SENDER, 7, staged).result().stored == 0
        assert writer.append_staged(SENDER, 3, []).result().stored == 0
    reader = Reader(journal).partition(0)
    (entry,) = reader.entries(0, reader.end)
    assert (entry.kind, entry.rows, entry.sender) == (Kind.ROWS, 4, SENDER)
    assert (entry.first_seq, entry.last_seq) == (7, 7)
    assert (entry.min_time, entry.max_time, entry.running_max_after, entry.max_lag) == (4, 9, 9, 5)
    assert times_in(reader) == [5, 9, 6, 4]
    assert times_in(reader, 1) == [9, 6, 4]
    assert times_in(reader, 3) == [4]
    assert not verify(journal).damages


def test_lateness_is_decided_by_position_over_all_parts(journal: Path, batch: Any) -> None:
    description = describe(journal)
    with Writer.open(journal) as writer:
        writer.append("client", 0, batch(50))
        staged = [
            one
            for times in ((48, 60), (57, 54), (61,))
            for one in stage_arrival(description, 0, SENDER, 0, [batch(*times)])
        ]
        writer.append_staged(SENDER, 0, staged).result()
        writer.instruct(Kind.WATERMARK, 70)
        writer.append_staged(
            SENDER, 1, stage_arrival(description, 0, SENDER, 1, [batch(69)])
        ).result()
    reader = Reader(journal).partition(0)
    entries = [entry for entry in reader.entries(0, reader.end) if entry.sender == SENDER]
    assert [entry.max_lag for entry in entries] == [6, FOREVER]
    late = []
    for part in reader.read(0, reader.end):
        if part.batch is not None:
            times = part.batch.column("at").cast(pa.int64()).to_numpy()
            late += times[late_mask(times, part.running_max_before, 5, part.floor_before)].tolist()
    assert late == [54, 69]
    assert reader.state_at(3).running_max == 60
    assert reader.first_above(60, 0, reader.end) == 5


def test_files_of_two_schemas_become_one_entry(
    journal: Path, schema: pa.Schema, batch: Any
) -> None:
    staged = stage_arrival(describe(journal), 0, SENDER, 0, [batch(1)])
    writer = Writer.open(journal)
    wider = create(journal, schema.append(pa.field("more", pa.int64())), time="at")
    staged += stage_arrival(wider, 0, SENDER, 0, [batch(2)])
    with writer:
        assert [item.version for item in staged] == [0, 1]
        assert writer.append_staged(SENDER, 0, staged).result().stored == 2
    reader = Reader(journal).partition(0)
    assert times_in(reader) == [1, 2]
    assert len(list(reader.entries(0, 2))) == 1


def test_a_journal_that_has_ended_takes_no_epoch_but_knows_an_old_one(
    journal: Path, batch: Any
) -> None:
    description = describe(journal)
    old, new = (stage_arrival(description, 0, SENDER, epoch, [batch(1)]) for epoch in (0, 1))
    with Writer.open(journal) as writer:
        writer.append_staged(SENDER, 0, old).result()
        writer.instruct(Kind.END_OF_STREAM)
        assert writer.append_staged(SENDER, 0, old).result().stored == 0
        with pytest.raises(Ended):
            writer.append_staged(SENDER, 1, new)


def test_what_a_name_says_about_a_file_must_hold(journal: Path, batch: Any) -> None:
    description = describe(journal)
    (item,) = stage_arrival(description, 0, SENDER, 2, [batch(1)])
    assert checked([item], 0, SENDER, 2) == ([item], [])
    for wrong in (
        ([item], 0, SENDER, 3),
        ([item], 1, SENDER, 2),
        ([item], 0, "someone else", 2),
        ([replace(item, version=1)], 0, SENDER, 2),
        ([replace(item, file="..")], 0, SENDER, 2),
        ([replace(item, file="../journal.json")], 0, SENDER, 2),
    ):
        with pytest.raises(CorruptStaging):
            checked(*wrong)


@pytest.mark.parametrize("field", ["rows", "bytes", "checksum"])
def test_what_a_sender_says_about_a_file_must_hold(journal: Path, batch: Any, field: str) -> None:
    (item,) = stage_arrival(describe(journal), 0, SENDER, 0, [batch(1, 2)])
    with Writer.open(journal) as writer:
        with pytest.raises(CorruptStaging):
            writer.append_staged(SENDER, 0, [replace(item, **{field: getattr(item, field) + 1})])
        assert writer.append_staged(SENDER, 0, [item]).result().stored == 2


def test_refused_rows_are_kept_beside_the_others(journal: Path, batch: Any) -> None:
    refused = [("no time", '{"é": 1}'), ("no key", "{}")]
    staged = stage_arrival(describe(journal), 0, SENDER, 0, [], refused)
    rows, others = checked(staged, 0, SENDER, 0)
    assert rows == []
    assert read_refused(journal, others) == refused
    (staged_folder(journal) / others[0].file).unlink()
    with pytest.raises(CorruptStaging, match="is gone"):
        read_refused(journal, others)


def test_only_a_senders_own_files_up_to_an_epoch_are_removed(journal: Path, batch: Any) -> None:
    description = describe(journal)
    discard(journal, 0, SENDER, 9)
    gone = [
        *stage_arrival(description, 0, SENDER, 1, [batch(1)]),
        *stage_arrival(description, 0, SENDER, 2, [batch(1)], [("no", "")]),
    ]
    kept = [
        *stage_arrival(description, 0, SENDER, 3, [batch(1)]),
        *stage_arrival(description, 0, "other", 1, [batch(1)]),
    ]
    discard(journal, 0, SENDER, 2)
    assert sorted(staged_in(journal)) == sorted(item.file for item in kept)
    assert len(gone) == 3
