"""What a run does now and then beside its batches: it trims journals, and gives memory back while it rests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from millstream.spark.run.query import GroupQuery

#: How often retention is looked at.
TRIM_EVERY_S: Final = 30.0
#: After how long without a batch Java gives memory back, and how often it does at most: it looks at all
#: that it holds, which takes seconds where state in memory is large.
QUIET_S: Final = 20.0
AGAIN_S: Final = 300.0


@dataclass
class Rest:
    """Notices that a run rests, once each time. Moments are seconds of one clock."""

    began: float
    _known: float | None = None
    _noticed_at: float | None = None

    def begins(self, last_batch: float, now: float) -> bool:
        """Tell whether it rests since a while, and did not when this was asked before."""
        last = max(self.began, last_batch)
        soon = self._noticed_at is not None and now < self._noticed_at + AGAIN_S
        if last == self._known or now < last + QUIET_S or soon:
            return False
        self._known, self._noticed_at = last, now
        return True


@dataclass
class Upkeep:
    """The upkeep of a run; it is looked after between batches."""

    trim: Callable[[], object]
    give_memory_back: Callable[[], object]
    _trim_at: float = field(default_factory=lambda: time.monotonic() + TRIM_EVERY_S)
    _rest: Rest = field(default_factory=lambda: Rest(time.monotonic()))

    def look(self, queries: Iterable[GroupQuery]) -> None:
        """Do what is due."""
        now = time.monotonic()
        if now >= self._trim_at:
            self._trim_at = now + TRIM_EVERY_S
            self.trim()
        if self._rest.begins(max((one.sink.clock.last_at for one in queries), default=0.0), now):
            self.give_memory_back()
