"""Made-up events for patterns, the same every time, as files and as a journal.

Event n happens n milliseconds after the start, so no two have the same time, and the same number of
events covers the same time whatever the size of the stream: 1,000 a second. They arrive up to two
seconds out of order, on two lanes. The lanes are there as one file each, which is how Flink reads
them (in order, one reader for each), and cut into parts of equal size, which is how Spark reads
them (two parts a batch), as CSV or Parquet. A journal has them in the order of their arrival. The
last event of each lane is a day later: then everything before is certain. A flow from CSV files reads them
in the order of their arrival, too, in parts of a batch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from benchmarks.events import _mixed, fill_journal

FORMS = ("csv", "parquet", "journal", "flow")
DDL = "key string, kind string, value double, at timestamp, n long"
LATENESS_S = 5
SHAKEN = 2_000
START = np.datetime64("2023-11-14T00:00:00.000", "ms")
DAY_MS = 86_400_000
KINDS = "ABCDEFGHIJ"
#: The kind of the event that ends a lane.
LAST = "Z"
LANES = 2
#: How many rows a journal gets at a time.
ENTRY = 10_000
JOURNAL = pa.schema(
    [
        ("key", pa.string()),
        ("kind", pa.string()),
        ("value", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("n", pa.int64()),
    ]
)


def table(events: int, keys: int) -> pa.Table:
    """Return events in the order of their arrival."""
    order = np.arange(events, dtype=np.uint64)
    late = (_mixed(order + np.uint64(1 << 40)) % np.uint64(SHAKEN)).astype(np.int64)
    number = order[np.argsort(order.astype(np.int64) + late, kind="stable")]
    key, other = _mixed(number), _mixed(number + np.uint64(1 << 34))
    names = pa.array([f"key-{n:07}" for n in range(keys)])
    return pa.table(
        {
            "key": names.take(pa.array(key % np.uint64(keys))),
            "kind": pa.array(list(KINDS)).take(pa.array(other % np.uint64(10))),
            # Eighths add up without rounding, in whatever order.
            "value": (other // np.uint64(10) % np.uint64(1000)).astype(np.float64) / 8,
            "at": pa.array(START + number.astype(np.int64).astype("timedelta64[ms]")),
            "n": number.astype(np.int64),
        }
    )


def last(events: int, lane: int) -> pa.Table:
    at = pa.array([START + np.timedelta64(events + DAY_MS + lane, "ms")])
    return pa.table(
        {"key": ["end"], "kind": [LAST], "value": [0.0], "at": at, "n": [events + lane]}
    )


def write(
    place: Path, events: int, keys: int, rows_per_batch: int, forms: Sequence[str] = ("csv",)
) -> None:
    """Write the events for Flink, place/lanes/, and in some forms for us: place/csv/ and so on."""
    rows = table(events, keys)
    (place / "lanes").mkdir(parents=True)
    half = rows_per_batch // LANES
    for lane in range(LANES):
        own = rows.take(pa.array(np.arange(lane, events, LANES)))
        _csv(pa.concat_tables([own, last(events, lane)]), place / "lanes" / f"lane-{lane}.csv")
        firsts = range(0, own.num_rows, half)
        for number, first in enumerate(firsts):
            part = own.slice(first, half)
            if first == firsts[-1]:
                part = pa.concat_tables([part, last(events, lane)])
            for form in {"csv", "parquet"}.intersection(forms):
                _part(part, place / form, form, number, lane)
    whole = pa.concat_tables([rows, *(last(events, lane) for lane in range(LANES))])
    if "flow" in forms:
        (place / "flow").mkdir()
        for number, first in enumerate(range(0, whole.num_rows, rows_per_batch)):
            part = whole.slice(first, rows_per_batch)
            _csv(part, place / "flow" / f"part-{number:05}.csv")
    if "journal" in forms:
        whole = whole.cast(JOURNAL).combine_chunks()
        fill_journal(place / "journal", iter(whole.to_batches()), entry=ENTRY, schema=JOURNAL)


def _part(rows: pa.Table, folder: Path, form: str, number: int, lane: int) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"part-{number:05}-{lane}.{form}"
    if form == "csv":
        _csv(rows, path)
    else:
        pa.parquet.write_table(rows.cast(JOURNAL), path)
    # Spark's file source goes by time of change.
    os.utime(path, (1_700_000_000 + number * LANES + lane,) * 2)


def _csv(rows: pa.Table, path: Path) -> None:
    pa.csv.write_csv(rows, path, pa.csv.WriteOptions(include_header=False, quoting_style="none"))
