"""Which run files are merged: pure, over their sizes.

Runs of about the same size wait for each other: `RATIO` of a tier become one of the next. So there
are at most `RATIO` runs in each of log(size) tiers, and an entry is written again once per tier. All
runs are merged when those above the oldest have together as many bytes as it has: entries that
nobody can see any more take at most about as much again as those that count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millstream.state.manifest import INLINE, Run

RATIO: Final = 8


def due(sizes: Sequence[int], unit: int = INLINE, spread: float = 0.5) -> int | None:
    """Return where the runs begin that are to be merged, to the newest; None if none are.

    Args:
        sizes: The sizes of runs, oldest first.
        unit: About the size of a run that was not merged yet.
        spread: From 0 to 1, different from shard to shard, so that not all shards merge everything
            in the same batch.
    """
    if len(sizes) > 1 and sum(sizes[1:]) >= sizes[0] * (0.75 + spread / 2):
        return 0
    tiers = [tier(size, unit) for size in sizes]
    for begin, mine in enumerate(tiers):
        above = tiers[begin:]
        if max(above) > mine or above.count(mine) >= RATIO:
            return begin
    return None


def tier(size: int, unit: int = INLINE) -> int:
    """Return the tier of a run: 0 if it was not merged yet."""
    found = 0
    while size >= max(unit, 1) * RATIO // 2:
        size //= RATIO
        found += 1
    return found


def outlived(runs: Sequence[Run], expired: int) -> int:
    """Return how many of the oldest runs have nothing left at a moment.

    A run in the middle stays: an older entry of the same key, without a time, would be back.
    """
    return next((n for n, run in enumerate(runs) if run.newest > expired), len(runs))


def half_gone(runs: Sequence[Run], expired: int) -> int | None:
    """Return where the runs begin that are to be merged since one of them is half expired."""
    return next((n for n, run in enumerate(runs) if run.middle <= expired), None)
