"""Any interleaving of appends, instructions, crashes, truncations and readers keeps what was acknowledged, once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.clock import ManualClock
from millstream.errors import Ended, WriterBroken
from millstream.journal.base import Kind
from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.reader import PartitionReader, Reader
from millstream.journal.kinds.files.retention import commit
from millstream.journal.kinds.files.writer import Writer
from property.faulty_disk import Crash, FaultyDisk
from property.journal_model import SCHEMA, Model, check_index, read_rows, rows, stored

SEGMENT = 2_500


@dataclass(frozen=True)
class Append:
    """Send `count` rows, beginning `back` before the next number (a repeat, whole or in part) or after it (a gap)."""

    sender: str
    back: int
    count: int
    queued: int = 1


@dataclass(frozen=True)
class Instruct:
    kind: Kind
    floor: int


@dataclass(frozen=True)
class Trim:
    passed: float


@dataclass(frozen=True)
class Stop:
    """Stop the machine after so many operations of the disk, by power or by kill -9; then start again."""

    after: int
    power: bool


@dataclass(frozen=True)
class Reopen:
    pass


Step = Append | Instruct | Trim | Stop | Reopen

appends = st.builds(
    Append,
    sender=st.sampled_from(["a", "b", "c"]),
    back=st.integers(-2, 12),
    count=st.integers(1, 12),
    queued=st.integers(1, 4),
)
steps = st.lists(
    st.one_of(
        appends,
        appends,
        st.builds(Instruct, st.sampled_from([Kind.IDLE, Kind.WATERMARK]), st.integers(0, 2_000)),
        st.builds(Trim, st.floats(0, 1)),
        st.builds(Stop, st.integers(0, 40), st.booleans()),
        st.just(Reopen()),
    ),
    max_size=25,
)


class Machine:
    """A writer on a faulty disk, senders that resend, and a reader that looks after every operation."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.model = Model()
        self.disk = FaultyDisk(seed)
        self.clock = ManualClock(1)
        self.next: dict[str, int] = {}
        self.writer: Writer | None = None
        self.reader: PartitionReader | None = None
        self.read_to = 0
        self.passed = 0
        create(path, SCHEMA, time="at", disk=self.disk)
        self.start()

    def start(self) -> None:
        while True:
            try:
                self.writer = Writer.open(
                    self.path,
                    disk=self.disk,
                    clock=self.clock,
                    segment_bytes=SEGMENT,
                    background=False,
                )
                break
            except Crash:
                self.crash(power=True)
        self.reader = Reader(self.path).partition(0)
        self.read_to = self.reader.begin
        self.disk.watch = self.look
        self.check()
        for sender in self.next:
            # What is there beyond the acknowledged counts as sent: its sender asks and goes on
            # after it.
            self.next[sender] = max(self.next[sender], self.writer.highest(sender) + 1)

    def look(self) -> None:
        assert self.reader is not None
        end = self.reader.end
        self.model.note_seen(read_rows(self.reader, max(self.read_to, self.reader.begin), end))
        self.read_to = end

    def crash(self, *, power: bool) -> None:
        self.disk.after = None
        self.disk.watch = lambda: None
        self.reader = None
        if self.writer is not None:
            self.writer.abort()
            self.writer = None
        if power:
            self.disk.lose_power()

    def check(self) -> None:
        begin = Reader(self.path).partition(0).begin
        self.model.check(stored(self.path), begin)

    def run(self, steps: list[Step]) -> None:
        power = True
        for step in steps:
            self.clock.advance_us(1_000_000)
            if isinstance(step, Stop):
                self.disk.after, power = step.after, step.power
                continue
            try:
                self.do(step)
            except Crash:
                self.crash(power=power)
                self.start()
                self.look()
                self.crash(power=True)  # what recovery has shown to readers must stay, too
                self.start()
        self.disk.after = None
        self.look()
        self.check()
        self.crash(power=True)
        self.start()
        check_index(self.path)

    def do(self, step: Step) -> None:
        writer = self.writer
        assert writer is not None
        match step:
            case Append(sender, back, count, queued):
                self.append(writer, sender, back, count, queued)
            case Instruct(kind, floor):
                writer.instruct(kind, floor)
                assert (writer.floor or 0) >= floor
            case Trim(passed):
                # An earlier step may have passed more: what is removed stays removed.
                self.passed = max(self.passed, int(writer.end * passed))
                commit(self.path, "one", {0: int(writer.end * passed)}, disk=self.disk)
                writer.trim(keep_for=timedelta(seconds=3))
                assert Reader(self.path).partition(0).begin <= self.passed
            case Reopen():
                writer.close()
                self.start()

    def append(self, writer: Writer, sender: str, back: int, count: int, queued: int) -> None:
        futures = []
        before = writer.highest(sender)
        for _ in range(queued):
            first = max(0, self.next.get(sender, 0) - back)
            futures.append((first, writer.append_nowait(sender, first, rows(sender, first, count))))
            self.next[sender] = max(self.next.get(sender, 0), first + count)
        writer.flush()
        for first, future in futures:
            assert future.result().rows == count
            # Numbers at or below the highest are accepted and not stored, also those that a gap has
            # left out.
            self.model.note(sender, max(first, before + 1), first + count)
            before = max(before, first + count - 1)


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name) / "journal"


@given(steps, st.integers(0, 2**32))
@settings(max_examples=150)
def test_whatever_is_acknowledged_is_there_once_and_in_order_and_what_was_read_stays(
    steps: list[Step], seed: int
) -> None:
    with folder() as path:
        Machine(path, seed).run(steps)


SCENARIO: list[Step] = [
    Append("a", 0, 5),
    Append("b", 0, 9, queued=2),
    Instruct(Kind.IDLE, 900),
    Append("a", 3, 10),
    Append("b", 4, 12, queued=3),
    Trim(0.5),
    Append("a", 2, 12, queued=3),
    Reopen(),
    Append("a", 1, 3),
]


def count_operations(scenario: list[Step]) -> int:
    with folder() as path:
        machine = Machine(path, 0)
        for step in scenario:
            machine.clock.advance_us(1_000_000)
            machine.do(step)
        return machine.disk.operations


@pytest.mark.slow
@pytest.mark.parametrize("power", [True, False], ids=["power is lost", "the process is killed"])
def test_a_crash_at_any_operation_of_the_disk_loses_nothing_acknowledged(power: bool) -> None:
    for after in range(count_operations(SCENARIO) + 1):
        for seed in range(2 if power else 1):
            with folder() as path:
                Machine(path, after * 10 + seed).run([Stop(after, power), *SCENARIO])


def test_a_refused_write_breaks_the_writer_until_it_is_opened_again(tmp_path: Path) -> None:
    create(tmp_path, SCHEMA, time="at")
    disk = RefusingDisk()
    writer = Writer.open(tmp_path, disk=disk)
    writer.append("a", 0, rows("a", 0, 3))
    disk.refusing = True
    with pytest.raises(WriterBroken):
        writer.append("a", 3, rows("a", 3, 3))
    disk.refusing = False
    with pytest.raises(WriterBroken):
        writer.append("a", 3, rows("a", 3, 3))
    writer.close()
    with Writer.open(tmp_path) as again:
        again.append("a", 0, rows("a", 0, 6))
    assert [seq for _, _, seq in stored(tmp_path)] == [0, 1, 2, 3, 4, 5]


def test_an_ended_partition_takes_repeats_and_refuses_new_rows(tmp_path: Path) -> None:
    create(tmp_path, SCHEMA, time="at")
    with Writer.open(tmp_path) as writer:
        writer.append("a", 0, rows("a", 0, 3))
        writer.instruct(Kind.END_OF_STREAM)
        assert writer.append("a", 1, rows("a", 1, 2)).stored == 0
        with pytest.raises(Ended):
            writer.append("a", 2, rows("a", 2, 2))


class RefusingDisk:
    """The real disk, until it is told to refuse syncs."""

    def __init__(self) -> None:
        from millstream.storage.disk import RealDisk

        self._real = RealDisk()
        self.refusing = False
        self.rename, self.remove, self.sync_folder = (
            self._real.rename,
            self._real.remove,
            self._real.sync_folder,
        )

    def open(self, path: Path) -> object:
        file = self._real.open(path)
        real_sync: Callable[[], None] = file.sync

        def sync() -> None:
            if self.refusing:
                raise OSError(5, "the disk is gone")
            real_sync()

        file.sync = sync  # type: ignore[method-assign]
        return file
