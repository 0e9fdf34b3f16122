"""Exporting the state of a fold to Parquet, and importing it: seconds for a number of keys.

    python -m benchmarks.state_files
    python -m benchmarks.state_files --keys 1000000

A flow fills the state of all keys once, and is stopped. Reading is one committed batch, with Spark
already started; the export writes Parquet, the import reads it, places all keys and writes the state
that the shards take over. Then the flow runs again over one more event for one key in a hundred.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks.common import folder, save, show

import millstream as ms
from millstream.journal import journal_at
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.inspection.exporting import export_states
from millstream.spark.inspection.importing import import_states
from millstream.spark.inspection.key_states import read_states
from millstream.spark.inspection.place import JobPlace, stopped
from millstream.spark.inspection.stages import find_stage
from millstream.spark.session.session import end_session, session

SCHEMA = pa.schema([("key", pa.string()), ("v", pa.float64()), ("at", pa.timestamp("us", "UTC"))])
FILLED = 250_000


def step(state: dict[str, Any], row: dict[str, Any]) -> tuple[dict[str, Any], None]:
    return {"total": state["total"] + row["v"], "events": state["events"] + 1}, None


def flow() -> ms.Flow:
    made = ms.Flow("kept")
    source = made.source(
        "events", ms.inbox("key string, v double, at timestamp"), time="at", key="key"
    )
    initial = {"total": 0.0, "events": 0}
    folded = source.fold(
        "totals", step, initial=initial, output="key string, at timestamp", order="arrival"
    )
    folded.sink("out", ms.memory())
    return made


def send(run: FlowRun, numbers: np.ndarray[Any, Any], turn: int) -> None:
    with journal_at(run.journal("events")).writer(timeout=60) as writer:
        for begin in range(0, len(numbers), FILLED):
            some = numbers[begin : begin + FILLED]
            columns = [
                pa.array([f"key-{number:09d}" for number in some]),
                pa.array(some.astype("float64")),
                pa.array(np.full(len(some), turn), pa.int64()).cast(SCHEMA.field("at").type),
            ]
            batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
            writer.append(f"bench-{turn}", begin, batch)


def ran(spark: Any, data: Path, numbers: np.ndarray[Any, Any], turn: int) -> float:
    """Run the flow over one event for each of these keys; return how long that took."""
    run = FlowRun(spark, flow(), Options(data, data, rows_per_batch=FILLED, hosting=False))
    begun = time.monotonic()
    run.start()
    try:
        send(run, numbers, turn)
        while not run.caught_up():
            run.poll()
            time.sleep(0.05)
    finally:
        run.stop()
    return time.monotonic() - begun


@contextmanager
def timed(found: dict[str, float], name: str) -> Iterator[None]:
    begun = time.monotonic()
    yield
    found[name] = round(time.monotonic() - begun, 2)


def measured(spark: Any, place: Path, keys: int) -> dict[str, float]:
    data, file = place / f"data-{keys}", place / f"{keys}.parquet"
    numbers, seconds = np.arange(keys), dict[str, float]()
    ran(spark, data, numbers, 1)
    job = JobPlace("kept", data / "kept")
    found, stage = find_stage(job, "totals")
    with timed(seconds, "read_s"):
        states = read_states(spark, found, stage)
    with timed(seconds, "export_s"):
        exported = export_states(states, file, "kept")
    assert exported.keys == keys, exported
    with timed(seconds, "import_s"), stopped(job):
        imported = import_states(spark, found, stage, file)
    assert (imported.keys, imported.new, imported.gone) == (keys, 0, 0), imported
    seconds["next_run_s"] = round(ran(spark, data, numbers[::100], 2), 2)
    after = read_states(spark, found, stage)
    assert after.keys == keys
    assert after.plain(1, "key-000000100")[0]["events"] == 2
    return {**seconds, "parquet_mb": round(file.stat().st_size / 1e6, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", default="10000,1000000")
    given = parser.parse_args()
    spark = session("state_files")
    try:
        with folder("state-files") as place:
            sizes = [int(one) for one in given.keys.split(",")]
            found = {f"{keys:,} keys": measured(spark, place, keys) for keys in sizes}
    finally:
        end_session(spark)
    columns = ("keys", "read s", "export s", "import s", "next run s", "Parquet MB")
    rows = [(name, *numbers.values()) for name, numbers in found.items()]
    show("state of a fold: export and import", columns, rows)
    save("state_files", {"keys": sizes}, found)


if __name__ == "__main__":
    main()
