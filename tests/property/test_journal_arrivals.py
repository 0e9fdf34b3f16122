"""An epoch from elsewhere is in each partition whole and once, whatever crashes at either end."""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.journal.base import Description, Staged
from millstream.journal.kinds.files.arrivals import checked, discard, stage_arrival
from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.layout import staged_folder
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.writer import Writer
from property.faulty_disk import Crash, FaultyDisk

PARTITIONS = 2
SENDERS = ("a", "b")
SCHEMA = pa.schema(
    [("at", pa.timestamp("us", "UTC")), ("epoch", pa.int64()), ("attempt", pa.int64())]
)


@dataclass
class Sender:
    """A group elsewhere: it never loses what it has decided, and stages anew if it had not."""

    name: str
    chance: random.Random
    epoch: int = 0
    attempt: int = 0
    decided: list[Staged] | None = None
    there: set[int] = field(default_factory=set)
    won: dict[int, int] = field(default_factory=dict)
    rows: dict[tuple[int, int], list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def step(self, host: Host) -> None:
        """Do one thing; a crash of the host, or of the sender itself, comes between two of them or inside one."""
        if self.decided is None:
            self.attempt += 1
            staged = self.stage(host)
            if self.chance.random() < 0.7:  # else the driver died before it decided
                self.decided, self.there, self.won[self.epoch] = staged, set(), self.attempt
            return
        missing = {item.partition for item in self.decided} - self.there
        if not missing or self.chance.random() < 0.1:  # it may ask again for what is there
            self.publish(host, self.chance.randrange(PARTITIONS))
        if missing:
            self.publish(host, min(missing))
            self.there.add(min(missing))
        else:
            self.epoch, self.decided = self.epoch + 1, None

    def stage(self, host: Host) -> list[Staged]:
        staged = []
        for partition in range(PARTITIONS):
            for _ in range(self.chance.randint(0, 2)):  # tasks, some of which are lost
                times = [self.chance.randint(1, 100) for _ in range(self.chance.randint(1, 9))]
                found = host.stage(partition, self.name, self.epoch, self.attempt, times)
                if self.chance.random() < 0.8:
                    staged += found
                    self.rows[self.epoch, partition] += [(self.attempt, time) for time in times]
        return staged

    def publish(self, host: Host, partition: int) -> None:
        assert self.decided is not None
        host.publish(
            partition,
            self.name,
            self.epoch,
            [item for item in self.decided if item.partition == partition],
        )

    def wanted(self, partition: int, epoch: int) -> list[tuple[int, int]]:
        return sorted(row for row in self.rows[epoch, partition] if row[0] == self.won[epoch])


@dataclass
class Host:
    """Has the partitions open, and may die at any operation of its disk."""

    description: Description
    disk: FaultyDisk
    writers: list[Writer] = field(default_factory=list)

    def start(self) -> None:
        for partition in range(PARTITIONS):
            path = self.description.path
            self.writers.append(
                Writer.open(path, partition, disk=self.disk, segment_bytes=3_000, background=False)
            )

    def stage(
        self, partition: int, sender: str, epoch: int, attempt: int, times: list[int]
    ) -> list[Staged]:
        columns = [
            pa.array(times, SCHEMA.field("at").type),
            pa.array([epoch] * len(times)),
            pa.array([attempt] * len(times)),
        ]
        batch = pa.record_batch(columns, schema=SCHEMA)
        return stage_arrival(self.description, partition, sender, epoch, [batch], disk=self.disk)

    def publish(self, partition: int, sender: str, epoch: int, staged: list[Staged]) -> None:
        rows, _ = checked(staged, partition, sender, epoch)
        if rows:
            pending = self.writers[partition].append_staged(sender, epoch, rows)
            self.writers[partition].flush()
            pending.result()
            discard(self.description.path, partition, sender, epoch, disk=self.disk)

    def die(self, *, power: bool) -> None:
        self.disk.after = None
        for writer in self.writers:
            writer.abort()
        self.writers = []
        if power:
            self.disk.lose_power()


def drive(seed: int, stops: list[int], epochs: int) -> int:
    with tempfile.TemporaryDirectory() as name:
        disk, chance, left = FaultyDisk(seed), random.Random(seed), list(stops)
        host = Host(create(Path(name), SCHEMA, partitions=PARTITIONS, time="at", disk=disk), disk)
        senders = [Sender(one, chance) for one in SENDERS]
        disk.after = left.pop(0) if left else None
        while any(sender.epoch < epochs for sender in senders):
            try:
                if not host.writers:
                    host.start()
                chance.choice([sender for sender in senders if sender.epoch < epochs]).step(host)
            except Crash:
                host.die(power=chance.random() < 0.7)
                disk.after = left.pop(0) if left else None
        if not stops:
            check_rubbish(host, epochs)
        host.die(power=True)
        host.start()
        check(Path(name), senders, epochs)
        host.die(power=False)
        return disk.operations


def check_rubbish(host: Host, epochs: int) -> None:
    """What is published leaves nothing behind; a loss of power may bring back what was removed."""
    path = host.description.path
    folder = staged_folder(path)  # not there if nothing got so far
    for file in list(folder.iterdir()) if folder.exists() else ():
        epoch, partition = int(file.name.split("-")[1]), int(file.stem.split("-")[-1])
        assert epoch < epochs
        assert any(epoch > host.writers[partition].highest(sender) for sender in SENDERS)


def check(path: Path, senders: list[Sender], epochs: int) -> None:
    for partition in range(PARTITIONS):
        reader = Reader(path).partition(partition)
        found = defaultdict(list)
        for entry in reader.entries(0, reader.end):
            assert (entry.sender, entry.first_seq) not in found, "an epoch is there twice"
            assert entry.sender is not None
            for part in reader.read(entry.position, entry.stop):
                assert part.batch is not None
                for row in part.batch.to_pylist():
                    assert row["epoch"] == entry.first_seq
                    found[entry.sender, entry.first_seq].append(
                        (row["attempt"], int(row["at"].timestamp() * 1e6 + 0.5))
                    )
        for sender in senders:
            for epoch in range(epochs):
                assert sorted(found[sender.name, epoch]) == sender.wanted(partition, epoch)


@given(st.integers(0, 2**32), st.lists(st.integers(0, 120), max_size=5), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_an_epoch_is_in_each_partition_whole_and_once(
    seed: int, stops: list[int], epochs: int
) -> None:
    drive(seed, stops, epochs)


def test_a_crash_at_any_operation_of_the_disk_leaves_whole_epochs() -> None:
    for after in range(drive(3, [], 2) + 1):
        drive(3, [after], 2)
