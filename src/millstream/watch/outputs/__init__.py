"""Where complex events go: a file for each kind, with a function `make`.

An output takes entries of the outbox in their order. When `deliver` returns, they are where they
belong, or were put aside permanently; if it raises `OutputAway`, they are given to it again. After
a crash it may get entries that it has delivered: they have the same numbers and run ids as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from millstream.watch.outbox import Entry


class Output(Protocol):
    """A place for complex events."""

    #: Under this name the outbox knows how far it is.
    name: str

    def deliver(self, entries: Sequence[Entry]) -> None:
        """Deliver entries, in order.

        Raises:
            OutputAway: It did not work, and may work later.
        """
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...
