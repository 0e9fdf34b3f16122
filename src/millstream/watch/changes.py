"""The change log: what changed on this device, and how much of it each peer has: pure rules.

    position   1     2     3     4     5     6            end = 6
    entry      r1    r2    e7    r1    r3    r2
                     ▲                 ▲
                     B's cursor        C's cursor         B's stash: e7, r1, r3, r2

A position only rises. Of the entries about one thing (a run, an event) the newest one says all that
the older ones do, so it takes their place: the log has one entry for each thing that some peer does
not know yet. What every cursor has passed is dropped. If more than `limit` entries wait, the oldest
are dropped, and a peer behind them needs a RESYNC, as one whose stash was wiped does.

A RESYNC is put together at some position; its entries from there on are kept until the next RESYNC,
so that changes while it is on its way follow as a SYNC.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, Generic, TypeVar

Entry = TypeVar("Entry")

LIMIT: Final = 100_000


@dataclass(slots=True)
class _Cursor:
    position: int
    whole: bool = True
    """Whether the peer needs the whole state."""


class ChangeLog(Generic[Entry]):
    """Entries by position, and a cursor for each peer."""

    def __init__(
        self, peers: Iterable[str], about: Callable[[Entry], Hashable], *, limit: int = LIMIT
    ) -> None:
        """Begin empty; `about` returns the thing that an entry is about."""
        self._about, self._limit = about, limit
        self._entries: OrderedDict[Hashable, tuple[int, Entry, str | None]] = OrderedDict()
        self._cursors = {peer: _Cursor(0) for peer in peers}
        self._start = 0
        self.end = 0

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, entry: Entry, *, known_to: str | None = None) -> int:
        """Add an entry and return its position; the peer that it is known to does not get it."""
        before, self.end = self.end, self.end + 1
        about = self._about(entry)
        self._entries.pop(about, None)
        self._entries[about] = (self.end, entry, known_to)
        known = self._cursors.get(known_to) if known_to is not None else None
        if known is not None and known.position == before:
            known.position = self.end
        if len(self._entries) > self._limit or known is not None:
            self._trim()
        return self.end

    def changes(self, peer: str) -> tuple[int, list[Entry]]:
        """Return a peer's stash, oldest first, and the position up to which it reaches."""
        waiting = [entry for _, entry, known_to in self._behind(peer) if known_to != peer]
        return self.end, waiting[::-1]

    def waiting(self, peer: str) -> bool:
        """Tell whether a peer has a stash."""
        return any(known_to != peer for _, _, known_to in self._behind(peer))

    def stash(self, peer: str) -> int:
        """Return how many entries are in a peer's stash."""
        return sum(known_to != peer for _, _, known_to in self._behind(peer))

    def trimmed(self, peer: str) -> bool:
        """Tell whether a peer needs a RESYNC: the log does not have all that it does not know."""
        cursor = self._cursors[peer]
        return cursor.whole or cursor.position < self._start

    def resync(self, peer: str) -> int:
        """Return the position of a RESYNC that is put together now, and keep what comes after."""
        self._cursors[peer] = _Cursor(self.end)
        self._trim()
        return self.end

    def wipe(self, peer: str) -> None:
        """Drop a peer's stash, because its next message is a RESYNC.

        What is kept since the last RESYNC that was put together stays: it may still arrive.
        """
        cursor = self._cursors[peer]
        if not cursor.whole:
            self.resync(peer)

    def passed(self, peer: str, position: int) -> None:
        """A peer has acknowledged a message that reaches up to a position."""
        cursor = self._cursors[peer]
        if position >= cursor.position:
            self._cursors[peer] = _Cursor(position, whole=False)
            self._trim()

    def _behind(self, peer: str) -> Iterator[tuple[int, Entry, str | None]]:
        """Return the entries behind a peer's cursor, newest first."""
        position = self._cursors[peer].position
        return takewhile(lambda one: one[0] > position, reversed(self._entries.values()))

    def _trim(self) -> None:
        """Drop what every cursor has passed, and the oldest above the limit."""
        least = min((cursor.position for cursor in self._cursors.values()), default=self.end)
        while self._entries:
            about = next(iter(self._entries))
            position = self._entries[about][0]
            if position > least:
                if len(self._entries) <= self._limit:
                    return
                self._start = position
            del self._entries[about]
