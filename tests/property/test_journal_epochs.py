"""An epoch is there as a whole or not at all, once, whatever crashes and reruns do."""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import CorruptStaging, Ended
from millstream.journal.base import Kind, Staged
from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.epochs import EpochLog, stage
from millstream.journal.kinds.files.layout import staged_folder
from millstream.journal.kinds.files.reader import Reader
from property.faulty_disk import Crash, FaultyDisk

PARTITIONS = 3
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("epoch", pa.int64()),
        ("attempt", pa.int64()),
        ("key", pa.int64()),
    ]
)


def some_rows(
    epoch: int, attempt: int, count: int, keys: Sequence[int] | None = None
) -> pa.RecordBatch:
    times = pa.array([epoch * 100 + n for n in range(count)], SCHEMA.field("at").type)
    return pa.record_batch(
        [
            times,
            pa.array([epoch] * count),
            pa.array([attempt] * count),
            pa.array(keys or range(count), pa.int64()),
        ],
        schema=SCHEMA,
    )


@dataclass
class Driver:
    """Runs epochs one after the other; each attempt stages other rows, elsewhere; a crash repeats the epoch."""

    path: Path
    disk: FaultyDisk
    chance: random.Random
    stops: list[int]
    sizes: dict[tuple[int, int], int] = field(default_factory=dict)
    log: EpochLog | None = None

    def run(self, epochs: int, *, ended: bool) -> None:
        attempt = 0
        while True:
            attempt += 1
            self.disk.after = self.stops.pop(0) if self.stops else None
            try:
                self.start()
                for epoch in range(epochs):
                    if epoch > self.open_log.last("g"):
                        self.epoch(epoch, attempt, ended=ended and epoch == epochs - 1)
                    self.check()
                break
            except Crash:
                self.disk.after = None
                if self.log is not None:
                    self.log.abort()
                    self.log = None
                if self.chance.random() < 0.7:
                    self.disk.lose_power()
        self.finish(epochs, ended=ended)

    @property
    def open_log(self) -> EpochLog:
        assert self.log is not None
        return self.log

    def start(self) -> None:
        if self.log is None:
            self.log = EpochLog.open(
                self.path, disk=self.disk, segment_bytes=2_000, background=False
            )
        self.log.recover()
        assert list(staged_folder(self.path).iterdir()) == []

    def epoch(self, epoch: int, attempt: int, *, ended: bool) -> None:
        staged: list[Staged] = []
        count = 0
        for _ in range(self.chance.randint(0, 2)):  # tasks
            rows = self.chance.randint(1, 30)
            keys = [self.chance.randrange(10) for _ in range(rows)]
            staged += stage(
                self.path, [some_rows(epoch, attempt, rows, keys)], "key", disk=self.disk
            )
            count += rows
        self.sizes[(epoch, attempt)] = count
        assert self.open_log.decide("g", epoch, staged, epoch * 50, ended=ended)
        self.open_log.publish()
        assert not self.open_log.decide("g", epoch, staged, epoch * 50)

    def check(self) -> None:
        """Each epoch that has rows has those of one attempt, and all of them."""
        found: dict[int, list[int]] = defaultdict(list)
        for partition in range(PARTITIONS):
            reader = Reader(self.path).partition(partition)
            order = []
            for part in reader.read(reader.begin, reader.end):
                if part.batch is not None:
                    order += part.batch.column("epoch").to_pylist()
                    for row in part.batch.to_pylist():
                        found[row["epoch"]].append(row["attempt"])
            assert order == sorted(order)
        for epoch, attempts in found.items():
            assert len(set(attempts)) == 1, "rows of two attempts stand beside each other"
            assert len(attempts) == self.sizes[(epoch, attempts[0])], (
                "a part of an epoch is missing or repeated"
            )

    def finish(self, epochs: int, *, ended: bool) -> None:
        self.open_log.abort()
        self.disk.after = None
        self.disk.lose_power()
        self.log = None
        self.start()
        self.check()
        for partition in range(PARTITIONS):
            reader = Reader(self.path).partition(partition)
            state = reader.state_at(reader.end)
            assert state.floor == (epochs - 1) * 50 if epochs else state.floor is None
            assert state.ended == ended
        if ended:
            with pytest.raises(Ended):
                self.open_log.decide(
                    "g", epochs, stage(self.path, [some_rows(9, 9, 1)], disk=self.disk), 0
                )
        self.open_log.close()


def drive(seed: int, stops: list[int], epochs: int, *, ended: bool) -> int:
    with tempfile.TemporaryDirectory() as name:
        disk = FaultyDisk(seed)
        create(Path(name), SCHEMA, partitions=PARTITIONS, time="at", written_by="group", disk=disk)
        Driver(Path(name), disk, random.Random(seed), list(stops)).run(epochs, ended=ended)
        return disk.operations


@given(
    st.integers(0, 2**32),
    st.lists(st.integers(0, 120), max_size=4),
    st.integers(0, 4),
    st.booleans(),
)
@settings(max_examples=80)
def test_an_epoch_is_there_whole_and_once_however_often_it_is_rerun(
    seed: int, stops: list[int], epochs: int, ended: bool
) -> None:
    drive(seed, stops, epochs, ended=ended and epochs > 0)


@pytest.mark.slow
def test_a_crash_at_any_operation_of_the_disk_leaves_whole_epochs() -> None:
    for after in range(drive(5, [], 2, ended=True) + 1):
        drive(5, [after], 2, ended=True)


def test_a_decision_that_was_synced_is_published_by_the_next_driver(tmp_path: Path) -> None:
    create(tmp_path, SCHEMA, partitions=2, time="at", written_by="group")
    log = EpochLog.open(tmp_path)
    log.decide("g", 0, stage(tmp_path, [some_rows(0, 0, 5)], 1), 40)
    rerun = stage(tmp_path, [some_rows(0, 1, 3)], 0)
    log.abort()
    with EpochLog.open(tmp_path) as again:
        assert len(again.unpublished) == 1
        assert again.recover() == 5
        assert not again.decide("g", 0, rerun, 40)
    reader = Reader(tmp_path)
    assert [e.kind for e in reader.partition(0).entries(0, 9)] == [Kind.WATERMARK]
    assert [(e.kind, e.rows, e.floor_after) for e in reader.partition(1).entries(0, 9)] == [
        (Kind.EPOCH, 5, 40)
    ]


def test_a_decided_file_that_is_gone_is_an_error_and_not_a_loss_in_silence(tmp_path: Path) -> None:
    create(tmp_path, SCHEMA, time="at", written_by="group")
    with EpochLog.open(tmp_path) as log:
        staged = stage(tmp_path, [some_rows(0, 0, 5)])
        log.decide("g", 0, staged, None)
        file = staged_folder(tmp_path) / staged[0].file
        content = file.read_bytes()
        file.write_bytes(content[:-1] + b"?")
        with pytest.raises(CorruptStaging):
            log.publish()
        file.write_bytes(content)
        assert log.publish() == 5


def test_the_log_of_decisions_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.journal.kinds.files.epochs.LOG_BYTES", 5_000)
    create(tmp_path, SCHEMA, time="at", written_by="group")
    with EpochLog.open(tmp_path) as log:
        for epoch in range(50):
            log.decide("g", epoch, [], epoch)
            log.publish()
        assert (tmp_path / "epochs").stat().st_size < 6_000
    with EpochLog.open(tmp_path) as log:
        assert log.last("g") == 49
