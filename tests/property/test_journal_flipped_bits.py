"""One bit of one file of a journal is flipped, any of them.

Rows that were acknowledged are then all there, once, also when their senders send them again; or
reading or appending refuses, `verify` shows the place, and `repair` says what is lost.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from millstream.errors import JournalError, JournalUnreadable
from millstream.journal.base import Kind
from millstream.journal.kinds.files import FilesJournal
from millstream.journal.kinds.files.writer import Writer
from property.journal_model import SCHEMA, rows

SENT = {0: {"a": 9, "b": 6, "client:1": 2}, 1: {"b": 4, "a": 3}}
FLIPS = 10
Row = tuple[int, str, int]
"""Partition, sender and number."""


def make(path: Path) -> None:
    """Write a journal with several segments, senders, a reader, an ended sender, dead letters."""
    journal = FilesJournal(path)
    journal.create(SCHEMA, partitions=2, time="at")
    for partition, sent in SENT.items():
        with Writer.open(path, partition, segment_bytes=1_200) as writer:
            for begin in range(0, 9, 3):
                for sender, count in sent.items():
                    if begin < count:
                        writer.append(sender, begin, rows(sender, begin, min(3, count - begin)))
            writer.instruct(Kind.IDLE, 5)
    journal.commit("group", [3, 1])
    journal.end_sender(0, "a")
    journal.end_sender(0, "b")
    with journal.dead_letters() as dead:
        for position in range(3):
            dead.put("late", position, "late", "{}")


def acknowledged() -> list[Row]:
    return sorted(
        (partition, sender, number)
        for partition, sent in SENT.items()
        for sender, count in sent.items()
        for number in range(count)
    )


def read(path: Path) -> tuple[list[Row], int]:
    """Return all rows, and how many positions are lost."""
    found: list[Row] = []
    lost = 0
    reader = FilesJournal(path).reader()
    for number in range(reader.description.partitions):
        part = reader.partition(number)
        for piece in part.read(part.begin, part.end):
            lost += piece.stop - piece.position if piece.kind is Kind.LOST else 0
            if piece.batch is not None:
                columns = (piece.batch.column(name).to_pylist() for name in ("sender", "seq"))
                found += [(number, *row) for row in zip(*columns, strict=True)]
    return sorted(found), lost


def send_again(path: Path) -> list[Row]:
    """Send all rows again, as after lost acknowledgements, and some of a new sender."""
    for partition, sent in SENT.items():
        with Writer.open(path, partition) as writer:
            writer.append("new", 0, rows("new", 0, 1))
            for sender, count in sent.items():
                writer.append(sender, 0, rows(sender, 0, count))
    return [(partition, "new", 0) for partition in SENT]


def attempt(path: Path) -> JournalError | None:
    """Read, send again and read again: all rows are there once, or one of these refuses."""
    try:
        assert read(path)[0] == acknowledged()
        assert sum(part.rows for part in FilesJournal(path).summary().partitions) == len(
            acknowledged()
        ), "show and cat agree"
        sent = send_again(path)
        assert read(path)[0] == sorted([*acknowledged(), *sent])
    except JournalError as error:
        return error
    return None


def check(base: Path, path: Path, file: Path, offset: int, bit: int) -> None:
    """Flip a bit in a copy of the journal, and see what becomes of its rows."""
    shutil.copytree(base, path)
    raw = bytearray((path / file).read_bytes())
    raw[offset] ^= 1 << bit
    (path / file).write_bytes(raw)
    journal = FilesJournal(path)
    if file.name == "journal.json":
        with suppress(JournalUnreadable):
            attempt(path)
        return
    shown = journal.verify()
    if not shown.damages:
        assert shown.rows == len(acknowledged())
    refused = attempt(path)
    if refused is None:
        return
    assert any(str(file) in str(damage) for damage in shown.damages), (
        f"verify finds what {refused} is about"
    )
    check_repaired(path)


def check_repaired(path: Path) -> None:
    """Repair the journal: what is lost is counted, and all else is there once."""
    journal = FilesJournal(path)
    done = journal.repair()
    held, lost = read(path)
    assert lost == sum(one.positions for one in done)
    assert journal.verify().damages == ()
    assert Counter(held) <= Counter([*acknowledged(), (0, "new", 0), (1, "new", 0)])
    send_again(path)
    again, _ = read(path)
    if not any("is stored again" in one.fact for one in done):
        assert max(Counter(again).values()) == 1, "nothing is stored twice"


def files(base: Path) -> list[Path]:
    return sorted(
        file.relative_to(base)
        for file in base.rglob("*")
        if file.is_file() and file.stat().st_size and "dead" not in file.parts
    )


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flips") / "journal"
    make(path)
    assert read(path) == (acknowledged(), 0)
    assert len(list((path / "p0000").glob("*.index"))) > 2
    return path


@pytest.mark.parametrize("seed", range(FLIPS))
def test_a_flipped_bit_neither_loses_nor_doubles_rows_in_silence(
    base: Path, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    for file in files(base):
        offset = chance.randrange((base / file).stat().st_size)
        check(base, tmp_path / file.name, file, offset, chance.randrange(8))
        shutil.rmtree(tmp_path / file.name)
