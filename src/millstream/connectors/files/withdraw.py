"""Taking rows back that are in files: those that start at a moment or later.

A file that holds none of them is left alone, one that holds nothing else goes, any other is written
again beside and renamed into its place. So it can be done again after a crash, and a reader finds
each file as it was or as it will be.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.clock import micros


def withdraw(file: Path, column: str, since_us: int, temporary: Path) -> None:
    """Take the rows back that one file holds; `temporary` is a file on the same disk."""
    kept = _KEEPERS[file.suffix](file, column, since_us, temporary)
    if kept is None:
        return
    if kept == 0:
        file.unlink()
        return
    with temporary.open("rb") as written:
        os.fsync(written.fileno())
    temporary.replace(file)


def _keep_lines(file: Path, column: str, since_us: int, temporary: Path) -> int | None:
    """Write the lines that stay; return how many, or None if all do."""
    with file.open(encoding="utf-8", newline="") as read:
        return _keep(_json_lines(read, column), since_us, temporary)


def _json_lines(lines: Iterator[str], column: str) -> Iterator[tuple[str, str | None]]:
    decoder = msgspec.json.Decoder(dict[str, Any])
    for line in lines:
        yield line, decoder.decode(line).get(column)


def _keep_csv(file: Path, column: str, since_us: int, temporary: Path) -> int | None:
    with file.open(encoding="utf-8", newline="") as read:
        head = read.readline()
        names = next(csv.reader([head]))
        if column not in names:
            return None
        return _keep(_records(read, names.index(column)), since_us, temporary, head)


def _records(lines: Iterator[str], place: int) -> Iterator[tuple[str, str | None]]:
    """Yield the text of every record, which may have several lines, with one of its fields."""
    used: list[str] = []

    def noted() -> Iterator[str]:
        for line in lines:
            used.append(line)
            yield line

    # As Spark writes it.
    for record in csv.reader(noted(), escapechar="\\", doublequote=False):
        yield "".join(used), record[place] or None
        used.clear()


def _keep(
    rows: Iterator[tuple[str, str | None]], since_us: int, temporary: Path, head: str = ""
) -> int | None:
    kept, gone = 0, 0
    with temporary.open("w", encoding="utf-8", newline="") as written:
        written.write(head)
        for text, start in rows:
            if start is not None and micros(datetime.fromisoformat(start)) >= since_us:
                gone += 1
            else:
                written.write(text)
                kept += 1
    return kept if gone else None


def _keep_parquet(file: Path, column: str, since_us: int, temporary: Path) -> int | None:
    if column not in pq.read_schema(file).names:
        return None
    starts = (
        pq.read_table(file, columns=[column])[column]
        .cast(pa.timestamp("us", "UTC"))
        .cast(pa.int64())
    )
    gone = pc.fill_null(pc.greater_equal(starts, since_us), False)
    if not pc.any(gone).as_py():
        return None
    table = pq.ParquetFile(file).read().filter(pc.invert(gone))
    pq.write_table(table, temporary)
    return int(table.num_rows)


_KEEPERS: Final[Mapping[str, Callable[[Path, str, int, Path], int | None]]] = {
    ".jsonl": _keep_lines,
    ".csv": _keep_csv,
    ".parquet": _keep_parquet,
}
