from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import CorruptSenders, JournalError
from millstream.journal.base import Kind
from millstream.journal.kinds.files.lines import parse_lines
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.repair import repair
from millstream.journal.kinds.files.retention import commit, committed
from millstream.journal.kinds.files.senders import read_senders, senders_copy, senders_file
from millstream.journal.kinds.files.summary import summary
from millstream.journal.kinds.files.verify import verify
from millstream.journal.kinds.files.writer import Writer

NAMES = ["till", "shop", "ü "]


@pytest.fixture
def sent(journal: Path, batch: Any) -> Path:
    """Two rows of each sender."""
    with Writer.open(journal) as writer:
        for number, name in enumerate(NAMES):
            writer.append(name, 0, batch(2 * number + 1, 2 * number + 2))
    return journal


def flip(file: Path, line: int) -> None:
    raw = bytearray(file.read_bytes())
    raw[parse_lines(bytes(raw))[line].offset + 20] ^= 4
    file.write_bytes(raw)


def names(path: Path) -> list[str]:
    reader = Reader(path).partition(0)
    found = (part.batch for part in reader.read(reader.begin, reader.end))
    return [name for batch in found if batch is not None for name in batch["name"].to_pylist()]


def send_again(path: Path, batch: Any) -> None:
    with Writer.open(path) as writer:
        writer.append("new", 0, batch(100))
        for number, name in enumerate(NAMES):
            writer.append(name, 0, batch(2 * number + 1, 2 * number + 2))


def both(line: int) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        flip(senders_file(folder), line)
        flip(senders_copy(folder), line)

    return harm


@pytest.mark.parametrize("line", range(3))
@pytest.mark.parametrize("file", [senders_file, senders_copy])
def test_names_are_rebuilt_from_the_file_that_is_sound(
    sent: Path, batch: Any, file: Callable[[Path], Path], line: int
) -> None:
    flip(file(sent / "p0000"), line)
    last = line == 2 and file is senders_copy
    assert bool(verify(sent).damages) is not last, "a torn end of the copy is no damage"
    send_again(sent, batch)
    assert names(sent) == ["1", "2", "3", "4", "5", "6", "100"], "each row is there once"
    assert verify(sent).damages == ()
    assert list(read_senders(sent / "p0000").values()) == [*NAMES, "new"]


@pytest.mark.parametrize("file", [senders_file, senders_copy])
def test_a_file_that_is_gone_is_written_again(
    sent: Path, batch: Any, file: Callable[[Path], Path]
) -> None:
    content = file(sent / "p0000").read_bytes()
    file(sent / "p0000").unlink()
    Writer.open(sent).close()
    assert file(sent / "p0000").read_bytes() == content


@pytest.mark.parametrize(
    "harm",
    [
        both(0),
        both(2),
        lambda folder: (flip(senders_file(folder), 0), senders_copy(folder).unlink()),
        lambda folder: (senders_file(folder).unlink(), senders_copy(folder).unlink()),
    ],
    ids=["first in both", "last in both", "no copy, as before 0.2", "both are gone"],
)
def test_without_the_names_nothing_is_appended_until_a_repair(
    sent: Path, batch: Any, harm: Callable[[Path], None]
) -> None:
    harm(sent / "p0000")
    with pytest.raises(CorruptSenders, match=r"senders .* are damaged in .*p0000/senders") as told:
        Writer.open(sent)
    assert "millstream journal repair" in str(told.value.hint)
    assert any(damage.file == senders_file(sent / "p0000") for damage in verify(sent).damages)
    assert names(sent) == ["1", "2", "3", "4", "5", "6"], "reading goes on"

    (done,) = repair(sent)
    assert "is stored again" in done.fact
    assert (done.positions, verify(sent).damages, repair(sent)) == (0, (), [])
    with Writer.open(sent) as writer:
        assert writer.highest("new") == -1
        writer.append("new", 0, batch(100))
        assert writer.highest("new") == 0
    highest = summary(sent).partitions[0].highest
    assert highest["new"] == 0
    assert len(highest) == 4, "a new sender does not inherit a number"


def test_a_torn_end_that_no_entry_uses_is_cut(sent: Path, batch: Any) -> None:
    with senders_file(sent / "p0000").open("ab") as file:
        file.write(b'0123456789abcdef "never')
    assert verify(sent).damages == ()
    send_again(sent, batch)
    assert list(read_senders(sent / "p0000").values()) == [*NAMES, "new"]


def test_a_sender_without_numbers_keeps_its_place(sent: Path, batch: Any) -> None:
    with Writer.open(sent) as writer:
        writer.instruct(Kind.IDLE, 50, sender="clock")
    both(3)(sent / "p0000")
    with pytest.raises(CorruptSenders):
        Writer.open(sent)


def test_a_mark_that_is_damaged_hides_nothing(sent: Path) -> None:
    mark = sent / "p0000" / "mark"
    good = mark.read_bytes()
    for slot in (0, 64):
        raw = bytearray(good)
        raw[slot + 17] ^= 1
        mark.write_bytes(raw)
        report = verify(sent)
        assert [(one.file, one.offset) for one in report.damages] == [(mark, slot)]
        assert report.rows == summary(sent).rows == len(names(sent)) == 6
        (done,) = repair(sent)
        assert "mark" in done.fact
        assert verify(sent).damages == ()


def test_a_damaged_description_is_refused(sent: Path) -> None:
    file = sent / "journal.json"
    file.write_text(file.read_text().replace('"partitions": 1', '"partitions": 0'))
    with pytest.raises(JournalError, match=r"is damaged, in .*journal.json"):
        Reader(sent)


def test_the_positions_of_a_damaged_reader_hold_everything(sent: Path) -> None:
    commit(sent, "group a", [1])
    file = sent / "readers" / "group a.json"
    file.write_text(file.read_text().replace('"0": 1', '"0": 5'))
    with pytest.raises(JournalError, match="damaged"):
        committed(sent)
    assert [one.file for one in verify(sent).damages] == [file]
    repair(sent)
    assert [(one.reader, dict(one.positions)) for one in committed(sent)] == [("group a", {})]
