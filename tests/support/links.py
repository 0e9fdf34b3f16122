"""What the tests of links share: a flow "f" with a source "s", its rows, and what its journal holds of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

import millstream as ms
from millstream import ingest
from millstream.flow.flow import Flow
from millstream.flow.stages import Source
from millstream.ingest import SourceSettings
from millstream.journal import Description, Kind
from millstream.journal.kinds.files.layout import dead_folder
from millstream.journal.kinds.files.reader import Reader
from millstream.links.host import Host, Listening, declared_inboxes

TARGET = "f.s"
SCHEMA = "origin string, n long, at timestamp"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def declare(
    data: Path,
    schema: str = SCHEMA,
    *,
    source: str = "s",
    partitions: int = 1,
    key: str | None = "origin",
    time: str | None = "at",
    producers: Sequence[str] | None = None,
) -> tuple[Description, SourceSettings]:
    """Make the journal of f.s in a data folder, as running the flow would."""
    flow = Flow("f")
    flow.source(
        source,
        ms.inbox(schema, producers=producers),
        time=time,
        key=key,
        partitions=partitions,
    )
    stage = flow.stages[source]
    assert isinstance(stage, Source)
    return ingest.declare(stage, journal(data, source))


def journal(data: Path, source: str = "s") -> Path:
    return data / "f" / "journals" / source


def hosted(data: Path, listening: Listening | None = None) -> Host:
    return Host(data / "f", declared_inboxes(data / "f"), listening_at=listening)


def row(n: int, origin: str | None = None) -> dict[str, Any]:
    return {"origin": origin or f"k{n % 7}", "n": n, "at": NOON + timedelta(seconds=n)}


def rows(begin: int, end: int) -> list[dict[str, Any]]:
    return [row(n) for n in range(begin, end)]


def batch(begin: int, end: int) -> pa.RecordBatch:
    """The rows as an inbox gets them."""
    numbers = range(begin, end)
    moments = [int((NOON + timedelta(seconds=n)).timestamp()) * 1_000_000 for n in numbers]
    columns = [
        pa.array([f"k{n % 7}" for n in numbers], pa.string()),
        pa.array(numbers, pa.int64()),
        pa.array(moments, pa.int64()).cast(pa.timestamp("us", "UTC")),
    ]
    return pa.record_batch(columns, names=["origin", "n", "at"])


def entries(data: Path, source: str = "s") -> list[tuple[Kind, int, str | None]]:
    """What the journal's index holds, partition by partition: kind, rows and sender."""
    reader = Reader(journal(data, source))
    return [
        (entry.kind, entry.rows, entry.sender)
        for number in range(reader.description.partitions)
        for entry in reader.partition(number).entries(0, reader.partition(number).end)
    ]


def stored(data: Path, source: str = "s", *, column: str = "n") -> list[list[Any]]:
    """The values of a column, partition by partition, in their order."""
    reader = Reader(journal(data, source))
    return [_values(reader, number, column) for number in range(reader.description.partitions)]


def pairs(data: Path, source: str = "s") -> list[tuple[str, int]]:
    """The key and number of every row, those of a partition in their order, read at once."""
    reader = Reader(journal(data, source))
    found: list[tuple[str, int]] = []
    for number in range(reader.description.partitions):
        partition = reader.partition(number)
        for part in partition.read(0, partition.end, ["origin", "n"]):
            if part.batch is not None:
                found += zip(
                    part.batch.column(0).to_pylist(), part.batch.column(1).to_pylist(), strict=True
                )
    return found


def _values(reader: Reader, number: int, column: str) -> list[Any]:
    partition = reader.partition(number)
    parts = partition.read(0, partition.end, [column])
    return [
        value
        for part in parts
        if part.batch is not None
        for value in part.batch.column(0).to_pylist()
    ]


def letters(data: Path, source: str = "s") -> list[tuple[int, str]]:
    """The dead letters: number and reason."""
    folder = dead_folder(journal(data, source))
    if not folder.exists():
        return []
    reader = Reader(folder)
    return list(zip(_values(reader, 0, "position"), _values(reader, 0, "reason"), strict=True))


def wait_for(true: Callable[[], object], *, limit_s: float = 240.0) -> None:
    """Wait until something holds."""
    until = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)


def cpu() -> list[float]:
    """The seconds of CPU and the changes of context of this process, all its threads together; threads; files."""
    own = psutil.Process()
    switches = 0
    for status in Path("/proc/self/task").glob("*/status"):
        switches += int(status.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return [sum(own.cpu_times()[:2]), switches, own.num_threads(), own.num_fds()]
