"""Idle partitions: when to say that nothing older will come, as a pure function.

A reader hands out nothing above its lowest partition's progress, so a partition
without new rows would hold up the others forever. Once it has been idle for a
while it is given a floor, an IDLE record, that brings it level with the slowest
partition that is not idle (if all are, with the furthest). A row that comes to it
below the floor is late from then on: a fact of the journal, the same in a replay. If all are idle
and somebody waits for the source, they go as far as is `wanted`.

Who knows a source only as it was before it got more partitions ends those that it knows. The others
are ended for it, once they are idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a partition is written, and when its last rows came or the watch began.

    `rows_at_us` is by a clock that does not jump: a machine whose clock is set is not idle.
    """

    partition: int
    running_max: int | None
    floor: int | None
    ended: bool
    rows_at_us: int

    def reached(self, lateness_us: int) -> int | None:
        """Return the time up to which this partition lets its readers go, before the lateness."""
        from_floor = None if self.floor is None else self.floor + lateness_us
        known = [moment for moment in (self.running_max, from_floor) if moment is not None]
        return max(known, default=None)


def proposals(
    partitions: Sequence[Progress],
    *,
    now_us: int,
    idle_us: int,
    lateness_us: int,
    wanted: int | None = None,
) -> list[tuple[int, int]]:
    """Return the partitions that should be given a floor now, and which.

    `wanted` is the floor that they get if all are idle.
    """
    target = _target(partitions, now_us, idle_us, lateness_us)
    if wanted is not None and all(one.ended or _idle(one, now_us, idle_us) for one in partitions):
        target = max(wanted + lateness_us, wanted if target is None else target)
    if target is None:
        return []
    return [
        (one.partition, target - lateness_us)
        for one in partitions
        if not one.ended
        and _idle(one, now_us, idle_us)
        and _behind(one.reached(lateness_us), target)
    ]


def left_over(
    partitions: Sequence[Progress], lasting: int, *, now_us: int, idle_us: int
) -> list[int]:
    """Return the partitions to end now, since the first `lasting` ones have ended."""
    if not all(one.ended for one in partitions if one.partition < lasting):
        return []
    return [one.partition for one in partitions if not one.ended and _idle(one, now_us, idle_us)]


def _target(
    partitions: Sequence[Progress], now_us: int, idle_us: int, lateness_us: int
) -> int | None:
    """Return how far idle partitions can go: to the slowest active one, else to the furthest."""
    active = [
        one.reached(lateness_us)
        for one in partitions
        if not one.ended and not _idle(one, now_us, idle_us)
    ]
    if active:
        # One that is active and has no rows yet may still bring any time.
        known = [moment for moment in active if moment is not None]
        return min(known) if len(known) == len(active) else None
    return max(
        (moment for one in partitions if (moment := one.reached(lateness_us)) is not None),
        default=None,
    )


def _idle(one: Progress, now_us: int, idle_us: int) -> bool:
    return now_us - one.rows_at_us >= idle_us


def _behind(reached: int | None, target: int) -> bool:
    return reached is None or reached < target
