"""Running folds over rows that are sorted by key, by vectors: pure.

A *segment* is the rows of a key that share a state, in order. It has a slot in front of its rows,
for what its state held before. All arrays here are slots and rows together:

    slot of segment 0 | its rows | slot of segment 1 | its rows | ...

What a fold leaves out (a null, a slot without a value) is not `valid`. Results are those of the
plain function to the last bit: fractions are added one after the other, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np

Places = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Numbers = np.ndarray[Any, Any]

#: Of so few segments each is folded by itself.
_FEW: Final = 16
#: Sums below it are exact.
_SAFE: Final = 2.0**62


@dataclass(frozen=True, slots=True)
class Segments:
    """Where segments lie: for each slot and row the number of its segment, and where slots are."""

    number: Places
    slots: Places
    rows: Places

    @classmethod
    def of(cls, begins: Flags) -> Segments:
        """Return the segments of rows, of which some begin one; the first does."""
        own = np.cumsum(begins) - 1
        first = np.flatnonzero(begins)
        slots = first + np.arange(len(first))
        rows = np.arange(len(begins)) + own + 1
        number = np.empty(len(begins) + len(first), np.int64)
        number[slots], number[rows] = np.arange(len(first)), own
        return cls(number, slots, rows)

    def __len__(self) -> int:
        return len(self.number)

    @property
    def last(self) -> Places:
        """Where the last row of each segment is."""
        return np.append(self.slots[1:], len(self)) - 1

    def spread(self, kept: Numbers, values: Numbers) -> Numbers:
        """Return what slots and rows hold as one array."""
        found = np.empty(len(self), values.dtype)
        found[self.slots], found[self.rows] = kept, values
        return found

    def held(self, chosen: Flags) -> Places:
        """Return for each place the last one that was chosen before it, or itself; else -1."""
        places = np.maximum.accumulate(np.where(chosen, np.arange(len(self)), -1))
        return np.where(places >= self.slots[self.number], places, -1)


def first(segments: Segments, valid: Flags) -> Places:
    """Return where the first value is, for each place; -1 if there is none yet."""
    before: Places = np.cumsum(valid) - valid
    return segments.held(valid & (before == before[segments.slots][segments.number]))


def last(segments: Segments, valid: Flags) -> Places:
    """Return where the last value is, for each place; -1 if there is none yet."""
    return segments.held(valid)


def greatest(segments: Segments, valid: Flags, ranks: Places) -> Places:
    """Return where the value of the highest rank is, the first of equal ones; -1 if there is none.

    Ranks begin with 0; what they are where nothing is valid does not matter.
    """
    step = int(ranks.max(initial=0)) + 2
    heights = segments.number * step + np.where(valid, ranks + 1, 0)
    tops = np.maximum.accumulate(heights)
    return segments.held(valid & (heights > np.append(-1, tops[:-1])))


def totals(segments: Segments, values: Numbers) -> Numbers | None:
    """Return running sums of whole numbers; None if one might not fit."""
    if np.abs(values.astype(np.float64)).sum() >= _SAFE:
        return None
    sums = np.cumsum(values)
    before = sums[segments.slots] - values[segments.slots]
    found: Numbers = sums - before[segments.number]
    return found


def one_by_one(
    segments: Segments, valid: Flags, values: Numbers, then: Callable[[Any, Any], Any]
) -> Numbers:
    """Return what `then` makes of the value before and the next one, for each that is valid.

    The n-th values of all segments are taken together, while there are many.
    """
    places = np.flatnonzero(valid)
    taken = values[places]
    begins = np.flatnonzero(np.diff(segments.number[places], prepend=-1))
    sizes = np.diff(np.append(begins, len(places)))
    order = np.argsort(-sizes, kind="stable")
    begins, sizes = begins[order], sizes[order]
    found, known, turn = taken.copy(), taken[begins], 1
    with np.errstate(all="ignore"):
        while (many := int(np.searchsorted(-sizes, -turn))) > _FEW:
            at = begins[:many] + turn
            known = then(known[:many], taken[at])
            found[at] = known
            turn += 1
    for begin, size, value in zip(begins[:many], sizes, known.tolist()[:many], strict=False):
        rest = taken[begin + turn : begin + size].tolist()
        found[begin + turn - 1 : begin + size] = list(accumulate(rest, then, initial=value))
    whole = np.empty_like(values)
    whole[places] = found
    return whole
