"""Avro values: written with a known schema, or with one of a registry that they name."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from millstream.connectors.kafka import Kafka
from millstream.connectors.kafka.avro_values import NUMBERED, fastavro_of, parsed
from millstream.connectors.kafka.formats import schema_path
from millstream.connectors.kafka.formats.plain import batch_of
from millstream.connectors.kafka.formats.registry import Registry
from millstream.errors import UnknownFormat
from millstream.ingest.parse import Parser

_Decode = Callable[[bytes], Any]
_WHAT: Final = "a Kafka source of Avro"


def avro_parser(spec: Kafka, schema: pa.Schema, root: Path) -> Parser:
    """Return the parser of Avro values.

    Raises:
        UnknownFormat: The schema file is not one.
    """
    if spec.registry is not None:
        registry = Registry(spec.registry, spec.registry_password, _decoder)
        return _Avro(schema, _Numbered(registry))
    path = schema_path(spec, root)
    try:
        return _Avro(schema, _decoder(json.loads(path.read_text())))
    except ValueError as error:
        msg = f'"{path}" is not an Avro schema: {error}'
        raise UnknownFormat(msg, hint="schema_file= names a .avsc file") from None


@dataclass(frozen=True, slots=True)
class _Avro:
    schema: pa.Schema
    decode: _Decode

    def __call__(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        return batch_of([self.decode(line) for line in lines], self.schema)

    def explain(self, line: bytes, found: Exception) -> str:  # noqa: ARG002 (it is not text)
        return str(found).split("\n", 1)[0] or "it does not follow its Avro schema"


@dataclass(frozen=True, slots=True)
class _Numbered:
    registry: Registry

    def __call__(self, value: bytes) -> Any:
        if len(value) < NUMBERED.size or value[0] != 0:
            raise ValueError("it does not begin with the number of a schema")
        decode: _Decode = self.registry.schema(NUMBERED.unpack_from(value)[1])
        return decode(value[NUMBERED.size :])


def _decoder(schema: Any) -> _Decode:
    """Return what decodes values that were written with a schema.

    Raises:
        ValueError: It is not a schema of Avro.
    """
    fastavro, written = fastavro_of(_WHAT), parsed(schema, _WHAT)
    # The quick reader is written in C: a value that is nested deeply enough would end the process.
    read = fastavro._read_py if _recursive(written) else fastavro
    return partial(_decoded, read.schemaless_reader, written)


def _recursive(schema: Any, inside: frozenset[str] = frozenset()) -> bool:
    """Tell whether a type of a parsed schema holds itself."""
    match schema:
        case str():
            return schema in inside
        case list():
            return any(_recursive(one, inside) for one in schema)
        case {"fields": fields, "name": name}:
            return any(_recursive(one["type"], inside | {name}) for one in fields)
        case {"items": inner} | {"values": inner}:
            return _recursive(inner, inside)
    return False


def _decoded(read: Callable[..., Any], written: Any, value: bytes) -> Any:
    stream = io.BytesIO(value)
    try:
        found = read(stream, written, None)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
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
