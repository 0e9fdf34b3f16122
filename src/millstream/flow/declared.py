"""Folds that are declared: what each keeps, and the plain function that it equals; executors import this, and little else.

Nulls are left out, as in SQL's aggregates: a fold stays as it is at a row without a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isnan
from typing import Any, Final

WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
REAL: Final = ("float", "double")
NUMBERS: Final = (*WHOLE, *REAL)
ORDERED: Final = (*NUMBERS, "string", "timestamp", "boolean")
FUNCTIONS: Final = ("count", "sum", "min", "max", "first", "last", "ewma")
#: The types that a compiled fold may have, and what makes values of them.
KEPT_AS: Final[dict[str, type]] = {"bigint": int, "double": float, "boolean": bool}


@dataclass(frozen=True, slots=True)
class DeclaredFold:
    """A fold of a column: `delay double` as sum(delay)."""

    name: str
    function: str
    #: None counts rows.
    column: str | None
    type: str
    #: How much the newest value weighs in a moving average.
    weight: float = 1.0

    def __str__(self) -> str:
        inside = "*" if self.column is None else self.column
        more = f", {self.weight!r}" if self.function == "ewma" else ""
        return f"{self.function}({inside}{more})"

    def after(self, known: Any, row: dict[str, Any]) -> Any:
        """Return what it is after a row."""
        value = None if self.column is None else row[self.column]
        if self.function == "count":
            return (known or 0) + (self.column is None or value is not None)
        if value is None:
            return known
        if self.type in REAL and self.function in ("sum", "ewma"):
            value = float(value)
        if known is None:
            return value
        match self.function:
            case "sum":
                return known + value
            case "ewma":
                return known + self.weight * (value - known)
            case "min":
                return value if _before(value, known) else known
            case "max":
                return value if _before(known, value) else known
            case "first":
                return known
        return value


@dataclass(frozen=True, slots=True)
class CompiledFold:
    """A fold by a function of the user's, which is compiled: damped(known, delay)."""

    name: str
    #: Called with what the fold was, and the values of the columns.
    step: Callable[..., Any]
    columns: tuple[str, ...]
    initial: float
    type: str
    #: The column of its state; a changed function continues with it.
    function: str = "value"

    def __str__(self) -> str:
        called = getattr(self.step, "__name__", type(self.step).__name__)
        return f"{called}({', '.join(self.columns)}) from {self.initial!r}"

    def after(self, known: Any, row: dict[str, Any]) -> Any:
        """Return what it is after a row."""
        values = [row[column] for column in self.columns]
        if any(value is None for value in values):
            return known
        return KEPT_AS[self.type](self.step(self.initial if known is None else known, *values))


def _before(one: Any, other: Any) -> bool:
    """Tell which is less, as Spark does: NaN is greater than all numbers."""
    missing = isinstance(other, float) and isnan(other)
    return bool(one < other or (missing and not isnan(one)))


AnyFold = DeclaredFold | CompiledFold


@dataclass(frozen=True, slots=True)
class DeclaredStep:
    """The step that declared folds equal: a row for every row."""

    folds: tuple[AnyFold, ...]
    #: The columns that a result has from its row.
    taken: tuple[str, ...]

    def __call__(
        self, state: dict[str, Any], row: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        after, result = dict[str, Any](), {name: row[name] for name in self.taken}
        for one in self.folds:
            result[one.name] = one.after(state[one.name][one.function], row)
            after[one.name] = {one.function: result[one.name]}
        return after, result
