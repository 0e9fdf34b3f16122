from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import AlreadyWriting, JournalError
from millstream.journal.base import Kind
from millstream.journal.kinds.files.index import SIZE, read_header
from millstream.journal.kinds.files.layout import (
    aside_folder,
    data_file,
    index_file,
    segment_positions,
)
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.repair import repair
from millstream.journal.kinds.files.summary import summary
from millstream.journal.kinds.files.verify import verify
from millstream.journal.kinds.files.writer import Writer

ROWS = 24


@pytest.fixture
def filled(journal: Path, batch: Any) -> Path:
    """Rows named after their position, two to an entry, in several segments."""
    with Writer.open(journal, segment_bytes=1_100) as writer:
        for n in range(0, ROWS, 2):
            writer.append("a", n, batch(n + 1, n + 2, names=[str(n), str(n + 1)]))
    assert len(segment_positions(journal / "p0000")) > 2
    return journal


def read(path: Path) -> tuple[dict[int, str], list[int]]:
    """Return the rows by position, and the positions that are lost."""
    reader = Reader(path).partition(0)
    held: dict[int, str] = {}
    lost: list[int] = []
    for part in reader.read(reader.begin, reader.end):
        if part.kind is Kind.LOST:
            lost += range(part.position, part.stop)
        elif part.batch is not None:
            held |= {
                part.position + n: name
                for n, name in enumerate(part.batch.column("name").to_pylist())
            }
    return held, lost


def flip(file: Path, offset: int) -> None:
    raw = bytearray(file.read_bytes())
    raw[offset] ^= 1
    file.write_bytes(raw)


def harm_batch(folder: Path, first: int, entry: int) -> None:
    reader = Reader(folder.parent).partition(0)
    found = [
        e for e in reader.entries(reader.begin, reader.end) if e.file == data_file(folder, first)
    ][entry]
    flip(found.file, found.offset + found.length // 2)


def harm_entry(folder: Path, first: int, entry: int) -> None:
    index = index_file(folder, first)
    flip(index, read_header(index).length + entry * SIZE + 10)


def remove(folder: Path, first: int) -> None:
    data_file(folder, first).unlink()
    index_file(folder, first).unlink()


def harm_two_entries(folder: Path, first: int) -> None:
    harm_entry(folder, first, 1)
    harm_entry(folder, first, 2)


def cut_index(folder: Path, first: int) -> None:
    index = index_file(folder, first)
    index.write_bytes(index.read_bytes()[:-SIZE])


HARMS: dict[str, tuple[Callable[[Path, list[int]], None], int]] = {
    "a batch in the middle": (lambda f, s: harm_batch(f, s[1], 1), 2),
    "a batch at the end": (lambda f, s: harm_batch(f, s[-1], -1), 2),
    "an entry in the middle": (lambda f, s: harm_entry(f, s[1], 1), 2),
    "the first entry of a segment": (lambda f, s: harm_entry(f, s[1], 0), 2),
    "two entries one after the other": (lambda f, s: harm_two_entries(f, s[0]), 4),
    "the last entry of a segment": (lambda f, s: harm_entry(f, s[1], (s[2] - s[1]) // 2 - 1), 2),
    "the last entry of all": (lambda f, s: harm_entry(f, s[-1], (ROWS - s[-1]) // 2 - 1), 2),
    "a header": (lambda f, s: flip(index_file(f, s[1]), 40), 0),
    "the first header": (lambda f, s: flip(index_file(f, s[0]), 40), 0),
    "the newest header": (lambda f, s: flip(index_file(f, s[-1]), 40), 0),
    "a data file that is gone": (lambda f, s: data_file(f, s[1]).unlink(), -1),
    "a segment that is gone": (lambda f, s: remove(f, s[1]), -1),
    "an index that is cut off": (lambda f, s: cut_index(f, s[1]), 2),
    "the newest index cut off": (lambda f, s: cut_index(f, s[-1]), 2),
    "the newest segment gone": (lambda f, s: remove(f, s[-1]), -1),
}


def test_a_sound_journal_is_said_to_be_sound(filled: Path) -> None:
    told: list[int] = []
    report = verify(filled, told.append)
    assert (report.damages, report.rows, report.entries, report.lost) == ((), ROWS, ROWS // 2, 0)
    assert sum(told) == report.bytes > 0
    assert repair(filled) == []


@pytest.mark.parametrize("name", list(HARMS))
def test_damage_is_found_put_aside_and_shown_and_the_rest_stays(
    filled: Path, batch: Any, name: str
) -> None:
    folder = filled / "p0000"
    segments = segment_positions(folder)
    harm, count = HARMS[name]
    before, _ = read(filled)
    harm(folder, segments)

    report = verify(filled)
    assert report.damages
    with pytest.raises(JournalError):
        read(filled)

    done = repair(filled)
    assert done
    held, lost = read(filled)
    if count >= 0:
        assert len(lost) == count
    assert held == {position: row for position, row in before.items() if position not in lost}
    assert sorted([*held, *lost]) == list(range(ROWS)), (
        "every position is still there, or known to be lost"
    )
    assert sum(one.positions for one in done) == len(lost) == summary(filled).lost
    assert verify(filled).damages == ()
    assert verify(filled).lost == len(lost)
    for one in done:
        if one.aside is not None:
            assert (
                json.loads((one.aside.parent / f"{one.aside.name}.json").read_text())["position"]
                == one.position
            )
    with Writer.open(filled) as writer:
        assert writer.end == ROWS
        writer.append("b", 0, batch(99, names=["new"]))
    assert read(filled)[0][ROWS] == "new"
    assert repair(filled) == []


def test_the_damaged_bytes_are_kept(filled: Path) -> None:
    entry = next(Reader(filled).partition(0).entries(2, 3))
    flip(entry.file, entry.offset + 9)
    damaged = entry.file.read_bytes()[entry.offset : entry.offset + entry.length]
    (one,) = repair(filled)
    assert one.aside is not None
    assert one.aside.parent == aside_folder(filled)
    assert one.aside.read_bytes() == damaged


def test_a_lost_batch_still_counts_as_received_from_its_sender(filled: Path) -> None:
    entry = next(Reader(filled).partition(0).entries(ROWS - 2, ROWS))
    flip(entry.file, entry.offset + 9)
    repair(filled)
    with Writer.open(filled) as writer:
        assert writer.highest("a") == ROWS - 1


def test_times_are_found_beside_a_loss(filled: Path) -> None:
    entry = next(Reader(filled).partition(0).entries(4, 5))
    flip(entry.file, entry.offset + 9)
    repair(filled)
    reader = Reader(filled).partition(0)
    assert reader.position_at_time(4) == 3
    assert reader.position_at_time(6) == 4, (
        "one of the lost rows, and reading may begin at the loss"
    )
    assert reader.position_at_time(7) == 6
    assert reader.state_at(6).running_max == 6
    assert reader.state_at(5).running_max == 4, "what is known before the loss"


def test_a_journal_that_is_written_is_not_repaired(filled: Path) -> None:
    with Writer.open(filled), pytest.raises(AlreadyWriting):
        repair(filled)


def test_verifying_beside_a_writer_sees_what_is_synced(filled: Path, batch: Any) -> None:
    with Writer.open(filled) as writer:
        index = index_file(filled / "p0000", segment_positions(filled / "p0000")[-1])
        with index.open("ab") as half:
            half.write(b"half an entry")
        assert verify(filled).damages == ()
        writer.abort()
