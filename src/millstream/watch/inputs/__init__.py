"""Where a watcher's events come from: a file for each kind, with a function `make`.

An input runs in a thread of its own. It gives rows to a `Feed`, which returns once they are synced,
and acknowledges them to whoever sent them only then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

EventId = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that is no event: its place in what was given, and why."""

    place: int
    reason: str


class Feed(Protocol):
    """Takes events into the watcher. Any thread may call."""

    def take(
        self,
        rows: Sequence[Mapping[str, Any] | bytes],
        *,
        source: str,
        ids: Sequence[EventId] | None = None,
    ) -> list[Rejected]:
        """Take rows, or lines of JSON; those that are not rejected are synced when this returns.

        Args:
            rows: The events, in order.
            source: The input, which numbers events that have no id of their own.
            ids: Their ids, if whoever sent them has numbered them.

        Raises:
            WatchError: The watcher is stopping, or its disk fails; none was taken.
        """
        ...


class Input(Protocol):
    """Where events come from."""

    name: str

    def run(self, feed: Feed) -> None:
        """Give events to the feed until they end, or until `stop`."""
        ...

    def stop(self) -> None:
        """Let `run` return soon; any thread may call."""
        ...
