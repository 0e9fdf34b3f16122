"""What the values of records hold: a parser for each format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from millstream.connectors.kafka import Kafka
from millstream.errors import NotThere
from millstream.ingest.parse import CsvOptions, Parser, csv_parser, json_parser


def parser_of(spec: Kafka, schema: pa.Schema, root: Path) -> Parser:
    """Return the parser of a source's values."""
    match spec.format:
        case "json":
            return json_parser(schema)
        case "csv":
            return csv_parser(schema, schema.names, CsvOptions(header=False))
        case "raw":
            return _Raw(schema)
        case "avro":
            from millstream.connectors.kafka.formats.avro import avro_parser

            return avro_parser(spec, schema, root)
        case "protobuf":
            from millstream.connectors.kafka.formats.protobuf import protobuf_parser

            return protobuf_parser(schema, schema_path(spec, root), spec.message or "")


def schema_path(spec: Kafka, root: Path) -> Path:
    """Return the file with the schema.

    Raises:
        NotThere: It does not exist.
    """
    path = root / (spec.schema_file or "")
    if not path.is_file():
        raise NotThere(f'the schema file "{path}" does not exist', hint="is schema_file= right?")
    return path


@dataclass(frozen=True, slots=True)
class _Raw:
    schema: pa.Schema

    def __call__(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        column = pa.array(lines, pa.binary()).cast(self.schema.field(0).type)
        return pa.RecordBatch.from_arrays([column], schema=self.schema)

    def explain(self, line: bytes, found: Exception) -> str:  # noqa: ARG002 (one thing can be wrong)
        return "it is not UTF-8"
