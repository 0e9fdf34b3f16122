"""Processing again: a cut in the past, and what becomes of results that are out already.

The new version owns what starts at a moment in the past or later, and what the old one has emitted
since is replaced:

    taken back   tables of PostgreSQL, files, memory: rows that start there or later are removed before the new ones come
    repeated     what can only be added to, another flow's inbox or a journal that no group of the flow reads: needs consent
    left         what the new version does not write, or writes elsewhere

A group that reads what a changed group writes is processed again too, so the journals between them
are each version's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from millstream.plan.groups import Group, Plan
from millstream.switch.changes import Change, GroupChange, Move, Version
from millstream.switch.obstacle import Obstacle
from millstream.switch.units import Unit


@dataclass(frozen=True, slots=True)
class Outputs:
    """What becomes of the results that changed groups have emitted, by sink and journal."""

    taken_back: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def outputs(old: Plan, new: Plan, found: Iterable[GroupChange]) -> Outputs:
    """Return what becomes of results that are out."""
    changed = {group.name for group in found if group.change is not Change.KEPT}
    before = [group for group in old.groups if group.name in changed]
    sinks = [name for group in before for name in group.sinks]
    stay = [name for name in sinks if not _same(old, new, name)]
    fate = {name: old.flow.sinks[name].target.reprocessing for name in sinks}
    appended = [name for name in sinks if fate[name] == "repeated"]
    written = [
        group.journal for group in before if group.journal is not None and _outward(old, new, group)
    ]
    return Outputs(
        tuple(name for name in sinks if fate[name] == "withdrawn" and name not in stay),
        (*(name for name in appended if name not in stay), *written),
        tuple(stay),
    )


def _same(old: Plan, new: Plan, sink: str) -> bool:
    return sink in new.flow.sinks and new.flow.sinks[sink].target == old.flow.sinks[sink].target


def _outward(old: Plan, new: Plan, group: Group) -> bool:
    """Tell whether both versions write the group's journal, and only others read it."""
    uses = [plan.journals.get(group.journal or "") for plan in (old, new)]
    return all(use is not None and not use.readers for use in uses)


def obstacles(
    old: Version,
    new: Version,
    found: Collection[GroupChange],
    parts: Collection[Unit],
    since: datetime,
    consent: Collection[str],
) -> Iterator[Obstacle]:
    """Yield what makes it impossible to process again from a moment on."""
    for name in outputs(old.plan, new.plan, found).repeated:
        if name not in consent:
            fact = f'what "{name}" has got since {utc_text(since)} cannot be taken back, and would come again'
            yield Obstacle(
                fact, f"use --consent {name} to repeat it, or give the new results another name"
            )
    states = [stage.name for group in found for stage in group.stages if stage.move is Move.CARRIED]
    for name in dict.fromkeys(states):
        fact = f'the state that stage "{name}" had at {utc_text(since)} is not kept'
        yield Obstacle(fact, f"use --consent {name} to let it begin empty there")
    for unit in parts if not states else ():
        if unit.moved:
            fact = (
                f"it is not known which results of {unit.name} start at {utc_text(since)} or later"
            )
            yield Obstacle(
                fact, "give them a time, and sessions a longest=; or switch without --from"
            )


def notes(old: Version, new: Version, found: Collection[GroupChange]) -> Iterator[str]:
    """Yield what a user should know of results that are out."""
    becomes = outputs(old.plan, new.plan, found)
    if becomes.taken_back:
        yield f"what is out since then is removed from {', '.join(becomes.taken_back)}, and comes again as it is read"
    if becomes.repeated:
        yield f"what is out since then stays in {', '.join(becomes.repeated)}, and comes again"
        sinks = old.plan.flow.sinks
        for name in becomes.repeated:
            if name in sinks and sinks[name].target.seen_again:
                yield f"{name}: {sinks[name].target.seen_again}"
    if becomes.left:
        yield f"what is out stays in {', '.join(becomes.left)}"


def utc_text(moment: datetime) -> str:
    """Return a moment as people read it."""
    whole = moment.astimezone(UTC).replace(tzinfo=None)
    return f"{whole.isoformat(' ', 'seconds' if not whole.microsecond else 'microseconds')} UTC"
