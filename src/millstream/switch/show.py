"""The plan of a switch as text and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from millstream.flow.durations import format as shown
from millstream.switch.again import utc_text
from millstream.switch.changes import Change, GroupChange, Move, StageChange
from millstream.switch.plan import SwitchPlan
from millstream.switch.units import Unit

_HEAD = ("group", "stage", "change", "state", "how")
_WIDTH = 120


def table(plan: SwitchPlan, cut: datetime | None = None) -> str:
    """Return what a switch would do, a line for each stage that it concerns.

     group   stage   change    state    how
     hourly  hourly  replaced  windows  owned by start: old until 15:00, new from 15:00
     alerts  all     kept
    the cut will be at a multiple of 1 h, one to two of them after the newest event
    both versions of hourly run side by side for about 30 min

    Args:
        plan: The plan.
        cut: Where the cut would be now, if that is known.
    """
    cut = cut or plan.since
    shared = plan.mode == "share"
    rows = [
        _HEAD,
        *(row for group in plan.groups for row in _rows(group, cut, plan.since, shared=shared)),
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    lines = [
        " " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    for sentence in _sentences(plan):
        lines += textwrap.wrap(
            sentence, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
    return "\n".join(lines)


def _rows(
    group: GroupChange, cut: datetime | None, since: datetime | None, *, shared: bool
) -> Iterator[tuple[str, ...]]:
    until = "until the cut" if since is None else "until now"
    until = "for its keys, from the cut" if shared else until
    if group.change in (Change.KEPT, Change.REMOVED) and not any(
        _notable(stage) for stage in group.stages
    ):
        yield group.name, "all", group.change, "", "" if group.change is Change.KEPT else until
        return
    if group.change is Change.KEPT:
        yield group.name, "all", group.change, "", ""
        return
    told = [stage for stage in group.stages if stage.change is not Change.KEPT or stage.state]
    for stage in told:
        yield group.name, stage.name, stage.change, stage.state, how(stage, cut, shared=shared)
    if not told:
        line = next(iter(group.lines), "")
        yield (
            group.name,
            "output" if line.startswith("the output") else "all",
            group.change,
            "",
            line,
        )


def _notable(stage: StageChange) -> bool:
    return stage.move in (Move.CARRIED, Move.DROPPED)


def how(stage: StageChange, cut: datetime | None = None, *, shared: bool = False) -> str:
    """Return what happens to a stage's state, in a few words."""
    match stage.move:
        case Move.NONE:
            return "no state"
        case Move.OWNED:
            at = "the cut" if cut is None else f"{cut.astimezone(UTC):%H:%M}"
            if shared:
                return f"owned by key from {at}, by start before"
            return f"owned by start: {_owners(stage.change, at)}"
        case Move.CARRIED:
            named = f', from "{stage.source}"' if stage.source else ""
            return f"carried over at the cut{named}" if stage.at_cut else "carried over by name"
        case Move.EMPTY:
            return "begins empty"
        case Move.DROPPED:
            return f"dropped: {stage.why}"


def _owners(change: Change, at: str) -> str:
    old, new = f"old until {at}", f"new from {at}"
    return {Change.NEW: new, Change.REMOVED: old}.get(change, f"{old}, {new}")


def _sentences(plan: SwitchPlan) -> Iterator[str]:
    if not plan.units and not plan.grown:
        yield "the new version means the same as the running one: there is nothing to switch"
    became = {group.name: group.change for group in plan.groups}
    if plan.since is None and not all(unit.moved for unit in plan.units):
        yield f"the cut will be at a multiple of {shown(plan.step)}, one to two of them after the newest event"
    for unit in plan.units:
        kinds = {became[name] for name in unit.groups}
        if plan.since is not None:
            yield _again(unit, kinds, plan.since)
        else:
            yield _shared(unit, kinds) if plan.mode == "share" else _overlap(unit, kinds)
    yield from plan.grown
    yield from plan.notes
    for obstacle in plan.obstacles:
        yield f"impossible: {obstacle.fact}"
        yield f"  hint: {obstacle.hint}"


def _overlap(unit: Unit, became: set[Change]) -> str:
    if unit.moved:
        return f"{unit.name} is cut at a position: the new version begins where the old one ends"
    if became == {Change.NEW}:
        return f"{unit.name} begins at the cut"
    if became == {Change.REMOVED}:
        return f"{unit.name} ends at the cut{_left(unit)}"
    if unit.overlap is None:
        return f"both versions of {unit.name} run side by side, for an unknown time"
    side = f"for about {shown(unit.overlap)}" if unit.overlap else "for a moment"
    return f"both versions of {unit.name} run side by side {side}"


def _again(unit: Unit, became: set[Change], since: datetime) -> str:
    if became == {Change.REMOVED}:
        return f"{unit.name} ends where it stands"
    early = f", and reads from {shown(unit.look_back)} before that" if unit.look_back else ""
    return f"{unit.name} {'begins' if became == {Change.NEW} else 'begins again'} at {utc_text(since)}{early}"


def _shared(unit: Unit, became: set[Change]) -> str:
    """Return how long both versions of a unit have keys."""
    if unit.moved or unit.overlap is None:
        return _overlap(unit, became)
    if became == {Change.NEW}:
        return f"{unit.name} begins at the cut, with the keys of the new version"
    if became == {Change.REMOVED}:
        return f"{unit.name} continues with the keys of the old version, until it has none"
    more = f"for about {shown(unit.overlap)} more" if unit.overlap else "for a moment more"
    return f"both versions of {unit.name} run side by side while they share the keys, and {more}"


def _left(unit: Unit) -> str:
    """Return when the results are out that began before a cut."""
    if unit.overlap is None:
        return ", and it is not known when what began before it is out"
    return (
        f": what began before it is out about {shown(unit.overlap)} later" if unit.overlap else ""
    )


def to_json(plan: SwitchPlan) -> dict[str, Any]:
    """Return the plan as data that JSON can hold.

    Lengths are in seconds, null where there is no bound.
    """
    return {
        "flow": plan.old.flow.name,
        "mode": plan.mode,
        "possible": not plan.obstacles,
        "groups": [_group_json(group, shared=plan.mode == "share") for group in plan.groups],
        "units": [_unit_json(unit) for unit in plan.units],
        "step": plan.step.total_seconds(),
        "since": None if plan.since is None else plan.since.isoformat(),
        "overlap": _seconds(plan.overlap),
        "obstacles": [{"fact": one.fact, "hint": one.hint} for one in plan.obstacles],
        "grown": list(plan.grown),
        "notes": list(plan.notes),
    }


def _group_json(group: GroupChange, *, shared: bool) -> dict[str, Any]:
    return {
        "name": group.name,
        "change": group.change.value,
        "stages": [_stage_json(stage, shared=shared) for stage in group.stages],
        "differences": list(group.lines),
    }


def _stage_json(stage: StageChange, *, shared: bool) -> dict[str, Any]:
    return {
        "name": stage.name,
        "change": stage.change.value,
        "state": stage.state,
        "move": stage.move.value,
        "how": how(stage, shared=shared),
        "differences": list(stage.lines),
    }


def _unit_json(unit: Unit) -> dict[str, Any]:
    return {
        "groups": list(unit.groups),
        "private": list(unit.private),
        "shared": list(unit.shared),
        "by": unit.by,
        "moved": unit.moved,
        "carried": unit.carried,
        "horizon": _seconds(unit.horizon),
        "look_back": _seconds(unit.look_back),
        "lateness": unit.lateness.total_seconds(),
        "overlap": _seconds(unit.overlap),
    }


def _seconds(length: timedelta | None) -> float | None:
    return None if length is None else length.total_seconds()
