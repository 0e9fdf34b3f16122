"""Journals kept in folders of files: `layout.py` shows what lies where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from millstream.clock import Clock
from millstream.journal.base import Committed, Description, Reasoned, Staged, Trimmed
from millstream.journal.health import Repaired, Summary, Verification
from millstream.journal.kinds.files import (
    arrivals,
    dead,
    description,
    ends,
    growth,
    layout,
    retention,
    staging,
    summary,
)
from millstream.journal.kinds.files.claims import ClaimsFile
from millstream.journal.kinds.files.epochs import EpochLog
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.writer import Writer
from millstream.storage.disk import REAL, Disk


@dataclass(frozen=True, slots=True)
class FilesJournal:
    """A journal in a folder (`kind.Journal` says what its operations promise)."""

    path: Path
    disk: Disk = REAL

    @property
    def everywhere(self) -> bool:
        return False

    # declaring

    def exists(self) -> bool:
        return layout.description_file(self.path).exists()

    def create(
        self,
        schema: pa.Schema,
        *,
        partitions: int = 1,
        time: str | None = None,
        written_by: str = "inbox",
    ) -> Description:
        return description.create(
            self.path,
            schema,
            partitions=partitions,
            time=time,
            written_by=written_by,
            disk=self.disk,
        )

    def describe(self) -> Description:
        return description.describe(self.path)

    def grow(
        self, partitions: int, *, lateness_us: int = 0, clock: Clock | None = None
    ) -> Description:
        return growth.grow(
            self.path, partitions, lateness_us=lateness_us, clock=clock, disk=self.disk
        )

    # rows

    def writer(
        self, partition: int = 0, *, clock: Clock | None = None, timeout: float = 0.0
    ) -> Writer:
        return Writer.open(self.path, partition, clock=clock, timeout=timeout, disk=self.disk)

    def reader(self) -> Reader:
        return Reader(self.path)

    def cached_reader(self) -> Reader:
        return Reader.cached(self.path)

    def excerpt(self, partition: int, start: int, stop: int) -> None:
        """Only who sees the folder reads it."""

    # epochs

    def stage(
        self, batches: Iterable[pa.RecordBatch], partition_of: str | int | None = None
    ) -> list[Staged]:
        return staging.stage(self.path, batches, partition_of, disk=self.disk)

    def epochs(self) -> EpochLog:
        return EpochLog.open(self.path, disk=self.disk)

    # arrivals

    def stage_arrival(
        self,
        partition: int,
        sender: str,
        epoch: int,
        batches: Iterable[pa.RecordBatch],
        refused: Sequence[Reasoned] = (),
    ) -> list[Staged]:
        return arrivals.stage_arrival(
            self.describe(), partition, sender, epoch, batches, refused, disk=self.disk
        )

    def checked_arrival(
        self, staged: Iterable[Staged], partition: int, sender: str, epoch: int
    ) -> tuple[list[Staged], list[Staged]]:
        return arrivals.checked(staged, partition, sender, epoch)

    def read_refused(self, staged: Iterable[Staged]) -> list[Reasoned]:
        return arrivals.read_refused(self.path, staged)

    def discard_arrival(self, partition: int, sender: str, epoch: int) -> None:
        arrivals.discard(self.path, partition, sender, epoch, disk=self.disk)

    def left_arrivals(self, partition: int, besides: Iterable[str] = ()) -> list[str]:
        return arrivals.left(self.path, partition, besides)

    def remove_arrival(self, partition: int, name: str) -> None:
        arrivals.remove(self.path, partition, name, disk=self.disk)

    def ended_senders(self, partition: int) -> list[str]:
        return ends.read_ends(self.path, partition, self.disk)

    def end_sender(self, partition: int, sender: str) -> None:
        ends.add_end(self.path, partition, sender, self.disk)

    def claims(self, partition: int) -> ClaimsFile:
        return ClaimsFile(self.path, partition, self.disk)

    # dead letters

    def dead_letters(
        self, *, clock: Clock | None = None, timeout: float = dead.TIMEOUT_S
    ) -> dead.DeadLetters:
        return dead.DeadLetters.open(self.path, clock=clock, timeout=timeout, disk=self.disk)

    def dead_counts(self) -> dict[str, int]:
        return dead.dead_counts(self.path)

    def dead_waiting(self) -> dict[str, int]:
        return dead.dead_waiting(self.path)

    def dead_journal(self) -> FilesJournal:
        return FilesJournal(layout.dead_folder(self.path), self.disk)

    # retention

    def commit(self, reader: str, positions: Mapping[int, int] | Sequence[int]) -> None:
        retention.commit(self.path, reader, positions, disk=self.disk)

    def commit_for(self, partition: int, positions: Mapping[str, int]) -> None:
        retention.commit_for(self.path, partition, positions, disk=self.disk)

    def committed(self) -> list[Committed]:
        return retention.committed(self.path)

    def forget(self, reader: str) -> None:
        retention.forget(self.path, reader, disk=self.disk)

    def trim(
        self,
        *,
        keep_for: timedelta | None = None,
        keep_bytes: int | None = None,
        look_back: timedelta = timedelta(0),
    ) -> Trimmed:
        return retention.trim(
            self.path, keep_for=keep_for, keep_bytes=keep_bytes, look_back=look_back, disk=self.disk
        )

    def trim_to(self, partition: int, position: int) -> Trimmed:
        return retention.trim_to(self.path, partition, position, disk=self.disk)

    # health

    def summary(self) -> Summary:
        return summary.summary(self.path)

    def verify(self, progress: Callable[[int], None] = lambda _: None) -> Verification:
        from millstream.journal.kinds.files import verify  # few need it, and every client waits

        return verify.verify(self.path, progress)

    def bytes_to_verify(self) -> int:
        from millstream.journal.kinds.files import verify

        return verify.size(self.path)

    def repair(self) -> list[Repaired]:
        from millstream.journal.kinds.files import repair

        return repair.repair(self.path, disk=self.disk)
