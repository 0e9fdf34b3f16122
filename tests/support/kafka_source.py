"""Kafka sources, read into journals without Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import millstream as ms
from millstream import ingest
from millstream.connectors.kafka import Kafka
from millstream.flow.stages import Source
from millstream.journal import journal_at

NOON = datetime(2024, 5, 4, 12, tzinfo=UTC)
DDL = "n long, at timestamp"


def event(n: int, second: float | None = None) -> bytes:
    at = NOON + timedelta(seconds=n if second is None else second)
    return json.dumps({"n": n, "at": at.isoformat()}).encode()


def until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} within {seconds} s"
        time.sleep(0.05)


@dataclass
class KafkaCase:
    """A source over a topic, and its journal."""

    journal: Path
    partitions: int = 1
    key: str | None = None
    time: str | None = "at"
    lateness: str = "0 s"

    def stage(self, spec: Kafka) -> Source:
        flow = ms.Flow("check")
        timed = {} if self.time is None else {"time": self.time, "lateness": self.lateness}
        flow.source("events", spec, key=self.key, partitions=self.partitions, **timed)  # type: ignore[arg-type]
        stage = flow.stages["events"]
        assert isinstance(stage, Source)
        return stage

    def read(self, spec: Kafka) -> None:
        """Read a source that ends to its end."""
        with self.reading(spec) as found:
            assert found.wait(60), "the source does not end"

    @contextmanager
    def reading(self, spec: Kafka) -> Iterator[ingest.Ingest]:
        """Read a source meanwhile."""
        found = ingest.open(self.stage(spec), self.journal)
        found.start()
        try:
            yield found
        finally:
            found.stop()
        found.check()

    def rows(self) -> list[list[dict[str, Any]]]:
        """Return the rows of each partition of the journal."""
        reader = journal_at(self.journal).reader()
        parts = [reader.partition(number) for number in range(reader.description.partitions)]
        return [
            [
                row
                for slice_ in part.read(part.begin, part.end)
                if slice_.batch is not None
                for row in slice_.batch.to_pylist()
            ]
            for part in parts
        ]

    def numbers(self) -> list[int]:
        """Return the column n of all rows, in order of partition and position."""
        if not journal_at(self.journal).exists():
            return []
        return [row["n"] for part in self.rows() for row in part]

    def letters(self) -> list[dict[str, Any]]:
        """Return the dead letters."""
        dead = journal_at(self.journal).dead_journal()
        if not dead.exists():
            return []
        part = dead.reader().partition(0)
        return [
            row
            for slice_ in part.read(part.begin, part.end)
            if slice_.batch is not None
            for row in slice_.batch.to_pylist()
        ]

    def late(self) -> int:
        """Return the largest lag of a row behind those before it, in microseconds."""
        part = journal_at(self.journal).reader().partition(0)
        return max(entry.max_lag or 0 for entry in part.entries(part.begin, part.end))
