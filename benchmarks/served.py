"""What executors pay that borrow the driver's host: reading and staging, on their own disk and over the service.

One executor and the driver on one machine, so the network costs nothing but its encryption. Each side
is a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from benchmarks import events
from benchmarks.common import Timing, folder, save, show

from millstream.journal import journal_at
from millstream.spark.io.staging import StageFiles, StageJournal
from millstream.spark.served.client import run_at, slices_at
from millstream.spark.served.place import ServedPlace
from millstream.spark.served.service import Service

#: As Spark hands them to tasks.
ROWS = 65_536


def read(path: Path, rows: int, place: ServedPlace | None) -> None:
    view = journal_at(path).reader().partition(0)
    names = view.read(0, 1)
    columns = next(iter(names)).batch.schema.names  # type: ignore[union-attr]
    if place is None:
        found = view.read(0, rows, columns)
    else:
        found = slices_at(place, str(path), 0, 0, rows, columns)
    # An executor copies rows to Spark: reading a map of a file alone would be no work.
    count = sum(len(one.batch.serialize()) and one.batch.num_rows for one in found if one.batch)
    if count != rows:
        raise SystemExit(f"{count} rows were read, not {rows}")


def batches(path: Path, rows: int) -> Iterator[pa.RecordBatch]:
    parts = journal_at(path).reader().partition(0).read(0, rows)
    table = pa.Table.from_batches([one.batch for one in parts if one.batch is not None])
    yield from table.combine_chunks().to_batches(ROWS)


def written(work: Any, source: Path, rows: int, place: ServedPlace | None, name: str) -> None:
    given = batches(source, rows)
    list(work.write(given) if place is None else run_at(place, name, given))


def serve(pipe: Any, source: Path, works: dict[str, Any]) -> None:
    service = Service("127.0.0.1", "127.0.0.1")
    service.allow(source)
    pipe.send((service.place, {name: service.offer(work) for name, work in works.items()}))
    pipe.recv()
    service.close()


def timed(do: Callable[[], None]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    with folder("served") as at:
        source, target, files = at / "source", at / "target", at / "files"
        blocks = events.blocks(args.rows, 10_000, 60_000_000, 100_000)
        events.fill_journal(source, blocks, entry=10_000)
        schema = journal_at(source).describe().schema
        journal_at(target).create(schema, partitions=2, written_by="group")
        files.mkdir()
        works = {
            "journal": StageJournal(str(target), schema.names[0]),
            "parquet": StageFiles(str(files), "x", "parquet"),
        }
        ours, theirs = multiprocessing.Pipe()
        driver = multiprocessing.get_context("spawn").Process(
            target=serve, args=(theirs, source, works)
        )
        driver.start()
        place, names = ours.recv()
        seconds: dict[str, list[float]] = {}
        for turn in range(args.turns + 1):
            for side, there in (("own disk", None), ("served", place)):
                took = {f"read, {side}": timed(lambda there=there: read(source, args.rows, there))}  # type: ignore[misc]
                for name, work in works.items():
                    took[f"stage {name}, {side}"] = timed(
                        lambda there=there, name=name, work=work: written(  # type: ignore[misc]
                            work, source, args.rows, there, names[name]
                        )
                    )
                for what, one in took.items():
                    seconds.setdefault(what, []).extend([one] if turn else [])
        ours.send("end")
        driver.join()
    found = {what: Timing(tuple(some)) for what, some in sorted(seconds.items())}
    shown = [(what, one.median, f"{args.rows / one.median:,.0f}") for what, one in found.items()]
    show(f"{args.rows:,} rows", ("", "seconds", "rows/s"), shown)
    save("served", vars(args), {what: one.plain() for what, one in found.items()})


if __name__ == "__main__":
    main()
