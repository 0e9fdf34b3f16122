"""What tasks do with the rows of a sink that writes a topic: stage them as files of records.

This runs in the executors, so it imports little, and no client of Kafka.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.kafka.avro_values import AvroValues, Encode, encoded
from millstream.spark.daemon import settle
from millstream.spark.io.unwritable import NOT_TEXT, Unwritable

#: The columns of rows that are records: key, value and headers are binary. Beside them, of a row
#: that the topic cannot take: the column to blame or the size, and the row as JSON.
KEY: Final = "key"
VALUE: Final = "value"
HEADER: Final = "header "
SPOILT: Final = "spoilt"
SIZE: Final = "size"
RECORD: Final = "record"

#: How large a staged file gets.
FILE_BYTES: Final = 16 << 20
#: What a batch of one record has beside its key, value and headers, at most: 61 bytes of the batch,
#: 36 of lengths and differences.
RECORD_OVERHEAD: Final = 97
#: What a header has beside its name and value, at most.
HEADER_OVERHEAD: Final = 10


@dataclass(frozen=True, slots=True)
class StageRecords:
    """Stage records in files of a folder; none for no records."""

    #: A file with its records and their size, or a row that is in none.
    ANSWER: ClassVar[str] = "file string, rows long, bytes long, refused string"

    folder: str
    prefix: str
    #: What the largest record may have, as the topic counts it.
    limit: int
    #: How values are written, if rows come as they are; their size is then that of the rest.
    values: AvroValues | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        return self.write(batches)

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        refused: list[Unwritable] = []
        answers: list[tuple[Any, ...]] = []
        encode = None if self.values is None else self.values.encoder()
        made = (
            batch if encode is None else self._made(batch, encode, refused) for batch in batches
        )
        taken = (self._taken(batch, refused) for batch in made)
        for number, some in enumerate(_runs(taken)):
            name = f"{self.prefix}-{uuid.uuid4().hex[:8]}-{number}.arrow"
            answers.append((name, *_write(Path(self.folder) / name, some), None))
        answers += [(None, None, None, one.to_json()) for one in refused]
        if answers:
            kinds = (pa.string(), pa.int64(), pa.int64(), pa.string())
            columns = [
                pa.array(list(values), kind)
                for values, kind in zip(zip(*answers, strict=True), kinds, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, ["file", "rows", "bytes", "refused"])

    def _made(
        self, batch: pa.RecordBatch, encode: Encode, refused: list[Unwritable]
    ) -> pa.RecordBatch:
        """Return a batch with values in binary, and without rows that cannot be written."""
        spoilt, place = batch.column(SPOILT), batch.schema.get_field_index(VALUE)
        refused += [
            Unwritable(row[SPOILT], NOT_TEXT, row[RECORD])
            for row in batch.filter(pc.is_valid(spoilt)).select([SPOILT, RECORD]).to_pylist()
        ]
        batch = batch.filter(pc.is_null(spoilt))
        found = list(encoded(batch.column(VALUE), encode))
        fits = pa.array([isinstance(value, bytes) for value in found], pa.bool_())
        bad = batch.filter(pc.invert(fits)).column(RECORD).to_pylist()
        reasons = [str(value) for value in found if not isinstance(value, bytes)]
        refused += [Unwritable(None, *one) for one in zip(reasons, bad, strict=True)]
        values = [value if isinstance(value, bytes) else None for value in found]
        batch = batch.set_column(place, VALUE, pa.array(values, pa.binary())).filter(fits)
        sizes = pc.add(batch.column(SIZE), pc.binary_length(batch.column(VALUE)).cast(pa.int64()))
        large = pc.if_else(pc.greater(sizes, self.limit), sizes, pa.scalar(None, pa.int64()))
        return batch.set_column(batch.schema.get_field_index(SIZE), SIZE, large)

    def _taken(self, batch: pa.RecordBatch, refused: list[Unwritable]) -> pa.RecordBatch:
        blamed, sizes = batch.column(SPOILT), batch.column(SIZE)
        if min(blamed.null_count, sizes.null_count) < batch.num_rows:
            bad = batch.filter(pc.or_(pc.is_valid(blamed), pc.is_valid(sizes)))
            for row in bad.select([SPOILT, SIZE, RECORD]).to_pylist():
                why = NOT_TEXT if row[SIZE] is None else too_large(row[SIZE], self.limit)
                refused.append(Unwritable(row[SPOILT], why, row[RECORD]))
            batch = batch.filter(pc.and_(pc.is_null(blamed), pc.is_null(sizes)))
        return batch.drop_columns([SPOILT, SIZE, RECORD])


def too_large(size: int, limit: int) -> str:
    """Return the reason why a topic cannot take a record."""
    return f"its record has {size} bytes, and the topic's max.message.bytes is {limit}"


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield batches, together as large as a file gets."""
    run: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            run.append(batch)
            size += batch.nbytes
        if size >= FILE_BYTES:
            yield run
            run, size = [], 0
    if run:
        yield run


def _write(path: Path, batches: list[pa.RecordBatch]) -> tuple[int, int]:
    """Write batches to a file, synced, and return its rows and bytes."""
    with path.open("wb") as file:
        with pa.ipc.new_stream(file, batches[0].schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
        file.flush()
        os.fsync(file.fileno())
    return sum(batch.num_rows for batch in batches), sum(batch.nbytes for batch in batches)


#: A record: key, value, and headers with their names.
Record = tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]]]


def records_of(path: Path) -> Iterator[Record]:
    """Yield the records of a staged file."""
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
        for batch in stream:
            keys, values = batch.column(KEY).to_pylist(), batch.column(VALUE).to_pylist()
            named = [name for name in batch.schema.names if name.startswith(HEADER)]
            if not named:
                yield from ((key, value, []) for key, value in zip(keys, values, strict=True))
                continue
            names = [name.removeprefix(HEADER) for name in named]
            columns = [batch.column(name).to_pylist() for name in named]
            for key, value, *given in zip(keys, values, *columns, strict=True):
                pairs = zip(names, given, strict=True)
                yield key, value, [(name, text) for name, text in pairs if text is not None]
