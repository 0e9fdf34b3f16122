"""Journals written by earlier releases are still read, continued and verified."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.journal.base import Kind
from millstream.journal.kinds.files.dead import DeadLetters, dead_counts
from millstream.journal.kinds.files.epochs import EpochLog
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.retention import committed
from millstream.journal.kinds.files.verify import verify
from millstream.journal.kinds.files.writer import Writer

SAVED = sorted(path for path in Path(__file__).parent.iterdir() if path.name.startswith("format_"))


@pytest.fixture(params=SAVED, ids=[path.name for path in SAVED])
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy: reading leaves the saved one as it is, writing must not touch it."""
    target = tmp_path / "saved"
    shutil.copytree(request.param, target)
    return target


def test_rows_are_read(saved: Path) -> None:
    reader = Reader(saved / "rows").partition(0)
    assert (reader.begin, reader.end) == (0, 10)
    parts = list(reader.read(0, 10))
    found = [row for part in parts if part.batch is not None for row in part.batch.to_pylist()]
    assert [row["name"] for row in found] == ["1", "3", "2", "4", "5", "6", "7", "8"]
    assert [row["extra"] for row in found] == [None] * 6 + [7, 8]
    assert [part.kind for part in parts if part.batch is None] == [Kind.IDLE, Kind.END_OF_STREAM]
    state = reader.state_at(10)
    assert (state.running_max, state.floor, state.ended, state.last_append_at) == (
        8,
        4,
        True,
        1_000,
    )
    assert [reader.state_at(p).running_max for p in range(4)] == [None, 1, 3, 3]


def test_what_was_sent_and_committed_is_known(saved: Path) -> None:
    with Writer.open(saved / "rows") as writer:
        assert (writer.highest("a"), writer.highest("b"), writer.ended) == (6, 5, True)
    assert [(one.reader, dict(one.positions)) for one in committed(saved / "rows")] == [
        ("one", {0: 4})
    ]


def test_dead_letters_stay_single(saved: Path) -> None:
    assert dead_counts(saved / "rows") == {"late": 1}
    with DeadLetters.open(saved / "rows") as dead:
        assert not dead.put("late:rows", 3, "late", "{}")


def test_epochs_go_on(saved: Path) -> None:
    with EpochLog.open(saved / "epochs") as log:
        assert log.last("g") == 1
        log.recover()
    reader = Reader(saved / "epochs")
    assert [entry.kind for entry in reader.partition(0).entries(0, 9)] == [
        Kind.WATERMARK,
        Kind.WATERMARK,
    ]
    (epoch, floor) = reader.partition(1).entries(0, 9)
    assert (epoch.rows, epoch.floor_after, floor.floor_after) == (2, 5, 6)
    table = pa.Table.from_batches(
        [part.batch for part in reader.partition(1).read(0, 2) if part.batch is not None]
    )
    assert table.column("name").to_pylist() == ["9", "8"]


def test_it_is_sound(saved: Path) -> None:
    assert verify(saved / "rows").damages == ()
    assert verify(saved / "epochs").damages == ()


@pytest.mark.parametrize("saved", SAVED[1:], indirect=True, ids=lambda path: path.name)
def test_a_sender_that_is_lost_is_found_in_the_copy(saved: Path) -> None:
    file = saved / "rows" / "p0000" / "senders"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0][:-3] + b"z" + lines[0][-2:] + b"".join(lines[1:]))
    assert verify(saved / "rows").damages
    with Writer.open(saved / "rows") as writer:
        assert (writer.highest("a"), writer.highest("b"), writer.highest("z")) == (6, 5, -1)
    assert verify(saved / "rows").damages == ()
