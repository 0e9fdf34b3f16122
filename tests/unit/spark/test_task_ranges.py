"""What is read does not depend on how many tasks read it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.writer import Writer
from millstream.spark.io.ranges import TaskRanges
from millstream.spark.io.source import MARKER, PLACE, JournalStreamReader, ReadSettings

SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
#: Event times of three partitions; with a lateness of 10, a row is late in each of two of them.
TIMES = ([50, 60, 45, 70], [55, 52, 71], [10, 65, 50, 66, 72])
LATE = {(0, 2), (2, 2)}
READ = StructType([StructField("n", LongType()), StructField("at", TimestampType())])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    create(tmp_path / "j", SCHEMA, partitions=3, time="at")
    for partition, times in enumerate(TIMES):
        with Writer.open(tmp_path / "j", partition) as writer:
            for number, at in enumerate(times):
                columns = [pa.array([100 * partition + number]), pa.array([at], SCHEMA[1].type)]
                writer.append("s", number, pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    return tmp_path / "j"


@pytest.mark.parametrize("tasks", [1, 2, 3, 8])
def test_tasks_read_each_row_once_with_its_place_and_no_late_one(path: Path, tasks: int) -> None:
    settings = ReadSettings(
        journal="j",
        path=str(path),
        columns=("n", "at"),
        schema=READ.json(),
        time="at",
        lateness=10,
        grouped=False,
        limit=100,
        tasks=tasks,
        place=0,
    )
    reader = JournalStreamReader(settings)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    found = reader.partitions(start, end)
    assert len(found) == min(tasks, 3)
    rows: list[tuple[int, int]] = []
    markers = 0
    for task in found:
        assert isinstance(task, TaskRanges)
        for batch in reader.read(task):
            for row in batch.to_pylist():
                markers += row[MARKER]
                if not row[MARKER]:
                    rows.append((row["n"], row[PLACE]))
    assert markers == 1
    assert sorted(rows) == [
        (100 * partition + number, (partition << 44) + number)
        for partition, times in enumerate(TIMES)
        for number in range(len(times))
        if (partition, number) not in LATE
    ]
