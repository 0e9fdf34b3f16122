"""The plan of a shadow: a new version runs beside the old one, and their results are compared.

    old   ══════════╪════════════════════════════▶   owns everything, as before; what starts from T on is recorded too
    new      ╔══════╪════════════════════╗           owns what starts from T on, in journals of its own
         look-back  T      compared      ended

T lies above all that the old version has handed out when it begins to be recorded, so nobody has
to be asked or stopped. It is a boundary of the windows of both versions, as a cut is. What starts
before a later boundary S is complete in a version whose watermark has passed S + horizon, by the
argument that retires a version in a switch: so results are compared up to such an S.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from math import lcm
from typing import Final

from millstream.clock import MICROSECOND
from millstream.flow.flow import Flow
from millstream.flow.stages import Source
from millstream.journal.align import FOREVER_US
from millstream.plan.groups import Plan
from millstream.switch import cut as cuts
from millstream.switch.changes import Version
from millstream.switch.units import Unit, horizon_of

#: Watermarks are counted in milliseconds.
_STEP_US: Final = 1000
#: At the end of all input watermarks stay so much below forever at most, by what joins hold back.
_SLACK_US: Final = timedelta(days=366) // MICROSECOND


@dataclass(frozen=True, slots=True)
class Shadowed:
    """What runs in a shadow: the units whose state stays, and the boundaries of windows.

    `horizons` says, by unit, how far after its start a result of either version may read.
    """

    units: tuple[Unit, ...]
    left_out: tuple[str, ...]
    step_us: int
    horizons: Mapping[str, int]

    @property
    def groups(self) -> frozenset[str]:
        return frozenset(name for unit in self.units for name in unit.groups)

    @property
    def inner(self) -> frozenset[str]:
        """The journals between groups of a unit: they are private, and not compared."""
        return frozenset(name for unit in self.units for name in unit.private)

    def horizon_us(self, group: str) -> int:
        """Return how far after its start a result of a group may read."""
        return next(self.horizons[unit.name] for unit in self.units if group in unit.groups)


def shadowed(old: Version, new: Version, units: Collection[Unit]) -> Shadowed:
    """Return what of a switch can run in a shadow."""
    own = tuple(
        unit
        for unit in units
        if not (unit.moved or unit.carried) and _horizon(old, new, unit) is not None
    )
    left = tuple(name for unit in units if unit not in own for name in unit.groups)
    groups = {name for unit in own for name in unit.groups}
    horizons = {
        unit.name: (_horizon(old, new, unit) or timedelta(0)) // MICROSECOND for unit in own
    }
    return Shadowed(own, left, _step_us((old.plan, new.plan), groups), horizons)


def _horizon(old: Version, new: Version, unit: Unit) -> timedelta | None:
    lengths = [horizon_of(version, unit.groups) for version in (old, new)]
    known = [length for length in lengths if length is not None]
    return max(known) if len(known) == len(lengths) and not unit.cyclic else None


def _step_us(plans: Iterable[Plan], groups: Collection[str]) -> int:
    """Return what boundaries are multiples of: of all windows that every cut has to lie between."""
    sizes = [
        stage.boundary // MICROSECOND
        for plan in plans
        for group in plan.groups
        for stage in (plan.flow.stages[name] for name in group.stages if group.name in groups)
        if stage.boundary and not plan.flow.switch_every % stage.boundary
    ]
    return lcm(_STEP_US, *sizes)


def obstacles(old: Flow, new: Flow) -> Iterator[tuple[str, str]]:
    """Yield what makes a shadow impossible: the fact, and what to do about it."""
    for name, after in new.stages.items():
        before = old.stages.get(name)
        if isinstance(after, Source) and not isinstance(before, Source):
            yield (
                f'source "{name}" is new, and nothing comes in there before a switch',
                "switch without --shadow",
            )
        elif (
            isinstance(after, Source)
            and isinstance(before, Source)
            and after.schema != before.schema
        ):
            fact = f'source "{name}" has other columns, which no event has before a switch'
            yield fact, "switch without --shadow"


# when


def begins_at(highest: Iterable[int | None], step_us: int) -> int:
    """Return T, given the highest moments that partitions of the old version have handed out.

    None is none.
    """
    known = [cuts.window_number(moment, step_us) for moment in highest if moment is not None]
    return cuts.cut_of(max(known, default=None), step_us)


def settled_until(reached: Iterable[int | None], horizon_us: int, step_us: int) -> int | None:
    """Return the boundary before which all results are complete; None if there is none."""
    every = list(reached)
    lowest = [moment for moment in every if moment is not None]
    if not lowest or len(lowest) < len(every):
        return None
    if min(lowest) >= FOREVER_US - _SLACK_US:
        return FOREVER_US
    return (min(lowest) - horizon_us) // step_us * step_us
