"""Types between Spark SQL and Arrow, as a journal stores them."""

from __future__ import annotations

import re

import pyarrow as pa

from millstream.errors import UnknownType
from millstream.flow.ddl import parse_columns, quoted, split_types

_PLAIN = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
# What Spark would widen, or read as the same.
_ALIKE = {
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.float16(): "float",
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "decimal(20,0)",
    pa.date64(): "date",
}
_NAMES = {**_ALIKE, **{found: name for name, found in _PLAIN.items()}}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")


def schema(columns: list[tuple[str, str]]) -> pa.Schema:
    """Return the Arrow schema of (name, type) pairs."""
    return pa.schema([pa.field(name, arrow_type(found)) for name, found in columns])


def arrow_type(text: str) -> pa.DataType:
    """Return the Arrow type of a type in its one spelling (`ddl.parse_type`)."""
    if text in _PLAIN:
        return _PLAIN[text]
    if decimal := _DECIMAL.fullmatch(text):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    kind, _, inner = text.removesuffix(">").partition("<")
    if kind == "array":
        return pa.list_(arrow_type(inner))
    if kind == "map":
        key, value = split_types(inner)
        return pa.map_(arrow_type(key), arrow_type(value))
    if kind == "struct":
        return pa.struct(schema(parse_columns(inner)))
    raise UnknownType(f'"{text}" is not a type that a journal can hold')


def spark_type(found: pa.DataType) -> str:
    """Return the Spark SQL type, in its one spelling, of an Arrow type."""
    if found in _NAMES:
        return _NAMES[found]
    types = pa.types
    if types.is_timestamp(found):
        return "timestamp" if found.tz is not None else "timestamp_ntz"
    if types.is_decimal(found):
        return f"decimal({found.precision},{found.scale})"
    if types.is_dictionary(found):
        return spark_type(found.value_type)
    return _nested(found)


def _nested(found: pa.DataType) -> str:
    types = pa.types
    if types.is_map(found):
        return f"map<{spark_type(found.key_type)},{spark_type(found.item_type)}>"
    if types.is_list(found) or types.is_large_list(found) or types.is_fixed_size_list(found):
        return f"array<{spark_type(found.value_type)}>"
    if types.is_struct(found):
        fields = ",".join(f"{quoted(field.name)}:{spark_type(field.type)}" for field in found)
        return f"struct<{fields}>"
    msg = f'Arrow\'s type "{found}" is not one that Spark reads'
    raise UnknownType(msg, hint="cast the column before it is written")
