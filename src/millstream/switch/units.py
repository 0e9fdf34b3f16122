"""Units: changed groups that are neighbours, and so are switched as one.

Inside a unit each version has journals of its own, and ownership is applied only where the unit
meets an unchanged group or a sink. The old version reads on for the unit's horizon after the cut,
the new one from its look-back before it; along a unit both add up as they do along a chain of
stages in one group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from millstream.flow.stages import EntryPoint, Written
from millstream.flow.stages.stage import ZERO
from millstream.plan.groups import Group, Plan
from millstream.plan.horizon import chain_reach
from millstream.switch import carrying
from millstream.switch.changes import Change, GroupChange, Move, Version, replaced


@dataclass(frozen=True, slots=True)
class Unit:
    """Adjacent changed groups.

    `private` are the journals of which each version has its own, `shared` those that unchanged
    groups read: both versions write these. A unit is cut `by` time, by position if no result in it
    has an extent in time, or by both, if some stage is handed state. None is open-ended.
    """

    groups: tuple[str, ...]
    private: tuple[str, ...]
    shared: tuple[str, ...]
    horizon: timedelta | None
    look_back: timedelta | None
    lateness: timedelta
    by: Literal["time", "position", "both"]
    cyclic: bool = False
    #: Its state is carried over, or dropped, at the cut: see `carrying`.
    carried: bool = False
    #: The state moves: the new version goes on with the checkpoint where the old one has stopped.
    moved: bool = False
    #: The horizon of the new version, should it leave again; None is open-ended.
    returns: timedelta | None = None

    @property
    def name(self) -> str:
        return " + ".join(self.groups)

    @property
    def overlap(self) -> timedelta | None:
        """How long both versions run side by side, in event time."""
        if self.moved:
            return ZERO
        return None if self.horizon is None else self.horizon + self.lateness


def closed(
    old: Version, new: Version, found: Iterable[GroupChange], *, whole: bool = False
) -> tuple[GroupChange, ...]:
    """Return the changes; groups that read a private journal of a changed group are replaced too.

    A journal between two changed groups is each version's own, so whoever else reads it reads the
    one of its version. So is one whose number of partitions changes, and with `whole` all that
    changed groups write for others.
    """
    known = {group.name: group for group in found}
    while torn := next(_torn(old, new, known, whole=whole), None):
        reader, journal = torn
        line = f'reads journal "{journal}", of which each version has its own'
        known[reader] = replaced(old, new, reader, line)
    return tuple(known.values())


def _torn(
    old: Version, new: Version, known: Mapping[str, GroupChange], *, whole: bool
) -> Iterator[tuple[str, str]]:
    """Yield the unchanged groups that read a journal between two changed groups."""
    kept = {name for name, group in known.items() if group.change is Change.KEPT}
    for plan in (old.plan, new.plan):
        for use in plan.journals.values():
            own = whole or not kept.issuperset(use.readers) or _relaid(old, new, use.name)
            if use.kind == "group" and use.writer not in kept and own:
                yield from ((reader, use.name) for reader in use.readers if reader in kept)


def _relaid(old: Version, new: Version, journal: str) -> bool:
    """Tell whether a journal gets another number of partitions."""
    stages = [version.flow.stages.get(journal) for version in (old, new)]
    written = [one for one in stages if isinstance(one, Written) and one.writer == "group"]
    counts = {stage.partitions for stage in written}
    return len(counts) > 1


def units(
    old: Version,
    new: Version,
    found: Iterable[GroupChange],
    by_position: Collection[str] = (),
    *,
    at_once: bool = True,
) -> tuple[Unit, ...]:
    """Return the units of a switch, in the order of their first groups.

    Those of groups that are known to go over `by_position` are not cut in time. State that is dropped
    ends at the cut if the new version takes over `at_once`; otherwise the old one needs it on.
    """
    changed = {group.name: group for group in found if group.change is not Change.KEPT}
    parts: list[list[str]] = []
    for name in changed:
        near = [
            part
            for part in parts
            if any(_adjacent(old.plan, new.plan, name, other) for other in part)
        ]
        parts = [part for part in parts if part not in near]
        parts.append([*(one for part in near for one in part), name])
    ordered = sorted(
        (sorted(part, key=list(changed).index) for part in parts),
        key=lambda part: [*changed].index(part[0]),
    )
    fixed = frozenset(by_position)
    return tuple(_unit(old, new, part, changed, fixed, at_once=at_once) for part in ordered)


def _adjacent(old: Plan, new: Plan, one: str, other: str) -> bool:
    return any(_meet(plan, a, b) for plan in (old, new) for a, b in ((one, other), (other, one)))


def _meet(plan: Plan, writer: str, reader: str) -> bool:
    """Tell whether one group reads what the other writes."""
    written = {
        group.journal for group in plan.groups if group.name == writer and group.journal is not None
    }
    return any(written & set(group.inputs) for group in plan.groups if group.name == reader)


def _unit(
    old: Version,
    new: Version,
    names: list[str],
    changed: dict[str, GroupChange],
    by_position: frozenset[str],
    *,
    at_once: bool,
) -> Unit:
    private, shared = _journals(old.plan, new.plan, names)
    cyclic = any(_cyclic(plan, names) for plan in (old.plan, new.plan))
    moves = {stage.move for name in names for stage in changed[name].stages}
    carried, dropped = Move.CARRIED in moves, Move.DROPPED in moves and at_once
    members = [group for plan in (old.plan, new.plan) for group in _members(plan, names)]
    timed = all(group.timed for group in members)
    horizon = None if cyclic else horizon_of(old, names)
    look_back = None if cyclic else longest(list(_look_backs(new, names)))
    endless = (horizon is None or look_back is None) and not cyclic
    at_cut = (carried or dropped) and not by_position.intersection(names)
    at_cut = at_cut and carrying.at_cut(old, new, [changed[name] for name in names])
    carried = carried and not at_cut
    return Unit(
        groups=tuple(names),
        private=private,
        shared=shared,
        horizon=horizon,
        look_back=look_back,
        lateness=max((group.lateness for group in members), default=ZERO),
        by=("both" if Move.OWNED in moves else "position") if carried or not timed else "time",
        cyclic=cyclic,
        # Where nobody knows how long both would run, state that does not change can be handed over as it
        # is.
        carried=at_cut,
        moved=carried or not timed or (endless and _unchanged([changed[name] for name in names])),
        returns=None if cyclic else longest(list(_horizons(new, names))),
    )


def _unchanged(groups: Iterable[GroupChange]) -> bool:
    """Tell whether no stage changes whose results are owned by their start."""
    stages = [stage for group in groups for stage in group.stages]
    return all(stage.change is Change.KEPT for stage in stages if stage.move is Move.OWNED)


def _members(plan: Plan, names: Collection[str]) -> list[Group]:
    return [group for group in plan.groups if group.name in names]


def _stages(version: Version, names: Collection[str]) -> tuple[str, ...]:
    """Return the stages of a unit's groups and the journals between them, in order."""
    groups = _members(version.plan, names)
    inside = {stage for group in groups for stage in group.stages} | {
        group.journal for group in groups
    }
    return tuple(name for name in version.flow.stages if name in inside)


def _horizons(version: Version, names: Collection[str]) -> Iterator[timedelta | None]:
    stages = _stages(version, names)
    for group in _members(version.plan, names):
        yield chain_reach(version.flow, stages, group.output, switched=True).horizon


def horizon_of(version: Version, names: Collection[str]) -> timedelta | None:
    """Return how far past a cut the groups of a unit read in a version; None is open-ended."""
    return longest(list(_horizons(version, names)))


def _look_backs(version: Version, names: Collection[str]) -> Iterator[timedelta | None]:
    stages = _stages(version, names)
    for group in _members(version.plan, names):
        start = version.start(group, stages)
        own = chain_reach(version.flow, stages, group.output, switched=True).look_back
        more = ZERO if start is None else start.look_back
        yield None if own is None or more is None else own + more


def _journals(
    old: Plan, new: Plan, names: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    uses = [
        use
        for plan in (old, new)
        for use in plan.journals.values()
        if use.kind == "group" and use.writer in names
    ]
    private = [use.name for use in uses if any(reader in names for reader in use.readers)]
    shared = [use.name for use in uses if any(reader not in names for reader in use.readers)]
    return tuple(dict.fromkeys(private)), tuple(dict.fromkeys(shared))


def _cyclic(plan: Plan, names: Collection[str]) -> bool:
    """Tell whether what a unit writes can come back to it through its own groups."""
    groups = _members(plan, names)
    written = {group.journal for group in groups}
    stages = [plan.flow.stages[name] for group in groups for name in group.stages]
    # A journal that is read before it is written has no stage of its own there.
    early = [one for one in stages if isinstance(one, EntryPoint) and not isinstance(one, Written)]
    return any(stage.journal_name in written for stage in early)


def longest(lengths: list[timedelta | None]) -> timedelta | None:
    """Return the longest, open-ended if one is."""
    known = [length for length in lengths if length is not None]
    return max(known, default=ZERO) if len(known) == len(lengths) else None
