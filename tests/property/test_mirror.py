"""A copy is its original, whatever is written, removed, widened, killed or lost on either side meanwhile."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.clock import ManualClock
from millstream.journal.base import Entry, Kind
from millstream.journal.kinds.files.description import create, describe
from millstream.journal.kinds.files.layout import (
    data_file,
    index_file,
    partition_folder,
    segment_positions,
)
from millstream.journal.kinds.files.mirror import Mirror
from millstream.journal.kinds.files.reader import PartitionReader, Reader
from millstream.journal.kinds.files.replica_source import ReplicaSource
from millstream.journal.kinds.files.retention import commit, commit_for, trim, trim_to
from millstream.journal.kinds.files.writer import Writer
from property.faulty_disk import Crash, FaultyDisk
from property.journal_model import SCHEMA, read_rows, rows

SEGMENT = 1_200


@dataclass(frozen=True)
class Append:
    sender: str
    count: int


@dataclass(frozen=True)
class Instruct:
    kind: Kind
    floor: int


@dataclass(frozen=True)
class Widen:
    """Add a column to the journal."""


@dataclass(frozen=True)
class Follow:
    """Copy so many pieces of at most so many bytes, and sync after every `group`."""

    pieces: int
    most: int
    group: int


@dataclass(frozen=True)
class Pass:
    """Let the copy's reader pass a share of what is there, remove that there, and then in the original."""

    share: float


@dataclass(frozen=True)
class Forget:
    """Let the original remove what the copy may not have yet."""


@dataclass(frozen=True)
class Stop:
    """Stop one of the machines after so many operations of its disk, by power or by kill -9."""

    copy: bool
    after: int
    power: bool


Step = Append | Instruct | Widen | Follow | Pass | Forget | Stop

follows = st.builds(
    Follow, st.integers(1, 8), st.sampled_from([100, 700, 100_000]), st.integers(1, 3)
)
appends = st.builds(Append, st.sampled_from(["a", "b", "c"]), st.integers(1, 20))
steps = st.lists(
    st.one_of(
        appends,
        appends,
        follows,
        follows,
        st.builds(Instruct, st.sampled_from([Kind.IDLE, Kind.WATERMARK]), st.integers(0, 2_000)),
        st.just(Widen()),
        st.builds(Pass, st.floats(0, 1)),
        st.just(Forget()),
        st.builds(Stop, st.booleans(), st.integers(0, 40), st.booleans()),
    ),
    max_size=30,
)


class Machines:
    """A writer and a copy, each on a disk of its own that may fail."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.original, self.copy = folder / "original", folder / "copy"
        self.disks = {False: FaultyDisk(seed), True: FaultyDisk(seed + 1)}
        self.power = {False: True, True: True}
        self.clock = ManualClock(1)
        self.next: dict[str, int] = {}
        self.writer: Writer | None = None
        self.mirror: Mirror | None = None
        self.reader: PartitionReader | None = None
        self.seen: dict[int, tuple[str, int]] = {}
        create(self.original, SCHEMA, time="at", disk=self.disks[False])
        self.start(copy=False)
        self.start(copy=True)

    def start(self, *, copy: bool) -> None:
        while True:
            try:
                self.open(copy=copy)
            except Crash:
                self.crash(copy=copy)
            else:
                return

    def open(self, *, copy: bool) -> None:
        if copy:
            self.mirror = Mirror(self.copy, 0, original="there", disk=self.disks[True])
        else:
            self.writer = Writer.open(
                self.original,
                disk=self.disks[False],
                clock=self.clock,
                segment_bytes=SEGMENT,
                background=False,
            )

    def crash(self, *, copy: bool) -> None:
        self.disks[copy].after = None
        if copy and self.mirror is not None:
            self.mirror.close()
            self.mirror = self.reader = None
        if not copy and self.writer is not None:
            self.writer.abort()
            self.writer = None
        if self.power[copy]:
            self.disks[copy].lose_power()

    def run(self, steps: list[Step]) -> None:
        for step in steps:
            self.clock.advance_us(1_000_000)
            if isinstance(step, Stop):
                self.disks[step.copy].after, self.power[step.copy] = step.after, step.power
                continue
            copy = isinstance(step, Follow | Pass)
            try:
                self.do(step)
            except Crash:
                self.crash(copy=copy)
                self.start(copy=copy)
        for disk in self.disks.values():
            disk.after = None
        self.follow(Follow(10_000, 1_000, 2))
        compare(self.original, self.copy)

    def do(self, step: Step) -> None:
        writer = self.writer
        assert writer is not None
        match step:
            case Append(sender, count):
                first = writer.highest(sender) + 1
                writer.append(sender, first, rows(sender, first, count))
            case Instruct(kind, floor):
                writer.instruct(kind, floor)
            case Widen():
                old = describe(self.original).schema
                wider = old.append(pa.field(f"more{len(old)}", pa.int64()))
                create(self.original, wider, time="at", disk=self.disks[False])
                sent = rows("w", writer.highest("w") + 1, 1)
                nulls = [pa.nulls(1, pa.int64()) for _ in range(len(wider) - len(SCHEMA))]
                writer.append(
                    "w",
                    writer.highest("w") + 1,
                    pa.record_batch([*sent.columns, *nulls], schema=wider),
                )
            case Follow():
                self.follow(step)
            case Pass(share):
                self.passed(share)
            case Forget():
                writer.trim(keep_for=timedelta(seconds=2))

    def follow(self, step: Follow) -> None:
        mirror, original = self.mirror, ReplicaSource(self.original, 0, most=step.most)
        assert mirror is not None
        for number in range(step.pieces):
            piece = original.after(mirror.reached)
            if piece.empty:
                break
            mirror.take(piece)
            if number % step.group == 0:
                mirror.sync()
                self.look()
        mirror.sync()
        mirror.trim(original.after(mirror.reached).begin)
        self.look()

    def look(self) -> None:
        """What a reader of the copy has seen once never changes."""
        if self.reader is None:
            self.reader = Reader(self.copy).partition(0)
        for position, *row in read_rows(self.reader, self.reader.begin, self.reader.end):
            assert self.seen.setdefault(position, tuple(row)) == tuple(row)

    def passed(self, share: float) -> None:
        assert self.mirror is not None
        if self.mirror.begin is None:
            return
        position, before = (
            int(Reader(self.copy).partition(0).end * share),
            Reader(self.original).partition(0).begin,
        )
        commit(self.copy, "one", {0: position}, disk=self.disks[True])
        trim(self.copy, keep_bytes=0, disk=self.disks[True])
        commit_for(self.original, 0, {"one": position})
        trim_to(self.original, 0, self.mirror.begin)
        assert Reader(self.original).partition(0).begin <= max(position, self.mirror.begin, before)


def compare(original: Path, copy: Path) -> None:
    """Readers of the two see the same, and the bytes are the same."""
    compare_partition(original, copy, 0)


def compare_partition(original: Path, copy: Path, partition: int) -> None:
    ours, theirs = Reader(copy).partition(partition), Reader(original).partition(partition)
    begin = max(ours.begin, theirs.begin)
    assert ours.end == theirs.end
    assert [plain(one) for one in ours.entries(begin, ours.end)] == [
        plain(one) for one in theirs.entries(begin, theirs.end)
    ]
    assert list(ours.read(begin, ours.end)) == list(theirs.read(begin, theirs.end))
    for position in range(begin, ours.end + 1, max(1, (ours.end - begin) // 1_000)):
        assert ours.state_at(position) == theirs.state_at(position)
    folders = [partition_folder(path, partition) for path in (copy, original)]
    for first in set(segment_positions(folders[0])) & set(segment_positions(folders[1])):
        for file in (data_file, index_file):
            assert file(folders[0], first).read_bytes() == file(folders[1], first).read_bytes()


def plain(entry: Entry) -> list[object]:
    return [getattr(entry, field.name) for field in fields(entry) if field.name != "file"]


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@given(steps, st.integers(0, 2**32))
@settings(max_examples=60)
def test_a_copy_is_its_original_whatever_happens_on_either_side(
    steps: list[Step], seed: int
) -> None:
    with folder() as path:
        Machines(path, seed).run(steps)


SCENARIO: list[Step] = [
    Append("a", 15),
    Follow(2, 700, 1),
    Append("b", 20),
    Instruct(Kind.IDLE, 900),
    Widen(),
    Follow(5, 100_000, 2),
    Append("a", 20),
    Append("c", 20),
    Follow(20, 700, 2),
    Pass(0.9),
    Follow(4, 700, 2),
    Append("a", 20),
    Append("b", 20),
    Forget(),
    Follow(9, 100_000, 3),
]


def operations(copy: bool) -> int:
    with folder() as path:
        machines = Machines(path, 0)
        machines.run(SCENARIO)
        return machines.disks[copy].operations


@pytest.mark.slow
@pytest.mark.parametrize("copy", [True, False], ids=["the copy", "the original"])
@pytest.mark.parametrize("power", [True, False], ids=["loses power", "is killed"])
def test_a_crash_at_any_operation_of_a_disk_leaves_a_copy_that_goes_on(
    copy: bool, power: bool
) -> None:
    for after in range(operations(copy)):
        with folder() as path:
            Machines(path, after).run([Stop(copy, after, power), *SCENARIO])


def test_the_scenario_rolls_widens_and_removes() -> None:
    with folder() as path:
        machines = Machines(path, 0)
        machines.run(SCENARIO)
        assert Reader(machines.copy).partition(0).begin > 0
        assert len(segment_positions(partition_folder(machines.copy, 0))) > 1
        assert describe(machines.copy).version == 1
