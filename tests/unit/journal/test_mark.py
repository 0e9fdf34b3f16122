from __future__ import annotations

from pathlib import Path

import pytest

from millstream.journal.kinds.files.mark import MarkReader, MarkWriter, mark_file, read_mark
from millstream.storage.disk import REAL


def test_there_is_no_mark_before_the_first(tmp_path: Path) -> None:
    assert read_mark(tmp_path) is None
    reader = MarkReader(tmp_path)
    assert reader.read() is None
    MarkWriter(tmp_path, REAL, 1).set(0, 1, 10)
    found = reader.read()
    assert found is not None
    assert (found.segment, found.entries, found.end) == (0, 1, 10)


def test_a_new_writer_goes_on_after_the_last_mark(tmp_path: Path) -> None:
    for generation in (1, 2, 3):
        writer = MarkWriter(tmp_path, REAL, generation)
        writer.set(0, generation, generation * 10)
        writer.close()
    found = read_mark(tmp_path)
    assert found is not None
    assert (found.turn, found.generation, found.end) == (3, 3, 30)


@pytest.mark.parametrize("slot", [0, 1])
def test_of_a_torn_slot_the_other_stands(tmp_path: Path, slot: int) -> None:
    writer = MarkWriter(tmp_path, REAL, 1)
    for turn in (1, 2):
        writer.set(0, turn, turn * 10)
    raw = bytearray(mark_file(tmp_path).read_bytes())
    raw[slot * 64 + 8] ^= 1
    mark_file(tmp_path).write_bytes(raw)
    found = read_mark(tmp_path)
    assert found is not None
    assert found.end == (10 if slot == 0 else 20)


def test_a_reader_keeps_the_last_mark_while_both_slots_are_being_written(tmp_path: Path) -> None:
    MarkWriter(tmp_path, REAL, 1).set(0, 1, 10)
    reader = MarkReader(tmp_path)
    before = reader.read()
    with mark_file(tmp_path).open("r+b") as file:
        file.write(b"x" * 128)
    assert reader.read() == before
