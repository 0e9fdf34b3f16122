"""Which rows of each key lie some time apart, by vectors: pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

Places = np.ndarray[Any, np.dtype[np.int64]]

#: The rows of so few keys are looked at one by one.
_FEW: Final = 16
#: Numbers below it have room in 64 bits, also when two are added.
_MOST: Final = 1 << 62


def spaced(codes: Places, times: Places, before: Sequence[int | None], within: int) -> Places:
    """Return the places of rows that lie `within` or more after the last such row of their key.

    Args:
        codes: The number of each row's key.
        times: When each row is; they do not go back.
        before: When the last such row of each key was; None if there was none.
        within: How far they are apart.
    """
    if not len(times):
        return np.zeros(0, np.int64)
    # Numbers as short as can be: those of up to 16 bits are sorted in one pass.
    order = np.argsort(codes.astype(np.min_scalar_type(len(before))), kind="stable")
    own, since = codes[order], times[order] - times[0]
    keys, first, span = np.arange(len(before)), int(times[0]), int(times[-1] - times[0]) + 1
    ends = np.searchsorted(own, keys, side="right")
    # Behind the last row lies `span`: nothing is due there.
    wanted = [0 if at is None else min(max(at + within - first, 0), span) for at in before]
    due, within = np.array(wanted, np.int64), min(within, span)
    found: list[Any] = []
    if (span + 1) * (len(keys) + 1) < _MOST:
        # All keys in one line, one behind the other: a search finds the next row of each of them.
        line = own * (span + 1) + since
        while len(keys) > _FEW:
            at = np.searchsorted(line, keys * (span + 1) + due)
            there = at < ends
            keys, ends, at = keys[there], ends[there], at[there]
            due = np.minimum(since[at] + within, span)
            found.append(at)
    begins = np.searchsorted(own, keys)
    for begin, end, moment in zip(begins.tolist(), ends.tolist(), due.tolist(), strict=True):
        found.append(_one_by_one(since[begin:end].tolist(), begin, moment, within))
    return np.sort(order[np.concatenate(found).astype(np.int64)])


def _one_by_one(since: list[int], begin: int, due: int, within: int) -> list[int]:
    found = []
    for place, at in enumerate(since, begin):
        if at >= due:
            found.append(place)
            due = at + within
    return found
