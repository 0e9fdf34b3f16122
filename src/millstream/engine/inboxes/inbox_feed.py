"""What an engine reads itself, on its way into the inboxes of its job.

Without a key, all rows of a sender belong to one partition, which lives here: they are handed to its
inbox. With a key, they belong to partitions of all engines: a client sends them, under the same
sender and the same numbers. What every inbox has of a sender up to a place is noted here, beside the
sender (`<sender>/settled`): after a restart, reading goes on behind that, and inboxes pass over what
they have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from millstream.clock import Clock
from millstream.errors import MillstreamError
from millstream.ingest.checks import Rules
from millstream.ingest.feed import Feed
from millstream.ingest.origin import Pause
from millstream.ingest.rows import Refused, Rows
from millstream.journal import Description, Kind
from millstream.links.admission import NOTHING, TakenRows
from millstream.links.client import Client
from millstream.links.inbox import Inbox

#: Appends that may wait for the disk before the origin has to.
_IN_FLIGHT: Final = 16
_FULL_S: Final = 0.05
#: Rows of a sender that may be on their way to other engines; clients have room for more.
_ON_THEIR_WAY: Final = 1 << 15

Connect = Callable[[str], Client]
"""Makes the client of a sender, by the sender's name."""


class Stopped(MillstreamError):
    """The source is being stopped."""


@dataclass(frozen=True, slots=True)
class _Handed:
    """Rows, or a number that is noted, which an inbox here was given."""

    partition: int
    sender: str
    rows: Rows | None
    last: int
    taken: Future[TakenRows]


class InboxFeed(Feed):
    """Takes rows for the inboxes of a source. The thread that reads the source uses it."""

    def __init__(
        self,
        description: Description,
        inboxes: Sequence[Inbox],
        here: range,
        rules: Rules,
        clock: Clock,
        *,
        target: str,
        connect: Connect,
        pause: Pause,
    ) -> None:
        """Take rows for a source.

        Args:
            description: Its journal.
            inboxes: Those of its partitions that live here.
            here: Their numbers.
            rules: What is asked of rows.
            clock: Tells which rows are dated too far ahead.
            target: The source, "job.source".
            connect: Makes clients for rows that belong elsewhere.
            pause: Waits while there is no room; False means that the source is being stopped.
        """
        super().__init__(description, rules, clock)
        self._description, self._here = description, here
        self._inboxes = {inbox.partition: inbox for inbox in inboxes}
        self._target, self._connect, self._pause = target, connect, pause
        self._handed: deque[_Handed] = deque()
        self._last: dict[tuple[int, str], int] = {}
        self._clients: dict[str, Client] = {}
        #: By sender: what its client sends, and the number of the first row.
        self._sent: dict[str, deque[tuple[Future[int], int]]] = {}

    @property
    def description(self) -> Description:
        return self._description

    @property
    def here(self) -> range:
        return self._here

    def highest(self, sender: str, partition: int | None = None) -> int:
        if partition is None:
            return self._known(self._here[0], _settled(sender))
        return self._known(partition, sender)

    def _known(self, partition: int, sender: str) -> int:
        known = self._last.get((partition, sender))
        return self._inboxes[partition].highest(sender) if known is None else known

    def refuse(self, sender: str, refused: Sequence[Refused]) -> None:
        if refused:
            first = self._inboxes[self._here[0]]
            self.refused += first.put_dead_letters(self.shown.get(sender, sender), refused)

    # rows that belong to inboxes here

    def _append(self, partition: int, sender: str, given: Rows) -> None:
        rows = given.above(self._known(partition, sender))
        self.repeated += len(given) - len(rows)
        if len(rows):
            self._hand(partition, sender, rows, int(rows.numbers[-1]))
            self.bytes += rows.batch.nbytes

    def progress(self, sender: str, number: int, partition: int | None = None) -> None:
        if partition is None:
            partition, number = self._here[0], min(number, self._arrived(sender, number))
            sender = _settled(sender)
        if number > self._known(partition, sender):
            self._hand(partition, sender, None, number)

    def _hand(self, partition: int, sender: str, rows: Rows | None, last: int) -> None:
        before = self._last.get((partition, sender), NOTHING)
        taken = self._given(partition, sender, rows, last, before)
        self._last[partition, sender] = last
        self._handed.append(_Handed(partition, sender, rows, last, taken))
        while len(self._handed) > _IN_FLIGHT:
            self._settle()

    def _given(
        self, partition: int, sender: str, rows: Rows | None, last: int, after: int
    ) -> Future[TakenRows]:
        inbox = self._inboxes[partition]
        if rows is None:
            return inbox.instruct_nowait(sender, last, Kind.PROGRESS, after=after)
        numbers: Any = rows.numbers
        return inbox.enqueue_nowait(sender, numbers, rows.batch, after=after)

    def _settle(self) -> None:
        """Wait until the inbox has what it was given first; give it again what it had no room for.

        What it was given after that it has refused as well: each comes after the one before it.
        """
        one = self._handed.popleft()
        rows, taken = one.rows, one.taken.result().taken
        while taken < (left := 1 if rows is None else len(rows)):
            if taken == 0 and not self._pause(_FULL_S):
                raise Stopped("the source is being stopped")
            rows = None if rows is None else rows.slice(taken, left)
            taken = self._given(one.partition, one.sender, rows, one.last, NOTHING).result().taken
        self.rows += 0 if one.rows is None else len(one.rows)

    def flush(self) -> None:
        while self._handed:
            self._settle()

    # rows that belong to inboxes of all engines

    def _spread(self, sender: str, rows: Rows) -> None:
        if not len(rows):
            return
        client = self._client(sender)
        while client.waiting > _ON_THEIR_WAY:
            self.waiting = client.no_room(self._target).message
            if not self._pause(_FULL_S):
                raise Stopped("the source is being stopped")
        self.waiting = None
        numbers: Any = rows.numbers
        sent = client.send_nowait(self._target, rows.batch, numbers=numbers)
        self._sent.setdefault(sender, deque()).append((sent, int(rows.numbers[0])))
        self.rows += len(rows)
        self.bytes += rows.batch.nbytes

    def _client(self, sender: str) -> Client:
        if sender not in self._clients:
            self._clients[sender] = self._connect(sender)
        return self._clients[sender]

    def _arrived(self, sender: str, number: int) -> int:
        """Return the place up to which all that was sent of a sender is in its inboxes."""
        sent = self._sent.get(sender, deque())
        while sent and sent[0][0].done():
            sent[0][0].result()
            sent.popleft()
        return sent[0][1] - 1 if sent else number

    def tick(self) -> None:
        """Let no partition be idle while the source cannot be read.

        The engine with the driver, which knows all partitions, brings idle ones level.
        """
        if self.waiting is not None:
            expect(self._inboxes.values())

    def close(self) -> None:
        """Send nothing more: what is not acknowledged is read again."""
        for client in self._clients.values():
            client.abort()


def expect(inboxes: Iterable[Inbox]) -> None:
    """Note of inboxes that they are not idle."""
    for inbox in inboxes:
        inbox.idleness.expect()


def _settled(sender: str) -> str:
    return f"{sender}/settled"
