"""Ownership by start, as Spark computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream.errors import InternalError
from millstream.switch.cut import AT_SOURCE, WHOLE, CutColumn, Part


def owned(
    parts: Sequence[Part], start: str, key: str | None, by: Sequence[CutColumn] = ()
) -> Column:
    """Return the condition that a result belongs to the version that owns `parts`.

    Results are owned `by` the column that is named for a cut, and by `start` at other cuts. Where the
    rows themselves are told apart, all results are this version's.
    """
    columns = dict(by)
    apart = frozenset(cut for cut, column in by if column == AT_SOURCE)
    parts = [_without(part, apart) for part in parts]

    def moment(cut: int) -> Column:
        return F.unix_micros(F.col(f"`{columns.get(cut, start)}`"))

    return reduce(or_, (_within(part, moment, key) for part in parts), F.lit(False))


def _without(part: Part, cuts: frozenset[int]) -> Part:
    first, until, lowest, above = part
    return None if first in cuts else first, None if until in cuts else until, lowest, above


def _within(part: Part, moment: Callable[[int], Column], key: str | None) -> Column:
    first, until, lowest, above = part
    condition = F.lit(True)
    if first is not None:
        condition = condition & (moment(first) >= first)
    if until is not None:
        condition = condition & (moment(until) < until)
    if (lowest, above) == (0, WHOLE):
        return condition
    if key is None:
        raise InternalError("results without a key are shared out")
    # The same place as everywhere: see journal.partitioning.
    place = F.pmod(F.xxhash64(F.col(f"`{key}`").cast("string")), F.lit(WHOLE))
    return condition & (place >= lowest) & (place < above)
