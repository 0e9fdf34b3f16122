"""The root of all errors."""

from __future__ import annotations


class MillstreamError(Exception):
    """The root: a fact, and a hint on what to do about it."""

    __module__ = "millstream.errors"

    def __init_subclass__(cls) -> None:
        # Tracebacks and pickles name the place where users find them, not the file.
        if cls.__module__.startswith("millstream.errors."):
            cls.__module__ = MillstreamError.__module__

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint is not None:
            self.add_note(f"hint: {hint}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.__dict__.copy())


def _rebuild(
    kind: type[MillstreamError], message: str, hint: str | None, state: dict[str, object]
) -> MillstreamError:
    error = kind.__new__(kind)
    MillstreamError.__init__(error, message, hint=hint)
    error.__dict__.update({k: v for k, v in state.items() if k != "__notes__"})
    return error


class MissingExtra(MillstreamError):
    """A package is missing that an extra of Millstream installs."""


class InternalError(MillstreamError):
    """Our own mistake: please report it."""
