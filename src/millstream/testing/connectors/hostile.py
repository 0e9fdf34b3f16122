"""Rows that have stopped writers before: each must arrive as it is, or become a dead letter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from millstream.clock import EPOCH, micros

#: The columns of all rows that are written: a number that tells them apart, and one of each kind
#: whose values have confused writers.
NAMES: Final = ("n", "text", "at", "x", "exact", "tags")
COLUMNS: Final = (
    "n long, text string, at timestamp, x double, exact decimal(38,6), tags array<string>"
)

#: Stand for values that Python cannot hold; `spoilt` puts those in their place.
NOT_UTF8: Final = "a lone surrogate"
NO_YEAR: Final = "after the year 9999"

_TEXTS: Final = (
    "a\0b",
    "\0",
    NOT_UTF8,
    NO_YEAR,
    "\x1b[2J",
    "\ufeffmark",
    "\u2028",
    "[/bold]",
    "\\N",
)
_MOMENTS: Final = (
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    EPOCH,
)
_NUMBERS: Final = (math.nan, math.inf, -math.inf, -0.0, 1.7976931348623157e308, 5e-324)
_EXACT: Final = (Decimal("9" * 32 + ".999999"), Decimal("-" + "9" * 32 + ".999999"), Decimal(0))
_TAGS: Final[tuple[list[str | None], ...]] = ([], [None], ["a", None, ""], ["a\0b"], ['{"', "\\,"])


def hostile_rows() -> list[tuple[Any, ...]]:
    """Return rows with one hostile value each, numbered from 0, with the columns of `COLUMNS`."""
    kinds: tuple[Sequence[Any], ...] = (_TEXTS, _MOMENTS, _NUMBERS, _EXACT, _TAGS)
    rows: list[tuple[Any, ...]] = []
    for place, values in enumerate(kinds):
        for value in values:
            rest: list[Any] = [None] * len(kinds)
            rest[place] = value
            rows.append((len(rows), *rest))
    return rows


def spoilt(frame: Any) -> Any:
    """Return a frame with the values that only Spark can hold; its types are Spark's own business."""
    return frame.selectExpr(
        "n",
        f"if(text = '{NOT_UTF8}', cast(unhex('EDA080') as string), text) as text",
        f"if(text = '{NO_YEAR}', timestamp_micros(253402300800000000), at) as at",
        *NAMES[3:],
    )


def check_same(wanted: tuple[Any, ...], found: Mapping[str, Any]) -> None:
    """Check that a row has arrived with its values, as far as its place shows them.

    Raises:
        AssertionError: One is another.
    """
    for name, value in zip(NAMES, wanted, strict=True):
        if name in found and not _spoilt_value(wanted, name):
            same = _SAME[name]
            shown = f"column {name} of row {wanted[0]}: wrote {value!r}, found {found[name]!r}"
            assert (found[name] is None) == (value is None), shown
            assert value is None or same(value, found[name]), shown


def _spoilt_value(row: tuple[Any, ...], name: str) -> bool:
    return row[1] in (NOT_UTF8, NO_YEAR) and name in ("text", "at")


def _same_number(wanted: float, found: Any) -> bool:
    number = float(found)
    return number == wanted or (math.isnan(number) and math.isnan(wanted))


def _same_moment(wanted: datetime, found: Any) -> bool:
    return micros(wanted) == (found if isinstance(found, int) else micros(found))


def _same_exactly(wanted: Decimal, found: Any) -> bool:
    return wanted == Decimal(str(found))


def _same_list(wanted: list[str | None], found: Any) -> bool:
    return isinstance(found, str) or wanted == list(found)


_SAME: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "n": _same_number,
    "text": lambda wanted, found: bool(wanted == found),
    "at": _same_moment,
    "x": _same_number,
    "exact": _same_exactly,
    "tags": _same_list,
}
