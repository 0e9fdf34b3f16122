"""A user's rows on their way into a source, as one Arrow batch.

Columns are converted whole. Only when one cannot be, its rows are looked at one by one, to say
which is to blame.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from math import isnan
from operator import itemgetter
from typing import Any, NoReturn

import pyarrow as pa

from millstream.errors import RowsRefused
from millstream.ingest.rows import one_batch
from millstream.journal.rows import loses
from millstream.links import values as python
from millstream.links.values import Unfit, UnknownField, as_mapping, missing


def to_batch(rows: Any, schema: pa.Schema, *, source: str) -> pa.RecordBatch:
    """Return rows as a batch of the source's columns; a column that a row does not have is null.

    Args:
        rows: A dict or dataclass instance, an iterable of these, a pandas DataFrame, Arrow's
            batches and tables, or anything that exports an Arrow stream. Arrow's columns are not
            copied where their types are the source's, and cast where nothing is lost. The index of
            a DataFrame is ignored; its missing values are null, except NaN in columns of floating
            point, which stays.
        schema: The source's columns.
        source: Its name, for errors.

    Raises:
        RowsRefused: A column is unknown, or a value is not of its column's type; the row is
            numbered from 0.
    """
    try:
        return _Into(schema, source).batch(rows)
    except UnicodeDecodeError as exc:  # Arrow does not look into names
        msg = f'the rows for source "{source}" have a name that is not UTF-8'
        raise RowsRefused(msg) from exc


class _Into:
    """Where rows go: a source's name and columns."""

    def __init__(self, schema: pa.Schema, source: str) -> None:
        self.schema = schema
        self.source = source

    @property
    def unquestioned(self) -> bool:
        """Whether arrays of the right types are all that is wanted."""
        return all(field.nullable for field in self.schema)

    def batch(self, rows: Any) -> pa.RecordBatch:
        if isinstance(rows, pa.RecordBatch):
            if rows.schema.equals(self.schema, check_metadata=True) and self.unquestioned:
                return rows
            return self.columns(rows.schema.names, rows.columns, rows.num_rows)
        if isinstance(rows, pa.Table):
            return self.batch(one_batch(rows))
        # Another thread may just be importing pandas: then these rows are not of its kind.
        if (
            kind := getattr(sys.modules.get("pandas"), "DataFrame", None)
        ) is not None and isinstance(rows, kind):
            return self.frame(rows)
        if hasattr(rows, "__arrow_c_stream__"):
            return self.batch(pa.RecordBatchReader.from_stream(rows).read_all())
        if hasattr(rows, "__arrow_c_array__"):
            return self.batch(pa.record_batch(rows))
        if (one := as_mapping(rows)) is not None:
            return self.mappings([one])
        return self.mappings(self.listed(rows))

    # rows

    def listed(self, rows: Any) -> list[Mapping[str, Any]]:
        if isinstance(rows, (str, bytes, bytearray)) or not isinstance(rows, Iterable):
            msg = f'source "{self.source}" takes rows, and {_described(rows)} is not rows'
            hint = "give a dict, a list of dicts, a DataFrame or an Arrow table"
            raise RowsRefused(msg, hint=hint)
        given = list(rows)
        if set(map(type, given)) <= {dict}:
            return given
        return [self.mapping(row, number) for number, row in enumerate(given)]

    def mapping(self, row: object, number: int) -> Mapping[str, Any]:
        found = as_mapping(row)
        if found is None:
            msg = f'row {number} for source "{self.source}" is {_described(row)}'
            raise RowsRefused(msg, hint="a row is a dict or a dataclass instance")
        return found

    def mappings(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        unknown = set().union(*rows) - set(self.schema.names)
        if unknown:
            number, name = next(
                (n, name) for n, row in enumerate(rows) for name in row if name in unknown
            )
            self.refuse_column(f"row {number}", str(name))
        arrays = [self.values(_picked(rows, field.name), field) for field in self.schema]
        return self.made(arrays, len(rows))

    def values(self, values: Sequence[Any], field: pa.Field) -> pa.Array:
        """Convert Python values, all at once."""
        try:
            return python.column(values, field.type, field.name)
        except (Unfit, UnknownField):
            return pa.concat_arrays(
                [self.value(value, field, number) for number, value in enumerate(values)]
            )

    def value(self, value: Any, field: pa.Field, number: int) -> pa.Array:
        try:
            return python.column([value], field.type, field.name)
        except Unfit as exc:
            msg = (
                f'row {number} for source "{self.source}" has {_described(exc.value)} '
                f'in column "{exc.column}", which is {exc.wanted}'
            )
            raise RowsRefused(msg, hint=exc.hint) from exc
        except UnknownField as exc:
            msg = (
                f'row {number} for source "{self.source}" has field "{exc.field}" '
                f'in column "{exc.column}", which has none of that name'
            )
            raise RowsRefused(msg, hint=meant(exc.field, exc.known, "fields")) from exc

    # columns

    def frame(self, frame: Any) -> pa.RecordBatch:
        """Take a DataFrame: columns of objects hold Python values, all others are arrays."""
        names = [str(name) for name in frame.columns]
        self.check_names(names)
        arrays = [
            self.series(frame.iloc[:, n], self.schema.field(name)) for n, name in enumerate(names)
        ]
        return self.columns(names, arrays, len(frame))

    def series(self, series: Any, field: pa.Field) -> pa.Array:
        floating = pa.types.is_floating(field.type)
        if series.dtype == object:
            return self.values(
                [_present(value, floating=floating) for value in series.tolist()], field
            )
        found = pa.array(series, from_pandas=not floating)
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found

    def columns(
        self, names: Sequence[str], arrays: Sequence[pa.Array], count: int
    ) -> pa.RecordBatch:
        self.check_names(names)
        given = dict(zip(names, arrays, strict=True))
        nulls = {
            field.name: pa.nulls(count, field.type)
            for field in self.schema
            if field.name not in given
        }
        found = [
            nulls[field.name] if field.name in nulls else self.cast(given[field.name], field)
            for field in self.schema
        ]
        return self.made(found, count)

    def check_names(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self.schema.names:
                self.refuse_column("what was given", name)
            if names.count(name) > 1:
                msg = f'what was given for source "{self.source}" has two columns "{name}"'
                raise RowsRefused(msg, hint="give each column a name of its own")

    def cast(self, array: pa.Array, field: pa.Field) -> pa.Array:
        if array.type == field.type:
            return array
        if pa.types.is_timestamp(field.type) and (
            pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
        ):
            return self.values(array.to_pylist(), field)
        if loses(array.type, field.type) or not _castable(array.slice(0, 0), field.type):
            msg = (
                f'column "{field.name}" for source "{self.source}" is {array.type}, '
                f"which cannot become {field.type}"
            )
            raise RowsRefused(msg, hint="cast it first, so that you say what may be lost")
        try:
            return array.cast(field.type)
        except pa.ArrowException as exc:
            number = _first_bad(array, field.type)
            described = _described(array[number].as_py())
            msg = (
                f'row {number} for source "{self.source}" has {described} '
                f'in column "{field.name}", which cannot become {field.type}'
            )
            raise RowsRefused(msg, hint=str(exc)) from exc

    # both

    def made(self, arrays: Sequence[pa.Array], count: int) -> pa.RecordBatch:
        for array, field in zip(arrays, self.schema, strict=True):
            if not field.nullable and array.null_count:
                number = array.is_null().index(True).as_py()
                msg = (
                    f'row {number} for source "{self.source}" has no value '
                    f'in column "{field.name}", which must not be null'
                )
                raise RowsRefused(msg, hint="declare the column nullable, or leave such rows out")
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * count, type=pa.struct([])))
        return pa.RecordBatch.from_arrays(list(arrays), schema=self.schema)

    def refuse_column(self, who: str, name: str) -> NoReturn:
        msg = (
            f'{who} for source "{self.source}" has column "{name}", which the source does not have'
        )
        raise RowsRefused(msg, hint=meant(name, self.schema.names, "columns"))


def _picked(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    try:
        return list(map(itemgetter(name), rows))
    except KeyError:
        return [row.get(name) for row in rows]


def _present(value: Any, *, floating: bool) -> Any:
    """Return None for what pandas puts where nothing is; NaN is a number among numbers."""
    nothing = missing(value) or (not floating and isinstance(value, float) and isnan(value))
    return None if nothing else value


def _castable(empty: pa.Array, wanted: pa.DataType) -> bool:
    try:
        empty.cast(wanted)
    except pa.ArrowException:
        return False
    return True


def _first_bad(array: pa.Array, wanted: pa.DataType) -> int:
    """Return the first row that cannot be cast, by halving."""
    good, bad = 0, len(array)
    while bad - good > 1:
        middle = (good + bad) // 2
        if _castable(array.slice(good, middle - good), wanted):
            good = middle
        else:
            bad = middle
    return good


def meant(name: str, known: Sequence[str], what: str) -> str:
    """Return what an unknown name may have meant, and which names there are."""
    lowered = {one.lower(): one for one in known}
    close = get_close_matches(name.lower(), lowered, n=1)
    meant = f'did you mean "{lowered[close[0]]}"? ' if close else ""
    return f"{meant}its {what} are {', '.join(known)}"


def _described(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
