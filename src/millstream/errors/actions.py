"""Errors of users' programs and their runtimes."""

from __future__ import annotations

from millstream.errors.root import MillstreamError


class ActionError(MillstreamError):
    """A user's program, or its runtime, failed."""


class BadBytes(ActionError):
    """Bytes from a program or a connection do not follow the protocol."""


class FrameTooLarge(BadBytes):
    """The length of a frame is above the limit."""


class FrameTorn(BadBytes):
    """The bytes end within a frame."""


class ActionFailed(ActionError):
    """A program violated its contract; the message has its last lines."""


class ActionMissing(ActionFailed):
    """There is no such program, or it is not executable."""


class ActionDied(ActionFailed):
    """A program ended while it was needed."""


class ActionHung(ActionFailed):
    """A program did not answer in time."""


class TooManyAnswers(ActionFailed):
    """A program gave more answers than it had inputs."""


class NetworkOpen(ActionError):
    """The system cannot restrict a program's network, so the program is not started."""


class SandboxOpen(ActionError):
    """The system cannot give a program its whole sandbox, so the program is not started."""


class QueueBroken(ActionError):
    """The queue of a runtime is damaged, or the disk refused a write."""


class QueueDamaged(QueueBroken):
    """Bytes of a runtime's queue are not those that were written."""


class QueueFull(ActionError):
    """The disk is full; what was not written is not in the queue."""


class PeerRefused(ActionError):
    """The other end of a connection does not prove that it is who it says, or is not expected."""


class Fenced(ActionError):
    """A runtime was replaced by one of a later generation and can no longer send."""
