"""What the tests of ingest share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from millstream.clock import ManualClock
from millstream.flow.durations import duration
from millstream.flow.schema import Schema
from millstream.flow.sources import SourceSpec
from millstream.flow.stages import Source
from millstream.journal.base import Kind
from millstream.journal.kinds.files.layout import dead_folder
from millstream.journal.kinds.files.reader import Reader

NOON = datetime(2013, 3, 8, 12, tzinfo=UTC)
NOON_US = int(NOON.timestamp()) * 1_000_000


def source(
    origin: SourceSpec, *, time: str | None = "at", key: str | None = None, partitions: int = 1
) -> Source:
    """A source named "events" that takes what lies up to a hundred years ahead, so that clocks may stand still."""
    return Source(
        name="events",
        origin=origin,
        schema=origin.schema,
        time=time,
        lateness=duration("1 minute"),
        key=key,
        ahead=timedelta(days=36500),
        idle=duration("10 s"),
        partitions=partitions,
    )


def rows_of(journal: Path, partition: int = 0) -> list[dict[str, Any]]:
    reader = Reader(journal).partition(partition)
    return [
        row
        for part in reader.read(0, reader.end)
        if part.batch is not None
        for row in part.batch.to_pylist()
    ]


def all_rows(journal: Path) -> list[dict[str, Any]]:
    return [
        row
        for number in range(Reader(journal).description.partitions)
        for row in rows_of(journal, number)
    ]


def kinds_of(journal: Path, partition: int = 0) -> list[Kind]:
    reader = Reader(journal).partition(partition)
    return [entry.kind for entry in reader.entries(0, reader.end)]


def letters_of(journal: Path) -> list[dict[str, Any]]:
    return rows_of(dead_folder(journal)) if dead_folder(journal).exists() else []


class Steps:
    """A pause that moves a clock instead of waiting, and stops a source after so many calls."""

    def __init__(self, clock: ManualClock, stop_after: int | None = None) -> None:
        self.clock = clock
        self.left = stop_after
        self.waited: list[float] = []
        self.between: Callable[[], None] = lambda: None

    def __call__(self, seconds: float) -> bool:
        if seconds:
            self.waited.append(seconds)
            self.clock.advance_us(int(seconds * 1e6))
            self.between()
        if self.left is not None:
            self.left -= 1
            return self.left >= 0
        return True


SCHEMA = Schema.parse("name string, n long, at timestamp")
