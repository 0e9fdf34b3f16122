"""What goes on, sent to the pages that are open: server-sent events, one stream a page.

    tick: ask the engine once ──▶ encode what has changed, once ──▶ the same bytes to every page

A page that has just come, or was too slow for the last tick, gets everything; the others get the
jobs that have changed. Nobody's events wait in memory. Without a page, the engine is asked only as
often as its history has points.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from millstream.engine.jobs.pulse import EVERY_S, Lines, Pulse, Pulses, Series
from millstream.engine.jobs.status import EngineStatus, JobStatus
from millstream.engine.leases.loads import Measured
from millstream.errors import EngineClosed

#: A driver reports once a second.
TICK_S: Final = 1.0
#: How long a stream may be silent: what is between a page and us may close one that is.
SILENCE_S: Final = 15.0
_STILL_HERE: Final = b": still here\n\n"
_log = logging.getLogger(__name__)


class Beat(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event of the stream: all jobs (`whole`), or those that have changed, and those gone."""

    at: float
    engine: EngineStatus
    jobs: list[msgspec.Raw]
    whole: bool = False
    gone: list[str] = []


@dataclass(frozen=True, slots=True)
class Tick:
    """All jobs at a moment, encoded, and which of them differ from the tick before."""

    number: int = 0
    at: float = 0.0
    engine: EngineStatus | None = None
    jobs: Mapping[str, bytes] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    _events: dict[tuple[str | None, bool], bytes] = field(default_factory=dict)

    def after(
        self, engine: EngineStatus, pulses: Sequence[Pulse], at: float, encode: msgspec.json.Encoder
    ) -> Tick:
        """Return the tick that follows this one."""
        jobs = {one.job.name: encode.encode(one) for one in pulses}
        changed = tuple(name for name, one in jobs.items() if self.jobs.get(name) != one)
        gone = tuple(name for name in self.jobs if name not in jobs)
        return Tick(self.number + 1, at, engine, jobs, changed, gone)

    def event(self, only: str | None, seen: int) -> bytes:
        """Return the event for a page that has seen tick `seen`, about one job or all of them."""
        whole = seen != self.number - 1
        if (only, whole) not in self._events:
            self._events[only, whole] = self._encoded(only, whole)
        return self._events[only, whole]

    def _encoded(self, only: str | None, whole: bool) -> bytes:
        assert self.engine is not None
        names = [name for name in (self.jobs if whole else self.changed) if only in (None, name)]
        gone = [] if whole else [name for name in self.gone if only in (None, name)]
        if not (names or gone or whole):
            return b""
        jobs = [msgspec.Raw(self.jobs[name]) for name in names]
        beat = Beat(self.at, self.engine, jobs, whole, gone)
        return b"data: " + msgspec.json.encode(beat) + b"\n\n"


class Live:
    """The stream of an engine. The event loop's thread runs it; others may ask for numbers."""

    def __init__(
        self,
        engine: Callable[[], EngineStatus],
        jobs: Callable[[], Sequence[JobStatus]],
        published: Callable[[], Mapping[str, Iterable[str]]],
        *,
        tick_s: float = TICK_S,
    ) -> None:
        self._engine, self._jobs, self._published = engine, jobs, published
        self._tick_s = tick_s
        self._pulses = Pulses()
        self._tick = Tick()
        self._pages = 0
        self._encoder = msgspec.json.Encoder()
        self._changed = asyncio.Condition()
        self._wanted = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closed = False
        #: Rows a second that all inboxes took at the last look.
        self.rows_in = 0.0

    async def run(self) -> None:
        """Look at the engine from time to time, until this is cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            try:
                self._tick = await anyio.to_thread.run_sync(self._look)
            except EngineClosed:
                pass
            except Exception:  # noqa: BLE001 (it is logged in full; the next look may do better)
                _log.exception("the engine could not be looked at")
            await self._notify()
            self._wanted.clear()
            if self._pages:
                await asyncio.sleep(self._tick_s)
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wanted.wait(), EVERY_S)

    def _look(self) -> Tick:
        now = time.time()
        pulses = self._pulses.take(self._jobs(), self._published(), now)
        self.rows_in = round(sum(one.into_inboxes for one in pulses), 1)
        return self._tick.after(self._engine(), pulses, now, self._encoder)

    def measured(self) -> Measured | None:
        """Return how busy the engine was at the last look; any thread may call."""
        tick = self._tick
        if tick.engine is None:
            return None
        return Measured(
            at=tick.at,
            load=tick.engine.load,
            disk_free=tick.engine.disk_free,
            disk_size=tick.engine.disk_size,
            rows_in=tick.engine.rows_in,
        )

    async def events(self, only: str | None, *, once: bool = False) -> AsyncIterator[bytes]:
        """Yield events for a page; with `once`, the first."""
        # Without a page, the last look at the engine may be some seconds old.
        past, seen = 0 if self._pages else self._tick.number, -1
        spoke = time.monotonic()
        self._pages += 1
        try:
            self._wanted.set()
            while not self.closed:
                part = await self._next(only, seen, past)
                past = seen = self._tick.number
                if not part and time.monotonic() - spoke > SILENCE_S:
                    part = _STILL_HERE
                if part:
                    spoke = time.monotonic()
                    yield part
                if once and part.startswith(b"data"):
                    return
        finally:
            self._pages -= 1

    async def _next(self, only: str | None, seen: int, past: int) -> bytes:
        """Return the event of the first tick after `past` for who has seen tick `seen`."""
        try:
            async with asyncio.timeout(SILENCE_S), self._changed:
                await self._changed.wait_for(lambda: self.closed or self._tick.number > past)
        except TimeoutError:
            return _STILL_HERE
        return b"" if self.closed else self._tick.event(only, seen)

    def end(self) -> None:
        """End all streams; any thread may call."""
        self.closed = True
        if self._loop is not None and not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._notify(), self._loop)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def series(self, id: str) -> Series:
        return self._pulses.series(id)

    def lines(self, id: str, points: int) -> Lines:
        return self._pulses.lines(id, points)
