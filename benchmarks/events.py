"""Made-up events, the same every time, in the three forms that the benchmarks read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from millstream.journal import Kind
from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.writer import Writer

START_US = 1_700_000_000_000_000 // 60_000_000 * 60_000_000
#: Times go forward, shaken by at most this: less than the lateness, so that nobody drops a row.
SHAKEN_US = 2_000_000
LATENESS = "5 seconds"
DDL = "key string, value double, at timestamp, device string, reading long, note string"
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("value", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("device", pa.string()),
        ("reading", pa.int64()),
        ("note", pa.string()),
    ]
)


def blocks(events: int, keys: int, span_us: int, size: int) -> Iterator[pa.RecordBatch]:
    """Yield events in blocks of `size`; what a row holds depends on its number alone, not on `size`."""
    names = pa.array([f"key-{n:05}" for n in range(keys)])
    devices = pa.array([f"device-{n:03}" for n in range(200)])
    notes = pa.array([f"note {n:08} of a device" for n in range(1000)])
    for first in range(0, events, size):
        number = np.arange(first, min(first + size, events), dtype=np.uint64)
        mixed = _mixed(number)
        at = START_US + (number.astype(np.float64) * (span_us / events)).astype(np.int64)
        at += (mixed % np.uint64(SHAKEN_US)).astype(np.int64)
        yield pa.RecordBatch.from_arrays(
            [
                names.take(pa.array(mixed % np.uint64(keys))),
                # Eighths add up without rounding, in whatever order.
                pa.array((mixed % np.uint64(8000)).astype(np.float64) / 8),
                pa.array(at).cast(pa.timestamp("us", "UTC")),
                devices.take(pa.array(mixed % np.uint64(200))),
                pa.array(number.astype(np.int64)),
                notes.take(pa.array(mixed % np.uint64(1000))),
            ],
            schema=SCHEMA,
        )


def _mixed(number: np.ndarray) -> np.ndarray:
    """Return numbers that look random (splitmix64)."""
    mixed = number * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))) >> np.uint64(8)


def fill_journal(
    path: Path,
    batches: Iterator[pa.RecordBatch],
    *,
    entry: int,
    schema: pa.Schema = SCHEMA,
    time: str = "at",
) -> None:
    """Write events as an inbox would, `entry` rows at a time, and end the stream."""
    create(path, schema, partitions=1, time=time, written_by="inbox")
    with Writer.open(path, 0) as writer:
        place = 0
        for batch in batches:
            for first in range(0, batch.num_rows, entry):
                part = batch.slice(first, entry)
                writer.append_nowait("bench", place, part)
                place += part.num_rows
        writer.instruct(Kind.END_OF_STREAM)


def last_row(span_us: int) -> pa.RecordBatch:
    """Return a row a day later: it closes all windows of a query that has no end of stream."""
    at = START_US + span_us + 86_400_000_000
    values = [["zzz"], [0.0], [at], ["zzz"], [0], ["zzz"]]
    return pa.RecordBatch.from_arrays(
        [pa.array(v, f.type) for v, f in zip(values, SCHEMA, strict=True)], schema=SCHEMA
    )


def write_files(folder: Path, batches: Iterator[pa.RecordBatch], *, format: str) -> None:
    """Write one file per batch, in an order that Spark's file source keeps (it goes by time of change)."""
    folder.mkdir(parents=True)
    for number, batch in enumerate(batches):
        path = folder / f"part-{number:05}.{format}"
        if format == "parquet":
            pq.write_table(pa.Table.from_batches([batch]), path)
        elif format == "csv":
            pa_csv.write_csv(batch, path)
        else:
            frame = batch.to_pandas()
            frame.to_json(path, orient="records", lines=True, date_format="iso", date_unit="us")
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
