"""Copies rows into a table: all at once, or, if the table does not take them all, without the others.

The first way is tried first, and costs nothing. The second looks for texts that no table takes, and
then halves what PostgreSQL refuses until the rows that are to blame stand alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from millstream.journal.plain import plain
from millstream.spark.io.unwritable import PythonRows, Unwritable

#: Values of a row, in the order of the columns.
_Row = tuple[Any, ...]
#: Copies rows with a cursor and a statement, and returns those that were not taken. psycopg is an
#: extra; its types are not always there.
Copy = Callable[[Any, Any, PythonRows], Sequence[Unwritable]]

_NUL: Final = "PostgreSQL's texts cannot hold the character NUL"
#: Where PostgreSQL says which column it was: COPY hours, line 7, column delay: "12:60"
_COLUMN: Final = re.compile(r"^COPY .+?, line \d+, column (.+?):")


def copy_all(cursor: Any, statement: Any, rows: PythonRows) -> Sequence[Unwritable]:
    """Copy all rows, or none: then the transaction is over."""
    _copy(cursor, statement, rows.tuples())
    return ()


def copy_takeable(cursor: Any, statement: Any, rows: PythonRows) -> Sequence[Unwritable]:
    """Copy the rows that the table takes, and return the others."""
    refused, good = [], []
    for row in rows.tuples():
        if (column := _with_nul(row, rows.names)) is None:
            good.append(row)
        else:
            refused.append(Unwritable(column, _NUL, _record(row, rows.names)))
    return [*refused, *_halving(cursor, statement, good, rows.names)]


def _halving(
    cursor: Any, statement: Any, rows: list[_Row], names: Sequence[str]
) -> Iterator[Unwritable]:
    from psycopg import DataError, IntegrityError

    if not rows:
        return
    try:
        with cursor.connection.transaction():  # a savepoint
            _copy(cursor, statement, rows)
    except (DataError, IntegrityError, UnicodeEncodeError) as error:
        if len(rows) == 1:
            yield Unwritable(_column_of(error), first_line(error), _record(rows[0], names))
            return
        half = len(rows) // 2
        yield from _halving(cursor, statement, rows[:half], names)
        yield from _halving(cursor, statement, rows[half:], names)


def _copy(cursor: Any, statement: Any, rows: Iterable[_Row]) -> None:
    with cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


def _with_nul(row: _Row, names: Sequence[str]) -> str | None:
    return next((name for name, value in zip(names, row, strict=True) if _has_nul(value)), None)


def _has_nul(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_nul, value))
    return isinstance(value, str) and "\0" in value


def _column_of(error: Exception) -> str | None:
    diagnosis = getattr(error, "diag", None)
    if diagnosis is None:
        return None
    found = _COLUMN.match(diagnosis.context or "")
    return found[1] if found else diagnosis.column_name


def first_line(error: Exception) -> str:
    """Return what PostgreSQL says, without the statement."""
    return str(error).strip().split("\n", 1)[0]


def _record(row: _Row, names: Sequence[str]) -> str:
    values = dict(zip(names, map(plain, row), strict=True))
    return json.dumps(values, allow_nan=False, ensure_ascii=False)
