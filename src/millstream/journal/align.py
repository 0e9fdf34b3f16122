"""How far a batch may read: alignment and floors, as pure functions of a journal.

A batch is chosen so that no partition runs ahead of the others: at its end no
row handed out lies above the lowest partition's progress plus the lateness.
Let E(p) be how far partition p has got at the end of what is written: its
running maximum, or its IDLE floor plus the lateness, whichever is higher. Then

    M = min over p of E(p), plus the lateness

bounds what may be handed out: a partition stops before the first row that
lifts its running maximum above M. A partition that stops there has its next
row above M, one that does not is exhausted and E(p) >= M - lateness; either
way the rule holds, and the partition that sets M can always be read to its
end, so nobody waits forever. A smaller batch takes a lower M, or, among rows
of equal progress, just the first ones.

The floor of a batch is the lowest time that may still come after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from millstream.journal.lateness import Steps, lowest_to_come

#: The floor of a partition that has ended: later than any event (the year 9000).
FOREVER_US: Final = 221_845_392_000_000_000


class State(Protocol):
    """What a partition knows at a position."""

    @property
    def running_max(self) -> int | None: ...
    @property
    def floor(self) -> int | None: ...
    @property
    def ended(self) -> bool: ...


class View(Protocol):
    """A partition as alignment sees it."""

    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int: ...
    def state_at(self, position: int, /) -> State: ...
    def first_above(self, moment: int, start: int, end: int, /) -> int: ...


@dataclass(frozen=True, slots=True)
class Reach:
    """Where a batch ends, and the lowest time that may still come after it."""

    positions: tuple[int, ...]
    floor: int | None


def progress(state: State, lateness: int) -> int | None:
    """Return how far a partition has got, None if nobody knows yet."""
    if state.ended:
        return FOREVER_US
    from_floor = None if state.floor is None else state.floor + lateness
    return _highest(state.running_max, from_floor)


def floor_of(state: State, lateness: int | Steps) -> int | None:
    """Return the lowest time that may still come in a partition."""
    if state.ended:
        return FOREVER_US
    steps = ((None, lateness),) if isinstance(lateness, int) else lateness
    from_rows = None if state.running_max is None else lowest_to_come(state.running_max, steps)
    return _highest(from_rows, state.floor)


def reach_of_rows(views: Sequence[View], start: Sequence[int], lateness: int, limit: int) -> Reach:
    """Choose the end of the next batch of a journal that inboxes write."""
    ends = [view.end for view in views]
    bound = _lowest(
        [progress(view.state_at(end), lateness) for view, end in zip(views, ends, strict=True)]
    )
    if bound is None:
        # Some partition has not even an IDLE floor. What alignment has let
        # through before stays read; nothing more may be.
        return Reach(tuple(start), floor_at(views, start, lateness))
    stops = _stops(views, start, ends, bound + lateness)
    if _count(start, stops) > limit:
        stops = _limited(views, start, ends, bound + lateness, limit)
    return Reach(tuple(stops), floor_at(views, stops, lateness))


def reach_of_epochs(views: Sequence[View], start: Sequence[int], limit: int) -> Reach:
    """Choose the end of the next batch of a journal that a group writes.

    No row of it is late, and its floors move the watermark, so any split will do.
    """
    stops = list(start)
    left = limit
    for place, view in enumerate(views):
        fair = max(1, left // (len(views) - place))
        stops[place] = min(view.end, start[place] + fair)
        left -= stops[place] - start[place]
    return Reach(tuple(stops), epoch_floor_at(views, stops))


def floor_at(views: Sequence[View], positions: Sequence[int], lateness: int | Steps) -> int | None:
    """Return the lowest time that may still come after `positions`."""
    return _lowest(
        [floor_of(view.state_at(at), lateness) for view, at in zip(views, positions, strict=True)]
    )


def epoch_floor_at(views: Sequence[View], positions: Sequence[int]) -> int | None:
    """Return the lowest time that may still come, as the writing group has said."""
    states = [view.state_at(at) for view, at in zip(views, positions, strict=True)]
    return _lowest([FOREVER_US if state.ended else state.floor for state in states])


def _stops(
    views: Sequence[View], start: Sequence[int], ends: Sequence[int], moment: int
) -> list[int]:
    return [
        view.first_above(moment, a, z) if a < z else a
        for view, a, z in zip(views, start, ends, strict=True)
    ]


def _count(start: Sequence[int], stops: Sequence[int]) -> int:
    return sum(stops) - sum(start)


def _limited(
    views: Sequence[View], start: Sequence[int], ends: Sequence[int], moment: int, limit: int
) -> list[int]:
    if len(views) == 1:
        return [start[0] + limit]

    def fits(candidate: int) -> bool:
        return _count(start, _stops(views, start, ends, candidate)) <= limit

    found = (view.state_at(end).running_max for view, end in zip(views, ends, strict=True))
    highest = max((one for one in found if one is not None), default=-FOREVER_US)
    low = _last_true(fits, -FOREVER_US, min(moment, highest) + 1)
    stops = _stops(views, start, ends, low)
    # Every partition's next row lies above `low`; those up to `low + 1` are
    # level with each other, so any part of them may go out. Instructions go
    # out in any case, also more than the limit: they are no rows.
    room = max(0, limit - _count(start, stops))
    for place, level in enumerate(_stops(views, start, ends, low + 1)):
        step = min(room, level - stops[place])
        stops[place] += step
        room -= step
    return stops


def _last_true(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the highest number in [low, high) for which `holds`, given that it does for `low`."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _highest(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def _lowest(moments: Sequence[int | None]) -> int | None:
    known = [moment for moment in moments if moment is not None]
    return min(known) if known and len(known) == len(moments) else None
