"""The watcher for asyncio: the same promises, awaited.

async with ms.Watcher(hot, key="sensor") as watcher:
    await watcher.send({"sensor": "s1", "temperature": 97})
    async for match in watcher:
        print(match["sensor"])
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from millstream.watch.complex_event import ComplexEvent
from millstream.watch.status import WatcherStatus

if TYPE_CHECKING:
    from millstream.watch.watcher import Watcher


class AsyncWatcher:
    """A watcher for asyncio: the same promises, awaited."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    async def send(
        self, rows: Mapping[str, Any] | Iterable[Mapping[str, Any]]
    ) -> list[ComplexEvent]:
        """Take events; see `Watcher.send`."""
        return await asyncio.to_thread(self._watcher.send, rows)

    async def matches(self) -> AsyncIterator[ComplexEvent]:
        """Yield every complex event from now on; `async for match in watcher` does the same."""
        loop, found = asyncio.get_running_loop(), asyncio.Queue[ComplexEvent | None]()
        with self._watcher.takers.open(
            lambda one: loop.call_soon_threadsafe(found.put_nowait, one)
        ):
            while (one := await found.get()) is not None:
                yield one

    def __aiter__(self) -> AsyncIterator[ComplexEvent]:
        return self.matches()

    def status(self) -> WatcherStatus:
        return self._watcher.status()
