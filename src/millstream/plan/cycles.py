"""Which groups go round with each other."""

from __future__ import annotations

from millstream.plan.groups import Plan


def cycle(plan: Plan, name: str) -> tuple[str, ...]:
    """Return the groups that feed group `name` and are fed by it, itself among them.

    There are none if it is in no cycle.
    """
    ahead = _reachable(plan, name)
    if name not in ahead:
        return ()
    return tuple(
        group.name
        for group in plan.groups
        if group.name in ahead and name in _reachable(plan, group.name)
    )


def behind_a_cycle(plan: Plan, name: str) -> bool:
    """Tell whether a group is in a cycle or reads, at once or through others, what one writes."""
    return any(
        cycle(plan, group.name) and name in _reachable(plan, group.name) for group in plan.groups
    )


def _reachable(plan: Plan, name: str) -> set[str]:
    """Return the groups that can be fed, at once or through others, by group `name`."""
    found: set[str] = set()
    open_ends = [name]
    while open_ends:
        journal = plan.group(open_ends.pop()).journal
        for group in plan.groups:
            if journal is not None and journal in group.inputs and group.name not in found:
                found.add(group.name)
                open_ends.append(group.name)
    return found
