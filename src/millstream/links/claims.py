"""Whose turn it is under a sender's name: one client at a time, the newest one.

A named client takes its name over before it sends, with an incarnation above all that an inbox has
seen. Rows of an older incarnation are refused from then on, so two clients under one name cannot
both hear that their rows are stored. A restart is a new incarnation too, and continues.

    below the inbox's    refused: a newer client has the name
    the same             taken
    above it             taken; the name is this client's now
    none                 a client of an earlier version, or HTTP: it takes the name over with the
                         first row that is new

An incarnation is a count and, in its low bits, a random part, so that two clients that count alike
differ; without a random part it is that of those who have none. The journal has it, durably, before
anything of a new incarnation is taken.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import replace
from enum import Enum
from typing import Final

from millstream.errors import SenderReplaced
from millstream.journal.base import Claim
from millstream.journal.kind import ClaimLog

_BITS: Final = 24
_FURTHEST: Final = 1 << 20
"""How many claims an inbox may have missed; more are a peer that wants to use the numbers up."""


class Turn(Enum):
    """What an inbox makes of a request's incarnation."""

    ITS_OWN = "its own"
    TAKES_OVER = "takes over"
    REPLACED = "replaced"


def above(incarnation: int, chance: int | None = None) -> int:
    """Return an incarnation above one, different from all that others choose.

    >>> above(0, 5) == (1 << 24) + 5, above((1 << 24) + 77, 5) == (2 << 24) + 5
    (True, True)
    """
    low = 1 + secrets.randbelow((1 << _BITS) - 1) if chance is None else chance
    return ((incarnation >> _BITS) + 1 << _BITS) + low


def again(mine: int, found: Collection[int], chance: int | None = None) -> int | None:
    """Return the incarnation to ask with next; None if those that answered let us have the name.

    It is above all that we asked with before: an inbox may have taken one whose answer was lost, and
    would refuse us for it.

    >>> again(above(0, 5), [above(0, 5)]), again(above(0, 5), [], 3) == above(above(0, 5), 3)
    (None, True)
    """
    highest = max(found, default=0)
    return None if highest == mine else above(max(highest, mine), chance)


def turn(current: int, asked: int) -> Turn:
    """Return whose turn it is while a name's incarnation is `current`, and `asked` comes."""
    if asked == current or (asked == 0 and current % (1 << _BITS) == 0):
        return Turn.ITS_OWN
    if asked == 0:
        return Turn.TAKES_OVER
    near = (asked >> _BITS) - (current >> _BITS) <= _FURTHEST
    return Turn.TAKES_OVER if asked > current and near else Turn.REPLACED


class Claims:
    """The incarnations of a partition's senders. Its inbox's guard is held."""

    def __init__(self, log: ClaimLog) -> None:
        self._log = log

    def _claim(self, sender: str) -> Claim:
        return self._log.known.get(sender, Claim())

    def current(self, sender: str) -> int:
        """Return a sender's incarnation; 0: it never had one."""
        return self._claim(sender).incarnation

    def turn(self, sender: str, asked: int) -> Turn:
        """Return what a request of this incarnation may do.

        Raises:
            SenderReplaced: Another client has the name.
        """
        found = turn(self.current(sender), asked)
        if found is Turn.REPLACED:
            hint = "give each program that runs at the same time a name of its own"
            raise SenderReplaced(f'another client sends as "{sender}" now', hint=hint)
        return found

    def take(self, sender: str, asked: int) -> int:
        """Give a name to an incarnation, if it may have it; return whose it is, durably."""
        before = self._claim(sender)
        if turn(before.incarnation, asked) is not Turn.TAKES_OVER:
            return before.incarnation
        mine = asked or above(before.incarnation, 0)
        self._log.put(sender, replace(before, incarnation=mine))
        return mine

    def key(self, sender: str) -> str | None:
        """Return the key that has a sender's name because it was the first to use it."""
        return self._claim(sender).key

    def bind(self, sender: str, key: str) -> None:
        """Give a sender's name to a key, durably."""
        self._log.put(sender, replace(self._claim(sender), key=key))
