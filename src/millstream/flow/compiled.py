"""`compiled`: a function of the user's that runs as machine code, as a fold of `fold`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Compiled:
    """A function to be compiled, and what it is called with."""

    step: Callable[..., float]
    columns: tuple[str, ...]
    initial: float


def compiled(step: Callable[..., float], *columns: str, initial: float) -> Compiled:
    """Return a fold by a function of your own, for `fold`; numba compiles it.

        def damped(known, delay):
            return 0.9 * known + delay

        departures.fold("trend", by="origin", damped=ms.compiled(damped, initial=0.0))

    It is called as step(known, value, ...) for each row in which no value is null, and returns
    what the fold is after it. It works on numbers and booleans, and may call what numba knows.

    Args:
        step: The function. It may call other functions if numba compiled them.
        columns: The columns that it gets; those named like its parameters, behind the first and
            without those that have a default, if they are left out.
        initial: What the fold is before the first row of a key. A whole number makes it a bigint,
            a fraction a double, True or False a boolean.
    """
    return Compiled(step, columns, initial)
