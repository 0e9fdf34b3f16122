"""Values as decoders return them, to columns: what Avro and Protobuf share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import time
from typing import Any
from uuid import UUID

import pyarrow as pa


def batch_of(records: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return decoded records as rows; a field that is missing is null, a further one is ignored.

    Raises:
        ValueError: A value is not of its column's type.
    """
    columns = [_column([one.get(field.name) for one in records], field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(values: list[Any], field: pa.Field) -> pa.Array:
    try:
        return pa.array([plain(value, field.type) for value in values], field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        text = str(error).split("\n", 1)[0]
        raise ValueError(f'column "{field.name}": {text}') from None


def plain(value: Any, kind: pa.DataType) -> Any:
    """Return a decoded value as Arrow takes it for a column of this type."""
    types = pa.types
    if value is None:
        return None
    if types.is_map(kind):
        items = value.items() if isinstance(value, Mapping) else value
        return [(key, plain(item, kind.item_type)) for key, item in items]
    if types.is_list(kind):
        if not isinstance(value, list | tuple):
            raise TypeError(f"expected an array, not {_shown(value)}")
        return [plain(item, kind.value_type) for item in value]
    if types.is_struct(kind):
        if not isinstance(value, Mapping):
            raise TypeError(f"expected a record, not {_shown(value)}")
        return {part.name: plain(value.get(part.name), part.type) for part in kind}
    if types.is_string(kind) and isinstance(value, UUID | time):
        return str(value)
    wrong = isinstance(value, bool) != types.is_boolean(kind)
    if wrong or (types.is_string(kind) and not isinstance(value, str)):
        raise TypeError(f"expected {kind}, not {_shown(value)}")
    if types.is_integer(kind) and not isinstance(value, int):
        raise TypeError(f"expected a whole number, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
