"""The thread that brings idle partitions level with the others, for any number of sources."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, Protocol

from millstream.clock import Clock
from millstream.ingest import Progress, SourceSettings, left_over, proposals
from millstream.links.inbox import Inbox

_LEVEL_EVERY_S: Final = 1.0
_SENDER: Final = "millstream:levels"


class Levelled(Protocol):
    """A partition that can be given a floor: an inbox of this process, or one that is followed."""

    on_rows: Callable[[], None]

    @property
    def partition(self) -> int: ...

    def progress(self) -> Progress:
        """Return how far it is written."""
        ...

    def level(self, floor: int) -> None:
        """Say that it is idle and nothing before `floor` will come."""
        ...


class Levels:
    """Watches the partitions that one process hosts or follows; sleeps while nothing comes.

    The thread is started with the first source that needs it: one with a time and more than one
    partition, or one that has got some of them later.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watched: dict[str, tuple[Sequence[Levelled], SourceSettings, Sequence[Inbox]]] = {}
        self._alone: dict[str, tuple[Sequence[Levelled], SourceSettings, Sequence[Inbox]]] = {}
        self._wanted: dict[str, int] = {}
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def add(
        self,
        source: str,
        inboxes: Sequence[Levelled],
        settings: SourceSettings,
        later: Sequence[Inbox] = (),
    ) -> None:
        """Watch the partitions of a source, if it needs that; some were added `later`."""
        if len(inboxes) < 2 or (settings.time is None and not later):
            self._alone[source] = inboxes, settings, later
            return
        self._watch(source, inboxes, settings, later)

    def lift(self, source: str, floor: int) -> None:
        """Let a source pass its time on to `floor` when all of it is idle: somebody waits for it."""
        if self._wanted.get(source, -1) >= floor:
            return
        self._wanted[source] = floor
        alone = self._alone.pop(source, None)
        if alone is not None and alone[1].time is not None:
            self._watch(source, *alone)
        self._news.set()

    def _watch(
        self,
        source: str,
        inboxes: Sequence[Levelled],
        settings: SourceSettings,
        later: Sequence[Inbox],
    ) -> None:
        self._watched = self._watched | {source: (inboxes, settings, later)}
        for inbox in inboxes:
            inbox.on_rows = self._news.set
        self._news.set()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._keep_level, name="inbox levels", daemon=True
            )
            self._thread.start()

    def remove(self, source: str) -> None:
        self._watched = {name: one for name, one in self._watched.items() if name != source}
        self._alone.pop(source, None)
        self._wanted.pop(source, None)

    def _keep_level(self) -> None:
        while not self._stopping.wait(_LEVEL_EVERY_S):
            self._news.clear()
            due = self.level()
            self._news.wait(
                None if due is None else max(0.0, (due - self._clock.elapsed_us()) / 1e6)
            )

    def level(self) -> int | None:
        """Give idle partitions the floors that are due; return when the next can become idle."""
        watched = self._watched.items()
        moments = [self._level(*one, wanted=self._wanted.get(name)) for name, one in watched]
        return min((moment for moment in moments if moment is not None), default=None)

    def _level(
        self,
        inboxes: Sequence[Levelled],
        settings: SourceSettings,
        later: Sequence[Inbox] = (),
        *,
        wanted: int | None = None,
    ) -> int | None:
        microsecond = timedelta(microseconds=1)
        now, idle_us = self._clock.elapsed_us(), settings.idle // microsecond
        late_us = settings.lateness // microsecond
        states = [inbox.progress() for inbox in inboxes]
        floors = proposals(states, now_us=now, idle_us=idle_us, lateness_us=late_us, wanted=wanted)
        by_partition = {inbox.partition: inbox for inbox in inboxes}
        for partition, floor in floors:
            by_partition[partition].level(floor)
        if later:
            over = left_over(states, len(inboxes) - len(later), now_us=now, idle_us=idle_us)
        else:
            over = []
        ended = [inbox.end(_SENDER) for inbox in later if inbox.partition in over]
        if not all(ended):
            return now  # it is being written
        awake = [state.rows_at_us + idle_us for state in states if not state.ended]
        return min((moment for moment in awake if moment > now), default=None)

    def close(self) -> None:
        self._stopping.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join()
