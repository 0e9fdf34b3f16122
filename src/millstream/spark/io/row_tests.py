"""Conditions that look at columns of one row, as Arrow computes them: what Spark computes, to the bit.

Only what is the same in both is here; the rest stays SQL (`stages/sql_tests.py` decides that).
Executors import this, so nothing here makes Arrow look for pandas.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.spark.io.arrays import Numbers, flags, numbers, texts

Flags = Any  # a boolean array of Arrow's, null where SQL says null


class Compare(msgspec.Struct, frozen=True, tag="compare"):
    """A column beside a constant of its type."""

    column: str
    sign: str
    value: str | bool | int | float


class Missing(msgspec.Struct, frozen=True, tag="missing"):
    """Whether a column is null."""

    column: str


class Flag(msgspec.Struct, frozen=True, tag="flag"):
    """A boolean column."""

    column: str


class Always(msgspec.Struct, frozen=True, tag="always"):
    """A condition that is what it is on every row."""

    value: bool


class Not(msgspec.Struct, frozen=True, tag="not"):
    """The opposite of a test."""

    test: Test


class Every(msgspec.Struct, frozen=True, tag="every"):
    """Tests that must all be met."""

    tests: tuple[Test, ...]


class Some(msgspec.Struct, frozen=True, tag="some"):
    """Tests of which one must be met."""

    tests: tuple[Test, ...]


Test = Compare | Missing | Flag | Always | Not | Every | Some

_SIGNS: Final[dict[str, Callable[[Any, Any], Flags]]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def columns_of(test: Test) -> set[str]:
    """Return the columns that a test looks at."""
    match test:
        case Compare(column) | Missing(column) | Flag(column):
            return {column}
        case Not(inner):
            return columns_of(inner)
        case Every(tests) | Some(tests):
            return set().union(*map(columns_of, tests))
    return set()


def meeting(rows: pa.RecordBatch, tests: tuple[Test, ...]) -> pa.RecordBatch:
    """Return the rows that meet all tests."""
    return rows if not tests else rows.filter(Masking(rows).met(Every(tests)))


class Masking:
    """Rows, and what is known of the tests that they meet: each is computed once."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows
        self._known: dict[Test, Flags] = {}

    def mask(self, tests: tuple[Test, ...], shift: int = 0) -> Numbers:
        """Return for each row a number whose bits say which tests it meets."""
        found = np.zeros(self._rows.num_rows, np.int64)
        for number, test in enumerate(tests, shift):
            # What is null is not met.
            found[pc.indices_nonzero(self.met(test)).to_numpy()] |= 1 << number
        return found

    def met(self, test: Test) -> Flags:
        """Return for each row whether it meets a test."""
        known = self._known.get(test)
        if known is None:
            known = self._known[test] = self._computed(test)
        return known

    def _computed(self, test: Test) -> Flags:
        match test:
            case Compare(column, sign, value):
                return _compared(self._rows.column(column), sign, value)
            case Missing(column):
                return pc.is_null(self._rows.column(column))
            case Flag(column):
                return self._rows.column(column)
            case Always(value):
                return flags(value, self._rows.num_rows)
            case Not(inner):
                return pc.invert(self.met(inner))
            case Every(tests):
                return reduce(pc.and_kleene, map(self.met, tests))
            case Some(tests):
                return reduce(pc.or_kleene, map(self.met, tests))


def _compared(column: pa.Array, sign: str, value: str | bool | int | float) -> Flags:
    found = _SIGNS[sign](column, _scalar(value, column.type))
    if pa.types.is_floating(column.type) and sign in (">", ">="):
        return pc.or_kleene(found, pc.is_nan(column))  # Spark puts NaN above all numbers
    return found


def _scalar(value: str | bool | int | float, kind: pa.DataType) -> pa.Scalar:
    """Return a constant; `pa.scalar` would import pandas."""
    if isinstance(value, str):
        return texts([value])[0]
    if isinstance(value, bool):
        return flags(value, 1)[0]
    if pa.types.is_floating(kind):
        data = pa.py_buffer(np.array([value], np.float64))
        return pa.Array.from_buffers(pa.float64(), 1, [None, data])[0]
    return numbers(np.array([int(value)]), pa.int64())[0]
