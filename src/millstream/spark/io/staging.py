"""What tasks do with a group's output: write it to files of their own and say which.

This runs in the executors, so it imports little. Only the winning attempt of a
task gets its answer to the driver: files of retried and speculative attempts
are never named in a decision.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.journal import journal_at
from millstream.journal.plain import records
from millstream.spark.daemon import settle
from millstream.spark.io.arrays import numbers, texts

if TYPE_CHECKING:  # not wanted in executors, which import this
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class StageJournal:
    """Stage rows for the partitions of a journal."""

    path: str
    key: str | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        keyless: list[str] = []
        staged = [
            json.dumps(asdict(one))
            for one in journal_at(self.path).stage(self._placed(batches, keyless), self.key)
        ]
        answers = [(one, None) for one in staged] + [(None, one) for one in keyless]
        if answers:
            files, records = zip(*answers, strict=True)
            yield pa.RecordBatch.from_arrays(
                [pa.array(files, pa.string()), pa.array(records, pa.string())],
                names=["staged", "homeless"],
            )

    def _placed(
        self, batches: Iterator[pa.RecordBatch], keyless: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """Set rows without a key aside: they have no place in a partition."""
        for batch in batches:
            if self.key is None or batch.column(self.key).null_count == 0:
                yield batch
                continue
            missing = batch.column(self.key).is_null()
            keyless += records(batch.filter(missing))
            yield batch.filter(pc.invert(missing))


@dataclass(frozen=True, slots=True)
class StageFiles:
    """Stage rows as one file of a format; no file for no rows."""

    folder: str
    prefix: str
    format: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        found = [batch for batch in batches if batch.num_rows]
        if not found:
            return
        name = f"{self.prefix}-{uuid.uuid4().hex[:8]}.{self.format}"
        path = Path(self.folder) / name
        table = pa.Table.from_batches(found)
        _WRITERS[self.format](table, path)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        rows = numbers(np.array([table.num_rows]), pa.int64())
        yield pa.RecordBatch.from_arrays([texts([name]), rows], names=["file", "rows"])


def run_through(frame: DataFrame) -> None:
    """Run what leads to unwanted rows: if stages write no state, Spark fails the batch."""
    frame.write.format("noop").mode("overwrite").save()


def _write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path)


def _write_lines(table: pa.Table, path: Path) -> None:
    with path.open("w") as file:
        if "header" in table.column_names:
            file.write(f"{table.column('header')[0].as_py()}\n")
        file.writelines(f"{line}\n" for line in table.column("line").to_pylist())


_WRITERS: Final[dict[str, Callable[[pa.Table, Path], None]]] = {
    "parquet": _write_parquet,
    "jsonl": _write_lines,
    "csv": _write_lines,
}
