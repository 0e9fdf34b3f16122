"""How far back a flow can be processed again: as far as its journals go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

import millstream as ms
from millstream.clock import micros
from millstream.journal import journal_at
from millstream.journal.kinds.files.retention import trim_to
from millstream.journal.kinds.files.writer import Writer
from millstream.spark.run.version import FlowVersion, RunContext
from millstream.spark.switching.reprocess import trimmed
from millstream.switch.changes import Version
from millstream.switch.plan import switch_plan

BEGAN = datetime(2026, 3, 8, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def version(folder: Path, number: int) -> FlowVersion:
    flow = ms.Flow("f", window="1 hour")
    rows = flow.source(
        "rows", ms.inbox("k string, at timestamp"), time="at", key="k", keep_for="1 day"
    )
    rows.window("windows", every="1 h", size="2 h", n=f"count(*) + {number}").sink(
        "out", ms.jsonl("out")
    )
    # Only what Spark says of a flow needs Spark.
    return FlowVersion(RunContext(cast("Any", None), folder, folder, 1), str(number), flow)


def facts(folder: Path, since: datetime) -> list[tuple[str, str]]:
    old, new = version(folder, 1), version(folder, 2)
    plan = switch_plan(Version.of(old.plan), Version.of(new.plan), since=since)
    assert plan.obstacles == ()
    return [(one.fact, one.hint) for one in trimmed(old, new, plan)]


def test_what_retention_has_removed_cannot_be_processed_again(tmp_path: Path) -> None:
    flow = version(tmp_path, 1)
    schema = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    path = flow.journal("rows")
    assert facts(tmp_path, BEGAN) == []  # there is no journal yet
    journal_at(path).create(schema, time="at")
    with Writer.open(path, segment_bytes=1) as writer:
        for hour in range(6):
            moment = micros(BEGAN + hour * HOUR)
            columns = [pa.array(["a"]), pa.array([moment], schema.field("at").type)]
            writer.append("s", hour, pa.RecordBatch.from_arrays(columns, schema=schema))
    assert facts(tmp_path, BEGAN) == []
    assert trim_to(path, 0, 3).segments > 0
    gone = journal_at(path).reader().partition(0).begin
    assert gone > 0
    last = BEGAN + (gone - 1) * HOUR
    ((fact, hint),) = facts(tmp_path, last)
    assert fact.startswith(
        f'"rows" is kept since {last:%Y-%m-%d %H}:00:00.000001 UTC, and out would have to read more'
    )
    assert hint == f"give {last + HOUR:%Y-%m-%d %H}:00:00 UTC, or later"
    assert facts(tmp_path, last + HOUR) == []
