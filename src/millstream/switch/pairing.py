"""Pair the results of two versions of an output: a fold that keeps what has no partner yet.

A result has a start, and values that tell which one it is (its identity): the columns by which a
window groups, the key of other streams; of a stream without any, all columns without floats. Among
results of one start and one identity

    equal        both versions have a row with the same values; floats may differ in their last digits, since the order in which
                 Spark adds them up is not always the same
    different    one row is left on either side: they are paired in the order of their values
    missing      a row of the old version is left
    extra        a row of the new version is left

Equal rows are let go as soon as both are there; the rest is counted once no more results of that start
can come (`settle`). In which order rows come makes no difference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import Any, Final, Literal

from millstream.switch.changes import Change
from millstream.switch.comparison import Compared, Example, Kind

Row = tuple[Any, ...]
Side = Literal["old", "new"]

#: So many examples of each kind are kept.
EXAMPLES: Final = 3
_TOLERANCE: Final = 1e-9
#: More rows of one identity than this are not looked through for floats that are nearly the same.
_MOST_PAIRS: Final = 1_000_000
_LONGEST_TEXT: Final = 100


@dataclass
class Pairing:
    """The results of one output in both versions.

    Args:
        name: What the output is called.
        columns: The columns that are compared; rows have their values in this order.
        by: Those that tell, beside its start, which result a row is.
        start: The one that says when it started, if there is any.
        change: Outputs that are new are counted, and not compared.
    """

    name: str
    columns: tuple[str, ...]
    by: tuple[str, ...] = ()
    change: Change = Change.REPLACED
    start: str | None = None
    waiting: int = 0
    _equal: int = 0
    _counts: Counter[Kind] = field(default_factory=Counter)
    _examples: list[Example] = field(default_factory=list)
    _open: dict[tuple[int, Row], tuple[Counter[Row], Counter[Row]]] = field(default_factory=dict)

    def feed(self, side: Side, start_us: int, values: Sequence[Any]) -> None:
        """Take a result of a version."""
        row = tuple(map(frozen, values))
        place = start_us, self._identity(row)
        here, there = self._open.setdefault(place, (Counter(), Counter()))
        if side == "new":
            here, there = there, here
        if there[row] > 0:
            _take(there, row)
            self.waiting -= 1
            self._equal += 1
        else:
            here[row] += 1
            self.waiting += 1
        if not here and not there:
            del self._open[place]

    def _identity(self, row: Row) -> Row:
        return tuple(
            value for name, value in zip(self.columns, row, strict=True) if name in self.by
        )

    def settle(self, until_us: int) -> None:
        """Count the results without a partner, once all that start before a moment are here."""
        for place in sorted((place for place in self._open if place[0] < until_us), key=repr):
            old, new = (sorted(side.elements(), key=repr) for side in self._open.pop(place))
            self.waiting -= len(old) + len(new)
            self._tell(old, new)

    def _tell(self, old: list[Row], new: list[Row]) -> None:
        self._equal += _take_close(old, new)
        pairs = min(len(old), len(new))
        for before, after in zip(old, new, strict=False):
            self._note("different", before, after)
        for row in old[pairs:]:
            self._note("missing", row, None)
        for row in new[pairs:]:
            self._note("extra", None, row)

    def _note(self, kind: Kind, old: Row | None, new: Row | None) -> None:
        self._counts[kind] += 1
        if self._counts[kind] <= EXAMPLES and self.change is Change.REPLACED:
            self._examples.append(Example(kind, self._plain(old), self._plain(new)))

    def _plain(self, row: Row | None) -> dict[str, Any] | None:
        return None if row is None else dict(zip(self.columns, map(plain, row), strict=True))

    def compared(
        self, columns_gone: Iterable[str] = (), columns_new: Iterable[str] = ()
    ) -> Compared:
        """Return what has been found so far."""
        return Compared(
            self.name,
            self.change,
            self._equal,
            self._counts["missing"],
            self._counts["extra"],
            self._counts["different"],
            self.waiting,
            self.by,
            self.start,
            tuple(columns_gone),
            tuple(columns_new),
            tuple(sorted(self._examples, key=lambda one: one.kind)),
        )


def _take(rows: Counter[Row], row: Row) -> None:
    rows[row] -= 1
    if not rows[row]:
        del rows[row]


def _take_close(old: list[Row], new: list[Row]) -> int:
    """Remove the pairs of rows that are nearly the same; return how many there were."""
    if len(old) * len(new) > _MOST_PAIRS:
        return 0
    found = 0
    for row in list(old):
        partner = next((other for other in new if close(row, other)), None)
        if partner is not None:
            old.remove(row)
            new.remove(partner)
            found += 1
    return found


# values


class _Nan:
    """What is not a number is the same as what is not a number."""

    def __repr__(self) -> str:
        return "NaN"


NAN: Final = _Nan()


def frozen(value: Any) -> Any:  # whatever Arrow makes of a column
    """Return a value that can be compared and counted."""
    if isinstance(value, float):
        return NAN if math.isnan(value) else value
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    if isinstance(value, dict):
        return tuple((name, frozen(one)) for name, one in sorted(value.items()))
    return value


def close(one: Any, other: Any) -> bool:
    """Tell whether two values are the same but for the last digits of floats."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE**2)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(close, one, other))
    return bool(one == other)


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it, not longer than people read."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, tuple):
        return [plain(one) for one in value[:_LONGEST_TEXT]]
    if isinstance(value, datetime | date | time):
        return value.isoformat().replace("+00:00", "Z")
    text = (
        value if isinstance(value, str) else value.hex() if isinstance(value, bytes) else str(value)
    )
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
