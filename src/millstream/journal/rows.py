"""Rows on their way in and out: fitting batches to a schema, and their times."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.errors import NullTime, SchemaConflict
from millstream.journal.lateness import Times

Number = TypeVar("Number", bound=np.number[Any])

_MICROSECONDS = pa.timestamp("us", "UTC")


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the schema's columns: missing ones null, types cast without loss.

    Raises:
        SchemaConflict: A column is unknown, cannot be cast, or must not be null.
    """
    if batch.schema.equals(schema):
        return batch
    unknown = sorted(set(batch.schema.names) - set(schema.names))
    if unknown:
        msg = f'rows have column "{unknown[0]}", which the journal does not have'
        raise SchemaConflict(msg, hint=f"its columns are {', '.join(schema.names)}")
    if len(set(batch.schema.names)) != len(batch.schema.names):
        raise SchemaConflict("rows have two columns of the same name")
    columns = [_column(batch, field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    number = batch.schema.get_field_index(field.name)
    column = (
        _cast(batch.column(number), field) if number >= 0 else pa.nulls(batch.num_rows, field.type)
    )
    if not field.nullable and column.null_count:
        msg = f'column "{field.name}" must not be null'
        raise SchemaConflict(msg, hint="declare it nullable, or leave such rows out")
    return column


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    if loses(column.type, field.type):
        msg = f'column "{field.name}" is {column.type} and cannot be stored as {field.type}'
        raise SchemaConflict(msg, hint="cast it first, so that you say what may be lost")
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        msg = f'column "{field.name}" is {column.type} and cannot be stored as {field.type}'
        raise SchemaConflict(msg, hint=str(exc)) from exc


def loses(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a cast would silently lose hours, digits or fields."""
    types = pa.types
    if types.is_struct(found) and types.is_struct(wanted):
        names = {field.name for field in wanted}
        return any(
            field.name not in names or loses(field.type, wanted.field(field.name).type)
            for field in found
        )
    if types.is_map(found) and types.is_map(wanted):
        return loses(found.key_type, wanted.key_type) or loses(found.item_type, wanted.item_type)
    if types.is_list(found) and types.is_list(wanted):
        return loses(found.value_type, wanted.value_type)
    hours = types.is_timestamp(found) and types.is_date(wanted)
    return bool(hours or (types.is_floating(found) and types.is_decimal(wanted)))


def widen(batch: pa.RecordBatch, schema: pa.Schema, columns: list[str]) -> pa.RecordBatch:
    """Return `columns` of a batch written under an older schema; those it did not have are null."""
    arrays = []
    for name in columns:
        number = batch.schema.get_field_index(name)
        kind = schema.field(name).type
        arrays.append(batch.column(number) if number >= 0 else pa.nulls(batch.num_rows, kind))
    return pa.RecordBatch.from_arrays(
        arrays, schema=pa.schema([schema.field(name) for name in columns])
    )


def times_of(batch: pa.RecordBatch, column: str) -> Times:
    """Return a batch's times in microseconds, without a copy where its unit allows.

    Raises:
        NullTime: A row has none.
    """
    array = batch.column(batch.schema.get_field_index(column))
    if array.null_count:
        row = int(array.is_null().index(True).as_py())
        msg = f'row {row} has no time in column "{column}"'
        raise NullTime(msg, hint="send rows without a time to the dead letters")
    if array.type.unit != "us":
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)
    return as_numpy(array, np.int64)


def as_numpy(array: pa.Array, dtype: type[Number]) -> npt.NDArray[Number]:
    """Return the values of an array without nulls, not copied.

    `to_numpy` would import pandas, which takes a second the first time.
    """
    buffer = array.buffers()[1]
    if buffer is None:
        return np.empty(0, dtype)
    return np.frombuffer(
        buffer, dtype, count=len(array), offset=array.offset * np.dtype(dtype).itemsize
    )


def check_schema(schema: pa.Schema, time: str | None) -> pa.Schema:
    """Return the schema as it is stored.

    Raises:
        SchemaConflict: It has a type that batches cannot be cut to, or no such time column.
    """
    if len(set(schema.names)) != len(schema.names):
        raise SchemaConflict("a schema has two columns of the same name")
    for field in schema:
        if _holds_dictionary(field.type):
            msg = f'column "{field.name}" is dictionary-encoded'
            hint = "declare it with the type of its values: batches are decoded when appended"
            raise SchemaConflict(msg, hint=hint)
    if time is not None and (
        time not in schema.names or not pa.types.is_timestamp(schema.field(time).type)
    ):
        msg = f'time column "{time}" is not a timestamp column of the journal'
        raise SchemaConflict(msg, hint=f"its columns are {', '.join(schema.names)}")
    return schema.remove_metadata()


def _holds_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_holds_dictionary(kind.field(n).type) for n in range(kind.num_fields))
