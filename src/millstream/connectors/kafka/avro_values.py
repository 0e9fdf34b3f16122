"""Rows as Avro, for a sink that writes a topic.

This runs in the executors, so it imports little, and no client of Kafka.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from millstream.extras import missing

#: Before a value whose schema is in a registry: a zero, and the schema's number.
NUMBERED: Final = struct.Struct(">bI")
#: What a row is that Python cannot hold, such as a moment after the year 9999.
_NOT_PYTHON: Final = (ValueError, OverflowError, pa.ArrowException)

Encode = Callable[[Mapping[str, Any]], bytes]


class NotAvro(Exception):
    """A row does not follow the schema; the message says why."""


@dataclass(frozen=True, slots=True)
class AvroValues:
    """How to write rows: a record's schema, and its number if a registry has it."""

    #: As JSON: what Avro's libraries make of it may not be sent to tasks.
    schema: str
    number: int | None = None

    def encoder(self) -> Encode:
        """Return what turns a row into a value."""
        fastavro = fastavro_of("a Kafka topic of Avro")
        schema = fastavro.parse_schema(json.loads(self.schema))
        begin = b"" if self.number is None else NUMBERED.pack(0, self.number)

        def encode(row: Mapping[str, Any]) -> bytes:
            made = io.BytesIO()
            made.write(begin)
            try:
                # What is too large for an int would be written, and read by nobody.
                fastavro.validation.validate(row, schema)
                fastavro.schemaless_writer(made, schema, row)
            except fastavro.validation.ValidationError as error:
                wrong = error.errors[0]
                is_not = f"{wrong.field} is {_short(wrong.datum)}, not {_short(wrong.schema)}"
                raise NotAvro(f"it does not follow its Avro schema: {is_not}") from None
            except (ValueError, TypeError, OverflowError, ArithmeticError) as error:
                raise NotAvro(f"it does not follow its Avro schema: {error}") from None
            return made.getvalue()

        return encode


def encoded(rows: pa.StructArray, encode: Encode) -> Iterator[bytes | NotAvro]:
    """Yield the value of each row, or why it has none."""
    for row in _in_python(rows):
        if isinstance(row, NotAvro):
            yield row
            continue
        try:
            yield encode(row)
        except NotAvro as error:
            yield error


def _in_python(rows: pa.StructArray) -> list[Any]:
    try:
        return rows.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]
    except _NOT_PYTHON:
        return [_one(row) for row in rows]


def _one(row: pa.StructScalar) -> Any:
    found: dict[str, Any] = {}
    for name, value in row.items():
        try:
            found[name] = value.as_py(maps_as_pydicts="strict")
        except _NOT_PYTHON as error:
            return NotAvro(f'column "{name}": {error}')
    return found


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def parsed(schema: Any, what: str) -> Any:
    """Return a schema as the library has it, for whoever needs it.

    Raises:
        ValueError: It is not a schema of Avro.
        MissingExtra: The library is not installed.
    """
    fastavro = fastavro_of(what)
    try:
        return fastavro.parse_schema(schema)
    except fastavro.schema.UnknownType as error:
        raise ValueError(f"unknown type {error}") from None
    except KeyError as error:
        raise ValueError(f"{error} is missing") from None
    except (AttributeError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise ValueError(str(error)) from None


def fastavro_of(what: str) -> Any:
    """Return the library, for whoever needs it.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        import fastavro
        import fastavro.schema
        import fastavro.validation
    except ImportError as error:
        raise missing(error, what) or error from error
    return fastavro
