"""Those who wait for complex events, in any thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from millstream.watch.complex_event import ComplexEvent

Take = Callable[[ComplexEvent | None], object]


class Takers:
    """Those who wait for complex events."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._takers: list[Take] = []

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._takers)

    def put(self, one: ComplexEvent | None) -> None:
        with self._guard:
            takers = list(self._takers)
        for taker in takers:
            taker(one)

    def open(self, taker: Take | None = None) -> Taking:
        return Taking(self, taker)

    def close(self) -> None:
        self.put(None)


class Taking:
    """One who waits, for as long as it is entered."""

    def __init__(self, queues: Takers, taker: Take | None) -> None:
        self._queues = queues
        self._found: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._taker = taker or self._found.put

    def __enter__(self) -> queue.SimpleQueue[Any]:
        with self._queues._guard:
            self._queues._takers.append(self._taker)
        return self._found

    def __exit__(self, *error: object) -> None:
        with self._queues._guard:
            self._queues._takers.remove(self._taker)
