"""A source at work: a thread that brings what its origin has into the source's journal."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.clock import Clock, SystemClock
from millstream.errors import MillstreamError, SourceFailed
from millstream.ingest.feed import JournalFeed
from millstream.ingest.origin import OriginContext, open_origin
from millstream.ingest.settings import SourceSettings, declare, grow
from millstream.journal import Description, journal_at
from millstream.journal.partitioning import places

if TYPE_CHECKING:  # a producer should not have to load what describes flows
    from millstream.flow.stages import Source

_SLICE_S = 0.5


@dataclass(frozen=True, slots=True)
class IngestStatistics:
    """What a source has done since it was opened; of an inbox, only whether it has ended."""

    rows: int
    refused: int
    bytes: int
    ended: bool
    error: str | None
    #: What it waits for, if the system that it reads is away.
    waiting: str | None = None


def open(  # noqa: A001
    source: Source,
    folder: Path,
    *,
    root: Path = Path(),
    clock: Clock | None = None,
    read: bool = True,
) -> Ingest:
    """Make what brings a source's events into its journal; `start` begins.

    The journal is created if it does not exist. It gets the partitions that the source wants, if it
    has fewer. A source that has ended before has nothing left to do. An inbox has no origin to read: programs send to it, and its host gives
    it more partitions.

    Args:
        source: The stage.
        folder: Its journal.
        root: What the paths of the source are relative to.
        clock: Tells when rows are due and which are dated too far ahead.
        read: Whether it is read here; if not, engines do.

    Raises:
        NotThere: The files or the recording do not exist.
        UnsupportedColumn: The files' format cannot hold a column.
        UnplaceableKey: The key's type has no place among partitions.
        SchemaConflict: The journal holds other columns.
    """
    clock = clock or SystemClock()
    description, settings = declare(source, folder)
    _check_key(description, settings, max(description.partitions, source.partitions))
    if source.origin.reader is None or not read:
        return Ingest(source, folder, None)
    description = grow(description, settings, source.partitions, clock)
    return Ingest(source, folder, _pumping(source, description, settings, root, clock))


def open_feed(
    description: Description, settings: SourceSettings, clock: Clock, *, timeout: float = 0.0
) -> JournalFeed:
    """Take all partitions of a source's journal for writing.

    Raises:
        AlreadyWriting: Another process has had one of them for longer than `timeout`.
    """
    with ExitStack() as stack:
        writers = [
            stack.enter_context(
                journal_at(description.path).writer(partition, clock=clock, timeout=timeout)
            )
            for partition in range(description.partitions)
        ]
        feed = JournalFeed(writers, settings.rules, clock, settings.idleness)
        stack.pop_all()
        return feed


Work = Callable[["Ingest"], bool]
"""What the thread does, until there is no more to do (True) or it is stopped (False)."""


class Ingest:
    """One source at work."""

    def __init__(self, source: Source, folder: Path, work: Work | None) -> None:
        self.name = source.name
        self._folder = folder
        self._partitions = source.partitions
        self._work = work
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self.feed: JournalFeed | None = None

    def start(self) -> None:
        """Begin, or begin again where an earlier process has stopped."""
        if self._work is None or self._thread is not None or self.ended:
            return
        self._thread = threading.Thread(
            target=self._run, args=(self._work,), name=f"ingest-{self.name}", daemon=True
        )
        self._thread.start()

    def _run(self, work: Work) -> None:
        try:
            work(self)
        except Exception as exc:  # noqa: BLE001 (`check` raises it)
            self._error = exc

    def stop(self) -> None:
        """Stop; what was taken is durable when this returns."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def outgrown(self, source: Source) -> bool:
        """Tell whether the source now wants more partitions than when this was opened, and runs."""
        return source.partitions > self._partitions and not self._stopping.is_set()

    def pause(self, seconds: float) -> bool:
        """Wait, watch over idle partitions meanwhile, and return whether to go on."""
        until = time.monotonic() + seconds
        while not self._stopping.is_set() and (left := until - time.monotonic()) > 0:
            self._stopping.wait(min(left, _SLICE_S))
            if self.feed is not None:
                self.feed.tick()
        return not self._stopping.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the thread has nothing left to do; return False if that takes longer."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._thread is None or not self._thread.is_alive()

    @property
    def ended(self) -> bool:
        """Whether the journal has ended, in all partitions."""
        reader = journal_at(self._folder).cached_reader()
        parts = [reader.partition(number) for number in range(reader.description.partitions)]
        return all(part.state_at(part.end).ended for part in parts)

    def check(self) -> None:
        """Raise what the thread has failed with.

        Raises:
            SourceFailed: The source has stopped; a restart goes on where it did.
        """
        if self._error is not None:
            hint = self._error.hint if isinstance(self._error, MillstreamError) else None
            msg = f'source "{self.name}" has stopped: {_text(self._error)}'
            raise SourceFailed(msg, hint=hint) from self._error

    def statistics(self) -> IngestStatistics:
        """Return the numbers as they are now."""
        error = None if self._error is None else _text(self._error)
        if self.feed is None:
            return IngestStatistics(0, 0, 0, self.ended, error)
        return IngestStatistics(
            self.feed.rows,
            self.feed.refused,
            self.feed.bytes,
            self.ended,
            error,
            self.feed.waiting,
        )

    def __enter__(self) -> Ingest:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _check_key(description: Description, settings: SourceSettings, partitions: int) -> None:
    if settings.key is not None and partitions > 1:
        places(pa.array([], description.schema.field(settings.key).type), partitions)


# What there is to do


def _pumping(
    source: Source, description: Description, settings: SourceSettings, root: Path, clock: Clock
) -> Work:
    context = OriginContext(
        source.name,
        description.schema,
        source.time,
        description.path,
        root,
        clock,
        source.lateness,
    )
    origin = open_origin(source.origin, context)

    def pump(ingest: Ingest) -> bool:
        with _feeding(ingest, open_feed(description, settings, clock)) as feed:
            ended = origin.pump(feed, ingest.pause)
            if ended:
                feed.end()
        return ended

    return pump


@contextlib.contextmanager
def _feeding(ingest: Ingest, feed: JournalFeed) -> Iterator[JournalFeed]:
    ingest.feed = feed
    try:
        yield feed
    except BaseException:
        feed.abort()
        raise
    feed.close()
