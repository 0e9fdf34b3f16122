"""Rows that a target cannot take: they are set apart from an epoch, and become dead letters.

Whole columns are tried first. Only if that fails, their values are looked at one by one. This runs
in executors too, so it imports little.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.journal.plain import records

NOT_TEXT: Final = "its text is not UTF-8"
_CALENDAR: Final = "it lies outside the years 1 to 9999"


@dataclass(frozen=True, slots=True)
class Unwritable:
    """A row that a target cannot take: the column, if one is to blame, the reason, and the row as JSON."""

    column: str | None
    reason: str
    record: str

    @property
    def fact(self) -> str:
        return self.reason if self.column is None else f'column "{self.column}": {self.reason}'

    def letter(self, sink: str) -> str:
        """Return the reason of its dead letter."""
        return f'sink "{sink}": {self.fact}'

    def to_json(self) -> str:
        """Return it as text, for tasks that report it to the driver."""
        return json.dumps(asdict(self))


def from_json(texts: Iterable[str | None]) -> list[Unwritable]:
    """Return what tasks have reported."""
    return [Unwritable(**json.loads(text)) for text in texts if text is not None]


#: Arrow's columns and tables have no types here.
_Arrow = Any


def _why(test: Callable[[_Arrow], object], column: _Arrow) -> str | None:
    try:
        test(column)
    except UnicodeDecodeError:
        return NOT_TEXT
    except pa.ArrowInvalid as error:
        # Arrow counts rows of its own, and its columns are not ours.
        return NOT_TEXT if "UTF8" in str(error) else str(error).split("\n", 1)[0]
    except (ValueError, OverflowError) as error:
        return _CALENDAR if _timed(column.type) else str(error)
    return None


def _timed(kind: _Arrow) -> bool:
    types = pa.types
    return bool(types.is_temporal(kind)) or any(
        _timed(kind.field(number).type) for number in range(kind.num_fields)
    )


def _apart(rows: _Arrow, test: Callable[[_Arrow], object]) -> tuple[_Arrow, list[Unwritable]]:
    """Return the rows whose columns all pass, and the others with the first that does not."""
    bad: dict[int, tuple[str, str]] = {}
    for name in rows.column_names:
        column = rows.column(name)
        if _why(test, column) is not None:
            for at in range(rows.num_rows):
                # A slice would be judged by all that its lists share.
                if (why := _why(test, column.take(pa.array([at])))) is not None:
                    bad.setdefault(at, (name, why))
    good = rows.filter(pa.array([at not in bad for at in range(rows.num_rows)], pa.bool_()))
    lost = rows.take(pa.array(sorted(bad), pa.int64()))
    return good, [
        Unwritable(*bad[at], text) for at, text in zip(sorted(bad), records(lost), strict=True)
    ]


def sound(rows: _Arrow) -> tuple[_Arrow, list[Unwritable]]:
    """Return a batch's or table's rows without those that hold text that is not UTF-8."""
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid:
        return _apart(rows, lambda column: column.validate(full=True))
    return rows, []


def without_nulls(rows: _Arrow, name: str, role: str) -> tuple[_Arrow, list[Unwritable]]:
    """Return a batch's rows that have a value in the column of a role, and the others."""
    missing = rows.column(name).is_null()
    reason = f'{role} "{name}" is null'
    refused = [Unwritable(None, reason, text) for text in records(rows.filter(missing))]
    return rows.filter(pc.invert(missing)), refused


@dataclass(frozen=True, slots=True)
class PythonRows:
    """Rows as Python has them, by columns, and those that it cannot have."""

    names: Sequence[str]
    columns: Sequence[Sequence[Any]]
    refused: Sequence[Unwritable]

    def dictionaries(self) -> list[dict[str, Any]]:
        return [dict(zip(self.names, row, strict=True)) for row in self.tuples()]

    def tuples(self) -> Iterable[tuple[Any, ...]]:
        return zip(*self.columns, strict=True)

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0


def in_python(rows: _Arrow) -> PythonRows:
    """Return an Arrow table's rows in Python, without those that only Spark can hold.

    These are moments outside the years 1 to 9999, and texts that are not UTF-8.
    """
    refused: list[Unwritable] = []
    try:
        columns = [column.to_pylist() for column in rows.columns]
    except (ValueError, OverflowError):
        rows, refused = _apart(rows, lambda column: column.to_pylist())
        columns = [column.to_pylist() for column in rows.columns]
    return PythonRows(rows.column_names, columns, refused)
