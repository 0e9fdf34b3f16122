"""How a switch goes: one shape from the run through the driver's pipe to the engine."""

from __future__ import annotations

import msgspec

from millstream.switch.comparison import Comparison
from millstream.switch.machine import Entry


class SwitchStep(msgspec.Struct, frozen=True):
    """A step of a switch: when (seconds since 1970), the phase it led to, and what happened."""

    at: float
    phase: str
    text: str


def step_of(entry: Entry) -> SwitchStep:
    """Return a line of a job's history as it is reported."""
    return SwitchStep(entry.at_us / 1e6, entry.phase, entry.text)


class SwitchProgress(msgspec.Struct, frozen=True):
    """How a switch to a version goes, with all its steps so far.

    `cut_us` is the cut, in event time, and `left_s` how much event time the version that leaves
    still has to read, if that is known. `ended` is "done", "given up", "refused" or "compared", if
    it has. `share` and `wanted` are the parts of the keys that the version has and is to have.
    `needs` says up to which floor each source must come before the version that leaves is done, and
    `waits` which source has not yet.
    """

    version: str
    phase: str = ""
    cut_us: int | None = None
    left_s: float | None = None
    steps: tuple[SwitchStep, ...] = ()
    ended: str | None = None
    why: str | None = None
    shadow: Comparison | None = None
    share: int | None = None
    wanted: int | None = None
    needs: dict[str, int] = {}
    waits: str | None = None
