"""Where a job stands in its life of switches: a type per phase, with what is known there.

The drawing of the phases is in `machine`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from millstream.switch import cut as cuts
from millstream.switch.cut import WHOLE, Owners
from millstream.switch.events import First
from millstream.switch.record import Homes, Phase


@dataclass(frozen=True, slots=True)
class Job:
    """What outlives a switch: the running version, the ownership, where versions began and live.

    `number` counts switches. `latest_us` is the latest cut before one that was made in the past.
    """

    current: str
    owners: Owners
    number: int = 0
    firsts: Mapping[str, First] = field(default_factory=dict)
    homes: Mapping[str, Homes] = field(default_factory=dict)
    latest_us: int | None = None

    @property
    def last_cut_us(self) -> int | None:
        """The latest cut that was ever made."""
        known = [one.from_us for one in self.owners.stretches]
        return max(known if self.latest_us is None else [*known, self.latest_us], default=None)


@dataclass(frozen=True, slots=True)
class Replacement:
    """The version that is to replace the current one: its units, the step of its cut, its share.

    `wanted` is the share that it is to have, in parts of `WHOLE`. With `since_us` the cut lies
    there, in the past. `consent` is what the user has agreed to, `states` the new names of states.
    """

    version: str
    units: tuple[str, ...] = ()
    step_us: int = 0
    share: int = 0
    wanted: int = WHOLE
    since_us: int | None = None
    consent: tuple[str, ...] = ()
    states: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Standing:
    phase: ClassVar[Phase]
    job: Job

    @property
    def current(self) -> str:
        return self.job.current

    @property
    def owners(self) -> Owners:
        return self.job.owners

    @property
    def number(self) -> int:
        return self.job.number

    @property
    def next(self) -> str | None:
        """The version that is to replace the current one; None if there is none."""
        return None

    @property
    def is_cut(self) -> bool:
        """Whether the next version owns anything, or has."""
        return False


@dataclass(frozen=True, slots=True)
class Running(_Standing):
    """One version runs, alone."""

    phase: ClassVar[Phase] = Phase.RUNNING


@dataclass(frozen=True, slots=True)
class _Switching(_Standing):
    new: Replacement

    @property
    def next(self) -> str:
        return self.new.version

    @property
    def is_cut(self) -> bool:
        # A version that has a share runs on while another share is being cut.
        return self.new.share > 0


@dataclass(frozen=True, slots=True)
class Preparing(_Switching):
    """The new version starts, held; with `shadow` it is to run in the shadow of the current one."""

    phase: ClassVar[Phase] = Phase.PREPARING
    deadline_us: int
    shadow: bool = False


@dataclass(frozen=True, slots=True)
class Shadowing(_Switching):
    """The new version runs in the shadow of the current one."""

    phase: ClassVar[Phase] = Phase.SHADOWING


@dataclass(frozen=True, slots=True)
class Asking(_Switching):
    """The partitions report, by round, the highest window that they have handed out."""

    phase: ClassVar[Phase] = Phase.ASKING
    deadline_us: int
    round: int
    voters: frozenset[str]
    highest: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Confirming(_Switching):
    """The partitions promise to stay below the cut; `bound` is the last window before it."""

    phase: ClassVar[Phase] = Phase.CONFIRMING
    deadline_us: int
    round: int
    voters: frozenset[str]
    bound: int | None
    confirmed: frozenset[str] = frozenset()

    @property
    def cut_us(self) -> int:
        return cuts.cut_of(self.bound, self.new.step_us)


@dataclass(frozen=True, slots=True)
class Cutting(_Switching):
    """Where the new version begins to read is being looked up."""

    phase: ClassVar[Phase] = Phase.CUTTING
    deadline_us: int
    round: int
    cut_us: int


@dataclass(frozen=True, slots=True)
class Sharing(_Switching):
    """Both versions run, each with its keys; `round` is the last in which partitions were asked."""

    phase: ClassVar[Phase] = Phase.SHARING
    round: int = 0

    @property
    def is_cut(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class _Leaving(_Switching):
    leaving: str

    @property
    def staying(self) -> str:
        """The version that is left when the other has gone."""
        return self.next if self.leaving == self.current else self.current

    @property
    def is_cut(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Overlapping(_Leaving):
    """Both versions run until each unit of the one that leaves is closed, then drained."""

    phase: ClassVar[Phase] = Phase.OVERLAPPING
    closed: frozenset[str] = frozenset()
    drained: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Retiring(_Leaving):
    """The version that leaves is being stopped, and its checkpoints removed."""

    phase: ClassVar[Phase] = Phase.RETIRING


@dataclass(frozen=True, slots=True)
class Aborting(_Switching):
    """The new version is being removed."""

    phase: ClassVar[Phase] = Phase.ABORTING


Voting = Asking | Confirming | Cutting
BeforeTheCut = Preparing | Shadowing | Voting
WithDeadline = Preparing | Voting
Switching = BeforeTheCut | Sharing | Overlapping | Retiring | Aborting
State = Running | Switching
