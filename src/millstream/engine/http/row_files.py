"""Rows as files to download: lines of JSON, CSV and Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.journal.plain import records, rows_of


class FileFormat(StrEnum):
    """What rows are downloaded as."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


def encode(format_: FileFormat, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> bytes:
    """Return rows as the bytes of a file."""
    match format_:
        case FileFormat.PARQUET:
            # An earlier schema of the journal may lack columns.
            unified = pa.unify_schemas([one.schema for one in batches] or [schema])
            tables = [pa.Table.from_batches([one]) for one in batches] or [schema.empty_table()]
            sink = pa.BufferOutputStream()
            whole = pa.concat_tables(tables, promote_options="default").cast(unified)
            pq.write_table(whole, sink)
            return bytes(sink.getvalue())
        case FileFormat.CSV:
            text = io.StringIO()
            writer = csv.DictWriter(text, schema.names, lineterminator="\n")
            writer.writeheader()
            for batch in batches:
                writer.writerows(
                    {name: _cell(value) for name, value in row.items()} for row in rows_of(batch)
                )
            return text.getvalue().encode()
        case FileFormat.JSONL:
            lines = [line for batch in batches for line in records(batch)]
            return "".join(f"{line}\n" for line in lines).encode()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value, allow_nan=False, ensure_ascii=False)
    return value
