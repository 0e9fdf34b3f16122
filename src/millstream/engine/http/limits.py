"""How much one may ask of an engine over HTTP."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

_CLIENTS: Final = 4096


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Sizes in bytes, times in seconds; a request beyond them is refused."""

    #: One request.
    body_bytes: int = 64 << 20
    #: All requests that are being read or worked on, together.
    held_bytes: int = 256 << 20
    header_bytes: int = 32 << 10
    #: From the opening of a connection, or the last answer, to the end of a request's head.
    header_seconds: float = 10.0
    #: From the end of the head to the end of the body.
    body_seconds: float = 60.0
    #: How long rows may wait for room in an inbox.
    room_seconds: float = 30.0
    #: Requests of one client, and how many it may save up.
    per_second: float = 500.0
    burst: int = 1000
    connections: int = 1000
    #: Long polls at once, and how long one lasts at most.
    waiting: int = 128
    wait_seconds: float = 60.0


class Rate:
    """A bucket of requests for each client, refilled at a steady rate. Time is an argument."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def pause(self, client: str, now: float) -> float:
        """Count a request; return 0.0, or for how many seconds the client has to wait first."""
        left, then = self._left.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - then) * self._per_second)
        allowed = left >= 1.0
        self._left[client] = (left - 1.0 if allowed else left, now)
        while len(self._left) > _CLIENTS:
            self._left.popitem(last=False)
        return 0.0 if allowed else (1.0 - left) / self._per_second


class Held:
    """The bytes of all bodies that are in memory. For one thread, the event loop's."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.bytes = 0

    def add(self, size: int) -> bool:
        """Take so many bytes more, if there is room."""
        if self.bytes + size > self._most:
            return False
        self.bytes += size
        return True

    def release(self, size: int) -> None:
        self.bytes -= size
