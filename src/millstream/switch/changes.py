"""What differs between two versions of a flow, by group and stage, and what happens to state.

A group that means the same in both versions goes on untouched. In any other group each stage is
kept, replaced, new or removed, and its state moves in one of these ways:

    none       it has no state
    owned      windows, joins, matches: results that start before the cut are the old version's, the others the new one's
    carried    fold, distinct and the like: the state moves to the stage of the same name
    empty      such a stage is new, and begins with nothing
    dropped    such a stage is gone, or keeps something else now: its state is lost, which needs consent
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from millstream.flow import expressions
from millstream.flow.flow import Flow
from millstream.flow.schema import Schema
from millstream.flow.stages import Stage
from millstream.flow.stages.state_fit import StateFit
from millstream.plan.fingerprint import difference, fingerprint
from millstream.plan.functions import Functions
from millstream.plan.groups import Group, Plan
from millstream.plan.horizon import switched_reach
from millstream.switch.starts import Start, start_of
from millstream.switch.wishes import StateWishes

# JSON: what can be in it, Python's types cannot say shortly.
Data = Any
_REFERENCES = ("function", "class")
_AS_IT_IS: Final = StateFit()
_NO_WISHES: Final = StateWishes()
#: Plays no part in whether a stage's state is handed over.
_ANY_WINDOW = timedelta(hours=1)


class Change(StrEnum):
    """What becomes of a group or a stage."""

    KEPT = "kept"
    REPLACED = "replaced"
    NEW = "new"
    REMOVED = "removed"


class Move(StrEnum):
    """What becomes of a stage's state."""

    NONE = "none"
    OWNED = "owned"
    CARRIED = "carried"
    EMPTY = "empty"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Version:
    """A flow's plan with what each of its groups means.

    `meanings` are fingerprints: those that checkpoints have stored, or fresh ones.
    """

    plan: Plan
    meanings: Mapping[str, dict[str, Data]]
    #: Groups whose results are owned by their time: see `starts`.
    by_time: frozenset[str] = frozenset()
    #: Groups whose results start in another way than those of the other version.
    unlike: frozenset[str] = frozenset()

    @classmethod
    def of(cls, plan: Plan, snapshots: Mapping[str, str] | None = None) -> Version:
        """Return the version that a plan describes."""
        return cls(
            plan, {group.name: fingerprint(plan, group.name, snapshots) for group in plan.groups}
        )

    @property
    def flow(self) -> Flow:
        return self.plan.flow

    def group(self, name: str) -> Group | None:
        """Return the group of that name, if there is one."""
        return next((group for group in self.plan.groups if group.name == name), None)

    def start(self, group: Group, stages: tuple[str, ...] | None = None) -> Start | None:
        """Return by what the results of a group are owned; `stages` are those of its unit."""
        by_time, alike = group.name in self.by_time, group.name not in self.unlike
        chain = group.stages if stages is None else stages
        return start_of(self.flow, chain, group.output, by_time=by_time, alike=alike)


@dataclass(frozen=True, slots=True)
class StageChange:
    """What becomes of one stage of a group.

    `lines` say what differs, `why` why its state is dropped. State that is carried over fits as
    `fit` says, and is that of the stage `source` if it had another name; `at_cut` says when.
    """

    name: str
    change: Change
    move: Move
    state: str
    lines: tuple[str, ...] = ()
    why: str = ""
    source: str = ""
    fit: StateFit = _AS_IT_IS
    at_cut: bool = False


@dataclass(frozen=True, slots=True)
class GroupChange:
    """What becomes of a group."""

    name: str
    change: Change
    stages: tuple[StageChange, ...]
    lines: tuple[str, ...] = ()


def changes(
    old: Version, new: Version, wishes: StateWishes = _NO_WISHES
) -> tuple[GroupChange, ...]:
    """Return what becomes of every group: those of the new version, then those that are gone."""
    names = [group.name for group in new.plan.groups]
    gone = [group.name for group in old.plan.groups if group.name not in names]
    return tuple(_group(old, new, name, wishes) for name in (*names, *gone))


def replaced(old: Version, new: Version, name: str, line: str) -> GroupChange:
    """Return the change of a group that is replaced although it means the same."""
    return GroupChange(name, Change.REPLACED, tuple(_stages(old, new, name, _NO_WISHES)), (line,))


def _group(old: Version, new: Version, name: str, wishes: StateWishes) -> GroupChange:
    before, after = old.group(name), new.group(name)
    if before is None:
        assert after is not None
        return GroupChange(name, Change.NEW, tuple(_stages(old, new, name, wishes)))
    if after is None:
        return GroupChange(name, Change.REMOVED, tuple(_stages(old, new, name, wishes)))
    lines = tuple(difference(old.meanings[name], new.meanings[name]))
    if not lines:
        kept = [
            StageChange(stage, Change.KEPT, Move.NONE, new.flow.stages[stage].state)
            for stage in after.stages
        ]
        return GroupChange(name, Change.KEPT, tuple(kept))
    return GroupChange(name, Change.REPLACED, tuple(_stages(old, new, name, wishes)), lines)


def _stages(old: Version, new: Version, name: str, wishes: StateWishes) -> Iterator[StageChange]:
    before, after = old.group(name), new.group(name)
    first = () if before is None else before.stages
    then = () if after is None else after.stages
    sources = {stage: wishes.source(stage) for stage in then}
    for stage, source in sources.items():
        yield (
            _both(old, new, name, source, stage, wishes)
            if source in first
            else _alone(new.flow.stages[stage], Change.NEW)
        )
    for stage in first:
        if stage not in sources.values():
            yield _alone(old.flow.stages[stage], Change.REMOVED)


def _alone(stage: Stage, change: Change) -> StageChange:
    """Return what becomes of a stage that only one version has."""
    move = _move(stage)
    if move is not Move.CARRIED:
        return StageChange(stage.name, change, move, stage.state)
    if change is Change.NEW:
        return StageChange(stage.name, change, Move.EMPTY, stage.state)
    return StageChange(stage.name, change, Move.DROPPED, stage.state, why="the stage is gone")


def _both(
    old: Version, new: Version, group: str, source: str, name: str, wishes: StateWishes
) -> StageChange:
    before, after = old.flow.stages[source], new.flow.stages[name]
    meanings = _only(old.meanings[group], source), _only(new.meanings[group], name)
    meanings[0]["stages"] = {name: meanings[0]["stages"][source]}
    lines = tuple(difference(*meanings))
    if source != name:
        lines = (f'stage "{name}" was called "{source}"', *lines)
    change = Change.REPLACED if lines else Change.KEPT
    if _move(before) is not Move.CARRIED:
        move = Move.EMPTY if _move(after) is Move.CARRIED else _move(after)
        return StageChange(name, change, move, after.state, lines)
    why, fit = _unfit(old.flow, new.flow, before, after, lines, wishes)
    move = Move.DROPPED if why else Move.CARRIED
    named = source if source != name else ""
    return StageChange(name, change, move, before.state, lines, why, named, fit)


def _move(stage: Stage) -> Move:
    if switched_reach(stage, _ANY_WINDOW).handed_over:
        return Move.CARRIED
    return Move.OWNED if stage.state else Move.NONE


def _unfit(
    old: Flow,
    new: Flow,
    before: Stage,
    after: Stage,
    lines: tuple[str, ...],
    wishes: StateWishes,
) -> tuple[str, StateFit]:
    """Return why a stage cannot take the state of another, empty if it can, and how it fits."""
    if before.kind != after.kind:
        return f"it was a {before.kind}, and is a {after.kind}", StateFit()
    if before.state_key is None:
        return "it has changed" if lines else "", StateFit()
    keys = _keys(old, before), _keys(new, after)
    if keys[0] != keys[1]:
        was, now = map(_columns, keys)
        return f"its state was kept by {was}, and would be by {now}", StateFit()
    renames, drops = wishes.renamed(before.name), wishes.dropped(before.name)
    fit = _converted_once(before, after).fits_state_of(before, renames, drops)
    return "; ".join(fit.differences), fit


def _converted_once(before: Stage, after: Stage) -> Stage:
    """Return a stage without its function for earlier states if the running version has it too.

    What it made of them must not be given to it again.
    """
    functions = [getattr(stage, "convert", None) for stage in (before, after)]
    if None in functions or _source_of(functions[0]) != _source_of(functions[1]):
        return after
    return replace(after, convert=None)  # type: ignore[call-arg]  # who has a function has the field


def _source_of(function: Data) -> Data:
    found = Functions()
    return found.stage_function(function), found.table


def _keys(flow: Flow, stage: Stage) -> list[tuple[str, str | None]]:
    schema, above = flow.stream(stage.inputs[0]).schema, flow.stages[stage.inputs[0]]
    return [(name, _kind(schema, name, above)) for name in stage.state_key or ()]


def _kind(schema: Schema | None, name: str, above: Stage) -> str | None:
    """Return what a column of a key is: what it is computed by, else its type if it is known."""
    if name in above.key_expressions:
        return f"= {expressions.normal(above.key_expressions[name])}"
    field = None if schema is None else schema.find(name)
    return None if field is None else field.type


def _columns(keys: list[tuple[str, str | None]]) -> str:
    return ", ".join(name if kind is None else f"{name} {kind}" for name, kind in keys) or "nothing"


def _only(meaning: dict[str, Data], stage: str) -> dict[str, Data]:
    """Return a fingerprint that holds one stage and the functions that it depends on."""
    found: dict[str, Data] = {}
    waiting = [meaning["stages"][stage]]
    while waiting:
        for name in _named(waiting.pop()):
            if name in meaning["functions"] and name not in found:
                found[name] = meaning["functions"][name]
                waiting.append(found[name])
    part = {"stages": {stage: meaning["stages"][stage]}, "functions": found}
    return {"format": meaning["format"], "group": "", "output": {}, **part}


def _named(data: Data) -> Iterator[str]:
    """Yield the names of functions and classes that data refers to."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key in _REFERENCES and isinstance(value, str):
                yield value
            else:
                yield from _named(value)
    elif isinstance(data, list):
        for value in data:
            yield from _named(value)
