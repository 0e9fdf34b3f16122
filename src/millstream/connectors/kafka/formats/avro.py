"""Avro values: written with a known schema, or with one of a registry that they name."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.connectors.kafka import Kafka
from millstream.connectors.kafka.avro_values import NUMBERED, fastavro_of
from millstream.connectors.kafka.formats import schema_path
from millstream.connectors.kafka.formats.plain import batch_of
from millstream.connectors.kafka.formats.registry import Registry
from millstream.errors import UnknownFormat
from millstream.ingest.parse import Parser

_Decode = Callable[[bytes], Any]


def avro_parser(spec: Kafka, schema: pa.Schema, root: Path) -> Parser:
    """Return the parser of Avro values.

    Raises:
        UnknownFormat: The schema file is not one.
    """
    fastavro = fastavro_of("a Kafka source of Avro")
    if spec.registry is not None:
        registry = Registry(spec.registry, spec.registry_password, fastavro.parse_schema)
        return _Avro(schema, _Numbered(registry, fastavro.schemaless_reader))
    path = schema_path(spec, root)
    try:
        written = fastavro.parse_schema(json.loads(path.read_text()))
    except (ValueError, fastavro.schema.SchemaParseException) as error:
        msg = f'"{path}" is not an Avro schema: {error}'
        raise UnknownFormat(msg, hint="schema_file= names a .avsc file") from None
    return _Avro(schema, _Known(written, fastavro.schemaless_reader))


@dataclass(frozen=True, slots=True)
class _Avro:
    schema: pa.Schema
    decode: _Decode

    def __call__(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        return batch_of([self.decode(line) for line in lines], self.schema)

    def explain(self, line: bytes, found: Exception) -> str:  # noqa: ARG002 (it is not text)
        return str(found).split("\n", 1)[0] or "it does not follow its Avro schema"


@dataclass(frozen=True, slots=True)
class _Known:
    written: Any
    read: Callable[..., Any]

    def __call__(self, value: bytes) -> Any:
        return _decoded(self.read, value, self.written)


@dataclass(frozen=True, slots=True)
class _Numbered:
    registry: Registry
    read: Callable[..., Any]

    def __call__(self, value: bytes) -> Any:
        if len(value) < NUMBERED.size or value[0] != 0:
            raise ValueError("it does not begin with the number of a schema")
        number = NUMBERED.unpack_from(value)[1]
        return _decoded(self.read, value[NUMBERED.size :], self.registry.schema(number))


def _decoded(read: Callable[..., Any], value: bytes, written: Any) -> Any:
    stream = io.BytesIO(value)
    try:
        found = read(stream, written, None)
    except (
        EOFError,
        IndexError,
        KeyError,
        struct.error,
        UnicodeDecodeError,
        OverflowError,
    ) as error:
        raise ValueError(f"it does not follow its Avro schema: {error!r}") from None
    if stream.read(1):
        raise ValueError("bytes are left behind its Avro value")
    if not isinstance(found, dict):
        raise TypeError("its Avro schema is not a record")
    return found
