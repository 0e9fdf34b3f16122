"""Errors of watchers."""

from __future__ import annotations

from millstream.errors.flow import FlowError
from millstream.errors.root import MillstreamError


class WatchError(MillstreamError):
    """A watcher could not be started, or not continue."""


class InvalidSettings(WatchError, FlowError):
    """The settings of a watcher, such as peers.yaml, have a mistake."""


class StateDamaged(WatchError):
    """The file of a watcher's state is damaged at a place that was once synced."""


class StateNotWritten(WatchError):
    """The disk refused a watcher's state; nothing leaves the device until it is written."""


class DeviceRefused(WatchError):
    """A peer refused this device, or this device a peer."""


class OutputAway(WatchError):
    """An output of a watcher took nothing, and may do so later.

    `retry_after` is after how many seconds, if it said so.
    """

    def __init__(
        self, message: str, *, hint: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after
