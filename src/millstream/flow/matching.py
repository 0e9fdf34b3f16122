"""What a flow asks of a pattern: it takes any object that answers, and knows none by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from millstream.flow.schema import Schema


@runtime_checkable
class Matchable(Protocol):
    """Something to look for in the events of a key, in the order of event time."""

    @property
    def reach(self) -> timedelta | None:
        """How long a match lasts at most; None if that is not known."""

    @property
    def independent(self) -> bool:
        """Whether what began before a moment has no say in what begins at it or later."""

    @property
    def predicates(self) -> tuple[Callable[..., Any], ...]:
        """The Python functions among its conditions."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What its user should know: that its runs may live for ever."""

    @property
    def own_keys(self) -> tuple[str, ...] | None:
        """The key that it names itself."""

    def outcome(self, schema: Schema, *, time: str, key: Sequence[str], emit: str | None) -> Schema:
        """Return the columns of its matches in events with these columns, or report a mistake."""

    def described(self) -> dict[str, Any]:
        """Return it as data that JSON can hold."""
