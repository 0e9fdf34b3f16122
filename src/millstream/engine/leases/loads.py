"""How busy engines are: what each publishes with its presence, and what the others show of it.

An engine measures itself for its own page; what it last measured goes out with the next presence.
How old that is, others count by their own clock from when it last changed before their eyes. Only
what has not changed since they began to look is aged by the clock of the engine that wrote it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec

from millstream.clock import iso


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """An engine in numbers; `at` is the moment, in seconds since 1970 by its clock."""

    at: float
    #: Of its host: processes that run or wait to, on average over a minute.
    load: float
    #: Of the disk with its data, in bytes.
    disk_free: int
    disk_size: int
    #: Rows a second that its inboxes take.
    rows_in: float


class EngineLoad(msgspec.Struct, frozen=True, kw_only=True):
    """An engine as the one that was asked sees it; what that one does not know is null."""

    #: "up", "draining" or "away"; "unknown" of an engine that shares no jobs with the one asked.
    state: str = "unknown"
    #: Where it is asked.
    url: str = ""
    #: How many jobs of those that engines share it runs.
    jobs: int | None = None
    #: Of its host: processes that run or wait to, on average over a minute, and its cores.
    load: float | None = None
    cores: int | None = None
    #: Of the disk with its data, in bytes.
    disk_free: int | None = None
    disk_size: int | None = None
    #: Rows a second that its inboxes take.
    rows_in: float | None = None
    #: When load, disk and rows were measured, by its clock, and how many seconds ago.
    measured_at: str | None = None
    age_s: float | None = None

    def with_measured(self, measured: Measured | None, age_s: float) -> EngineLoad:
        """Return it with its numbers; without, if it has published none."""
        if measured is None:
            return self
        return msgspec.structs.replace(
            self,
            load=measured.load,
            disk_free=measured.disk_free,
            disk_size=measured.disk_size,
            rows_in=measured.rows_in,
            measured_at=iso(measured.at),
            age_s=round(age_s, 1),
        )


class Ages:
    """How old the numbers of engines are."""

    def __init__(
        self, clock: Callable[[], float] = time.time, passed: Callable[[], float] = time.monotonic
    ) -> None:
        """Tell the time by `clock`, and how much of it has passed by `passed`."""
        self._clock, self._passed = clock, passed
        #: What each engine has measured, and when that was new here; None: it was there before.
        self._seen: dict[str, tuple[Measured | None, float | None]] = {}

    def see(self, found: Iterable[tuple[str, Measured | None]]) -> None:
        """Note what engines, by their ids, have published."""
        seen: dict[str, tuple[Measured | None, float | None]] = {}
        for engine, measured in found:
            before = self._seen.get(engine)
            if before is None:
                seen[engine] = measured, None
            else:
                seen[engine] = before if before[0] == measured else (measured, self._passed())
        self._seen = seen

    def of(self, engine: str) -> float:
        """Return how many seconds ago an engine's numbers were measured; 0 if it has none."""
        measured, since = self._seen.get(engine, (None, None))
        if measured is None:
            return 0.0
        # Clocks of two hosts differ: by one that is ahead, what is there was measured just now.
        return max(0.0, self._clock() - measured.at if since is None else self._passed() - since)
