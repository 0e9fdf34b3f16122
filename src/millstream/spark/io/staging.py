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
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.journal import journal_at
from millstream.spark.daemon import settle
from millstream.spark.io.arrays import numbers, texts
from millstream.spark.io.unwritable import NOT_TEXT, Unwritable, sound, without_nulls

if TYPE_CHECKING:  # not wanted in executors, which import this
    from pyspark.sql import DataFrame

#: The columns of rows that the JVM has turned into lines: the line, the column that another text
#: took the place of, if there is one, the row as JSON then, and the header of the file.
LINE: Final = "line"
SPOILT: Final = "spoilt"
RECORD: Final = "record"
HEADER: Final = "header"


@dataclass(frozen=True, slots=True)
class StageJournal:
    """Stage rows for the partitions of a journal."""

    #: A staged file, or a row that the journal cannot hold.
    ANSWER: ClassVar[str] = "staged string, refused string"

    path: str
    key: str | None
    time: str | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        refused: list[Unwritable] = []
        staged = journal_at(self.path).stage(self._sound(batches, refused), self.key)
        yield from staged_answer([json.dumps(asdict(one)) for one in staged], refused)

    def _sound(
        self, batches: Iterator[pa.RecordBatch], refused: list[Unwritable]
    ) -> Iterator[pa.RecordBatch]:
        """Set rows aside that the journal cannot hold: without a key they have no partition."""
        for batch in batches:
            rows, found = sound(batch)
            refused += found
            for role, name in (("key", self.key), ("time", self.time)):
                if name is not None and rows.column(name).null_count:
                    rows, found = without_nulls(rows, name, role)
                    refused += found
            yield rows


def staged_answer(staged: list[str], refused: list[Unwritable]) -> Iterator[pa.RecordBatch]:
    """Yield what a task tells the driver: what it has staged, and the rows that it has not."""
    answers = [*((one, None) for one in staged), *((None, one.to_json()) for one in refused)]
    if answers:
        columns = [pa.array(column, pa.string()) for column in zip(*answers, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names=["staged", "refused"])


@dataclass(frozen=True, slots=True)
class StageFiles:
    """Stage rows as one file of a format; no file for no rows."""

    #: A file with the number of its rows, or a row that is not in it.
    ANSWER: ClassVar[str] = "file string, rows long, refused string"

    folder: str
    prefix: str
    format: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        found = [batch for batch in batches if batch.num_rows]
        if not found:
            return
        table, refused = _TAKEN[self.format](pa.Table.from_batches(found))
        if table.num_rows:
            name = f"{self.prefix}-{uuid.uuid4().hex[:8]}.{self.format}"
            path = Path(self.folder) / name
            _WRITERS[self.format](table, path)
            with path.open("rb") as file:
                os.fsync(file.fileno())
            rows = numbers(np.array([table.num_rows]), pa.int64())
            yield _answer(texts([name]), rows, pa.nulls(1, pa.string()))
        if refused:
            count, found = len(refused), [one.to_json() for one in refused]
            yield _answer(pa.nulls(count, pa.string()), pa.nulls(count, pa.int64()), texts(found))


def _answer(*columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns), names=["file", "rows", "refused"])


def run_through(frame: DataFrame) -> None:
    """Run what leads to unwanted rows: if stages write no state, Spark fails the batch."""
    frame.write.format("noop").mode("overwrite").save()


def _write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path)


def _write_lines(table: pa.Table, path: Path) -> None:
    with path.open("w") as file:
        if HEADER in table.column_names:
            file.write(f"{table.column(HEADER)[0].as_py()}\n")
        file.writelines(f"{line}\n" for line in table.column(LINE).to_pylist())


def _sound_lines(table: pa.Table) -> tuple[pa.Table, list[Unwritable]]:
    """Return the lines without those that stand for something else."""
    if table.column(SPOILT).null_count == table.num_rows:
        return table, []
    sound = pc.is_null(table.column(SPOILT))
    spoilt = table.filter(pc.invert(sound))
    pairs = zip(spoilt.column(SPOILT).to_pylist(), spoilt.column(RECORD).to_pylist(), strict=True)
    return table.filter(sound), [Unwritable(column, NOT_TEXT, record) for column, record in pairs]


_WRITERS: Final[dict[str, Callable[[pa.Table, Path], None]]] = {
    "parquet": _write_parquet,
    "jsonl": _write_lines,
    "csv": _write_lines,
}
_TAKEN: Final[dict[str, Callable[[pa.Table], tuple[pa.Table, list[Unwritable]]]]] = {
    "parquet": sound,
    "jsonl": _sound_lines,
    "csv": _sound_lines,
}
