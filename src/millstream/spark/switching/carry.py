"""State that is carried over at the cut: read from one checkpoint, and left for another to take over.

    held        the new version is promised state, and reads nothing
    the cut T   sources leave rows from T on out of the old version, and rows before T out of the new one
    drained     the old version has emitted all that it owns, so its state is that of all rows before T
    carried     a shard at a time, between polls; then the decision, and the new version is let go

Nothing here must be done at once: a driver that dies begins again, and what was decided stays.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from msgspec import Raw

from millstream.errors import NotThere, SwitchImpossible
from millstream.spark.failpoints import passing
from millstream.spark.inspection.key_states import KeyStates, kept_for, read_states
from millstream.spark.inspection.opened import Opened
from millstream.spark.inspection.place import JobPlace
from millstream.spark.run.query import GroupQuery
from millstream.spark.stages.coding import decode
from millstream.spark.stages.kind import Versions, kind_of
from millstream.spark.switching.pair import VersionPair
from millstream.state import StateFiles
from millstream.state.carrying import (
    awaited,
    carry_as_it_is,
    carry_changed,
    decide_carried,
    promise,
)
from millstream.state.files import retained
from millstream.state.manifest import no_time
from millstream.switch.carrying import carried
from millstream.switch.changes import StageChange

#: So long a poll goes on with it: a run has other things to do, such as to renew its lease.
_TURN_S: Final = 0.5
#: So many batches back a shard's files stay, as those of a session do: see `session`.
_BATCHES: Final = 10


def stages_of(pair: VersionPair, group: str) -> list[StageChange]:
    """Return the stages of a group that go on with the state of the old version from the cut on."""
    if pair.plan is None or group not in pair.carried:
        return []
    return list(carried([one for one in pair.plan.groups if one.name == group]))


def promise_states(pair: VersionPair, query: GroupQuery) -> None:
    """Let the stages of a query that has not started take over what they will be given."""
    for stage in stages_of(pair, query.group.name):
        promise(query.checkpoint.state_storage, stage.name)
        passing("switch-promised")


def waits(pair: VersionPair, query: GroupQuery) -> bool:
    """Tell whether a query of the new version has not got its state yet."""
    stages = stages_of(pair, query.group.name)
    return any(awaited(query.checkpoint.state_storage, stage.name) for stage in stages)


def rehearse(pair: VersionPair) -> Iterator[None]:
    """Give all states of now to the functions that will change them, some in each turn.

    Raises:
        SwitchImpossible: One of them fails.
    """
    for group in sorted(pair.carried & pair.current.queries.keys()):
        for stage in stages_of(pair, group):
            if stage.fit.convert is not None:
                yield from _rehearse(pair, pair.current.queries[group], stage)
            elif stage.fit.remade:
                _check_readable(pair, pair.current.queries[group], stage)


def _check_readable(pair: VersionPair, old: GroupQuery, stage: StageChange) -> None:
    """Refuse to carry over what an earlier release has stored in another way."""
    if old.checkpoint.committed() is None:
        return
    try:
        _read(pair, old, stage)
    except NotThere as error:
        msg = f'the state of stage "{stage.name}" cannot be carried over: {error}'
        raise SwitchImpossible(msg, hint="try again after some batches") from error


def _rehearse(pair: VersionPair, old: GroupQuery, stage: StageChange) -> Iterator[None]:
    try:
        states = _read(pair, old, stage)
    except NotThere:
        return  # there is nothing yet
    begun = time.monotonic()
    for keys, values in states.rows():
        if time.monotonic() - begun > _TURN_S:
            yield
            begun = time.monotonic()
        for key, value in zip(keys, values, strict=True):
            try:
                stage.fit.value(value)
            except Exception as error:
                shown = ", ".join(map(str, key))
                fact = f"{type(error).__name__}: {error}"
                msg = f'the state of stage "{stage.name}" cannot be converted: key {shown}: {fact}'
                raise SwitchImpossible(msg, hint="fix convert= in the new flow") from error


def advance(pair: VersionPair, group: str) -> bool:
    """Carry over more of a group's state; return whether all is done."""
    new = pair.new.queries.get(group)
    if new is None or not waits(pair, new):
        return True
    work = pair.carrying.get(group)
    if work is None:
        work = pair.carrying[group] = _carry(pair, pair.current.queries[group], new)
    begun = time.monotonic()
    for _ in work:
        if time.monotonic() - begun > _TURN_S:
            return False
    del pair.carrying[group]
    return True


def _carry(pair: VersionPair, old: GroupQuery, new: GroupQuery) -> Iterator[None]:
    for stage in stages_of(pair, old.group.name):
        storage = new.checkpoint.state_storage
        if not awaited(storage, stage.name):
            continue
        token, files = promise(storage, stage.name), _files(new, stage.name)
        states = _read(pair, old, stage)
        carrying = kind_of(new.flow.stages[stage.name]).carry
        if carrying is not None:
            work = carrying(_versions(pair, old, new, stage))
            for shard, data in states.shards.items():
                work.shard(states.files, files, token, shard, data)
                passing("switch-carried-shard")
                yield
            if work.remark:
                pair.remarks.append(f'stage "{stage.name}": {work.remark}')
            last = new.checkpoint.last("commits")
            decide_carried(files, token, states.shards, wake=-1 if last is None else last)
            passing("switch-carried")
            continue
        expired = _expired(pair, old, new, stage)
        old_time = _first_at if states.kind == "distinct" else no_time
        failed = []
        for shard, data in states.shards.items():
            if stage.fit.as_it_is and expired is None:
                carry_as_it_is(states.files, files, token, shard, data, old_time)
            else:
                change, added = stage.fit.value, stage.fit.appended
                failed += carry_changed(
                    states.files, files, token, shard, data, change, expired, old_time, added
                )
            passing("switch-carried-shard")
            yield
        if failed:
            key, _, why = failed[0]
            shown = ", ".join(map(str, decode(key)))
            pair.remarks.append(
                f'{len(failed)} keys of stage "{stage.name}" begin again, since convert= failed '
                f"on their states, first on that of {shown}: {why}"
            )
        decide_carried(files, token, states.shards)
        passing("switch-carried")


def _versions(pair: VersionPair, old: GroupQuery, new: GroupQuery, stage: StageChange) -> Versions:
    stages = old.flow.stages[stage.source or stage.name], new.flow.stages[stage.name]
    return Versions(stages, (old.builder(), new.builder()), stage.fit, pair.cut_us)


def _first_at(value: Raw) -> int:
    """Return the time of an entry of `distinct` that an early version has stored: its value."""
    return int(decode(bytes(value)))


def _files(query: GroupQuery, stage: str) -> StateFiles:
    return StateFiles(query.checkpoint.state_storage, stage, retained(_BATCHES))


def _read(pair: VersionPair, old: GroupQuery, stage: StageChange) -> KeyStates:
    ground = pair.current.ground
    place = JobPlace(old.flow.name, ground.folder, ground.address)
    return read_states(ground.spark, Opened(place, old.checkpoint), stage.source or stage.name)


def _expired(pair: VersionPair, old: GroupQuery, new: GroupQuery, stage: StageChange) -> int | None:
    """Return at which time, or before it, entries had expired; None if the new version agrees.

    Whether the old one has removed them already depends on its batches.
    """
    names = (old, stage.source or stage.name), (new, stage.name)
    before, after = (
        kept_for(query.checkpoint.description["stages"][name]) for query, name in names
    )
    if before is None or (after is not None and after <= before):
        return None
    return pair.cut_us - before
