"""What can happen to a switch: what users ask for, what versions and partitions report, time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.switch.record import Homes
from millstream.switch.request import SwitchRequest

First = dict[str, dict[str, tuple[int, ...]]]
"""Positions by group and journal."""


@dataclass(frozen=True, slots=True)
class SwitchRequested:
    """A user wants a new version: what was asked, with its units and the step of the cut.

    `homes` are those of both versions. With `since_us` the cut lies there, in the past, and what
    the old version has emitted since is replaced.
    """

    version: str
    request: SwitchRequest
    units: tuple[str, ...]
    step_us: int
    homes: Mapping[str, Homes] = field(default_factory=dict)
    since_us: int | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """The new version is ready; these partitions of the running versions must be asked."""

    voters: frozenset[str]


@dataclass(frozen=True, slots=True)
class Failed:
    """A version could not be started, or died permanently."""

    version: str
    why: str


@dataclass(frozen=True, slots=True)
class Reported:
    """The highest window that a partition has handed out, or that is in a logged offset.

    None if there is none.
    """

    round: int
    partition: str
    highest: int | None


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A partition will hand out nothing at or after the cut until it knows more."""

    round: int
    partition: str


@dataclass(frozen=True, slots=True)
class Passed:
    """A partition had handed out something at or after the cut before it was asked to confirm."""

    round: int
    partition: str


@dataclass(frozen=True, slots=True)
class FirstFound:
    """Where the new version begins to read, by group and journal."""

    round: int
    first: First


@dataclass(frozen=True, slots=True)
class Beyond:
    """All partitions of a unit have got past the cut, the horizon and the lateness."""

    unit: str


@dataclass(frozen=True, slots=True)
class Drained:
    """The version that leaves has committed all that it owns in a unit."""

    unit: str


@dataclass(frozen=True, slots=True)
class Retired:
    """The version that leaves is stopped, and its checkpoints are gone."""


@dataclass(frozen=True, slots=True)
class Removed:
    """The version that was not wanted is stopped, and its checkpoints are gone."""


@dataclass(frozen=True, slots=True)
class AbortRequested:
    """A user wants the switch, or the shadow, to end."""

    why: str = "it was asked to end"


@dataclass(frozen=True, slots=True)
class ShareRequested:
    """A user wants the new version to have another share.

    A request without one gives all back to the old one.
    """

    request: SwitchRequest
    voters: frozenset[str]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    SwitchRequested
    | Held
    | Failed
    | Reported
    | Confirmed
    | Passed
    | FirstFound
    | Beyond
    | Drained
    | Retired
    | Removed
    | AbortRequested
    | ShareRequested
    | Tick
)
