"""What tasks do with a group's output: write it to files of their own and say which.

This runs in the executors, so it imports little. Only the winning attempt of a
task gets its answer to the driver: files of retried and speculative attempts
are never named in a decision.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.journal import journal_at
from millstream.spark.daemon import settle
from millstream.spark.io.arrays import numbers, texts
from millstream.spark.io.result_rows import opened
from millstream.spark.io.sink_rows import SinkRows
from millstream.spark.io.unseen import expected_here
from millstream.spark.io.unwritable import NOT_TEXT, Unwritable, sound, without_nulls

if TYPE_CHECKING:  # not wanted in executors, which import this
    from pyspark.sql import DataFrame

#: Rows, or bytes, that a task gathers before it writes them to a file: a row group of Parquet.
GATHERED_ROWS: Final = 1 << 20
GATHERED_BYTES: Final = 64 << 20

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
        return self.write(batches)

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage the rows in this process."""
        refused: list[Unwritable] = []
        with expected_here(self.path):
            staged = journal_at(self.path).stage(self._sound(opened(batches), refused), self.key)
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
        return self.write(batches)

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage the rows in this process, some of them at a time."""
        with expected_here(self.folder), self.opened() as file:
            for batch in opened(batches):
                file.add(batch)
            file.flush()
        yield from file.answer()

    def opened(self, of: int = 1) -> FileStage:
        """Return a file to add rows to, one of so many that share the memory of a task."""
        name = f"{self.prefix}-{uuid.uuid4().hex[:8]}.{self.format}"
        return FileStage(Path(self.folder) / name, self.format, of)


class FileStage:
    """A file of rows: many are gathered before they are written, not more than memory should hold."""

    def __init__(self, path: Path, format: str, of: int) -> None:
        self._name, self._take = path.name, _TAKEN[format]
        self._file = _StagedFile(path, _WRITERS[format])
        self._most = GATHERED_ROWS // of, GATHERED_BYTES // of
        self._waiting: list[pa.RecordBatch] = []
        self._held = 0, 0
        self._rows = 0
        self._refused: list[Unwritable] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows; some are written now and then."""
        if batch.num_rows:
            self._waiting.append(batch)
            self._held = self._held[0] + batch.num_rows, self._held[1] + batch.nbytes
            if self._held[0] >= self._most[0] or self._held[1] >= self._most[1]:
                self.flush()

    def flush(self) -> None:
        """Write what is gathered."""
        if self._waiting:
            table, refused = self._take(pa.Table.from_batches(self._waiting))
            self._waiting, self._held = [], (0, 0)
            self._refused += refused
            if table.num_rows:
                self._file.write(table)
                self._rows += table.num_rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        self._file.close(whole=error is None)

    def answer(self) -> Iterator[pa.RecordBatch]:
        """Yield what a task tells the driver, when the file is closed."""
        if self._rows:
            count = numbers(np.array([self._rows]), pa.int64())
            yield _answer(texts([self._name]), count, pa.nulls(1, pa.string()))
        if self._refused:
            lost = [one.to_json() for one in self._refused]
            none = len(lost)
            yield _answer(pa.nulls(none, pa.string()), pa.nulls(none, pa.int64()), texts(lost))


def rows_in(answers: Sequence[Any]) -> int:
    """Return how many rows are in the files that tasks have answered."""
    return sum(row.rows for row in answers if row.file is not None)


@dataclass(frozen=True, slots=True)
class StageMany:
    """Stage the rows of several sinks at once."""

    #: The number of the sink, and what its file says.
    ANSWER: ClassVar[str] = f"sink long, {StageFiles.ANSWER}"

    sinks: tuple[SinkRows, ...]
    works: tuple[StageFiles, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        return self.write(batches)

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage the rows in this process."""
        with ExitStack() as stack:
            files = [stack.enter_context(work.opened(len(self.works))) for work in self.works]
            for batch in batches:
                for rows, file in zip(self.sinks, files, strict=True):
                    file.add(rows.of(batch))
            for file in files:
                file.flush()
        for number, file in enumerate(files):
            for answer in file.answer():
                place = numbers(np.full(answer.num_rows, number), pa.int64())
                yield pa.RecordBatch.from_arrays(
                    [place, *answer.columns], names=["sink", *answer.schema.names]
                )


class _StagedFile:
    """A file that is synced when it is complete, removed if it is not, and not made for nothing."""

    def __init__(self, path: Path, opened: Callable[[Path, pa.Table], _Writer]) -> None:
        self._path = path
        self._opened = opened
        self._writer: _Writer | None = None

    def write(self, table: pa.Table) -> None:
        if self._writer is None:
            self._writer = self._opened(self._path, table)
        self._writer.write(table)

    def close(self, *, whole: bool) -> None:
        if self._writer is None:
            return
        self._writer.close()
        if not whole:
            self._path.unlink(missing_ok=True)
            return
        with self._path.open("rb") as file:
            os.fsync(file.fileno())


def _answer(*columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns), names=["file", "rows", "refused"])


def run_through(frame: DataFrame) -> None:
    """Run what leads to unwanted rows: if stages write no state, Spark fails the batch."""
    frame.write.format("noop").mode("overwrite").save()


class _Writer(Protocol):
    """Writes tables to a file."""

    def write(self, table: pa.Table) -> None: ...
    def close(self) -> None: ...


class _Parquet:
    def __init__(self, path: Path, first: pa.Table) -> None:
        self._file = pq.ParquetWriter(path, first.schema)

    def write(self, table: pa.Table) -> None:
        self._file.write_table(table)

    def close(self) -> None:
        self._file.close()


class _Lines:
    def __init__(self, path: Path, first: pa.Table) -> None:
        self._file = path.open("w")
        if HEADER in first.column_names:
            self._file.write(f"{first.column(HEADER)[0].as_py()}\n")

    def write(self, table: pa.Table) -> None:
        self._file.writelines(f"{line}\n" for line in table.column(LINE).to_pylist())

    def close(self) -> None:
        self._file.close()


def _sound_lines(table: pa.Table) -> tuple[pa.Table, list[Unwritable]]:
    """Return the lines without those that stand for something else."""
    if table.column(SPOILT).null_count == table.num_rows:
        return table, []
    sound = pc.is_null(table.column(SPOILT))
    spoilt = table.filter(pc.invert(sound))
    pairs = zip(spoilt.column(SPOILT).to_pylist(), spoilt.column(RECORD).to_pylist(), strict=True)
    return table.filter(sound), [Unwritable(column, NOT_TEXT, record) for column, record in pairs]


_WRITERS: Final[dict[str, Callable[[Path, pa.Table], _Writer]]] = {
    "parquet": _Parquet,
    "jsonl": _Lines,
    "csv": _Lines,
}
_TAKEN: Final[dict[str, Callable[[pa.Table], tuple[pa.Table, list[Unwritable]]]]] = {
    "parquet": sound,
    "jsonl": _sound_lines,
    "csv": _sound_lines,
}
