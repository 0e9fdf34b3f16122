"""The plan of a switch: what will happen, or what makes it impossible."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import lcm

from millstream.clock import MICROSECOND
from millstream.errors import SwitchImpossible
from millstream.flow.durations import format as shown
from millstream.flow.flow import Flow
from millstream.flow.schema import Schema
from millstream.flow.stages import Source, Written
from millstream.journal.partitioning import placeable
from millstream.plan.groups import Plan
from millstream.switch import again, carrying
from millstream.switch import shadow as shadows
from millstream.switch.changes import Change, GroupChange, Move, StageChange, Version, changes
from millstream.switch.keys import grouped_otherwise, key_meaning, key_of
from millstream.switch.obstacle import Obstacle
from millstream.switch.request import Mode
from millstream.switch.starts import alike
from millstream.switch.units import Unit, closed, longest, units
from millstream.switch.wishes import StateWishes

#: A common boundary of both versions' windows that is further away than this is not waited for.
LONGEST_STEP = timedelta(days=1)
#: No event lies before it.
_BEGINNING = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class SwitchPlan:
    """A switch from one version to another, as data.

    The cut will be a multiple of `step`, or is `since`, in the past. A switch with `obstacles`
    cannot be begun; `notes` are what its user should know. `grown` says which sources get more
    partitions, once the new version runs alone. The groups that are `unlike` are owned by their
    time, since their results start in another way in each version.
    """

    old: Plan
    new: Plan
    groups: tuple[GroupChange, ...]
    units: tuple[Unit, ...]
    step: timedelta
    obstacles: tuple[Obstacle, ...] = ()
    notes: tuple[str, ...] = ()
    since: datetime | None = None
    mode: Mode = "switch"
    grown: tuple[str, ...] = ()
    unlike: frozenset[str] = frozenset()

    @property
    def changed(self) -> tuple[GroupChange, ...]:
        return tuple(group for group in self.groups if group.change is not Change.KEPT)

    @property
    def overlap(self) -> timedelta | None:
        """How long the longest unit runs in both versions, in event time; None is open-ended."""
        return longest([unit.overlap for unit in self.units])

    def check(self) -> None:
        """Refuse a switch that cannot be done.

        Raises:
            SwitchImpossible: Something stands in its way; nothing has been touched.
        """
        if self.obstacles:
            first, *others = self.obstacles
            more = f" (and {len(others)} more)" if others else ""
            msg = f'flow "{self.old.flow.name}" cannot be switched: {first.fact}{more}'
            raise SwitchImpossible(msg, hint=first.hint)


def switch_plan(
    old: Version,
    new: Version,
    *,
    consent: Collection[str] = (),
    mode: Mode = "switch",
    since: datetime | None = None,
    states: Mapping[str, str] | None = None,
    by_position: Collection[str] = (),
) -> SwitchPlan:
    """Compare two versions of a flow.

    Args:
        old: The running version.
        new: The one that is to take its place.
        consent: The stages whose state may be dropped, and the outputs whose results may be
            repeated.
        mode: Whether the new version takes over at once, only runs beside the old one, or gets a
            share of the keys.
        since: From when on it processes again, rounded down to where there may be a cut.
        states: The new names of states of the old version.
        by_position: Groups that have begun to go over at a position, in a switch that goes on.
    """
    wishes = StateWishes(states or {}, consent)
    stated = _dropped(changes(old, new, wishes), wishes)
    if since is not None and since <= _BEGINNING:
        stated = _begun_again(stated)
    found = closed(old, new, stated, whole=since is not None)
    new = _owning(old, new, found, since)
    at_once = mode == "switch" and since is None
    parts = units(old, new, found, by_position, at_once=at_once)
    found = _timed(found, parts)
    step, twice = _step(old.flow, new.flow, found)
    since = None if since is None else _cut_before(since, step)
    obstacles = (
        *_names(old.flow, new.flow),
        *(again.obstacles(old, new, found, parts, since, consent) if since is not None else ()),
        *_states(found, wishes),
        *_unknown(old, new, wishes),
        *_borders(old, new, found),
        *_misplaced(old.flow, new.flow),
        *_reaches(new, parts),
        *_not_yet(old, new, found, parts),
        *(_shares(old, new, found, parts) if mode == "share" else ()),
        *(_shadows(old, new, parts) if mode == "shadow" else ()),
    )
    notes = (
        *(_open_ends(parts) if since is None else again.notes(old, new, found)),
        *twice,
        *(_shared_out(old, new, parts) if mode == "share" else ()),
        *_programs(new.flow, found, mode),
        *(_kept_for(new, parts) if since is None else ()),
        *(_left_out(old, new, parts) if mode == "shadow" else ()),
        *_narrower(old.flow, new.flow),
        *_judged(old.flow, new.flow, since),
        *(_carried(old, new, found, parts) if since is None else ()),
    )
    grown = tuple(_grown(old.flow, new.flow)) if mode != "shadow" else ()
    plans = old.plan, new.plan
    return SwitchPlan(
        *plans, found, parts, step, obstacles, notes, since, mode, grown, unlike=new.unlike
    )


def _owning(
    old: Version, new: Version, found: Iterable[GroupChange], since: datetime | None
) -> Version:
    """Return the new version with the groups whose results must be owned by their time."""
    changed = [group.name for group in found if group.change is not Change.KEPT]
    again = frozenset(changed if since is not None else ())
    return replace(
        new,
        by_time=old.by_time | new.by_time | again,
        unlike=frozenset(name for name in changed if _unlike(old, new, name)),
    )


def _unlike(old: Version, new: Version, name: str) -> bool:
    """Tell whether the results of a group start in another way in each version."""
    before, after = old.group(name), new.group(name)
    if before is None or after is None:
        return False
    return not alike(old.flow.stages[before.output], new.flow.stages[after.output])


def _cut_before(moment: datetime, step: timedelta) -> datetime:
    start = datetime.fromtimestamp(0, UTC)
    return moment - (moment - start) % step


def _names(old: Flow, new: Flow) -> Iterator[Obstacle]:
    if old.name != new.name:
        fact = f'the new version is of flow "{new.name}"'
        yield Obstacle(fact, f'give it the name "{old.name}", or deploy it as a job of its own')


def _states(found: Collection[GroupChange], wishes: StateWishes) -> Iterator[Obstacle]:
    for group in found:
        for stage in group.stages:
            name = stage.source or stage.name
            if stage.move is Move.DROPPED and not wishes.loses(name):
                fact = f'the state of stage "{name}" in group "{group.name}" would be lost: {stage.why}'
                yield Obstacle(fact, _ways_out(group, stage, name))


def _ways_out(group: GroupChange, stage: StageChange, name: str) -> str:
    """Return what a user can do about a state that does not fit, or has no heir."""
    empty = [one.name for one in group.stages if one.move is Move.EMPTY]
    ways = [f"lose it with --consent drop:{name}"]
    if stage.fit.ways:
        ways = [*stage.fit.ways, f"lose all with --consent drop:{name}"]
    elif stage.fit.differences:
        ways.insert(0, "give the new stage a convert= function, which makes the new state")
    elif stage.change is Change.REMOVED and empty:
        ways.insert(0, f"name its heir: --state {name}={empty[0]}")
    return f"keep the stage as it was; or {'; or '.join(ways)}"


def _unknown(old: Version, new: Version, wishes: StateWishes) -> Iterator[Obstacle]:
    """Yield the names of a rename map that a version does not have."""
    for before, after in wishes.stages:
        for name, version, which in ((before, old, "running"), (after, new, "new")):
            if name not in version.flow.stages:
                known = [stage.name for stage in version.flow.stages.values() if stage.state]
                fact = f'the {which} version has no stage "{name}" whose state could be renamed'
                yield Obstacle(fact, f"stages with state: {', '.join(known) or 'none'}")


def _dropped(found: Iterable[GroupChange], wishes: StateWishes) -> Iterator[GroupChange]:
    """Yield the changes, with state dropped that could be handed over and need not be."""
    for group in found:
        stages = [
            replace(stage, move=Move.DROPPED, why="as you wish")
            if stage.move is Move.CARRIED and wishes.loses(stage.source or stage.name)
            else stage
            for stage in group.stages
        ]
        yield replace(group, stages=tuple(stages))


def _begun_again(found: Iterable[GroupChange]) -> Iterator[GroupChange]:
    """Yield the changes of a flow that processes everything again: no state came before that."""
    for group in found:
        stages = [
            replace(stage, move=Move.EMPTY) if stage.move is Move.CARRIED else stage
            for stage in group.stages
        ]
        yield replace(group, stages=tuple(stages))


def _timed(found: Collection[GroupChange], parts: Collection[Unit]) -> tuple[GroupChange, ...]:
    """Return the changes, with the state marked that is carried over at the cut."""
    names = {name for unit in parts if unit.carried for name in unit.groups}
    return tuple(
        replace(group, stages=tuple(replace(stage, at_cut=True) for stage in group.stages))
        if group.name in names
        else group
        for group in found
    )


def _carried(
    old: Version, new: Version, found: Collection[GroupChange], parts: Collection[Unit]
) -> Iterator[str]:
    for unit in (unit for unit in parts if unit.carried):
        groups = [group for group in found if group.name in unit.groups]
        if any(carrying.carried(groups)):
            yield f"results of {unit.name} pause at the cut while its state is carried over"
            yield from carrying.notes(old, new, groups)
        else:
            yield f"{unit.name} drops its state at the cut: rows from there on begin without it"


# sources


def _sources(old: Flow, new: Flow) -> Iterator[tuple[Source, Source]]:
    """Yield the sources that both versions have."""
    for name, after in new.stages.items():
        before = old.stages.get(name)
        if isinstance(before, Source) and isinstance(after, Source):
            yield before, after


def _relaxed(old: Flow, new: Flow) -> Iterator[tuple[Source, Source]]:
    """Yield the sources that get another lateness."""
    for before, after in _sources(old, new):
        if before.lateness != after.lateness:
            yield before, after


def _judged(old: Flow, new: Flow, since: datetime | None) -> Iterator[str]:
    """Say which rows are late by which lateness."""
    for before, after in _relaxed(old, new):
        then, now = shown(before.lateness), shown(after.lateness)
        if since is None:
            yield f'rows of "{after.name}" from the cut on are late by {now}, rows before it by {then}'
        elif before.lateness < after.lateness:
            yield f'rows of "{after.name}" that were late by {then}, and are not by {now}, are processed; their dead letters stay'


def _grown(old: Flow, new: Flow) -> Iterator[str]:
    """Return which sources get more partitions: nobody who reads them has to be replaced."""
    for before, after in _sources(old, new):
        if before.partitions < after.partitions:
            yield f'source "{after.name}" gets {after.partitions} partitions, from {before.partitions}, once the old version is gone'


def _narrower(old: Flow, new: Flow) -> Iterator[str]:
    for before, after in _sources(old, new):
        if before.partitions > after.partitions:
            yield f'source "{after.name}" keeps the partitions that it has: a journal can grow, and not shrink'


def _misplaced(old: Flow, new: Flow) -> Iterator[Obstacle]:
    """Yield the sources whose rows cannot be spread by key, or not in a repeatable way."""
    for before, after in _sources(old, new):
        if before.partitions > 1 and before.key != after.key:
            fact = f'source "{after.name}" is spread by {before.key or "nothing"} and would be by {after.key or "nothing"}'
            yield Obstacle(
                fact, "rows that are sent again would be there twice: use a source of another name"
            )
        elif before.partitions < after.partitions and after.key is not None:
            kind = after.schema.arrow().field(after.key).type
            if not placeable(kind):
                fact = f'key "{after.key}" of source "{after.name}" is {kind}, which has no place among partitions'
                yield Obstacle(
                    fact, "keep one partition, or use a source with a string for its key"
                )


# not yet


def _not_yet(
    old: Version, new: Version, found: Collection[GroupChange], parts: Collection[Unit]
) -> Iterator[Obstacle]:
    """Yield what Millstream cannot do yet while a flow runs."""
    restart = "stop the job, remove the checkpoint of the group, and start the new version"
    changed = {group.name: group for group in found}
    for unit in parts:
        if unit.moved:
            why = carrying.unmovable(old.plan, new.plan, [changed[name] for name in unit.groups])
        else:
            why = ""
        if why:
            drop = [
                stage.name
                for name in unit.groups
                for stage in changed[name].stages
                if stage.move is Move.CARRIED
            ]
            way = (
                f"use {' '.join(f'--consent {name}' for name in drop)} to begin with an empty state; or "
                if drop
                else ""
            )
            yield Obstacle(
                f"{unit.name} cannot be taken over where it stands: {why}", way + restart
            )
        elif unit.horizon is None and not unit.cyclic and not unit.moved:
            fact = f"it is not known when the sessions of {unit.name} that are open at the cut will have ended"
            yield Obstacle(fact, "give the sessions a longest=; or " + restart)


# what unchanged groups read


def _borders(old: Version, new: Version, found: Collection[GroupChange]) -> Iterator[Obstacle]:
    """Yield the changes that readers of a journal cannot take: it may only gain columns."""
    for before, after in _sources(old.flow, new.flow):
        yield from _columns("source", after.name, before.schema, after.schema)
        yield from _times("source", after.name, before.time, after.time)
    kept = {group.name for group in found if group.change is Change.KEPT}
    for name, use in new.plan.journals.items():
        outward = not use.readers and use.writer not in kept
        if (
            use.kind == "group"
            and name in old.plan.journals
            and (kept & set(use.readers) or outward)
        ):
            one, other = old.flow.stream(name), new.flow.stream(name)
            if outward:
                yield from _relaid(
                    name, _partitions(old.flow.stages[name]), _partitions(new.flow.stages[name])
                )
            yield from _columns("journal", name, one.schema, other.schema)
            yield from _times("journal", name, one.time, other.time)


def _partitions(stage: object) -> int:
    assert isinstance(stage, Written)
    return stage.partitions


def _relaid(name: str, old: int, new: int) -> Iterator[Obstacle]:
    if new != old:
        fact = f'journal "{name}", which no group of the flow reads, has {old} partitions and would have {new}'
        yield Obstacle(
            fact,
            "whoever reads it would miss some: keep them, or write to a journal of another name",
        )


def _columns(kind: str, name: str, old: Schema | None, new: Schema | None) -> Iterator[Obstacle]:
    if old is None or new is None:
        return
    after: Mapping[str, str | None] = {field.name: field.type for field in new}
    for field in old:
        if after.get(field.name) != field.type:
            now = f"would be {after[field.name]}" if field.name in after else "would be gone"
            fact = f'column "{field.name}" of {kind} "{name}" is {field.type} and {now}'
            yield Obstacle(
                fact, "what others read may gain columns only: add one under another name"
            )


def _times(kind: str, name: str, old: str | None, new: str | None) -> Iterator[Obstacle]:
    if old != new:
        fact = f'{kind} "{name}" is timed by {old or "nothing"} and would be by {new or "nothing"}'
        yield Obstacle(fact, f"use a {kind} of another name for another time")


# how far versions read


def _reaches(new: Version, parts: Collection[Unit]) -> Iterator[Obstacle]:
    for unit in parts:
        if unit.cyclic:
            fact = f"the changed groups {unit.name} form a cycle, in which a result has no end"
            yield Obstacle(
                fact, "change one of them at a time, or stop the job and start the new version"
            )
        elif unit.look_back is None and not unit.moved and (limited := _limited(new, unit)):
            fact = f'a session of {unit.name} may have begun before what source "{limited}" keeps'
            yield Obstacle(fact, "give the sessions a longest=, or keep the whole journal")


def _limited(version: Version, unit: Unit) -> str | None:
    """Return a journal that a unit reads and that is not kept whole."""
    for group in version.plan.groups:
        for name in group.inputs if group.name in unit.groups else ():
            stage = version.flow.stages[name]
            if isinstance(stage, Written) and not stage.kept_whole:
                return name
    return None


def _open_ends(parts: Collection[Unit]) -> Iterator[str]:
    for unit in parts:
        if unit.moved:
            yield f"results of {unit.name} pause while its query restarts"
            continue
        if unit.horizon is None and not unit.cyclic:
            yield f"both versions of {unit.name} run until the sessions that are open at the cut have ended"
        if unit.look_back is None and not unit.cyclic:
            yield f"the new version of {unit.name} reads its journals from their beginning"


def _kept_for(new: Version, parts: Collection[Unit]) -> Iterator[str]:
    for unit in parts:
        limited = _limited(new, unit)
        if unit.look_back and limited:
            yield f'the new version of {unit.name} reads "{limited}" from {shown(unit.look_back)} before the cut, if that is still kept'


# the cut


def _step(
    old: Flow, new: Flow, found: Collection[GroupChange]
) -> tuple[timedelta, tuple[str, ...]]:
    """Return what the cut is a multiple of, and which rows count in both versions or in none."""
    base = _common(old.switch_every, new.switch_every)
    pairs = list(_resized(old, new, found))
    everything = _common(base, *(every for _, *both in pairs for every, _ in both))
    if everything <= max(LONGEST_STEP, base):
        return everything, ()
    later = _common(base, *(every for *_, (every, _) in pairs))
    step = later if later <= max(LONGEST_STEP, base) else base
    return step, tuple(line for pair in pairs for line in _split(*pair, step))


#: How often a window starts, and how long it is.
_Steps = tuple[timedelta, timedelta]


def _resized(
    old: Flow, new: Flow, found: Collection[GroupChange]
) -> Iterator[tuple[str, _Steps, _Steps]]:
    """Yield the windows that change their lengths."""
    for group in found:
        for stage in group.stages if group.change is Change.REPLACED else ():
            versions = old.stages.get(stage.name), new.stages.get(stage.name)
            before, after = (None if one is None else one.steps for one in versions)
            if before and after and before != after:
                yield stage.name, before, after


def _split(name: str, before: _Steps, after: _Steps, step: timedelta) -> Iterator[str]:
    if step % before[0]:
        length = shown(before[1])
        yield f'"{name}": rows of up to {length} after the cut count in a window of each version'
    if step % after[0]:
        length = shown(after[1])
        yield (
            f'"{name}": rows of up to {length} after the cut may be in no window of the new version'
        )


def _common(*lengths: timedelta) -> timedelta:
    return lcm(*(length // MICROSECOND for length in lengths)) * MICROSECOND


# shares and shadows


def _shares(
    old: Version, new: Version, found: Collection[GroupChange], parts: Collection[Unit]
) -> Iterator[Obstacle]:
    """Yield what cannot be shared out between two versions."""
    for before, after in _relaxed(old.flow, new.flow):
        fact = f'the lateness of source "{after.name}" is {shown(before.lateness)} and would be {shown(after.lateness)}, so a row could be late for one version and not for the other'
        yield Obstacle(fact, "switch at once, without --share; or keep the lateness")
    changed = {group.name: group for group in found}
    for unit in parts:
        if unit.moved or unit.carried:
            yield _indivisible(
                unit, [stage for name in unit.groups for stage in changed[name].stages]
            )
            continue
        if unit.returns is None and unit.horizon is not None:
            fact = f"it is not known when the sessions of the new version of {unit.name} end, so it could not give keys back"
            yield Obstacle(fact, "give the sessions a longest=; or switch at once, without --share")
        for name in borders(old, new, unit):
            yield from _keyless(old, new, name)


def _indivisible(unit: Unit, stages: Iterable[StageChange]) -> Obstacle:
    carried = [stage for stage in stages if stage.move is Move.CARRIED]
    at_once = "switch at once, without --share"
    if not carried:
        return Obstacle(
            f"{unit.name} is cut at a position, so its results cannot be shared out", at_once
        )
    first = carried[0]
    fact = f'stage "{first.name}" of {unit.name} hands its state ({first.state}) over by name, so it cannot be shared out'
    return Obstacle(fact, f"{at_once}; or use --consent {first.name} to begin with an empty state")


def borders(old: Version, new: Version, unit: Unit) -> list[str]:
    """Return the groups of a unit whose results others see: their results are shared out."""
    groups = [
        group for plan in (old.plan, new.plan) for group in plan.groups if group.name in unit.groups
    ]
    return list(dict.fromkeys(group.name for group in groups if group.journal not in unit.private))


def _keyless(old: Version, new: Version, name: str) -> Iterator[Obstacle]:
    hint = "group by a column, or name one with key_by(...), in both versions; or switch at once"
    keys = {}
    for version in (old, new):
        group = version.group(name)
        if group is None:
            continue
        stage, key = group.output, key_of(version.flow, group.output)
        if key is None:
            yield Obstacle(
                f'the results of stage "{stage}" in group "{name}" have no key, so they cannot be shared out',
                hint,
            )
            return
        for other in grouped_otherwise(version.flow, group, key):
            fact = f'stage "{other}" in group "{name}" does not group by "{key}", so its results cannot be shared out by it'
            yield Obstacle(fact, hint)
            return
        keys[key_meaning(version.flow, group, key)] = stage
    if len(keys) > 1:
        said = " and by ".join(keys)
        yield Obstacle(
            f'the results of group "{name}" are keyed by {said}, so they cannot be shared out', hint
        )


def _shared_out(old: Version, new: Version, parts: Collection[Unit]) -> Iterator[str]:
    for unit in parts:
        for name in () if unit.moved else borders(old, new, unit):
            version = new if new.group(name) is not None else old
            key = key_of(version.flow, version.plan.group(name).output)
            if key is not None:
                yield f'results of group "{name}" are shared out by "{key}"'


def _programs(new: Flow, found: Collection[GroupChange], mode: Mode) -> Iterator[str]:
    for group in found if mode != "switch" else ():
        for stage in group.stages if group.change is not Change.REMOVED else ():
            if stage.name in new.stages and new.stages[stage.name].acts:
                yield f'"{stage.name}" of group "{group.name}" runs in both versions, with whatever it does besides answering'


def _shadows(old: Version, new: Version, parts: Collection[Unit]) -> Iterator[Obstacle]:
    yield from (Obstacle(*one) for one in shadows.obstacles(old.flow, new.flow))
    if parts and not shadows.shadowed(old, new, parts).units:
        names = ", ".join(name for unit in parts for name in unit.groups)
        yield Obstacle(
            f"nothing can run in the shadow: the state of {names} is handed over",
            "switch without --shadow",
        )


def _left_out(old: Version, new: Version, parts: Collection[Unit]) -> Iterator[str]:
    for name in shadows.shadowed(old, new, parts).left_out:
        yield f"{name} is not in the shadow: its state is handed over in a switch, and the old version needs it"
