"""Rows of a journal on their way to runtimes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.engine.schemes.egress import Egress
from millstream.journal import Kind, journal_at
from millstream.journal.kinds.files.writer import Writer
from support.runtimes import Downlink, RawDownstream, wait_until

SCHEMA = pa.schema([("value", pa.binary())])


class Rows:
    """A journal that grows."""

    def __init__(self, path: Path) -> None:
        self.path, self._next = path, 0
        journal_at(path).create(SCHEMA)
        self._writer = Writer.open(path, 0)

    def add(self, *values: bytes) -> None:
        self._writer.append(
            "s", self._next, pa.record_batch([pa.array(values, pa.binary())], schema=SCHEMA)
        )
        self._next += len(values)

    def idle(self) -> None:
        self._writer.instruct(Kind.IDLE, 0)

    def committed(self) -> int:
        return next(int(one.positions[0]) for one in journal_at(self.path).committed())

    def close(self) -> None:
        self._writer.close()


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[Rows]:
    one = Rows(tmp_path / "j")
    yield one
    one.close()


@pytest.fixture
def down() -> Iterator[RawDownstream]:
    one = RawDownstream()
    yield one
    one.close()


def accepted(down: RawDownstream) -> Downlink:
    link = down.accept()
    assert str(link.hello) == "p_stage#1"
    return link


def test_rows_are_sent_by_position_and_again_until_they_are_acknowledged(
    rows: Rows, down: RawDownstream
) -> None:
    rows.add(b"a", b"b")
    rows.idle()
    rows.add(b"c")
    egress = Egress("p_stage", rows.path)
    egress.send_to((down.address,))
    link = accepted(down)
    assert link.messages(3) == [
        (1, b"a"),
        (2, b"b"),
        (4, b"c"),
    ]  # an instruction has a position too
    assert not egress.idle
    link.ack(2)
    link.close()
    again = accepted(down)
    assert again.messages(1) == [(4, b"c")]
    rows.add(b"d")
    assert again.messages(1) == [(5, b"d")]
    again.ack(5)
    wait_until(lambda: egress.idle, 60)
    egress.close()
    assert rows.committed() == 5

    rows.add(b"e")
    after = Egress("p_stage", rows.path)
    after.send_to((down.address,))
    assert accepted(down).messages(1) == [(6, b"e")]
    after.close()


def test_who_takes_the_place_of_another_gets_what_that_had_not_acknowledged(
    rows: Rows, down: RawDownstream
) -> None:
    spare = RawDownstream()
    rows.add(b"a", b"b", b"c")
    egress = Egress("p_stage", rows.path)
    egress.send_to((down.address,))
    link = accepted(down)
    link.messages(3)
    link.ack(1)
    wait_until(lambda: egress._ways[down.address].acked == 1, 60)
    egress.send_to((spare.address,))
    assert accepted(spare).messages(2) == [(2, b"b"), (3, b"c")]
    egress.close()
    spare.close()


def test_the_slowest_of_several_keeps_the_journal(rows: Rows, down: RawDownstream) -> None:
    other = RawDownstream()
    rows.add(b"a", b"b")
    egress = Egress("p_stage", rows.path)
    egress.send_to((down.address, other.address))
    fast, slow = accepted(down), accepted(other)
    fast.messages(2)
    slow.messages(2)
    fast.ack(2)
    slow.ack(1)
    wait_until(lambda: sorted(way.acked for way in egress._ways.values()) == [1, 2], 60)
    egress.close()
    assert rows.committed() == 1
    other.close()
