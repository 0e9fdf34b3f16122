"""What an inbox takes of what it is sent: pure rules.

A sender numbers its rows. The numbers only rise; they may have gaps, since other inboxes get the
rows between. An inbox keeps the highest number that it has of each sender, and that is all it
needs:

    at or below the highest    the row is there already: counted as taken, not stored again
    above it                   new: taken while there is room, from the front, in order

Requests are pipelined, so one may reach an inbox that has not got the one before it. Each names the
number that it comes `after`; if the inbox has not got that far it takes nothing, and the sender
goes back. The first unacknowledged rows of a sender come after `NOTHING`: whatever lies before them
is acknowledged, so it can be missed by nobody.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from millstream.errors import LinkError

NOTHING: Final = -1
"""The number before a sender's first."""
MOST_NUMBER: Final = 1 << 62

Numbers = Sequence[int]
"""The numbers of rows, rising; a `range` where they have no gaps."""


def array(numbers: Numbers) -> npt.NDArray[np.int64]:
    """Return numbers as an array."""
    if isinstance(numbers, range):
        return np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int64)
    return np.asarray(numbers, dtype=np.int64)


def rise(numbers: npt.NDArray[np.int64]) -> bool:
    """Tell whether each number is above the one before it."""
    # Compared, not subtracted: a difference can overflow and look small.
    return bool((numbers[1:] > numbers[:-1]).all())


def checked(given: Any, rows: int) -> Numbers:
    """Return the numbers that a program gives its rows.

    Raises:
        LinkError: They are not as many as the rows, not numbers, out of range, or do not rise.
    """
    if len(given) != rows:
        raise LinkError(f"{rows} rows have {len(given)} numbers", hint="give each row its own")
    if rows == 0 or (isinstance(given, range) and _fits(given[0], given[-1]) and given.step > 0):
        return given  # type: ignore[no-any-return]
    numbers = given if isinstance(given, np.ndarray) and given.dtype == np.int64 else None
    if numbers is None or not _fits(numbers.min(), numbers.max()):
        numbers = np.array([_whole(*one) for one in enumerate(given)], dtype=np.int64)
    if not rise(numbers):
        at = 1 + int(np.flatnonzero(numbers[1:] <= numbers[:-1])[0])
        msg = f"row {at} has the number {numbers[at]}, and the row before it has {numbers[at - 1]}"
        raise LinkError(msg, hint="numbers only rise: give each row its place where it comes from")
    return numbers  # type: ignore[return-value]  # an array is a sequence in all but name


def _whole(place: int, number: Any) -> int:
    try:
        found = operator.index(number)
    except TypeError:
        found = -1
    if not _fits(found, found):
        hint = "numbers are whole, and lie between 0 and 2**62"
        raise LinkError(f"row {place} has the number {number!r}", hint=hint)
    return found


def _fits(first: int, last: int) -> bool:
    return first >= 0 and last <= MOST_NUMBER


@dataclass(frozen=True, slots=True)
class Admission:
    """How much of a batch is taken: first `repeated` rows, which are there, then `fresh` ones."""

    repeated: int
    fresh: int

    @property
    def taken(self) -> int:
        return self.repeated + self.fresh


def admit(highest: int, after: int, numbers: Numbers, room: int) -> Admission:
    """Return what an inbox takes of rows with these numbers.

    Example:
        >>> admit(highest=4, after=NOTHING, numbers=range(3, 9), room=2)
        Admission(repeated=2, fresh=2)
        >>> admit(highest=4, after=6, numbers=range(7, 9), room=10)
        Admission(repeated=0, fresh=0)
    """
    if after > highest:
        return Admission(0, 0)
    repeated = bisect_right(numbers, highest)
    return Admission(repeated, max(0, min(len(numbers) - repeated, room)))


@dataclass(frozen=True, slots=True)
class TakenRows:
    """The answer to an envelope: how many events were taken from its front.

    `highest` is the highest number that is durable, `free` the room that is left, in rows. Of those
    taken, some were `repeated` (there already), and some `refused` (they are dead letters now).
    """

    taken: int
    highest: int
    free: int
    repeated: int = 0
    refused: int = 0
    #: Why nothing is taken, if it is not only a full inbox.
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Ends:
    """Which upstreams have ended; without a list of them, the first end is that of all."""

    upstreams: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()

    def after(self, sender: str) -> Ends:
        """Return the ends once `sender` has ended; a second time changes nothing."""
        return replace(self, ended=self.ended | {sender})

    @property
    def complete(self) -> bool:
        return bool(self.ended) and self.upstreams <= self.ended

    @property
    def missing(self) -> frozenset[str]:
        return self.upstreams - self.ended
