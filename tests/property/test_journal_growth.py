"""However often a source is cut off, and whenever its journal grows, every record ends up in it once."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.ingest.rows import numbered
from millstream.journal import Kind
from millstream.journal.align import floor_at
from millstream.journal.base import Description
from millstream.journal.kinds.files.description import create, describe
from millstream.journal.kinds.files.growth import grow
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.writer import Writer
from property.faulty_disk import Crash, FaultyDisk
from property.test_ingest_restarts import MEMORY, SCHEMA, blocks, feed
from support.ingest import all_rows, letters_of, rows_of

TIMED = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])


@dataclass(frozen=True)
class Life:
    """A run of a source: how many partitions it wants, its blocks, how many of them it manages, and how it ends."""

    partitions: int
    block: int
    blocks: int
    killed: bool


lives = st.builds(
    Life,
    partitions=st.integers(1, 5),
    block=st.integers(1, 9),
    blocks=st.integers(0, 6),
    killed=st.booleans(),
)
records = st.lists(
    st.sampled_from(["JFK", "LGA", "EWR", "BOS", "ORD", None]) | st.just("{"), max_size=40
)


@settings(max_examples=100)
@given(records, st.lists(lives, max_size=5), st.sampled_from([None, "key"]), st.integers(1, 3))
def test_every_record_is_there_once_across_lives_and_layouts(
    given_records: list[str | None], cut_off: list[Life], key: str | None, partitions: int
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder) / "journal"
        create(path, SCHEMA, partitions=partitions)
        for life in [*cut_off, Life(partitions=4, block=7, blocks=1000, killed=False)]:
            count = grow(path, life.partitions).partitions
            with feed(path, key, count, killed=life.killed) as opened:
                for number, rows in enumerate(blocks(given_records, life.block)):
                    if number == life.blocks:
                        break
                    opened.take("me", rows)
        bad = [
            number
            for number, one in enumerate(given_records)
            if one == "{" or (key and one is None)
        ]
        stored = [row["n"] for row in all_rows(path)]
        assert sorted(stored) == [
            number for number in range(len(given_records)) if number not in bad
        ]
        assert sorted(letter["position"] for letter in letters_of(path)) == bad
        for partition in range(describe(path).partitions):
            numbers = [row["n"] for row in rows_of(path, partition)]
            assert numbers == sorted(numbers)


def test_what_is_new_is_spread_over_all_partitions(tmp_path: Path) -> None:
    create(tmp_path, SCHEMA, partitions=2)
    for count, last in ((2, 10), (4, 20)):
        grow(tmp_path, count)
        with feed(tmp_path, None, count, killed=False) as opened:
            batch = pa.RecordBatch.from_pylist(
                [{"key": "k", "n": number} for number in range(last)], schema=SCHEMA
            )
            opened.take("me", numbered(batch, 0))
            assert opened.highest("me") == last - count
    assert [[row["n"] for row in rows_of(tmp_path, partition)] for partition in range(4)] == [
        [0, 2, 4, 6, 8, 12, 16],
        [1, 3, 5, 7, 9, 13, 17],
        [10, 14, 18],
        [11, 15, 19],
    ]


@dataclass
class Machine:
    """A journal of two partitions on a disk that may fail, and what its readers have been promised."""

    path: Path
    disk: FaultyDisk
    promised: int = 0
    numbers: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})

    def append(self, partition: int, at: int) -> None:
        number = self.numbers.get(partition, 0)
        batch = pa.RecordBatch.from_pylist([{"n": number, "at": at}], schema=TIMED)
        with Writer.open(self.path, partition, disk=self.disk, background=False) as writer:
            writer.append("me", number, batch)
        self.numbers[partition] = number + 1
        self.look()

    def look(self) -> Description:
        """Read all of it, as readers do, and see that what may still come is not less than they were told."""
        reader = Reader(self.path)
        views = [reader.partition(number) for number in range(reader.description.partitions)]
        floor = floor_at(views, [view.end for view in views], 5)
        assert floor is not None
        assert floor >= self.promised
        self.promised = floor
        return reader.description


def attempt(seed: int, after: int | None, *, power: bool) -> int:
    """Let a journal grow on a disk that stops after some operations, then again; return how many it took."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        disk = FaultyDisk(seed)
        create(Path(folder), TIMED, partitions=2, time="at", disk=disk)
        machine = Machine(Path(folder), disk)
        for partition in (0, 1):
            with Writer.open(machine.path, partition, disk=disk, background=False) as writer:
                writer.instruct(Kind.IDLE, 1)
        machine.append(0, 100)
        machine.append(1, 90)
        before, disk.after = disk.operations, after
        try:
            grow(machine.path, 4, lateness_us=5, disk=disk)
        except Crash:
            if power:
                disk.lose_power()
        taken, disk.after = disk.operations - before, None
        found = machine.look()
        assert (found.partitions, [one.partitions for one in found.earlier]) in ((2, []), (4, [2]))
        # Whichever it is, the journal is written on, and grows if it has not.
        machine.append(0, 120)
        machine.append(1, 110)
        grown = grow(machine.path, 4, lateness_us=5, disk=disk)
        assert [one.partitions for one in grown.earlier] == [2]
        assert grown.earlier[0].until == {"me": 1 if found.partitions == 2 else 0}
        assert machine.look().partitions == 4
        for partition in (2, 3):
            machine.append(partition, 130)
        return taken


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_leaves_a_journal_as_it_was_or_grown(power: bool) -> None:
    for after in range(attempt(0, None, power=power)):
        attempt(after, after, power=power)
