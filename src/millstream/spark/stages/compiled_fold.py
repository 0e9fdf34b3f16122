"""Compiled folds on Spark: the user's function as machine code, in a compiled loop over the rows of all keys.

A function is sent as bytes, by which each process finds again what it has compiled. A row alone is
folded by the same machine code, so that results do not depend on which of the two was needed.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numba
import numpy as np
import pyarrow as pa
from pyspark.cloudpickle import dumps
from pyspark.sql.types import BooleanType, DataType, DoubleType, FloatType, IntegralType, StructType

from millstream.errors import InvalidFunction, InvalidSql, UnknownColumn
from millstream.flow.declared import CompiledFold
from millstream.spark.stages.scans import Flags, Numbers, Places

if TYPE_CHECKING:  # not wanted in executors, which import this
    from millstream.flow.flow import Flow
    from millstream.flow.stages import Fold

#: What the types of folds are in machine code.
_KINDS: Final = {"bigint": "int64", "double": "float64", "boolean": "boolean"}


@dataclass(frozen=True, slots=True)
class Step:
    """A function that is compiled where it is called."""

    pickled: bytes
    #: The types of what the fold was and of the columns, by numba's names.
    kinds: tuple[str, ...]

    def __call__(self, known: Any, *values: Any) -> Any:
        return _compiled(self).one(known, *values)

    @property
    def returned(self) -> str:
        """The type of what it returns, by numba's name."""
        (signature,) = _compiled(self).one.nopython_signatures
        return str(numba.types.unliteral(signature.return_type).name)  # type: ignore[no-untyped-call]


def ready(stage: Fold, flow: Flow, columns: StructType) -> tuple[Any, ...]:
    """Return the folds of a stage, those by functions compiled.

    Raises:
        InvalidFunction: Numba cannot compile one, or it returns something else than it keeps.
        InvalidSql: A column is neither a number nor a boolean.
        UnknownColumn: A column is not there.
    """
    return tuple(
        _ready(one, stage, flow, columns) if isinstance(one, CompiledFold) else one
        for one in stage.folds
    )


def _ready(fold: CompiledFold, stage: Fold, flow: Flow, columns: StructType) -> CompiledFold:
    from millstream.spark.stages.stateless import title

    named = f'{title(stage, flow)} cannot compile the fold "{fold.name}"'
    there = {one.name.lower(): one for one in columns.fields}
    kinds, names = [_KINDS[fold.type]], []
    for given in fold.columns:
        column = there.get(given.lower())
        if column is None:
            fact = f'{named}: "{stage.input}" has no column "{given}"'
            hint = f"its columns are {', '.join(columns.names)}"
            raise UnknownColumn(fact, hint=hint, where=stage.where)
        kind = _kind(column.dataType)
        if kind is None:
            fact = f'{named}: column "{column.name}" is {column.dataType.simpleString()}'
            hint = "it works on numbers and booleans: make one of it in a stage above"
            raise InvalidSql(fact, hint=hint, where=stage.where)
        kinds.append(kind)
        names.append(column.name)
    step = Step(dumps(fold.step), tuple(kinds))  # type: ignore[no-untyped-call]
    try:
        returned = step.returned
    except Exception as error:  # of numba, or what it meets in a function
        hint = "numba compiles functions of numbers: no texts, dictionaries or other libraries"
        fact = f"{named}: {_reason(error)}"
        raise InvalidFunction(fact, hint=hint, where=stage.where) from error
    if not _holds(fold.type, returned):
        fact = f"{named}: it returns {returned}, and is {fold.type}"
        hint = (
            f"initial={fold.initial!r} makes it {fold.type}: 0 is a bigint, 0.0 a double"
            if returned.startswith(("int", "float", "bool"))
            else f"let it return a {fold.type} for all values"
        )
        raise InvalidFunction(fact, hint=hint, where=stage.where)
    return replace(fold, step=step, columns=tuple(names))


def _kind(type_: DataType) -> str | None:
    match type_:
        case IntegralType():
            return "int64"
        case DoubleType() | FloatType():
            return "float64"
        case BooleanType():
            return "boolean"
    return None


def _holds(type_: str, returned: str) -> bool:
    """Tell whether a fold can keep what its function returns."""
    match type_:
        case "double":
            return returned.startswith(("float", "int", "uint"))
        case "bigint":
            return returned.startswith("int") or returned in ("uint8", "uint16", "uint32")
    return returned == "bool"


def _reason(error: Exception) -> str:
    """Return what numba says, without where in its own steps."""
    lines = [line.strip() for line in str(error).splitlines()]
    found = [line for line in lines if line and not line.startswith("Failed in")]
    return " ".join(found[:2]) or type(error).__name__


@dataclass(frozen=True, slots=True)
class _Compiled:
    one: Any
    loop: Callable[..., None]


@cache
def _compiled(step: Step) -> _Compiled:
    types = [getattr(numba, kind) for kind in step.kinds]
    function = pickle.loads(step.pickled)  # noqa: S301 (the driver's own)
    others = tuple(inspect.signature(function).parameters.values())[len(types) :]
    defaults = (one.default for one in others if one.default is not one.empty)
    types += map(numba.types.Omitted, defaults)
    one = numba.njit(tuple(types))(function)
    return _Compiled(one, _loop(_at_a_row(one, len(step.kinds) - 1)))


def _at_a_row(one: Any, columns: int) -> Any:
    """Return the function of what the fold was, a row's number and the columns as arrays."""
    called = numba.njit(lambda known, _row, values: one(known, *values))
    for _ in range(columns):
        called = _one_more(called)
    return called


def _one_more(called: Any) -> Any:
    """Let a value take the place of the first array, behind those that have."""
    return numba.njit(lambda known, row, given: called(known, row, (*given[1:], given[0][row])))


def _loop(called: Any) -> Any:
    @numba.njit(nogil=True)
    def loop(
        order: Places,
        ends: Places,
        there: Flags,
        columns: tuple[Numbers, ...],
        kept: Numbers,
        known: Flags,
        results: Numbers,
        valid: Flags,
    ) -> None:
        begin = 0
        for segment in range(len(ends)):
            for place in range(begin, ends[segment]):
                row = order[place]
                if there[row]:
                    kept[segment] = called(kept[segment], row, columns)
                    known[segment] = True
                results[row] = kept[segment]
                valid[row] = known[segment]
            begin = ends[segment]

    return loop


def folded(
    fold: CompiledFold, rows: pa.Table, order: Places, ends: Places, before: list[Any]
) -> tuple[pa.Array, pa.Array]:
    """Return what a fold is after each row, and after each segment.

    Args:
        fold: Its function is a `Step`.
        rows: The rows.
        order: Their numbers, by segment.
        ends: Where each segment ends in that.
        before: What the fold is before each segment; None for nothing yet.
    """
    assert isinstance(fold.step, Step)
    kinds = [np.dtype("bool" if kind == "boolean" else kind) for kind in fold.step.kinds]
    chosen = [rows.column(name).combine_chunks() for name in fold.columns]
    there = np.ones(rows.num_rows, bool)
    for one in chosen:
        there &= one.is_valid().to_numpy(zero_copy_only=False)
    columns = tuple(map(_numbers, chosen, kinds[1:]))
    kept = np.array([fold.initial if one is None else one for one in before], kinds[0])
    known = np.array([one is not None for one in before], bool)
    results, valid = np.empty(rows.num_rows, kinds[0]), np.empty(rows.num_rows, bool)
    _compiled(fold.step).loop(order, ends, there, columns, kept, known, results, valid)
    return pa.array(results, mask=~valid), pa.array(kept, mask=~known)


def _numbers(column: pa.Array, kind: np.dtype[Any]) -> Numbers:
    nothing = pa.scalar(False).cast(column.type)
    found: Numbers = column.fill_null(nothing).to_numpy(zero_copy_only=False).astype(kind)
    return found
