"""State that is carried over at the cut, or handed over at a position.

    at a position   the new version goes on with the checkpoint where the old one has stopped
    at the cut      each version has its own; the old one ends with exactly the rows before the cut T, and the
                    new one begins with that state and with the rows from T on

A stage that changes itself is carried over at the cut, so that its results do not depend on
batches. It takes a group whose state is that of rows alone: a window or a join across the cut would
need rows of both sides, and what a fold dates later than the cut would wait in a stage behind it.
Otherwise a group goes over at a position, if it can.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from millstream.plan.groups import Group, Plan
from millstream.plan.horizon import switched_reach
from millstream.switch.changes import Change, GroupChange, Move, StageChange, Version

#: Plays no part in whether a stage's state is handed over.
_ANY_WINDOW: Final = timedelta(hours=1)


def at_cut(old: Version, new: Version, groups: Sequence[GroupChange]) -> bool:
    """Tell whether the state of a unit of groups is carried over at the cut."""
    first, *others = groups
    if others or first.change is not Change.REPLACED:
        return False
    changed = any(
        stage.move is Move.CARRIED and stage.change is Change.REPLACED for stage in first.stages
    )
    if not changed and not unmovable(old.plan, new.plan, groups):
        return False
    both = [(version.plan, version.plan.group(first.name)) for version in (old, new)]
    if any(stage.move is Move.OWNED for stage in first.stages) or _owns(*both[0]):
        return False
    return all(_of_rows(plan, group) for plan, group in both)


def _owns(plan: Plan, group: Group) -> bool:
    """Tell whether a group has results that are owned by their start: it reads on behind the cut."""
    stages = [plan.flow.stages[name] for name in group.stages if plan.flow.stages[name].state]
    return not all(switched_reach(stage, _ANY_WINDOW).handed_over for stage in stages)


def _of_rows(plan: Plan, group: Group) -> bool:
    """Tell whether the states of a group are those of the rows before a moment, and of no others."""
    stages = [plan.flow.stages[name] for name in group.stages if plan.flow.stages[name].state]
    alone = all(stage.carried_at_cut for stage in stages)
    above = (plan.flow.stages[name] for stage in stages for name in _above(plan, group, stage.name))
    return group.timed and alone and not any(stage.dates_later for stage in above)


def _above(plan: Plan, group: Group, name: str) -> Iterator[str]:
    for one in plan.flow.stages[name].inputs:
        if one in group.stages:
            yield one
            yield from _above(plan, group, one)


def unmovable(old: Plan, new: Plan, groups: Sequence[GroupChange]) -> str:
    """Return why the new version of a group cannot go on with the checkpoint of the old one.

    Nothing if it can.
    """
    (first, *others) = groups
    if others:
        return "neighbours of it change too, so they have journals of their own"
    if first.change is Change.NEW:
        return "it is new, and its results have no time from which on they could begin"
    if first.change is Change.REMOVED:
        return ""
    before, after = old.group(first.name), new.group(first.name)
    if before.inputs != after.inputs:
        return f"it reads {', '.join(before.inputs)}, and would read {', '.join(after.inputs)}"
    for stage in first.stages:
        if stage.move in (Move.EMPTY, Move.DROPPED) or (
            stage.move is Move.OWNED and stage.change is not Change.KEPT
        ):
            return f'stage "{stage.name}" beside it is {stage.change}, which has state too'
        if stage.move is Move.CARRIED and (stage.source or not stage.fit.as_it_is):
            return f'the state of stage "{stage.name}" gets another form, which takes a cut in time'
    return ""


def carried(groups: Sequence[GroupChange]) -> Iterator[StageChange]:
    """Yield the stages of groups that go on with the state of the old version."""
    for group in groups:
        yield from (stage for stage in group.stages if stage.move is Move.CARRIED)


def notes(old: Version, new: Version, groups: Sequence[GroupChange]) -> Iterator[str]:
    """Yield what a user should know of state that is carried over at the cut, and of the way back."""
    for stage in carried(groups):
        if stage.change is Change.REPLACED:
            yield f'"{stage.name}" changes, and keeps its state: rows from the cut on go on with it'
        yield from (f'"{stage.name}": {line}' for line in stage.fit.changes)
        before, after = old.flow.stages[stage.source or stage.name], new.flow.stages[stage.name]
        back = before.fits_state_of(after, {}, ()).differences
        if back:
            yield (
                f'"{stage.name}": its state does not fit the running version, so --back would need '
                f"--consent drop:{stage.name} ({'; '.join(back)})"
            )
        elif stage.fit.convert is not None or stage.fit.renamed or stage.fit.dropped:
            yield f'"{stage.name}": --back is possible, and would not undo what is done to its state'
        else:
            yield f'"{stage.name}": --back is possible, and would carry its state back'
