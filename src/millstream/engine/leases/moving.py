"""Draining an engine: its jobs move to other engines, one by one."""

from __future__ import annotations

import threading
import time
from typing import Final, Protocol

from millstream.engine.leases.coordination import Presence
from millstream.engine.leases.tasks import MoveStatus

#: How long to wait for another engine to run a job that was moved.
_MOVED_S: Final = 120.0
_POLL_S: Final = 0.5


class Keeper(Protocol):
    """What moving asks of the keeper of leases."""

    @property
    def closing(self) -> bool: ...
    def movable(self) -> tuple[list[str], bool]:
        """Return the jobs that another engine could take, and whether there are others."""
        ...

    def send_away(self, name: str) -> None:
        """Stop a job, and let others have it."""
        ...

    def others(self) -> list[Presence]:
        """Look, and return the other engines."""
        ...


class Moves:
    """The jobs that an engine moves away, and how long each of them did not run."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._done: list[MoveStatus] = []
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def begun(self) -> bool:
        return self._thread is not None

    @property
    def so_far(self) -> tuple[MoveStatus, ...]:
        with self._guard:
            return tuple(self._done)

    def begin(self) -> None:
        """Begin to move all jobs away; again changes nothing."""
        with self._guard:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="moves", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while not self._keeper.closing:
            movable, more = self._keeper.movable()
            if movable:
                self._move(movable[0])
            elif more:
                time.sleep(_POLL_S)  # until there is somebody to take them
            else:
                return

    def _move(self, name: str) -> None:
        began = time.monotonic()
        with self._guard:
            self._done.append(MoveStatus(name, "stopping"))
        self._keeper.send_away(name)
        self._note(MoveStatus(name, "moving"))
        while time.monotonic() < began + _MOVED_S and not self._keeper.closing:
            there = (one for one in self._keeper.others() if one.jobs.get(name) == "running")
            if (found := next(there, None)) is not None:
                pause = round(time.monotonic() - began, 1)
                self._note(MoveStatus(name, "moved", found.id, pause))
                return
            time.sleep(_POLL_S)
        self._note(MoveStatus(name, "nobody has taken it yet"))

    def _note(self, how: MoveStatus) -> None:
        with self._guard:
            self._done[-1] = how
