"""Rows as text, which the JVM makes of them: JSON and CSV."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from millstream.spark.io.staging import HEADER, LINE, RECORD, SPOILT

#: Spark's own format would cut microseconds off.
_TIMES: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
#: Spark would remove the spaces around a text.
_CSV: Final = {**_TIMES, "ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}


class Lines:
    """Rows as lines of a format, beside those whose text cannot be written.

    Parquet has no lines: its rows stay as they are. Columns are made once for a schema: each part of
    an expression is a call to Java.
    """

    def __init__(self, format: str) -> None:
        self._format = format
        self._columns: dict[str, list[Column]] = {}

    def of(self, frame: DataFrame) -> DataFrame:
        """Return the lines of a frame."""
        if self._format == "parquet":
            return frame
        schema = frame.schema
        known = self._columns.get(schema.json())
        if known is None:
            made = _lines(schema, self._format, together(schema.names))
            known = self._columns[schema.json()] = [one.alias(name) for name, one in made.items()]
        return frame.select(*known)

    def made(self, schema: StructType, columns: Sequence[str]) -> dict[str, Column]:
        """Return the lines of rows whose columns have other names in a frame; none if rows stay as they are."""
        if self._format == "parquet":
            return {}
        named = zip(columns, schema.names, strict=True)
        row = functions.struct(*(functions.col(one).alias(name) for one, name in named))
        return _lines(schema, self._format, row, columns)


def _lines(
    schema: StructType, format: str, row: Column, columns: Sequence[str] | None = None
) -> dict[str, Column]:
    spoilt, record = spoilt_column(schema, columns), json_of(row)
    found = {
        LINE: record if format == "jsonl" else functions.to_csv(row, _CSV),
        SPOILT: spoilt,
        RECORD: functions.when(spoilt.isNotNull(), record),
    }
    if format == "csv":
        found[HEADER] = functions.lit(",".join(map(_quoted, schema.names)))
    return found


def as_json(names: Iterable[str]) -> Column:
    """Return columns as one JSON object, without those that are null."""
    return json_of(together(names))


def json_of(row: Column) -> Column:
    """Return a struct as JSON."""
    return functions.to_json(row, _TIMES)


def as_csv(names: Iterable[str]) -> Column:
    """Return columns as a line of CSV."""
    return functions.to_csv(together(names), _CSV)


def together(names: Iterable[str]) -> Column:
    """Return columns as a struct."""
    return functions.struct(*(functions.col(column(name)) for name in names))


def column(name: str) -> str:
    """Return the name of a column as Spark's expressions have it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def spoilt_column(schema: StructType, columns: Sequence[str] | None = None) -> Column:
    """Return the name of the first column with text that is not UTF-8; null if there is none.

    The frame may have other names for the `columns` of the schema.

    The JVM would put another text in its place without an error.
    """
    named = zip(columns or schema.names, schema.fields, strict=True)
    tests = [(field.name, _not_text(column(name), field.dataType)) for name, field in named]
    found = [functions.when(functions.expr(test), name) for name, test in tests if test]
    return functions.coalesce(*found) if found else functions.lit(None).cast("string")


def _not_text(value: str, kind: DataType, depth: int = 0) -> str:
    """Return the SQL that tells whether a value holds text that is not UTF-8; "" if it cannot."""
    if isinstance(kind, StringType):
        return f"NOT is_valid_utf8({value})"
    if isinstance(kind, StructType):
        fields = kind.fields
        inner = [_not_text(f"{value}.`{one.name}`", one.dataType, depth) for one in fields]
        return " OR ".join(f"coalesce({one}, false)" for one in inner if one)
    if isinstance(kind, MapType):
        parts = ((f"map_keys({value})", kind.keyType), (f"map_values({value})", kind.valueType))
        inner = [_not_text(part, ArrayType(one), depth) for part, one in parts]
        return " OR ".join(f"coalesce({one}, false)" for one in inner if one)
    if isinstance(kind, ArrayType):
        item = f"x{depth}"
        within = _not_text(item, kind.elementType, depth + 1)
        return f"exists({value}, {item} -> {within})" if within else ""
    return ""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if any(c in name for c in ',"\n') else name
