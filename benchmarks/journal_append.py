"""The journal's append rate, its memory while it grows, and the cost of finding a place in it.

Appends batches of 1,000 rows of 100 bytes to one partition, each durable before it counts, and
compares in the same run, turn by turn, with peers that do less or the same: the same bytes written
and synced by hand, and SQLite.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks.common import Timing, folder, save, show

from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.writer import Writer

ROWS = 1_000
BEGIN_US = 1_700_000_000_000_000
SCHEMA = pa.schema(
    [("at", pa.timestamp("us", "UTC")), ("key", pa.string()), ("payload", pa.string())]
)


def batches() -> Iterator[pa.RecordBatch]:
    """Yield batches for ever: 8 bytes of time, 8 of key, 84 of payload a row (offsets come on top)."""
    chance = np.random.default_rng(1)
    keys = pa.array([f"key{n % 997:05d}" for n in range(ROWS)])
    payload = pa.array([chance.bytes(42).hex() for _ in range(ROWS)])
    begin = BEGIN_US
    while True:
        # A millisecond a row, up to a second out of order.
        times = begin + np.arange(ROWS) * 1_000 - chance.integers(0, 1_000_000, ROWS)
        yield pa.record_batch(
            [pa.array(times, SCHEMA.field("at").type), keys, payload], schema=SCHEMA
        )
        begin += ROWS * 1_000


def made(rows: int) -> list[pa.RecordBatch]:
    return list(islice(batches(), rows // ROWS))


Given = list[pa.RecordBatch]
Append = Callable[[Given], None]
"""Writes the batches; they are durable when it returns. Opening and closing are not measured."""


@contextmanager
def queued(path: Path) -> Iterator[Append]:
    create(path, SCHEMA, time="at")
    with Writer.open(path) as writer:

        def append(given: Given) -> None:
            for number, batch in enumerate(given):
                writer.append_nowait("bench", number * ROWS, batch)
            writer.flush()

        yield append


@contextmanager
def waiting(path: Path) -> Iterator[Append]:
    create(path, SCHEMA, time="at")
    with Writer.open(path) as writer:

        def append(given: Given) -> None:
            for number, batch in enumerate(given):
                writer.append("bench", number * ROWS, batch)

        yield append


def by_hand(group: int) -> Callable[[Path], AbstractContextManager[Append]]:
    """Return a peer that writes the serialized batches, `group` of them to a sync, and nothing else."""

    @contextmanager
    def peer(path: Path) -> Iterator[Append]:
        path.mkdir(parents=True)
        fd = os.open(path / "plain", os.O_WRONLY | os.O_CREAT)

        def append(given: Given) -> None:
            for begin in range(0, len(given), group):
                os.writev(fd, [batch.serialize() for batch in given[begin : begin + group]])
                os.fdatasync(fd)

        yield append
        os.close(fd)

    return peer


@contextmanager
def sqlite(path: Path) -> Iterator[Append]:
    path.mkdir(parents=True)
    base = sqlite3.connect(path / "base", isolation_level=None)
    for order in (
        "PRAGMA journal_mode=WAL",
        "PRAGMA synchronous=FULL",
        "CREATE TABLE rows (position INTEGER PRIMARY KEY, at INTEGER, key TEXT, payload TEXT)",
    ):
        base.execute(order)

    def append(given: Given) -> None:
        for batch in given:
            columns = [
                batch.column(0).cast(pa.int64()).to_pylist(),
                *(batch.column(n).to_pylist() for n in (1, 2)),
            ]
            base.execute("BEGIN")
            base.executemany(
                "INSERT INTO rows (at, key, payload) VALUES (?, ?, ?)", zip(*columns, strict=True)
            )
            base.execute("COMMIT")

    yield append
    base.close()


# How to open each peer, and how large a part of the rows it gets: the slow ones would take minutes.
PEERS: dict[str, tuple[Callable[[Path], AbstractContextManager[Append]], float]] = {
    "journal, queued": (queued, 1.0),
    "journal, waiting for each batch": (waiting, 0.1),
    "plain file, a sync per batch": (by_hand(1), 0.1),
    "plain file, a sync per 64 batches": (by_hand(64), 1.0),
    "SQLite, a transaction per batch": (sqlite, 0.05),
}


def append_rates(rows: int, turns: int) -> dict[str, Any]:
    given = made(rows)
    seconds: dict[str, list[float]] = {name: [] for name in PEERS}
    order = list(PEERS)
    for _ in range(turns):
        order.append(
            order.pop(0)
        )  # nobody always comes after the same one, whose pages are still being written
        for name in order:
            seconds[name].append(seconds_a_row(name, given))
    found = {}
    for name, each in seconds.items():
        timing = Timing(tuple(each))
        found[name] = {
            "rows_per_s": round(1 / timing.median),
            "spread": round(timing.spread, 3),
            "each_rows_per_s": [round(1 / s) for s in each],
        }
    return found


def seconds_a_row(name: str, given: Given) -> float:
    peer, part = PEERS[name]
    some = given[: int(len(given) * part)]
    with folder("append") as path, peer(path / "it") as append:
        began = time.perf_counter()
        append(some)
        return (time.perf_counter() - began) / (len(some) * ROWS)


def memory() -> dict[str, float]:
    """Return this process's memory in MB: its own, and mapped files that the kernel may drop at any time."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {
        line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.startswith("Rss")
    }
    return {
        "own_mb": round(found["RssAnon"], 1),
        "mapped_mb": round(found["RssFile"] + found["RssShmem"], 1),
    }


def find(path: Path, count: int = 300) -> dict[str, Any]:
    """Measure finding random positions and times, in a process that has just opened the journal."""
    began = time.perf_counter()
    reader = Reader(path).partition(0)
    end = reader.end
    opened = time.perf_counter() - began
    chance = random.Random(7)
    last = reader.state_at(end).running_max
    assert last is not None
    by_position, by_time = [], []
    for _ in range(count):
        position, moment = chance.randrange(end), chance.randrange(BEGIN_US, last)
        began = time.perf_counter()
        reader.state_at(position)
        by_position.append(time.perf_counter() - began)
        began = time.perf_counter()
        reader.position_at_time(moment)
        by_time.append(time.perf_counter() - began)
    return {
        "open_ms": round(opened * 1e3, 2),
        "position_us": round(statistics.median(by_position) * 1e6, 1),
        "time_us": round(statistics.median(by_time) * 1e6, 1),
        **memory(),
    }


def reopened(path: Path) -> float:
    began = time.perf_counter()
    Writer.open(path).close()
    return round((time.perf_counter() - began) * 1e3, 2)


def growth(stops: list[int]) -> list[dict[str, Any]]:
    """Fill one journal and stop at sizes to look at memory and at the cost of finding."""
    found = []
    with folder("growth") as path:
        create(path, SCHEMA, time="at")
        source, written = batches(), 0
        writer = Writer.open(path)
        for stop in stops:
            while written < stop:
                writer.append_nowait("bench", written, next(source))
                written += ROWS
            writer.flush()
            own = memory()
            writer.close()
            asked = [sys.executable, __file__, "--find", str(path)]
            answer = subprocess.run(
                asked, capture_output=True, text=True, check=True, env=os.environ
            ).stdout
            found.append(
                {
                    "rows": stop,
                    "writer": own,
                    "reopen_writer_ms": reopened(path),
                    "reader": json.loads(answer),
                }
            )
            writer = Writer.open(path)
        writer.close()
    return found


def report(rates: dict[str, Any], grown: list[dict[str, Any]]) -> None:
    base = rates["journal, queued"]["rows_per_s"]
    show(
        "Append, 1,000 rows of 100 bytes a batch, one partition, all synced",
        ("", "rows/s", "MB/s", "journal is"),
        [
            (
                name,
                f"{one['rows_per_s']:,}",
                f"{one['rows_per_s'] / 10_000:,.0f}",
                f"{base / one['rows_per_s']:.2f} x",
            )
            for name, one in rates.items()
        ],
    )
    show(
        "While it grows",
        (
            "rows",
            "writer MB",
            "reopen ms",
            "reader opens ms",
            "find position us",
            "find time us",
            "reader MB",
        ),
        [
            (
                f"{one['rows']:,}",
                one["writer"]["own_mb"],
                one["reopen_writer_ms"],
                one["reader"]["open_ms"],
                one["reader"]["position_us"],
                one["reader"]["time_us"],
                one["reader"]["own_mb"],
            )
            for one in grown
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--full", action="store_true", help="let the journal grow to 50 M rows (5 GB)"
    )
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--find", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.find is not None:
        print(json.dumps(find(args.find)))
        return
    stops = [1_000_000, 10_000_000, 25_000_000, 50_000_000] if args.full else [1_000_000, 5_000_000]
    rates = append_rates(args.rows, args.turns)
    grown = growth(stops)
    report(rates, grown)
    save(
        "journal_append-full" if args.full else "journal_append",
        {
            "rows_a_turn": args.rows,
            "turns": args.turns,
            "rows_a_batch": ROWS,
            "bytes_a_row": 100,
            "stops": stops,
        },
        {"append": rates, "growth": grown},
    )


if __name__ == "__main__":
    main()
