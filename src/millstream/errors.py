"""Every error that Millstream raises on purpose.

MillstreamError
├─ FlowError            a mistake in the description of a flow
├─ JournalError         a journal cannot be read or written
├─ IngestError          events could not be brought into a journal
├─ RunError             a flow could not be started or has failed
└─ InternalError        our own mistake: please report it
"""

from __future__ import annotations


class MillstreamError(Exception):
    """The root: a fact, and a hint on what to do about it."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint is not None:
            self.add_note(f"hint: {hint}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.__dict__.copy())


def _rebuild(kind: type[MillstreamError], message: str, hint: str | None, state: dict[str, object]) -> MillstreamError:
    error = kind.__new__(kind)
    MillstreamError.__init__(error, message, hint=hint)
    error.__dict__.update({k: v for k, v in state.items() if k != "__notes__"})
    return error


# flow and plan


class FlowError(MillstreamError):
    """A mistake in the description of a flow."""


# journal


class JournalError(MillstreamError):
    """A journal cannot be read or written."""


# ingest


class IngestError(MillstreamError):
    """Events could not be brought into a journal."""


# spark


class RunError(MillstreamError):
    """A flow could not be started or has failed."""


class InternalError(MillstreamError):
    """Our own mistake: please report it."""
