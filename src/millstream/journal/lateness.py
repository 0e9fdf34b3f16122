"""Which rows are late: a pure function of what the journal holds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from millstream.journal.base import FOREVER

Times = npt.NDArray[np.int64]
Steps = tuple[tuple[int | None, int], ...]
"""A lateness that changes in event time: from which time on it is what, the first from None."""


def lowest_to_come(running_max: int, steps: Steps) -> int:
    """Return the lowest time of a row that is not late after a running maximum.

    Example:
        >>> [lowest_to_come(at, ((None, 5), (100, 20))) for at in (90, 104, 105, 130)]
        [85, 99, 100, 110]
    """
    ends = [*(first for first, _ in steps[1:]), None]
    found = [
        running_max - lateness if first is None else max(first, running_max - lateness)
        for first, lateness in steps
    ]
    return min(low for low, end in zip(found, ends, strict=True) if end is None or low < end)


def late_mask(
    times: Times, running_max_before: int | None, lateness_us: int, floor: int | None = None
) -> npt.NDArray[np.bool_]:
    """Return which rows are late, the rows being consecutive in one partition.

    A row is late if it lies more than the lateness below the running maximum before it, or below
    the floor that an IDLE or WATERMARK instruction has set before it. A row exactly the lateness
    behind is not late.

    Example:
        >>> late_mask(np.array([10, 5, 4], dtype=np.int64), None, 5).tolist()
        [False, False, True]
    """
    late = np.zeros(len(times), dtype=np.bool_)
    if len(times) == 0:
        return late
    # Compare with time + lateness, not maximum - lateness: neither may leave 64 bits for times that
    # an inbox lets in.
    late[1:] = np.maximum.accumulate(times)[:-1] > times[1:] + lateness_us
    if running_max_before is not None:
        late |= running_max_before > times + lateness_us
    if floor is not None:
        late |= times < floor
    return late


def spread(
    times: Times, running_max_before: int | None, floor: int | None
) -> tuple[int, int, int | None]:
    """Return the lowest and the highest of some times (at least one), and the largest lag of a row.

    The lag is above a lateness exactly if some row is late; None: there is nothing to compare with.
    """
    highest = np.maximum.accumulate(times)
    low, high = int(times.min()), int(highest[-1])
    if floor is not None and low < floor:
        return low, high, FOREVER
    lags = [] if running_max_before is None else [running_max_before - low]
    if len(times) > 1:
        lags.append(int((highest[:-1] - times[1:]).max()))
    return low, high, max(lags, default=None)


def max_lag(times: Times, running_max_before: int | None, floor: int | None) -> int | None:
    """Return the largest lag of a row, None if there is none or nothing to compare with."""
    return spread(times, running_max_before, floor)[2] if len(times) else None
