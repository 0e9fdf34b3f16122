"""Answers that cost a driver something, shared by all who ask.

One reading at a time of each thing; what was read counts for five seconds, or for twenty times as
long as it took. So pages that are left open cost a twentieth of a core at most, however many they are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Final, TypeVar, cast

LEAST_S: Final = 5.0
TIMES: Final = 20

Found = TypeVar("Found")


class Shared:
    """Keeps the last answers. Any thread may ask."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._guard = threading.Lock()
        self._reading: dict[Hashable, threading.Lock] = {}
        self._known: dict[Hashable, tuple[float, object]] = {}

    def get(self, key: Hashable, read: Callable[[], Found]) -> Found:
        """Return what was read under a key, if that is new enough; else read it.

        What raises is not kept.
        """
        with self._guard:
            reading = self._reading.setdefault(key, threading.Lock())
        with reading:
            begun = self._now()
            until, value = self._known.get(key, (begun, None))
            if begun < until:
                return cast("Found", value)
            found = read()
            ended = self._now()
            self._keep(key, ended, ended + max(LEAST_S, TIMES * (ended - begun)), found)
            return found

    def _keep(self, key: Hashable, now: float, until: float, value: object) -> None:
        with self._guard:
            old = [one for one, (end, _) in self._known.items() if end < now]
            for one in old:
                del self._known[one]
            self._known[key] = (until, value)
