"""Which groups share a Spark query: those that only choose from the rows of one entry point.

By default they do if that costs nothing to what is promised to each: their targets are on this host, so
none waits for another. `flow.group` lets others share too, and keeps a sink apart that it names alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from millstream.errors import InvalidOption
from millstream.flow.flow import Flow
from millstream.flow.site import Site
from millstream.flow.stages.sink import SinkGroup
from millstream.flow.stages.stage import EntryPoint
from millstream.plan.groups import Group, Plan


@dataclass(frozen=True, slots=True)
class Shared:
    """Groups that share a query."""

    name: str
    groups: tuple[str, ...]


def shared_queries(plan: Plan) -> tuple[Shared, ...]:
    """Return the queries that groups share.

    Raises:
        InvalidOption: Sinks are to share one that cannot.
    """
    flow = plan.flow
    given = [_given(plan, one) for one in flow.groups.values()]
    taken = {name for one in given for name in one.groups}
    by_entry: dict[str, list[str]] = {}
    for group in plan.groups:
        if group.name not in taken and _obstacle(flow, group) is None and _local(flow, group):
            by_entry.setdefault(group.stages[0], []).append(group.name)
    found = [Shared(names[0], tuple(names)) for names in by_entry.values()]
    return tuple(one for one in (*given, *found) if len(one.groups) > 1)


def _given(plan: Plan, given: SinkGroup) -> Shared:
    """Return the groups of sinks that are named together."""
    site = Site(plan.flow.name, given.name, "group", given.where)
    groups = [one for one in plan.groups if set(one.sinks) & set(given.sinks)]
    for group in groups if len(groups) > 1 else ():
        reason = _obstacle(plan.flow, group)
        if reason is not None:
            hint = "only sinks below sql and keys can share a query; take it out of the group"
            raise site.mistake(InvalidOption, f'has sink "{group.name}", {reason}', hint=hint)
    entries = sorted({group.stages[0] for group in groups})
    if len(entries) > 1:
        names = " and ".join(f'"{name}"' for name in entries)
        hint = "sinks that share a query read the same stream: make a group for each"
        raise site.mistake(InvalidOption, f"has sinks that read {names}", hint=hint)
    return Shared(given.name, tuple(group.name for group in groups))


def _obstacle(flow: Flow, group: Group) -> str | None:
    """Return why a group needs a query of its own."""
    if group.journal is not None:
        return "which is a journal"
    for name in group.stages[1:]:
        stage = flow.stages[name]
        if isinstance(stage, EntryPoint):
            return "which reads several streams"
        if not stage.chooses:
            return f'whose stage "{name}" does more than choose rows and columns'
    return None


def _local(flow: Flow, group: Group) -> bool:
    return all(flow.sinks[name].target.local for name in group.sinks)


def sharing_lines(plan: Plan) -> Iterator[str]:
    """Yield a sentence for each query that groups share."""
    for one in plan.shared:
        yield f"{', '.join(one.groups)} share one query"
