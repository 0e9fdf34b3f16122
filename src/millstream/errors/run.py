"""Errors of a running flow, and of a switch of one."""

from __future__ import annotations

from millstream.errors.root import MillstreamError


class RunError(MillstreamError):
    """A flow could not be started or has failed."""


class AlreadyRunning(RunError):
    """Another process runs this flow on the same data."""


class TakenOver(RunError):
    """Another driver has claimed the job: this one publishes nothing more."""


class GroupChanged(RunError):
    """A group has changed since its checkpoint was made."""


class ConditionFailed(RunError):
    """A condition of a pattern could not be computed for an event."""


class EventRefused(RunError):
    """An event does not fit its columns."""


class GroupFailed(RunError):
    """The Spark query of a group died."""


class SwitchError(MillstreamError):
    """A running flow cannot be replaced as requested."""


class SwitchImpossible(SwitchError):
    """A switch between these two versions is impossible; nothing was changed."""


class SwitchRefused(SwitchError):
    """A switch cannot be started, aborted or changed in its current state."""


class ControlBroken(SwitchError):
    """The decision record of a switch is damaged or could not be written."""
