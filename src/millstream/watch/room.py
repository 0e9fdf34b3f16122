"""How many runs of peers a device has room for.

A peer with a valid key could fill the memory with runs. What it sends is refused above a limit, as
if the message had been lost: it is sent again, and taken when others are forgotten. Runs of our own
events are not bound by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from millstream.errors import DeviceRefused
from millstream.watch.matcher import Matcher
from millstream.watch.runs import Run

#: Some 400 MB.
MOST_RUNS: Final = 200_000


class Room:
    """The room for runs of peers."""

    def __init__(self, most: int, matchers: Collection[object]) -> None:
        self._most, self._matchers = most, [one for one in matchers if isinstance(one, Matcher)]
        #: How many runs there is room for at least: they are counted again when it is used up.
        self._left = 0

    def check(self, runs: Iterable[Run]) -> None:
        """Refuse runs for which there is no room.

        Raises:
            DeviceRefused: Too many are known already.
        """
        given = list(runs)
        if len(given) <= self._left:
            return
        known = {one.pattern.name: one for one in self._matchers}
        held = sum(one.held for one in self._matchers)
        self._left = self._most - held
        new = {run.id for run in given if not known[run.id.pattern].knows(run.id)}
        if len(new) > self._left:
            msg = f"there are {held:,} runs here, and room for {self._most:,}: new ones are refused"
            raise DeviceRefused(msg, hint='see "runs" of "limits" in peers.yaml')

    def taken(self, count: int) -> None:
        """Note that runs may have come."""
        self._left -= count
