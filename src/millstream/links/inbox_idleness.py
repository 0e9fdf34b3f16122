"""Whether an inbox is idle, as its own engine knows it."""

from __future__ import annotations

from datetime import timedelta

from millstream.links.inbox_store import InboxStore


class InboxIdleness:
    """Levels an inbox for others, unless something is to come that they do not know of."""

    def __init__(self, store: InboxStore, idle: timedelta) -> None:
        self._store, self._idle_us = store, idle // timedelta(microseconds=1)
        #: Whether an engine reads for it, and knows when it is not idle.
        self._read = False

    def expect(self) -> None:
        """Note that it is not idle: what is read for it cannot be read for the moment."""
        with self._store.guard:
            self._read = True
            self._store.rows_at_us = self._store.clock.elapsed_us()

    def level_at(self, floor: int, position: int) -> bool:
        """Say that nothing before `floor` will come, for one who has seen it up to `position`.

        Return False if it goes further by now, or is not idle.
        """
        with self._store.guard:
            silent_us = self._store.clock.elapsed_us() - self._store.rows_at_us
            if self._read and silent_us < self._idle_us:
                return False
            return self._store.level_at(floor, position)
