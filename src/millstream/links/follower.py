"""The follower: keeps a copy of a partition of another engine, as close as the network allows.

It asks for what follows, writes it, and asks again; the owner answers when there is something.
Whatever is lost, late, killed or full on the way, it goes on from where its files end.

    asking ──piece──▶ taken ──nothing behind it, or enough──▶ synced ──▶ asking
       ▲                                                        │
       └──────────── after a pause: no answer, a refusal, a disk ┘
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from millstream.clock import Clock, SystemClock
from millstream.errors import JournalError, LinkBroken, MillstreamError, NoAnswer
from millstream.ingest import Progress
from millstream.journal import journal_at
from millstream.journal.copies import CopyState, Mirror, Reached, ReplicaChunk
from millstream.links import envelope, follow
from millstream.links.keys import KeyPair
from millstream.links.link import Link, open_link
from millstream.links.network import Address
from millstream.links.transport import Loop
from millstream.storage.disk import REAL, Disk

_log = logging.getLogger(__name__)
#: How long the owner may keep a request that finds nothing.
WAIT_S: Final = 10.0
#: How much longer it may take to answer.
_LATE_S: Final = 10.0
#: How many bytes are written at most before they are synced.
_GROUP: Final = 16 << 20
_SHORTEST_S: Final = 0.02
_LONGEST_S: Final = 1.0
_PASSED_EVERY_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class FollowerStatistics:
    """What a follower is doing; `live`: its copy was complete at the last answer, and still is."""

    source: str
    partition: int
    original: str
    transport: str | None
    end: int
    behind_bytes: int
    live: bool
    error: str | None


class Follower:
    """A copy of one partition, kept up to date by a thread of its own. Any thread may call."""

    def __init__(
        self,
        path: Path,
        source: str,
        partition: int,
        where: Address | Callable[[], Address],
        *,
        keys: KeyPair | None = None,
        server: bytes | None = None,
        clock: Clock | None = None,
        disk: Disk = REAL,
        wait_s: float = WAIT_S,
        passed_every_s: float = _PASSED_EVERY_S,
    ) -> None:
        """Follow, once it is started.

        Args:
            path: The folder of the journal here.
            source: Its name where it is hosted, "flow.source".
            partition: Which one.
            where: Where it is hosted; asked again when that cannot be reached.
            keys: Our key, if the other side wants one.
            server: The other side's public key.
            clock: Tells when rows have come.
            disk: Where the copy lies.
            wait_s: How long a request waits for news.
            passed_every_s: How often it is reported to the owner how far the readers here are.
        """
        self.path, self.source, self.partition = path, source, partition
        self._where: Callable[[], Address] = where if callable(where) else partial(_same, where)
        self._keys, self._server = keys, server
        self._clock, self._disk = clock or SystemClock(), disk
        self._wait_s, self._passed_every_s = wait_s, passed_every_s
        self._original = "an engine"
        self._loop = Loop(f"follower {source}/{partition}")
        self._link: Link | None = None
        self._bell = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(
            target=self._run, name=f"follow {source}/{partition}", daemon=True
        )
        self._met = threading.Event()
        self._state = CopyState()
        self._reached = Reached()
        self._behind = 0
        self._live = False
        self._error: str | None = None
        self._rows_at_us = self._clock.elapsed_us()
        self._pause_s = _SHORTEST_S
        self._housekeeping_at = 0.0
        self._told: tuple[dict[str, int], int] | None = None
        #: Called when something has come, or the link is there again.
        self.on_rows: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._loop.start()
        self._thread.start()

    # asking

    def statistics(self) -> FollowerStatistics:
        """Return the numbers as they are now."""
        link = self._link
        return FollowerStatistics(
            source=self.source,
            partition=self.partition,
            original=self._original,
            transport=None if link is None else link.transport,
            end=self._state.position,
            behind_bytes=self._behind,
            live=self._live,
            error=self._error,
        )

    def met(self, timeout: float = 0.0) -> bool:
        """Wait until the begin of the original is known, and all is here that readers have read."""
        return self._met.wait(timeout)

    def catch_up(self, timeout: float) -> bool:
        """Wait until all is here that the owner has now; False if that takes longer."""
        until = time.monotonic() + timeout
        while (left := until - time.monotonic()) > 0 and not self._stopping:
            if self._complete(left):
                return True
            time.sleep(_SHORTEST_S)
        return False

    def _complete(self, timeout: float) -> bool:
        link, reached = self._link, self._reached
        if link is None:
            return False
        try:
            asked = link.call(
                lambda n: follow.Follow(
                    n, self.source, self.partition, follow.CopyReached.of(reached), 0.0
                )
            )
            answer = asked.result(timeout)
        except (MillstreamError, TimeoutError):
            return False
        return isinstance(answer, follow.Followed) and answer.piece().empty

    def progress(self) -> Progress:
        """Return how far the partition is written, for those who look for idle ones.

        One whose owner does not answer is not idle: what its senders hold comes when it is back,
        and must not be late then.
        """
        state = self._state
        rows_at = self._rows_at_us if self._live else self._clock.elapsed_us()
        return Progress(self.partition, state.running_max, state.floor, state.ended, rows_at)

    def level(self, floor: int) -> None:
        """Have the owner say that this partition is idle and nothing before `floor` will come."""
        link, position = self._link, self._state.position
        if link is None:
            return
        with contextlib.suppress(MillstreamError):  # its link says so, too
            asked = link.call(
                lambda n: follow.Level(n, self.source, self.partition, floor, position)
            )
            asked.add_done_callback(self._levelled)

    def _levelled(self, done: Future[envelope.Answer]) -> None:
        if done.exception() is not None or done.result() == envelope.Done(
            done.result().request, rows=0
        ):
            self.on_rows()  # it is looked at again

    # copying

    def _run(self) -> None:
        while not self._stopping:
            try:
                with self._opened() as mirror:
                    self._copy(mirror)
            except (MillstreamError, OSError) as error:
                self._failed(error)
            except Exception as error:  # noqa: BLE001 (a follower goes on, whatever it meets)
                _log.exception(
                    "following %s/%d continues after an unexpected error",
                    self.source,
                    self.partition,
                )
                self._failed(error)
            self._rest()

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Mirror]:
        self._original = str(self._where())
        mirror = Mirror(self.path, self.partition, original=self._original, disk=self._disk)
        try:
            self._state = mirror.state.copy()
            self._meet(mirror)
            yield mirror
        finally:
            self._live = False
            mirror.close()

    def _copy(self, mirror: Mirror) -> None:
        unsynced = 0
        while not self._stopping:
            try:
                piece = self._next(mirror)
            except MillstreamError as error:
                self._sync(mirror)
                self._failed(error)
                self._rest()
                continue
            if piece is None:
                break
            rows = mirror.take(piece)
            unsynced += len(piece.data) + len(piece.index)
            if piece.behind == 0 or unsynced >= _GROUP:
                self._sync(mirror)
                unsynced = 0
            self._came(piece, rows=rows)
            self._meet(mirror)
            self._keep_house(mirror, piece)
        self._sync(mirror)

    def _next(self, mirror: Mirror) -> ReplicaChunk | None:
        """Return what follows, None if it is enough.

        Raises:
            NoAnswer: The owner is away, or was for a moment.
            CopyDiffers: The owner does not have what the copy has.
        """
        reached = follow.CopyReached.of(mirror.reached)
        answer = self._answer(
            lambda n: follow.Follow(n, self.source, self.partition, reached, self._wait_s)
        )
        if answer is None:
            return None
        if not isinstance(answer, follow.Followed):
            raise LinkBroken(f"{self._original} answered what it was not asked")
        return answer.piece()

    def _answer(self, make: Callable[[int], envelope.Request]) -> envelope.Answer | None:
        self._bell.clear()
        if self._link is None:
            self._link = open_link(self._loop, self._where, keys=self._keys, server=self._server)
        link, until = self._link, time.monotonic() + self._wait_s + _LATE_S
        pending = link.call(make)
        pending.add_done_callback(lambda _: self._bell.set())
        while not pending.done():
            if self._stopping:
                return None
            if not self._bell.wait(max(0.0, until - time.monotonic())) and not pending.done():
                self._loop.soon(link.renew)
                raise NoAnswer(f"{self._original} does not answer")
            self._bell.clear()
        return pending.result()

    def _sync(self, mirror: Mirror) -> None:
        mirror.sync()
        self._state, self._reached = mirror.state.copy(), mirror.reached

    def _came(self, piece: ReplicaChunk, *, rows: bool) -> None:
        """Note that the owner has answered."""
        self._behind = piece.behind
        self._error, self._pause_s = None, _SHORTEST_S
        live = piece.behind == 0
        if rows or live != self._live:
            self._rows_at_us = self._clock.elapsed_us()
        woke, self._live = live and not self._live, live
        if woke or not piece.empty:
            self.on_rows()

    def _meet(self, mirror: Mirror) -> None:
        """Note that readers can begin, or go on."""
        if self._met.is_set() or mirror.begin is None:
            return
        with contextlib.suppress(JournalError):  # a reader's file is damaged: it says so itself
            passed = [
                one.positions.get(self.partition, 0) for one in journal_at(self.path).committed()
            ]
            if max(passed, default=0) <= self._state.position:
                self._met.set()

    def _keep_house(self, mirror: Mirror, piece: ReplicaChunk) -> None:
        """Remove what the owner has removed, and tell it what it may remove."""
        if time.monotonic() < self._housekeeping_at or mirror.begin is None:
            return
        self._housekeeping_at = time.monotonic() + self._passed_every_s
        try:
            mirror.trim(piece.begin)
            readers = {
                one.reader: one.positions.get(self.partition, 0)
                for one in journal_at(self.path).committed()
            }
        except JournalError as error:  # until the reader commits again nothing is removed
            _log.warning("following %s/%d: %s", self.source, self.partition, error)
            return
        if self._link is not None and self._told != (readers, mirror.begin):
            self._tell(self._link, readers, mirror.begin)

    def _tell(self, link: Link, readers: dict[str, int], begin: int) -> None:
        def told(done: Future[envelope.Answer]) -> None:
            if done.exception() is None:
                self._told = (readers, begin)

        with contextlib.suppress(MillstreamError):
            asked = link.call(
                lambda n: follow.Passed(n, self.source, self.partition, readers, begin)
            )
            asked.add_done_callback(told)

    # failing

    def _failed(self, error: BaseException) -> None:
        if self._error is None and not isinstance(error, NoAnswer):
            _log.warning("following %s/%d: %s", self.source, self.partition, error)
        self._live, self._error = False, str(error)

    def _rest(self) -> None:
        """Wait before the next try, longer each time."""
        until = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_S)
        while not self._stopping and (left := until - time.monotonic()) > 0:
            self._bell.wait(left)
            self._bell.clear()

    def stop(self) -> None:
        """Stop; what was copied stays, and the next one goes on from there."""
        self._stopping = True
        self._bell.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._link is not None:
            self._loop.soon(self._link.close)
        self._loop.stop()


def _same(address: Address) -> Address:
    return address
