"""Where the groups and journals of a version will be: what it does not change stays where it is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from msgspec.structs import replace as changed

from millstream.spark.run.version import FlowVersion
from millstream.switch.changes import Change
from millstream.switch.cut import AT_SOURCE
from millstream.switch.plan import SwitchPlan
from millstream.switch.record import Homes


def homes_of(version: FlowVersion) -> Homes:
    """Return where everything of a version is, by name."""
    groups, journals = version.homes.groups, version.homes.journals
    return Homes(
        {group.name: groups.get(group.name, "") for group in version.plan.groups},
        {name: journals.get(name, "") for name in _written(version)},
        version.homes.by_time,
    )


def owning(version: FlowVersion, homes: Homes, plan: SwitchPlan) -> Homes:
    """Return where everything of a version is, with how what a switch changes is owned."""
    by_time = frozenset(homes.by_time)
    means = replace(version.meanings, by_time=by_time, unlike=plan.unlike)
    names = {group.name for group in plan.changed}
    found = {one.name: means.start(one) for one in version.plan.groups if one.name in names}
    starts = {name: start.column for name, start in found.items() if start is not None}
    starts |= {name: AT_SOURCE for unit in plan.units if unit.carried for name in unit.groups}
    return changed(homes, starts=starts)


def next_homes(old: FlowVersion, new: FlowVersion, plan: SwitchPlan) -> Homes:
    """Return where everything of the next version will be: what it changes is its own."""
    known = homes_of(old)
    kept = {group.name for group in plan.groups if group.change is Change.KEPT}
    kept |= {name for unit in plan.units if unit.moved for name in unit.groups}
    private = {name for unit in plan.units for name in unit.private}
    groups = {
        group.name: known.groups[group.name] if group.name in kept else new.name
        for group in new.plan.groups
    }
    journals = {}
    for name in _written(new):
        # Where another engine may have kept a journal of that name, it is not here to be seen.
        seen = new.ground.address is not None or (new.ground.folder / "journals" / name).exists()
        fresh = name not in known.journals and not seen
        own = name in private or name not in known.journals
        journals[name] = "" if fresh else new.name if own else known.journals[name]
    return owning(new, Homes(groups, journals, _by_time(known, plan)), plan)


def _by_time(known: Homes, plan: SwitchPlan) -> tuple[str, ...]:
    """Return the groups whose results are owned by their time: as before, and those replaced."""
    replaced = {group.name for group in plan.changed} if plan.since is not None else set()
    return tuple(
        group.name for group in plan.new.groups if group.name in replaced | set(known.by_time)
    )


def shadow_homes(old: FlowVersion, new: FlowVersion, groups: Collection[str]) -> Homes:
    """Return where everything of a version in a shadow is: what these groups write is its own."""
    known = homes_of(old)
    written = {name: new.plan.journals[name].writer for name in _written(new)}
    return Homes(
        {
            one.name: new.name if one.name in groups else known.groups.get(one.name, "")
            for one in new.plan.groups
        },
        {
            name: new.name if writer in groups else known.journals.get(name, "")
            for name, writer in written.items()
        },
        tuple(one.name for one in new.plan.groups if one.name in known.by_time),
    )


def _written(version: FlowVersion) -> list[str]:
    """Return the journals that the groups of a version write."""
    return [name for name, use in version.plan.journals.items() if use.kind == "group"]
