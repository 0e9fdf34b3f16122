"""Protobuf values: of a message that a .proto file or a descriptor set describes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from millstream.connectors.kafka.formats.plain import batch_of
from millstream.errors import MissingExtra, UnknownFormat
from millstream.extras import lacking
from millstream.ingest.parse import Parser

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_DURATION: Final = "google.protobuf.Duration"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def protobuf_parser(schema: pa.Schema, path: Path, message: str) -> Parser:
    """Return the parser of Protobuf values.

    Raises:
        UnknownFormat: The file describes no such message.
        MissingExtra: It is a .proto file, and its compiler is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise lacking("a Kafka source of Protobuf", "kafka", "protobuf") from error
    raw = _compiled(path) if path.suffix == ".proto" else path.read_bytes()
    pool = descriptor_pool.DescriptorPool()
    try:
        for one in descriptor_pb2.FileDescriptorSet.FromString(raw).file:
            pool.Add(one)
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except (DecodeError, KeyError, TypeError) as error:
        msg = f'"{path}" has no Protobuf message "{message}": {error}'
        raise UnknownFormat(msg, hint="message= has the package in it: shop.Order") from None
    return _Protobuf(schema, kind, DecodeError)


def _compiled(path: Path) -> bytes:
    try:
        from grpc_tools import protoc
    except ImportError:
        msg = f'"{path}" is compiled by the package grpcio-tools, which is not installed'
        hint = "pip install grpcio-tools; or give a descriptor set: protoc --include_imports --descriptor_set_out=FILE"
        raise MissingExtra(msg, hint=hint) from None
    known = Path(protoc.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        arguments = [
            "protoc",
            f"-I{path.parent}",
            f"-I{known}",
            "--include_imports",
            f"--descriptor_set_out={out}",
            str(path),
        ]
        if protoc.main(arguments) != 0:
            hint = "the compiler has written why"
            raise UnknownFormat(f'"{path}" cannot be compiled', hint=hint)
        return out.read_bytes()


@dataclass(frozen=True, slots=True)
class _Protobuf:
    schema: pa.Schema
    kind: Any
    damage: type[Exception]

    def __call__(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        return batch_of([self._decoded(line) for line in lines], self.schema)

    def _decoded(self, line: bytes) -> dict[str, Any]:
        try:
            return _record(self.kind.FromString(line))
        except self.damage as error:
            raise ValueError(f"it is not a {self.kind.DESCRIPTOR.full_name}: {error}") from None

    def explain(self, line: bytes, found: Exception) -> str:  # noqa: ARG002 (it is not text)
        return str(found).split("\n", 1)[0]


def _record(message: Any) -> dict[str, Any]:
    """Return the fields of a message; one that has presence and is not set is None."""
    return {one.name: _field(message, one) for one in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {key: _single(item, inner) for key, item in value.items()}
    if field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED:
        return [_single(item, field) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _single(value, field)


def _single(value: Any, field: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.message_type is None:
        return value
    if field.message_type.full_name == _TIMESTAMP:
        return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if field.message_type.full_name == _DURATION:
        return timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    return _record(value)
