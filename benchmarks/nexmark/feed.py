"""The events on disk: as Parquet or JSON lines, and as an inbox's journal; and the table that q13 looks up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from benchmarks import events as shared
from benchmarks.nexmark.generator import CYCLE, FIRST_CATEGORY, Config, block, blocks

import millstream as ms

SIDE_ROWS: Final = 10_000
NO_KIND: Final = 3


def write_side_input(path: Path) -> Path:
    """Write the table of q13: numbers, and the same as texts."""
    path.write_text("key,value\n" + "".join(f"{key},{key}\n" for key in range(SIDE_ROWS)))
    return path


def write_files(
    folder: Path, config: Config, events: int, per_file: int, *, format: str = "parquet"
) -> Path:
    """Write the events, so many to a file, in an order that Spark's file source keeps.

    The last file has one row of no kind, two days later: it closes the windows of queries that know of no
    end of the stream.
    """
    batches = chain(blocks(config, events, per_file), [_end(config, events)])
    shared.write_files(folder, batches, format=format)
    return folder


def _end(config: Config, events: int) -> pa.RecordBatch:
    """Return a row that is a person, an auction and a bid, and of no kind.

    Spark pushes what queries ask of these below the watermark, which the row has to reach.
    """
    like = block(config, math.ceil(events / CYCLE) * CYCLE, CYCLE)
    asked = {"person": {"state": "OR"}, "auction": {"category": FIRST_CATEGORY}, "bid": {}}
    row = {
        "kind": NO_KIND,
        **{name: pc.drop_null(like[name])[0].as_py() | asked[name] for name in asked},
        "date_time": like["date_time"][0].as_py() + timedelta(days=2),
    }
    return pa.RecordBatch.from_pylist([row], schema=like.schema)


def fill_journal(folder: Path, config: Config, events: int, *, entry: int = 1_000) -> Path:
    """Write the events as an inbox would, and end the stream."""
    schema = block(config, 0, 1).schema
    shared.fill_journal(folder, _many(config, events), entry=entry, schema=schema, time="date_time")
    return folder


def send(client: ms.Client, inbox: str, config: Config, events: int) -> None:
    """Send the events into an inbox, and end it."""
    for batch in _many(config, events):
        client.send(inbox, batch)
    client.end(inbox)


def _many(config: Config, events: int) -> Iterator[pa.RecordBatch]:
    return blocks(config, events, 100_000)


def write_lanes(folder: Path, config: Config, events: int, lanes: int = 2) -> Path:
    """Write the events for readers that take a file each at the same time: each has every so many-th event.

    Columns are flat, `bid_price` for the price of a bid: Flink reads no times inside rows, and whole rows only.
    """
    folder.mkdir(parents=True)
    schema = _flat(block(config, 0, 1)).schema
    with ExitStack() as stack:
        paths = [folder / f"lane-{lane}.parquet" for lane in range(lanes)]
        writers = [stack.enter_context(pq.ParquetWriter(path, schema)) for path in paths]
        for batch in _many(config, events):
            for lane, writer in enumerate(writers):
                rows = pa.array(np.arange(lane, batch.num_rows, lanes))
                writer.write_table(_flat(batch.take(rows)))
    return folder


def _flat(batch: pa.RecordBatch) -> pa.Table:
    rows = pa.Table.from_batches([batch]).flatten()
    return rows.rename_columns([name.replace(".", "_") for name in rows.column_names])


def write_all(place: Path, config: Config, events: int, per_file: int) -> None:
    """Write the events in all forms: files, lanes, a journal; and the table, with and without a header."""
    write_files(place / "files", config, events, per_file)
    write_lanes(place / "lanes", config, events)
    fill_journal(place / "journal", config, events)
    table = write_side_input(place / "side_input.csv").read_text()
    (place / "side_input_bare.csv").write_text(table.partition("\n")[2])
