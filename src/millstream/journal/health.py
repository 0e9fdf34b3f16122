"""What is known about a journal as a whole: its numbers, its damages, its repairs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """A partition in numbers: `lost` positions were lost in a repair."""

    partition: int
    begin: int
    end: int
    rows: int
    bytes: int
    segments: int
    min_time: int | None
    running_max: int | None
    floor: int | None
    ended: bool
    last_append_at: int | None
    lost: int
    highest: dict[str, int]


@dataclass(frozen=True, slots=True)
class ReaderSummary:
    """A reader's positions, and how many positions it is behind."""

    reader: str
    positions: dict[int, int]
    lag: int


@dataclass(frozen=True, slots=True)
class Summary:
    """A journal in numbers."""

    path: Path
    written_by: str
    time: str | None
    columns: dict[str, str]
    schemas: int
    partitions: tuple[PartitionSummary, ...]
    readers: tuple[ReaderSummary, ...]
    dead: dict[str, int]
    #: Where its rows are, if not in the folder.
    place: str | None = None

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.partitions)

    @property
    def lost(self) -> int:
        return sum(part.lost for part in self.partitions)


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that is not as it was written."""

    partition: int
    file: Path
    offset: int
    position: int
    positions: int
    fact: str

    def __str__(self) -> str:
        return f"{self.file}, byte {self.offset}: {self.fact}"


@dataclass(frozen=True, slots=True)
class Verification:
    """What verifying has found; `lost` positions were lost in an earlier repair."""

    damages: tuple[Damage, ...]
    entries: int
    rows: int
    bytes: int
    lost: int


@dataclass(frozen=True, slots=True)
class Repaired:
    """Something that was repaired: what is lost, and where its bytes are now."""

    partition: int
    file: Path
    position: int
    positions: int
    fact: str
    aside: Path | None
