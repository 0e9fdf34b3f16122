"""Errors of engines and their clients."""

from __future__ import annotations

from millstream.errors.root import MillstreamError


class EngineError(MillstreamError):
    """An engine or a cluster cannot carry out a request."""


class NoSuchJob(EngineError):
    """An engine has no job with that name or id."""


class JobExists(EngineError):
    """A job with that name is deployed already."""


class JobBusy(EngineError):
    """A job still has unprocessed events, which would be lost."""


class InvalidTransition(EngineError):
    """A job cannot go from its state to the requested one."""


class JobsRunning(EngineError):
    """An engine cannot stop because it still runs jobs."""


class BadPackage(EngineError):
    """A package does not contain a flow, or is too large."""


class DriverFailed(EngineError):
    """The driver of a job did not start or did not respond."""


class EngineRunning(EngineError):
    """Another engine uses the same data folder."""


class EngineClosed(EngineError):
    """The engine is not started, or closing."""


class StoreBroken(EngineError):
    """The engine could not save the next step of a job, so it did not take it."""


class NoRoom(EngineError):
    """The disk of an engine is full; try again when there is space."""


class NoSuchAction(EngineError):
    """An engine has no program with that name, version or content."""


class ActionInUse(EngineError):
    """A program cannot be removed because a job runs it."""


class BadBinary(EngineError):
    """The bytes of a program are too many, or do not match their hash."""


class EngineAway(EngineError):
    """An engine cannot be reached, or did not respond in time.

    The request may or may not have been carried out.
    """


class EnginesDiffer(EngineError):
    """The engines of a cluster do not agree about the cluster, or about a job."""


class TokenRefused(EngineError):
    """A request has no token, or one that is wrong, revoked or expired."""


class NotPermitted(EngineError):
    """A token does not permit what was requested."""


class RequestRefused(EngineError):
    """An HTTP request is too large, too frequent, or cannot be parsed."""
