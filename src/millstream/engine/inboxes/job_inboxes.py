"""The inboxes of one job on one engine: those that live here, and copies of the others."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from millstream.engine.inboxes.follow import Following
from millstream.engine.inboxes.landing import Landing
from millstream.engine.inboxes.source_reader import SourceReader
from millstream.engine.jobs.status import CopyStatus, InboxStatus
from millstream.links.follower import FollowerStatistics
from millstream.links.inbox import Inbox
from millstream.links.network import Address

_SENDER: Final = "millstream:flush"
_SETTLE_S: Final = 10.0


@dataclass(slots=True)
class JobInboxes:
    """The inboxes of a job; none if it is not open. Any thread may call."""

    job: str
    address: Address
    #: Those that live here, by source.
    sources: dict[str, list[Inbox]] = field(default_factory=dict)
    #: Those that live elsewhere, if its driver is here.
    following: Following | None = None
    #: Where runtimes send to, by source.
    landings: dict[str, Landing] = field(default_factory=dict)
    #: What reads the sources that are read here.
    readers: dict[str, SourceReader] = field(default_factory=dict)
    #: Whether ends are still to be written.
    ending: bool = False

    @property
    def all(self) -> list[Inbox]:
        return [inbox for inboxes in list(self.sources.values()) for inbox in inboxes]

    def highest(self, source: str, sender: str) -> int:
        """Return the highest number that is durable here of a sender to a source, or -1."""
        here = self.sources.get(source, ())
        return max((inbox.highest(sender) for inbox in here), default=-1)

    # intake

    def pause(self, why: Callable[[], str | None] = lambda: None) -> None:
        """Take nothing more."""
        for inbox in self.all:
            inbox.pause(why)

    def resume(self) -> None:
        for inbox in self.all:
            inbox.resume()

    def allow(self, rows: int | None) -> None:
        """Take so many more rows in all, then let senders wait; None: no limit."""
        inboxes = self.all
        for inbox in inboxes:
            inbox.allow(None if rows is None else -(-rows // len(inboxes)))

    @property
    def taken(self) -> int:
        """How many rows were taken since the inboxes were opened."""
        return sum(inbox.statistics().rows for inbox in self.all)

    @property
    def settled(self) -> bool:
        """Whether all that was taken here is durable."""
        return all(inbox.settled for inbox in self.all)

    def settle(self) -> None:
        """Wait until all that was taken here is durable, unless the disk is too slow."""
        until = time.monotonic() + _SETTLE_S
        while not self.settled and time.monotonic() < until:
            time.sleep(0.005)

    def tick(self, *, listen: bool) -> None:
        """Write ends that are not written, and try again where a disk has refused."""
        for inbox in self.all:
            inbox.working()
            inbox.epochs.expire(paused=inbox.paused)
        if listen:
            self.listen()
        if self.ending:
            # Each is asked, whatever another answers.
            ended = [inbox.end(_SENDER) for inbox in self.all]
            self.ending = not all(ended)

    def listen(self) -> None:
        """Take the messages of runtimes."""
        for landing in self.landings.values():
            landing.tick()

    # other engines

    @property
    def elsewhere(self) -> bool:
        """Whether partitions are followed."""
        return self.following is not None and not self.following.empty

    def meet(self, timeout: float) -> None:
        """Wait until the other engines have been reached once.

        Raises:
            EngineAway: That takes longer.
        """
        if self.following is not None:
            self.following.meet(timeout)

    def catch_up(self) -> None:
        """Wait until what all engines have taken is durable and here, unless one is too slow."""
        self.settle()
        if self.following is not None:
            self.following.catch_up(_SETTLE_S)

    def followed(self) -> tuple[FollowerStatistics, ...]:
        """Return what the followers are doing, if the driver is here."""
        return () if self.following is None else self.following.statistics()

    def copies(self) -> tuple[CopyStatus, ...]:
        """Return how far the copies of the partitions are that live elsewhere."""
        return tuple(
            CopyStatus(
                source=one.source.removeprefix(f"{self.job}."),
                partition=one.partition,
                original=one.original,
                rows=one.end,
                behind_bytes=one.behind_bytes,
                live=one.live,
                error=one.error,
            )
            for one in self.followed()
        )

    def missing(self) -> str | None:
        """Return which partition cannot be followed, and why, if there is one."""
        found = next((one for one in self.followed() if one.error is not None), None)
        if found is None:
            return None
        return f"partition {found.partition} of {found.source} is not followed: {found.error}"

    def away(self, of: int) -> tuple[str, ...]:
        """Return which of the `of` engines do not answer."""
        found = [one for one in self.followed() if one.error is not None]
        return tuple(sorted({f"node {one.partition % of}" for one in found}))

    # looking

    def status(self) -> tuple[InboxStatus, ...]:
        """Return what each inbox is doing."""
        return tuple(
            self._status(name, inbox)
            for name, inboxes in list(self.sources.items())
            for inbox in inboxes
        )

    def _status(self, source: str, inbox: Inbox) -> InboxStatus:
        found, landing = inbox.statistics(), self.landings.get(source)
        reader = self.readers.get(source)
        return InboxStatus(
            source=source,
            partition=inbox.partition,
            address=str(self.address),
            rows=found.rows,
            repeated=found.repeated,
            refused=found.refused,
            waiting=found.waiting,
            free=found.free,
            senders=found.senders,
            error=found.error or (None if reader is None else reader.error),
            away=None if reader is None else reader.waiting,
            expired=inbox.epochs.expired,
            runtimes=landing.at if landing is not None and landing.open else None,
        )

    def open_landings(self) -> dict[str, str]:
        """Return where runtimes send to each source that takes messages here."""
        return {name: landing.at for name, landing in list(self.landings.items()) if landing.open}

    def begin_ending(self) -> None:
        """Read nothing more, and write ends with the next ticks."""
        self.stop_reading()
        self.ending = True

    def stop_reading(self) -> None:
        """Read nothing more; what was read is handed to the inboxes."""
        for reader in self.readers.values():
            reader.stop()

    def close(self) -> None:
        """Write what was taken, and release the inboxes."""
        self.stop_reading()
        for landing in self.landings.values():
            landing.close()
        with contextlib.ExitStack() as stack:
            for inbox in self.all:
                stack.callback(inbox.close)
            if self.following is not None:
                stack.callback(self.following.close)
