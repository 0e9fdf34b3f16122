"""What the one thread of a runtime waits for."""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable
from typing import Any, Final

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE


class Watcher:
    """Sockets and pipes, each with the call that deals with it; any thread may `wake` it."""

    def __init__(self, woken: Callable[[], None]) -> None:
        self._selector = selectors.DefaultSelector()
        self._woken = woken
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_out, False)
        self.watch(self._wake_in, READ, self._wake)

    def wake(self) -> None:
        """End the wait, also from a signal."""
        os.write(self._wake_out, b".")

    def _wake(self) -> None:
        os.read(self._wake_in, 4096)
        self._woken()

    def watch(self, what: Any, events: int, call: Callable[[], None]) -> None:
        self._selector.register(what, events, lambda _: call())

    def want(self, what: Any, events: int, call: Callable[[int], None]) -> None:
        """Wait for these events, or for none."""
        key = self._selector.get_map().get(what)
        if key is None and events:
            self._selector.register(what, events, call)
        elif key is not None and not events:
            self._selector.unregister(what)
        elif key is not None and key.events != events:
            self._selector.modify(what, events, call)

    def forget(self, what: Any) -> None:
        if what in self._selector.get_map():
            self._selector.unregister(what)

    def forget_pipes(self) -> None:
        """Stop watching pipes that are closed: their numbers may soon be those of others."""
        for fd, key in list(self._selector.get_map().items()):
            if isinstance(key.fileobj, int) and fd != self._wake_in:
                self._selector.unregister(key.fileobj)

    def wait(self, timeout: float | None) -> None:
        """Wait until something happens, and deal with it; None waits without end."""
        known = self._selector.get_map()
        for key, events in self._selector.select(timeout):
            # What was dealt with before may have closed this one.
            if (now := known.get(key.fd)) is not None and now.fileobj is key.fileobj:
                key.data(events)

    def close(self) -> None:
        """Close all sockets that are watched."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        os.close(self._wake_in)
        os.close(self._wake_out)
