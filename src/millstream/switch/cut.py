"""The cut: where it may lie, who owns a result, how far each version reads; pure functions.

Moments are microseconds since 1970 in UTC. Time is divided into windows of one length (the step of
the switch), numbered from 1970. Every partition reports the highest window that it has handed out;
B is the highest of all plus one, and the cut T is the end of B:

    window    ...  | B - 1 |   B   | B + 1 |
    handed out   #########               .
                                         T = (B + 1) x length

So nothing that starts at or after T has been handed out to anybody, and there is a whole window's
time to say so to everybody. A partition that has passed B meanwhile says so, and all are asked
again.

A result belongs to the version that owns its start. With several cuts one after the other, and with
shares of keys, ownership is a row of stretches, each from its cut to the next:

    starts before T1: "a"   |  from T1: a tenth of the keys "b", the others "a"   |  from T2: "b"
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.errors import InternalError, UnplaceableKey
from millstream.journal.align import FOREVER_US, View
from millstream.journal.lateness import Steps
from millstream.journal.partitioning import place

#: Shares are counted in parts of this.
WHOLE: Final = 10_000
#: A cut here gives everything to the new version: no event lies before it.
EARLIEST: Final = 0


def percent(share: int) -> str:
    """Return a share as people write it.

    Example:
        >>> [percent(share) for share in (1_000, 1_250, WHOLE)]
        ['10%', '12.5%', '100%']
    """
    return f"{share * 100 / WHOLE:g}%"


def parts(share: float) -> int:
    """Return a fraction as a share in parts of `WHOLE`."""
    return round(share * WHOLE)


# where the cut is


def window_number(moment: int, length: int) -> int:
    """Return the number of the window that a moment lies in."""
    return moment // length


def handed_out(running_max: int | None, floor: int | None, length: int) -> int | None:
    """Return the highest window that a partition has handed out, of its rows and of their floor.

    The floor counts too: what completes at it may start (where a window's end is taken for its
    start) after all rows.
    """
    known = [
        moment
        for moment in (running_max, None if floor is None else floor - 1)
        if moment is not None
    ]
    return window_number(max(known), length) if known else None


def promised_floor(floor: int | None, cut: int) -> int | None:
    """Return the floor that a partition may hand out which has promised to stay below the cut."""
    return None if floor is None else min(floor, cut)


def bound_above(highest: Iterable[int | None]) -> int | None:
    """Return B: one above the highest window that any partition has handed out.

    None if nobody has handed out anything.
    """
    known = [number for number in highest if number is not None]
    return max(known) + 1 if known else None


def cut_of(bound: int | None, length: int) -> int:
    """Return the cut T: the end of window B."""
    return EARLIEST if bound is None else (bound + 1) * length


def passed(highest: int | None, bound: int | None) -> bool:
    """Tell whether a partition has handed out something that starts at the cut or later."""
    return highest is not None and (bound is None or highest > bound)


def stepped(before: Steps, cut: int, after: int) -> Steps:
    """Return a lateness that becomes `after` at a cut; once more changes nothing."""
    return (*(one for one in before if one[0] is None or one[0] < cut), (cut, after))


# who owns a result

Part = tuple[int | None, int | None, int, int]
"""What is owned: starts in [from, before), of keys with places in [lowest, above).

None: no bound.
"""


CutColumn = tuple[int, str]
"""A cut, and the column by which results are owned there."""

#: Stands for a column where the sources have left out the rows of the other version.
AT_SOURCE: Final = ""


@dataclass(frozen=True, slots=True)
class Stretch:
    """From a moment on, so many parts of the keys belong to `second`, the others to `first`."""

    from_us: int
    first: str
    second: str
    share: int = 0

    def places(self, version: str) -> tuple[int, int]:
        """Return from which place on, and up to which, keys belong to a version."""
        share = min(max(self.share, 0), WHOLE)
        if version == self.second:
            return 0, share
        return (share, WHOLE) if version == self.first else (0, 0)

    def owner(self, key: str | None) -> str:
        """Return the version that owns the results of a key from here on."""
        if self.share <= 0:
            return self.first
        if self.share >= WHOLE:
            return self.second
        if key is None:
            hint = "switch at once, without --share"
            raise UnplaceableKey("a result without a key cannot be shared out", hint=hint)
        return self.second if place(key, WHOLE) < self.share else self.first


@dataclass(frozen=True, slots=True)
class Owners:
    """Who owns what: the version that was first, and the stretches since, in order."""

    first: str
    stretches: tuple[Stretch, ...] = ()

    @property
    def versions(self) -> set[str]:
        """All versions that own something, or have."""
        return {self.first, *(name for one in self.stretches for name in (one.first, one.second))}

    def owner(self, start: int, key: str | None = None) -> str:
        """Return the version that owns a result which starts at a moment."""
        at = bisect_right(self.stretches, start, key=lambda stretch: stretch.from_us)
        return self.stretches[at - 1].owner(key) if at else self.first

    def after(self, stretch: Stretch) -> Owners:
        """Return the ownership with one more cut, which must lie after the last."""
        if self.stretches and stretch.from_us <= self.stretches[-1].from_us:
            raise InternalError(
                f"a cut at {stretch.from_us} lies before the last, at {self.stretches[-1].from_us}"
            )
        return Owners(self.first, (*self.stretches, stretch))

    def again(self, stretch: Stretch) -> Owners:
        """Return the ownership with a cut in the past, from which on nobody else owns anything."""
        return Owners(
            self.first, (*(one for one in self.stretches if one.from_us < stretch.from_us), stretch)
        )

    def since(self, version: str) -> Owners:
        """Return the ownership without the stretches that came before a version had any part."""
        has = [number for number in range(len(self.stretches) + 1) if self._has(number, version)]
        if not has or has[0] == 0:
            return self
        before = self.stretches[has[0] - 1].first
        return Owners(before, self.stretches[has[0] - 1 :])

    def _has(self, number: int, version: str) -> bool:
        low, high = self._places(number, version)
        return low < high

    def parts(self, version: str) -> tuple[Part, ...]:
        """Return what a version owns."""
        edges = [None, *(stretch.from_us for stretch in self.stretches), None]
        found = []
        for number in range(len(self.stretches) + 1):
            low, high = self._places(number, version)
            if low < high:
                found.append((edges[number], edges[number + 1], low, high))
        return tuple(found)

    def _places(self, number: int, version: str) -> tuple[int, int]:
        if number == 0:
            return (0, WHOLE) if version == self.first else (0, 0)
        return self.stretches[number - 1].places(version)


def owned_after(before: Sequence[Part] | None, stretch: Stretch, version: str) -> tuple[Part, ...]:
    """Return what a group owns after one more cut, given what it owned before; None is everything.

    Groups outlive versions: one that several versions have kept owns more than the current version
    does.
    """
    known: Sequence[Part] = ((None, None, 0, WHOLE),) if before is None else before
    kept = [_until(part, stretch.from_us) for part in known]
    low, high = stretch.places(version)
    mine = ((stretch.from_us, None, low, high),) if low < high else ()
    return (*(part for part in kept if part is not None), *mine)


def owned_by(before: Sequence[CutColumn], cut: int, column: str | None) -> tuple[CutColumn, ...]:
    """Return the columns by which a group owns at its cuts after one more, which may name none."""
    kept = tuple(one for one in before if one[0] != cut)
    return kept if column is None else (*kept, (cut, column))


def _until(part: Part, moment: int) -> Part | None:
    first, until, low, high = part
    if first is not None and first >= moment:
        return None
    return first, moment if until is None else min(until, moment), low, high


def newest(owned: Iterable[Sequence[Part]]) -> Sequence[Part] | None:
    """Return the newest of what the sources of a group know to own; None if none knows anything.

    A cut lies above all that any source has handed out: whichever knows of the last one speaks for
    all.
    """
    return max(owned, key=_last_cut, default=None)


def _last_cut(parts: Sequence[Part]) -> int:
    return max((edge for part in parts for edge in part[:2] if edge is not None), default=-1)


def knows(parts: Sequence[Part] | None, cut: int) -> bool:
    """Tell whether the owner of these parts knows of a cut."""
    return parts is not None and any(cut in part[:2] for part in parts)


# how far a version reads


def reads_from(cut: int, look_back: int | None) -> int:
    """Return from which moment on the new version must see rows."""
    return EARLIEST if look_back is None else max(EARLIEST, cut - look_back)


def first_positions(views: Sequence[View], moment: int) -> tuple[int, ...]:
    """Return where to begin so that no row at or after `moment` is missed.

    The running maximum is below it before the row that lifts it there, so all rows further up are
    earlier: this holds for rows in any order.
    """
    return tuple(view.first_above(moment - 1, view.begin, view.end) for view in views)


def beyond(progress: int | None, cut: int, horizon: int, lateness: int) -> bool:
    """Tell whether a partition has got so far that no row the old version needs can still come.

    `progress` is the running maximum, or the IDLE floor plus the lateness, whichever is higher; a
    partition that has ended is beyond everything, also a cut that was made after its end.
    """
    return progress is not None and progress >= min(cut + horizon + lateness, FOREVER_US)


def drained(watermark: int | None, cut: int, horizon: int) -> bool:
    """Tell whether all that starts before the cut is emitted, by a committed watermark."""
    return watermark is not None and watermark >= min(cut + horizon, FOREVER_US)


# order at the sink


def goes_out(
    mine: int | None, other: int | None, cut: int, *, newer: bool, waited: float, timeout: float
) -> bool:
    """Tell whether a batch may be published while two versions run, in the order of completion.

    The version that is ahead waits for the other; the new version counts as having reached the cut.
    Of two batches that are ready at least one may go, so nobody waits forever; and after `timeout`
    seconds nobody waits at all.
    """
    if waited >= timeout or mine is None:
        return True
    theirs = other if newer else cut if other is None else max(cut, other)
    return theirs is not None and mine <= theirs
