"""Makes the journal that is kept beside this file. Run it once for a new format, into a folder of its own.

python tests/upgrade/journal/make.py tests/upgrade/journal/format_3
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from millstream.clock import ManualClock
from millstream.journal.base import Kind
from millstream.journal.kinds.files.dead import DeadLetters
from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.epochs import EpochLog
from millstream.journal.kinds.files.retention import commit
from millstream.journal.kinds.files.staging import stage
from millstream.journal.kinds.files.writer import Writer

OLD = pa.schema([("at", pa.timestamp("us", "UTC")), ("name", pa.string())])
NEW = OLD.append(pa.field("extra", pa.int64()))


def rows(schema: pa.Schema, *times: int) -> pa.RecordBatch:
    columns = {
        "at": pa.array(times, OLD.field("at").type),
        "name": [str(t) for t in times],
        "extra": list(times),
    }
    return pa.record_batch([pa.array(columns[f.name], f.type) for f in schema], schema=schema)


def make(path: Path) -> None:
    clock = ManualClock(1_000)
    create(path / "rows", OLD, time="at")
    with Writer.open(path / "rows", clock=clock, segment_bytes=900) as writer:
        writer.append("a", 0, rows(OLD, 1, 3, 2))
        writer.append("b", 5, rows(OLD, 4))
        writer.instruct(Kind.IDLE, 4)
        writer.append("a", 3, rows(OLD, 5, 6))
    create(path / "rows", NEW, time="at")
    with Writer.open(path / "rows", clock=clock, segment_bytes=900) as writer:
        writer.append("a", 5, rows(NEW, 7, 8))
        writer.instruct(Kind.END_OF_STREAM)
    commit(path / "rows", "one", [4], clock=clock)
    with DeadLetters.open(path / "rows", clock=clock) as dead:
        dead.put("late:rows", 3, "late", {"name": "x"})
    create(path / "epochs", OLD, time="at", partitions=2, written_by="group")
    with EpochLog.open(path / "epochs", clock=clock) as log:
        log.decide("g", 0, stage(path / "epochs", [rows(OLD, 9, 8)], 1), 5)
        log.publish()
        log.decide("g", 1, [], 6)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
