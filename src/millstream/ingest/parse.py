"""Text to rows: JSON lines and CSV, whole blocks at a time, bad records apart.

A block of lines goes to Arrow's own parser. Only if that refuses the block is
it halved, and halved again, until the bad lines stand alone: the good ones
never wait for them, and a block with one bad line costs a few more calls, not
one per line. Whether a line is good is a fact of the line alone, never of its
neighbours, so a restart that cuts the blocks elsewhere refuses the same lines.
A text whose lines are all good is never cut into lines at all (`parse_text`).
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from millstream.errors import UnsupportedColumn
from millstream.ingest.rows import Numbers, Refused, Rows, empty, joined, numbered, one_batch

#: A refused block of so few lines is tried line by line.
_FEW: Final = 8

#: What stands for numbers that JSON does not have, in Spark's `to_json` too.
_NO_NUMBERS: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_NO_NUMBER: Final = re.compile(rb'"(NaN|-?Infinity)"')

#: How deeply a value may be nested. Python's own limit depends on what else is on its stack.
_DEEPEST: Final = 200

#: Whether a letter may be the first of a blank line, by its number.
_SPACE: Final = np.isin(np.arange(256), np.frombuffer(b"\n\r\t\x0b\x0c ", np.uint8))

#: What parsers raise for a record: whatever its bytes are, it becomes a row or one of these.
BadRecord = (pa.ArrowException, ValueError, TypeError, ArithmeticError, RecursionError)


class Parser(Protocol):
    """Turns lines into rows."""

    def __call__(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """Return as many rows as lines, or raise one of `BadRecord`."""
        ...

    def explain(self, line: bytes, found: Exception) -> str:
        """Return, in our words, why this line alone is refused."""
        ...


class TextParser(Parser, Protocol):
    """Turns texts into rows, too, without cutting them into lines."""

    def whole(self, text: bytes, lines: int) -> pa.RecordBatch:
        """Return the rows of a text of so many lines, or raise one of `BadRecord`.

        It may also raise where only cutting the text into lines can tell that all are good.
        """
        ...


def parse_rows(lines: Iterable[str | bytes], schema: pa.Schema, first: int = 0) -> Rows:
    """Return the rows of JSON lines, numbered by line from `first`.

    Blank lines are passed over. A field that the schema does not have is ignored, one that is
    missing is null.
    """
    return parse_lines([_bytes(line) for line in lines], json_parser(schema), schema, first)


def parse_text(text: bytes, parser: TextParser, schema: pa.Schema, first: int = 0) -> Rows:
    """Return the rows of a text, whose last line has no newline: those of `parse_lines`, sooner."""
    letters = np.frombuffer(text, np.uint8)
    begins = np.append(0, np.flatnonzero(letters == ord("\n")) + 1)
    if begins[-1] < len(text) and not _SPACE[letters[begins]].any():
        try:
            lines = len(begins)
            return numbered(_sound(parser.whole(text, lines), lines), first)
        except BadRecord:
            pass  # some line is bad: which one, the halving finds out
    return parse_lines(text.split(b"\n"), parser, schema, first)


def parse_lines(lines: Sequence[bytes], parser: Parser, schema: pa.Schema, first: int = 0) -> Rows:
    """Return the rows of a block of lines, and the lines that `parser` refuses."""
    kept = [(number, line) for number, line in enumerate(lines, first) if line.strip()]
    numbers = np.fromiter((number for number, _ in kept), np.int64, len(kept))
    return parse_numbered([line for _, line in kept], numbers, parser, schema)


def parse_numbered(
    records: Sequence[bytes], numbers: Numbers, parser: Parser, schema: pa.Schema
) -> Rows:
    """Return the rows of records that have numbers, and the records that `parser` refuses."""
    return joined(schema, list(_halving(list(records), numbers, parser, schema)))


def _halving(lines: list[bytes], numbers: Any, parser: Parser, schema: pa.Schema) -> Iterable[Rows]:
    if not lines:
        return
    try:
        yield Rows(_sound(parser(lines), len(lines)), numbers)
    except BadRecord as exc:
        if len(lines) == 1:
            reason = f"malformed record: {_storable(parser.explain(lines[0], exc))}"
            refused = Refused(int(numbers[0]), reason, lines[0].decode(errors="replace"))
            yield Rows(empty(schema), numbers[:0], (refused,))
            return
        size = len(lines) // 2 if len(lines) > _FEW else 1
        for at in range(0, len(lines), size):
            yield from _halving(lines[at : at + size], numbers[at : at + size], parser, schema)


def _sound(batch: pa.RecordBatch, lines: int) -> pa.RecordBatch:
    """Return the rows of so many lines, if they are as many and hold what they should."""
    if batch.num_rows != lines:
        raise ValueError(f"one line holds {batch.num_rows} records")
    # Arrow takes texts from JSON as they are, and its casts may leave numbers that do not fit.
    batch.validate(full=True)
    return batch


def _storable(reason: str) -> str:
    """Return a text without the halves of characters that JSON may write."""
    return reason.encode(errors="backslashreplace").decode()


def _bytes(line: str | bytes) -> bytes:
    return line.encode() if isinstance(line, str) else line


# JSON lines


def json_parser(schema: pa.Schema) -> TextParser:
    """Return a parser of JSON objects, one a line."""
    if all(_arrow_reads(column.type) for column in schema):
        return _ArrowJson(schema)
    return _PythonJson(schema)


def _arrow_reads(kind: pa.DataType) -> bool:
    """Whether Arrow's JSON parser gives this type the meaning that Spark gives it."""
    types = pa.types
    if types.is_list(kind):
        return _arrow_reads(kind.value_type)
    if types.is_struct(kind):
        return all(_arrow_reads(inner.type) for inner in kind)
    # Arrow takes dates as numbers, binary as plain text, and no maps.
    return not (types.is_map(kind) or types.is_binary(kind) or types.is_date(kind))


@dataclass(frozen=True, slots=True)
class _ArrowJson:
    schema: pa.Schema

    def __call__(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        # Arrow has no texts for NaN and infinities; such a line comes here alone in the end.
        if len(lines) == 1 and _NO_NUMBER.search(lines[0]):
            return _PythonJson(self.schema)(lines)
        text = b"\n".join(lines)
        if not _all_objects(text, len(lines)):
            _check_objects(lines)
        return self._read(text)

    def whole(self, text: bytes, lines: int) -> pa.RecordBatch:
        if not _all_objects(text, lines):
            raise ValueError("not every line begins and ends as an object")
        return self._read(text)

    def _read(self, text: bytes) -> pa.RecordBatch:
        table = pa_json.read_json(
            io.BytesIO(text),
            # One block: a line longer than a block is an error of its own.
            read_options=pa_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pa_json.ParseOptions(
                explicit_schema=self.schema, unexpected_field_behavior="ignore"
            ),
        )
        return one_batch(table)

    def explain(self, line: bytes, found: Exception) -> str:
        # Arrow speaks of rows and columns of its own; Python says the same in words.
        return _PythonJson(self.schema).explain(line, found)


def _all_objects(text: bytes, lines: int) -> bool:
    """Tell quickly, if it can be told quickly, that every line begins and ends as an object."""
    between = lines - 1
    inner = text.count(b"}\n{") == text.count(b"\n") == between
    return inner and text[:1] == b"{" and text[-1:] == b"}"


def _check_objects(lines: Sequence[bytes]) -> None:
    # To Arrow a null is a row of nulls; a block that begins with one ends the whole process.
    if any(line[:1] != b"{" and line.lstrip()[:1] != b"{" for line in lines):
        raise ValueError("a line is not an object")
    # Lines that are torn could be one object together, and another line two.
    if any(line[-1:] != b"}" and line.rstrip()[-1:] != b"}" for line in lines):
        raise ValueError("a line does not end with its object")


@dataclass(frozen=True, slots=True)
class _PythonJson:
    schema: pa.Schema

    def __call__(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        rows = [self._row(_loaded(line)) for line in lines]
        columns = [
            pa.array([row[at] for row in rows], column.type)
            for at, column in enumerate(self.schema)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def whole(self, text: bytes, lines: int) -> pa.RecordBatch:  # noqa: ARG002 (it cuts them)
        return self(text.split(b"\n"))

    def explain(self, line: bytes, found: Exception) -> str:
        try:
            self._row(_loaded(line))
        except json.JSONDecodeError as exc:
            return f"{exc.msg.lower()} at character {exc.pos + 1}"
        except UnicodeDecodeError as exc:
            return f"not UTF-8 at byte {exc.start + 1}"
        except BadRecord as exc:
            return str(exc)
        return str(found).split("\n", 1)[0]

    def _row(self, record: Any) -> list[Any]:
        if not isinstance(record, dict):
            raise TypeError(f"expected an object, not {_shown(record)}")
        return [_column(record, column) for column in self.schema]


def _loaded(line: bytes) -> Any:
    if line.count(b"[") + line.count(b"{") > _DEEPEST and _depth(line) > _DEEPEST:
        raise ValueError(f"it is nested more than {_DEEPEST} deep")
    return json.loads(line.decode())


_TEXT_OR_BRACKET: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{\]}]')


def _depth(line: bytes) -> int:
    """Return how deeply a line is nested, or that it is too deep."""
    depth = deepest = 0
    for found in _TEXT_OR_BRACKET.finditer(line):
        depth += (found[0] in b"[{") - (found[0] in b"]}")
        deepest = max(deepest, depth)
        if deepest > _DEEPEST:
            break
    return deepest


def _column(record: dict[str, Any], column: pa.Field) -> Any:
    try:
        return json_value(record.get(column.name), column.type)
    except BadRecord as exc:
        raise ValueError(f'column "{column.name}": {exc}') from exc


def json_value(value: Any, kind: pa.DataType) -> Any:
    """Return what a JSON value stands for in a column of this type, as Arrow takes it.

    Raises:
        TypeError: It stands for nothing of that type.
        ValueError: It is of that type, but not a value of it.
    """
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [json_value(item, kind.value_type) for item in _expected(value, list, "an array")]
    if pa.types.is_map(kind):
        items = _expected(value, dict, "an object").items()
        return [(json_value(k, kind.key_type), json_value(v, kind.item_type)) for k, v in items]
    if pa.types.is_struct(kind):
        inner = _expected(value, dict, "an object")
        return {part.name: json_value(inner.get(part.name), part.type) for part in kind}
    return _plain_value(value, kind)


def _plain_value(value: Any, kind: pa.DataType) -> Any:
    types = pa.types
    if types.is_timestamp(kind):
        return _moment(value, kind)
    if types.is_date(kind):
        return date.fromisoformat(_expected(value, str, "a date"))
    if types.is_binary(kind):
        return base64.b64decode(_expected(value, str, "base64 text"), validate=True)
    if types.is_decimal(kind):
        return _decimal(value)
    if types.is_integer(kind):
        return _expected(value, int, "a whole number")
    if types.is_floating(kind):
        if isinstance(value, str) and value in _NO_NUMBERS:
            return float(value)
        return _expected(value, (int, float), "a number")
    if types.is_boolean(kind):
        return _expected(value, bool, "true or false")
    return _expected(value, str, "a string")


def _decimal(value: Any) -> Decimal:
    text = str(_expected(value, (int, float, str), "a number"))
    try:
        return Decimal(text)
    except InvalidOperation:
        raise TypeError(f"expected a number, not {_shown(value)}") from None


def _moment(value: Any, kind: pa.DataType) -> datetime:
    moment = datetime.fromisoformat(_expected(value, str, "a timestamp"))
    if kind.tz is None:
        return moment.replace(tzinfo=None)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _expected(value: Any, kind: Any, name: str) -> Any:
    # To Python, true is a number.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"expected {name}, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:39]}…"


# CSV


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """How a CSV file is written; a record is one line."""

    delimiter: str = ","
    quote: str = '"'
    header: bool = True
    nulls: tuple[str, ...] = field(default=("",))


def csv_parser(schema: pa.Schema, columns: Sequence[str], options: CsvOptions) -> TextParser:
    """Return a parser of CSV records whose fields are `columns` in order.

    Raises:
        UnsupportedColumn: CSV cannot hold a column of the schema.
    """
    for column in schema:
        if pa.types.is_nested(column.type):
            msg = f'CSV cannot hold column "{column.name}" of type {column.type}'
            raise UnsupportedColumn(msg, hint="use JSON lines or Parquet")
    return _Csv(schema, tuple(columns), options)


def csv_header(line: bytes, options: CsvOptions) -> tuple[str, ...]:
    """Return the column names that the first line of a CSV file gives."""
    table = pa_csv.read_csv(
        io.BytesIO(line),
        parse_options=pa_csv.ParseOptions(delimiter=options.delimiter, quote_char=options.quote),
    )
    return tuple(table.column_names)


# What Arrow says about a record that it refuses.
_CONVERSION = re.compile(
    r"CSV column #(?P<column>\d+): (Row #\d+: )?CSV conversion error to (?P<type>.+): invalid value '(?P<value>.*)'"
)
_NO_MOMENT = re.compile(r"Failed to parse string: '(.*)' as a scalar of type timestamp")
_COUNTED = re.compile(r"Expected (\d+) columns, got (\d+)")


@dataclass(frozen=True, slots=True)
class _Csv:
    schema: pa.Schema
    columns: tuple[str, ...]
    options: CsvOptions

    def __call__(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        return self.whole(b"\n".join(lines), len(lines))

    def whole(self, text: bytes, lines: int) -> pa.RecordBatch:  # noqa: ARG002 (Arrow counts them)
        self._refuse_open_quotes(text)
        table = pa_csv.read_csv(
            io.BytesIO(text),
            read_options=pa_csv.ReadOptions(
                use_threads=False, column_names=self.columns, block_size=len(text) + 1
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=self.options.delimiter,
                quote_char=self.options.quote,
                ignore_empty_lines=False,
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types={column.name: _csv_type(column.type) for column in self.schema},
                include_columns=self.schema.names,
                include_missing_columns=True,
                null_values=list(self.options.nulls),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        return one_batch(timed(table, self.schema))

    def explain(self, line: bytes, found: Exception) -> str:  # noqa: ARG002 (Arrow has said it all)
        text = str(found).split("\n", 1)[0].removeprefix("CSV parse error: ")
        if conversion := _CONVERSION.search(text):
            column = self.columns[int(conversion["column"])]
            return f'column "{column}": "{conversion["value"]}" is not of type {conversion["type"]}'
        if moment := _NO_MOMENT.search(text):
            return f'"{moment[1]}" is not a timestamp'
        if counted := _COUNTED.search(text):
            return f"expected {counted[1]} fields, got {counted[2]}"
        return text

    def _refuse_open_quotes(self, text: bytes) -> None:
        # Arrow would close the quote at the end of the text, and take the lines up to there for one
        # field.
        quote = self.options.quote.encode()
        if quote in text and _odd_on_a_line(text, quote):
            raise ValueError("a quoted field does not end on its line")


def _odd_on_a_line(text: bytes, mark: bytes) -> bool:
    """Tell whether some line has an odd number of marks."""
    if len(mark) != 1:
        return any(line.count(mark) % 2 for line in text.split(b"\n"))
    letters = np.frombuffer(text + b"\n", np.uint8)
    marks, ends = np.flatnonzero(letters == mark[0]), np.flatnonzero(letters == ord("\n"))
    # If every line has an even number, so have all lines up to each one's end.
    return bool((np.searchsorted(marks, ends) % 2).any())


def _csv_type(kind: pa.DataType) -> pa.DataType:
    # Arrow's CSV parser wants either all moments of a column with a zone or none: they are cast
    # afterwards.
    return pa.string() if pa.types.is_timestamp(kind) else kind


_ZONE = r"(?i)(z|[+-]\d\d(:?\d\d)?)$"
_DAY = "YYYY-MM-DD"


def timed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with text cast to moments where the schema has them; no zone means UTC."""
    columns = [
        moments(table.column(column.name), column.type)
        if pa.types.is_timestamp(column.type)
        and pa.types.is_string(table.schema.field(column.name).type)
        else table.column(column.name)
        for column in schema
    ]
    return pa.table(columns, schema=schema)


def moments(texts: Any, kind: pa.DataType) -> Any:
    """Return ISO 8601 texts as moments; without a zone they are in UTC."""
    plain, utc = pa.timestamp(kind.unit), pa.timestamp(kind.unit, "UTC")
    for alike in (utc, plain):
        try:
            return texts.cast(alike).cast(utc).cast(kind)
        except pa.ArrowException:
            continue  # some have a zone and some have none, or one is no moment
    # The sign of a zone must not be taken for the dash of a date.
    zoned = pc.match_substring_regex(pc.utf8_slice_codeunits(texts, len(_DAY), 2**31 - 1), _ZONE)
    zoned = pc.fill_null(zoned, fill_value=False)
    nothing = pa.scalar(None, pa.string())
    with_zone = pc.if_else(zoned, texts, nothing).cast(utc)
    without = pc.if_else(zoned, nothing, texts).cast(plain)
    return pc.coalesce(with_zone, without.cast(utc)).cast(kind)
