"""A file's records, block by block, each numbered by its place in the file.

In text a record's number is its line's (from 0, blank lines and a CSV header
count), in Parquet the row's. A block says how many records and bytes it brings
the reader to, so that a file that has grown can be read on from there.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.errors import UnknownFormat
from millstream.ingest.checks import record
from millstream.ingest.origin import CHUNK
from millstream.ingest.parse import (
    BadRecord,
    CsvOptions,
    TextParser,
    csv_header,
    csv_parser,
    json_parser,
    moments,
    parse_text,
)
from millstream.ingest.rows import Numbers, Refused, Rows, empty, joined, numbered

_BYTES: Final = 4 << 20
_MARK: Final = b"\xef\xbb\xbf"
#: What a damaged file raises while it is read: the disk's own errors have a number.
_DAMAGE: Final = (*BadRecord, OSError, zlib.error, EOFError)


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How to read a file: its format, the columns wanted, the format's options."""

    format: str
    schema: pa.Schema
    time: str | None = None
    csv: CsvOptions = field(default_factory=CsvOptions)


@dataclass(frozen=True, slots=True)
class Place:
    """Up to where a file has been read: so many records, so many bytes."""

    records: int = 0
    offset: int = 0


BEGINNING: Final = Place()


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Rows of a file, and the place after them."""

    rows: Rows
    place: Place


def layout(
    format: str, schema: pa.Schema, time: str | None, options: Sequence[tuple[str, str]]
) -> FileLayout:
    """Return how to read files of a format.

    Raises:
        UnknownFormat: An option is not one of the format's.
        UnsupportedColumn: The format cannot hold a column.
    """
    found = FileLayout(format, schema, time, _csv_options(format, dict(options)))
    if format == "csv":
        csv_parser(schema, schema.names, found.csv)
    return found


def _csv_options(format: str, options: dict[str, str]) -> CsvOptions:
    names = {
        "sep": "delimiter",
        "delimiter": "delimiter",
        "quote": "quote",
        "header": "header",
        "nulls": "nulls",
    }
    unknown = [name for name in options if format != "csv" or name not in names]
    if unknown:
        hint = f"CSV takes {', '.join(names)}" if format == "csv" else "only CSV takes options"
        raise UnknownFormat(f'format "{format}" has no option "{unknown[0]}"', hint=hint)
    given: dict[str, Any] = {names[name]: value for name, value in options.items()}
    if "header" in given:
        given["header"] = given["header"].lower() == "true"
    if "nulls" in given:
        given["nulls"] = ("", *(text.strip() for text in given["nulls"].split(",")))
    return CsvOptions(**given)


def read(
    path: Path,
    how: FileLayout,
    *,
    start: Place = BEGINNING,
    size: int | None = None,
    known: int = -1,
) -> Iterator[Block]:
    """Yield the blocks of a file from `start` on.

    Args:
        path: The file; text may be packed with gzip (".gz").
        how: Its format and columns.
        start: Where an earlier read has ended.
        size: Read no byte after this one (text that is not packed only), and no line that does not
            end before it.
        known: Records up to this number are passed over without being parsed.
    """
    if how.format == "parquet":
        blocks = _parquet(path, how, known)
    else:
        blocks = _text(path, how, start, size, known)
    place = start
    try:
        for block in blocks:
            place = block.place
            yield block
    except _DAMAGE as exc:
        if isinstance(exc, OSError) and exc.errno is not None:
            raise
        # What was read is good; the rest has no records that could be told apart.
        said = str(exc).encode(errors="backslashreplace").decode().partition("\n")[0]
        reason = f"the rest of the file cannot be read: {said or type(exc).__name__}"
        refused = Refused(place.records, reason, path.name)
        yield Block(
            Rows(empty(how.schema), _none(), (refused,)), Place(place.records + 1, place.offset)
        )


# Text


def _text(
    path: Path, how: FileLayout, start: Place, size: int | None, known: int
) -> Iterator[Block]:
    with _opened(path) as stream:
        columns = _header(stream, how, from_middle=start.offset > 0)
        if columns.refused is not None:
            yield _refused_whole(how, columns.refused, path)
            return
        begin = start if start.offset else Place(columns.lines, columns.size)
        stream.seek(begin.offset)
        first = begin.records
        for text, place in _texts(stream, begin, size):
            skipped = min(max(known + 1 - first, 0), place.records - first)
            yield Block(_parsed(text, skipped, columns.parser, how.schema, first), place)
            first = place.records


def _parsed(text: bytes, skipped: int, parser: TextParser, schema: pa.Schema, first: int) -> Rows:
    """Return the rows of a text after so many lines, which are not parsed."""
    parts = text.split(b"\n", skipped)
    if len(parts) <= skipped:
        return Rows(empty(schema), _none())
    return parse_text(parts[skipped], parser, schema, first + skipped)


def _opened(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]  # it is one, without its `name`
    return path.open("rb")


def packed(path: Path) -> bool:
    """Whether a file is packed, so that places in it are not bytes of it."""
    return path.suffix == ".gz"


def _texts(stream: IO[bytes], begin: Place, size: int | None) -> Iterator[tuple[bytes, Place]]:
    """Yield blocks of whole lines, without the newline of the last, and the place after each.

    The last line may lack its newline, unless there is a size.
    """
    rest, place = b"", begin
    while chunk := stream.read(
        _BYTES if size is None else min(_BYTES, size - place.offset - len(rest))
    ):
        whole, newline, rest = (rest + chunk).rpartition(b"\n")
        for text, lines in _cut(whole) if newline else ():
            place = Place(place.records + lines, place.offset + len(text) + 1)
            yield text, place
    if rest and size is None:
        yield rest, Place(place.records + 1, place.offset + len(rest))


def _cut(text: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield a text in pieces that have not too many lines, and how many they have."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    begin = 0
    for end in ends[CHUNK - 1 :: CHUNK].tolist():
        yield text[begin:end], CHUNK
        begin = end + 1
    yield text[begin:], len(ends) % CHUNK + 1


@dataclass(frozen=True, slots=True)
class _Header:
    parser: TextParser
    lines: int = 0
    size: int = 0
    refused: str | None = None


def _header(stream: IO[bytes], how: FileLayout, *, from_middle: bool) -> _Header:
    """Return how the lines of a file are parsed, and how much of its beginning is no record."""
    mark = len(_MARK) if stream.read(len(_MARK)) == _MARK else 0
    if how.format == "jsonl":
        return _Header(json_parser(how.schema), 0, mark)
    if not how.csv.header:
        return _Header(csv_parser(how.schema, how.schema.names, how.csv), 0, mark)
    stream.seek(mark)
    line = stream.readline()
    if line.strip():
        names = tuple(_matching(name, how.schema) for name in csv_header(line, how.csv))
    else:
        names = ()
    parser = csv_parser(how.schema, names, how.csv)
    # A file without a byte has nothing to refuse; one that was begun had its header then.
    refused = None if from_middle or not line else _lacking(names, how)
    return _Header(parser, 1, mark + len(line), refused)


def _matching(name: str, schema: pa.Schema) -> str:
    """Return the schema's spelling of a column name: as in Spark, case does not matter."""
    return next((found for found in schema.names if found.lower() == name.strip().lower()), name)


def _lacking(names: Sequence[str], how: FileLayout) -> str | None:
    if how.time is not None and how.time not in names:
        return f'the file has no column "{how.time}", the time of its rows'
    if not set(names) & set(how.schema.names):
        return "the file has none of the source's columns"
    return None


def _refused_whole(how: FileLayout, reason: str, path: Path) -> Block:
    return Block(
        Rows(empty(how.schema), _none(), (Refused(0, reason, path.name),)),
        Place(1, path.stat().st_size),
    )


# Parquet


def _parquet(path: Path, how: FileLayout, known: int) -> Iterator[Block]:
    with pq.ParquetFile(path) as file:
        names = {_matching(name, how.schema): name for name in file.schema_arrow.names}
        if (reason := _lacking(list(names), how)) is not None:
            yield _refused_whole(how, reason, path)
            return
        wanted = [names[name] for name in how.schema.names if name in names]
        groups, done = _groups_after(file, known)
        for batch in file.iter_batches(batch_size=CHUNK, row_groups=groups, columns=wanted):
            rows = _converted(numbered(batch, done), how.schema)
            done += batch.num_rows
            yield Block(rows.above(known), Place(done, path.stat().st_size))


def _groups_after(file: pq.ParquetFile, known: int) -> tuple[list[int], int]:
    """Return the row groups with rows after `known`, and the number of rows before them."""
    before = 0
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        if before + rows > known + 1:
            return list(range(group, file.num_row_groups)), before
        before += rows
    return [], before


def _converted(rows: Rows, schema: pa.Schema) -> Rows:
    """Return rows with the source's columns; values of another type are refused."""
    try:
        return Rows(_cast(rows.batch, schema), rows.numbers)
    except BadRecord as exc:
        if len(rows) == 1:
            refused = Refused(
                int(rows.numbers[0]),
                f"malformed record: {str(exc).splitlines()[0]}",
                record(rows.batch, 0),
            )
            return Rows(empty(schema), _none(), (refused,))
        half = len(rows) // 2
        return joined(
            schema,
            [
                _converted(rows.slice(0, half), schema),
                _converted(rows.slice(half, len(rows)), schema),
            ],
        )


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    spelled = {_matching(name, schema): at for at, name in enumerate(batch.schema.names)}
    columns = [
        _cast_column(batch.column(spelled[field.name]), field)
        if field.name in spelled
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    found = pa.RecordBatch.from_arrays(columns, schema=schema)
    found.validate(full=True)
    return found


def _cast_column(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        if pa.types.is_timestamp(field.type) and pa.types.is_string(column.type):
            return moments(column, field.type)
        # Recordings often hold nanoseconds; ours are microseconds.
        exact = not (pa.types.is_timestamp(field.type) and pa.types.is_timestamp(column.type))
        return column.cast(field.type, safe=exact)
    except pa.ArrowException as exc:
        raise ValueError(f'column "{field.name}": {exc}') from exc


def _none() -> Numbers:
    return np.empty(0, np.int64)
