"""Which rows are late: a pure function of what the journal holds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from millstream.journal.base import FOREVER

Times = npt.NDArray[np.int64]


def late_mask(
    times: Times, running_max_before: int | None, lateness_us: int, floor: int | None = None
) -> npt.NDArray[np.bool_]:
    """Return which rows are late, the rows being consecutive in one partition.

    A row is late if it lies more than the lateness below the running maximum before it, or below the floor that an
    IDLE or WATERMARK instruction has set before it. A row exactly the lateness behind is not late.

    Example:
        >>> late_mask(np.array([10, 5, 4], dtype=np.int64), None, 5).tolist()
        [False, False, True]
    """
    late = np.zeros(len(times), dtype=np.bool_)
    if len(times) == 0:
        return late
    # Compare with time + lateness, not maximum - lateness: neither may leave 64 bits for times that an inbox lets in.
    late[1:] = np.maximum.accumulate(times)[:-1] > times[1:] + lateness_us
    if running_max_before is not None:
        late |= running_max_before > times + lateness_us
    if floor is not None:
        late |= times < floor
    return late


def max_lag(times: Times, running_max_before: int | None, floor: int | None) -> int | None:
    """Return the largest lag of a row, so that "it is above the lateness" means "some row is late"."""
    if len(times) == 0:
        return None
    if floor is not None and int(times.min()) < floor:
        return FOREVER
    highest = np.maximum.accumulate(times)
    if running_max_before is None:
        return int((highest[:-1] - times[1:]).max()) if len(times) > 1 else None
    if len(times) == 1:
        return running_max_before - int(times[0])
    np.maximum(highest, running_max_before, out=highest)
    return max(running_max_before - int(times[0]), int((highest[:-1] - times[1:]).max()))
