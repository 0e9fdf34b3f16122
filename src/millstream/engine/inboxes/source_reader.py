"""The thread that reads a source on an engine, for the partitions of its journal that live there.

It ends with the job's inboxes, and waits while they take nothing. If the source cannot be read, it
tries again, after 1, 2, 4 .. 60 s; the job's status shows why.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from millstream.clock import Clock
from millstream.engine.inboxes.inbox_feed import InboxFeed, Stopped, expect
from millstream.engine.jobs.spread import SpreadSource, spec_of
from millstream.errors import LinkClosed, MillstreamError
from millstream.ingest import SourceSettings
from millstream.ingest.origin import Origin, OriginContext, Pause, open_origin
from millstream.journal import Description
from millstream.links.client import Client
from millstream.links.inbox import Inbox
from millstream.links.keys import KeyPair
from millstream.links.listener import Security
from millstream.links.network import Address

_log = logging.getLogger(__name__)
_LONGEST_S: Final = 60.0
_SLICE_S: Final = 0.5
#: How long to wait for inboxes of other engines before a source is read again from where they are.
_PATIENCE_S: Final = 10.0
#: A source that is read for so long is not failing any more.
_SOUND_S: Final = 10.0

NOTHING_READ: Final[Mapping[str, SpreadSource]] = {}

OpenFeed = Callable[[Pause], InboxFeed]
"""Opens what takes the rows of a source, given what waits while there is no room."""


class SourceReader(threading.Thread):
    """Reads one source."""

    def __init__(
        self,
        name: str,
        inboxes: Sequence[Inbox],
        open_origin: Callable[[], Origin],
        open_feed: OpenFeed,
        *,
        again_s: float = 1.0,
    ) -> None:
        super().__init__(name=f"reader {name}", daemon=True)
        self._source, self._inboxes = name, inboxes
        self._origin, self._open_feed = open_origin, open_feed
        self._again_s = again_s
        self._stopping = threading.Event()
        self._error: str | None = None
        #: When it began to read; None while it waits for its next try.
        self._began_at: float | None = None
        self._feed: InboxFeed | None = None

    def run(self) -> None:
        pause_s = self._again_s
        expect(self._inboxes)
        while not self._stopping.is_set():
            began_at = self._began_at = time.monotonic()
            if self._read():
                return
            self._began_at = None
            sound = time.monotonic() - began_at > _LONGEST_S
            pause_s = self._again_s if sound else min(2 * pause_s, _LONGEST_S)
            self._wait(pause_s, partial(expect, self._inboxes))

    def _read(self) -> bool:
        """Read until there is no more to do (True), or it fails."""
        try:
            feed = self._feed = self._open_feed(self._pause)
            try:
                self._origin().pump(feed, self._pause)
                feed.flush()
            finally:
                feed.close()
        except (Stopped, LinkClosed):
            return True
        except Exception as error:  # noqa: BLE001 (the other sources of the engine go on)
            text = error.message if isinstance(error, MillstreamError) else str(error)
            self._error = text or type(error).__name__
            _log.error("source %s cannot be read: %s", self._source, self._error)
            return False
        return True

    def _pause(self, seconds: float) -> bool:
        assert self._feed is not None
        return self._wait(seconds, self._feed.tick)

    def _wait(self, seconds: float, tick: Callable[[], None]) -> bool:
        """Wait, watch over idle partitions meanwhile, and return whether to go on."""
        until = time.monotonic() + seconds
        while not self._stopping.is_set() and (left := until - time.monotonic()) > 0:
            self._stopping.wait(min(left, _SLICE_S))
            tick()
        return not self._stopping.is_set()

    @property
    def error(self) -> str | None:
        """Why the source cannot be read, if it cannot."""
        began_at = self._began_at
        sound = began_at is not None and time.monotonic() - began_at > _SOUND_S
        return None if sound else self._error

    @property
    def waiting(self) -> str | None:
        """What it waits for, if the system that it reads is away."""
        return None if self._feed is None else self._feed.waiting

    def stop(self) -> None:
        """Stop; what was taken is durable when this returns."""
        self._stopping.set()
        if self.ident is not None:
            self.join()


def sending(address: Address, keys: KeyPair | None, sender: str) -> Client:
    """Return the client of a sender whose rows belong to several engines."""
    server = None if keys is None else keys.public
    return Client(
        address,
        sender=sender,
        key=keys,
        server=server,
        timeout=_PATIENCE_S,
        linger_s=0.0,
        reads=True,
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """What the readers of a job share: the engine's inboxes, and what paths are relative to."""

    address: Address
    security: Security | None
    #: Returns which of so many partitions live here.
    here: Callable[[int], range]
    root: Path
    clock: Clock

    def begun(
        self,
        job: str,
        spread: Mapping[str, SpreadSource],
        inboxes: Mapping[str, Sequence[Inbox]],
        known: Mapping[str, tuple[Description, SourceSettings]],
    ) -> dict[str, SourceReader]:
        """Begin to read sources for those of their inboxes that are here."""
        found = {
            name: self._reader(f"{job}.{name}", source, inboxes[name], *known[name])
            for name, source in spread.items()
            if inboxes.get(name)
        }
        for reader in found.values():
            reader.start()
        return found

    def _reader(
        self,
        target: str,
        source: SpreadSource,
        inboxes: Sequence[Inbox],
        description: Description,
        settings: SourceSettings,
    ) -> SourceReader:
        context = OriginContext(
            settings.source,
            description.schema,
            settings.time,
            description.path,
            self.root,
            self.clock,
            settings.lateness,
        )

        keys = None if self.security is None else self.security.keys

        def open_feed(pause: Pause) -> InboxFeed:
            return InboxFeed(
                description,
                inboxes,
                self.here(description.partitions),
                settings.rules,
                self.clock,
                target=target,
                connect=partial(sending, self.address, keys),
                pause=pause,
            )

        return SourceReader(
            target, inboxes, lambda: open_origin(spec_of(source), context), open_feed
        )
