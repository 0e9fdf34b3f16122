"""State in files: Parquet, JSON lines or CSV, by how the file's name ends.

Parquet has the types of all columns. The others have none: what is read from them gets those of the
state that it replaces.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from millstream.errors import RunError
from millstream.journal.plain import rows_of

PARQUET, JSONL, CSV = ".parquet", ".jsonl", ".csv"

Write = Callable[[pa.Table], None]
Writing = Callable[[BinaryIO, pa.Schema], AbstractContextManager[Write]]


def kind_of(file: Path) -> str:
    """Return how a file's name ends, which says what it holds.

    Raises:
        RunError: That is not known.
    """
    kind = file.suffix.lower()
    if kind not in _WRITING:
        hint = f"let its name end with {', '.join(_WRITING)}"
        raise RunError(f'"{file}" is no file of state by its name', hint=hint)
    return kind


def writing(file: Path, opened: BinaryIO, schema: pa.Schema) -> AbstractContextManager[Write]:
    """Return what writes tables of a schema to an open file.

    Raises:
        RunError: The file cannot hold a column.
    """
    return _WRITING[kind_of(file)](opened, schema)


def read(file: Path, schema: pa.Schema | None) -> pa.Table:
    """Return what is in a file; where it has no types, those of a schema, as far as values fit.

    Raises:
        RunError: It cannot be read; or it has no types, and there is no schema.
    """
    kind = kind_of(file)
    if schema is None and kind != PARQUET:
        hint = f"import a file that has them: {PARQUET}"
        raise RunError(f'"{file}" has no types, and the stage has no state yet', hint=hint)
    try:
        return pq.read_table(file) if schema is None else _READING[kind](file, schema)
    except (OSError, TypeError, ValueError) as error:  # Arrow's are some of these
        raise RunError(f'"{file}" cannot be read: {error}') from error


# Parquet


@contextmanager
def _parquet(opened: BinaryIO, schema: pa.Schema) -> Iterator[Write]:
    with pq.ParquetWriter(opened, schema, compression="zstd") as writer:
        yield writer.write_table


# JSON lines


@contextmanager
def _jsonl(opened: BinaryIO, _schema: pa.Schema) -> Iterator[Write]:
    def write(table: pa.Table) -> None:
        for batch in table.to_batches():
            lines = (json.dumps(row, allow_nan=False, ensure_ascii=False) for row in rows_of(batch))
            opened.write("".join(f"{line}\n" for line in lines).encode())

    yield write


def _read_jsonl(file: Path, schema: pa.Schema) -> pa.Table:
    rows = []
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        row = json.loads(line) if line.strip() else None
        if row is not None and not isinstance(row, dict):
            raise ValueError(f"line {number} is not a JSON object")
        rows += [] if row is None else [row]
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table(
        {name: _column([row.get(name) for row in rows], name, schema) for name in names}
    )


def _column(values: Sequence[Any], name: str, schema: pa.Schema) -> pa.Array:
    """Return values as a column of the type that the schema has; of their own if they do not fit."""
    try:
        kind = schema.field(name).type
        return pa.array([_typed(value, kind) for value in values], kind)
    except (KeyError, TypeError, ValueError):  # whoever compares the columns says what is wrong
        return pa.array(values)


def _typed(value: Any, kind: pa.DataType) -> Any:
    """Return a value of JSON, which `journal.plain` has written, as what it stands for."""
    if value is None:
        return None
    if pa.types.is_floating(kind):
        return float(value) if value in ("NaN", "Infinity", "-Infinity") else value
    if pa.types.is_integer(kind) and type(value) is not int:  # Arrow would cut it
        raise ValueError(f"{value} is not a whole number")
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(value)
    if pa.types.is_binary(kind):
        return base64.b64decode(value, validate=True)
    if pa.types.is_list(kind):
        return [_typed(one, kind.value_type) for one in value]
    if pa.types.is_struct(kind):
        if unknown := value.keys() - {field.name for field in kind}:
            raise ValueError(f"{min(unknown)} is not known")
        return {field.name: _typed(value.get(field.name), field.type) for field in kind}
    return value


# CSV


@contextmanager
def _csv(opened: BinaryIO, schema: pa.Schema) -> Iterator[Write]:
    for field in schema:
        if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            hint = f"{PARQUET} and {JSONL} can"
            msg = f'CSV cannot hold column "{field.name}", which is {field.type}'
            raise RunError(msg, hint=hint)
    with pc.CSVWriter(opened, schema) as writer:
        yield writer.write_table


def _read_csv(file: Path, schema: pa.Schema) -> pa.Table:
    types = {field.name: field.type for field in schema if not pa.types.is_nested(field.type)}
    return pc.read_csv(
        file,
        parse_options=pc.ParseOptions(newlines_in_values=True),
        # Quotes make the difference between an empty text and null.
        convert_options=pc.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


_WRITING: Final[dict[str, Writing]] = {PARQUET: _parquet, JSONL: _jsonl, CSV: _csv}
_READING: Final[dict[str, Callable[[Path, pa.Schema], pa.Table]]] = {
    PARQUET: lambda file, _: pq.read_table(file),
    JSONL: _read_jsonl,
    CSV: _read_csv,
}
