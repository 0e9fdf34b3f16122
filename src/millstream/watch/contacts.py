"""What a device knows of the way to each of its peers, and to whom something is due."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from millstream.watch import choice
from millstream.watch.changes import ChangeLog
from millstream.watch.choice import Choice, Contact, Kind, Periods


class Contacts(dict[str, Contact]):
    """The contact of each peer, with the change log that has its stash.

    Args:
        peers: The names of the peers.
        log: The changes that they have to know of.
        periods: When which message is due.
        elapsed: The time of a clock that does not jump, in microseconds.
    """

    def __init__(
        self, peers: Iterable[str], log: ChangeLog[Any], periods: Periods, elapsed: int
    ) -> None:
        super().__init__({peer: Contact(elapsed) for peer in peers})
        self._log, self._periods = log, periods

    def choose(self, peer: str, elapsed: int) -> Choice | None:
        """Return the message that is due to a peer now, if any."""
        contact = self[peer]
        if choice.wiped(contact, self._periods, elapsed):
            self._log.wipe(peer)
        return choice.choose(contact, self._periods, elapsed, **self._behind(peer))

    def due_at(self, elapsed: int) -> int | None:
        """Return when to ask for messages again if nothing happens until then."""
        moments = [
            choice.due_at(contact, self._periods, elapsed, **self._behind(peer))
            for peer, contact in self.items()
        ]
        return min((moment for moment in moments if moment is not None), default=None)

    def away(self, elapsed: int) -> set[str]:
        """Return the peers that are away."""
        return {peer for peer, one in self.items() if choice.away(one, self._periods, elapsed)}

    def greetings(self, elapsed: int, *, ready: Container[str]) -> list[str]:
        """Return the peers that have to be found before they get a message, as attempted.

        A RESYNC is large: it is put together for a peer that is there.
        """
        found = [
            peer for peer in self if peer not in ready and self.choose(peer, elapsed) is not None
        ]
        for peer in found:
            self[peer] = choice.attempted(self[peer], Kind.PING, elapsed)
        return found

    def greeted(self, peer: str, *, found: bool) -> None:
        """Note whether a peer is there."""
        self[peer] = choice.greeted(self[peer]) if found else choice.failed(self[peer])

    def _behind(self, peer: str) -> dict[str, bool]:
        return {"stash": self._log.waiting(peer), "trimmed": self._log.trimmed(peer)}
