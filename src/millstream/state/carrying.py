"""State of one checkpoint that another goes on with, shard by shard, in the way of an import.

    promised    the decision names a token and no shards: whoever builds the stage takes over what has the token
    carried     a manifest under that token for each shard, and its run files, copied: the old ones go with their checkpoint
    decided     the decision names the shards

A stage whose state is only promised must not see a row before the decision. Everything may be done
again: files of an attempt before are named by nobody.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Raw

from millstream.state.files import StateFiles, imported_name
from millstream.state.importing import Imported, decide, imported
from millstream.state.manifest import NO_TIME, Entry, Manifest, Run, dump, load, no_time
from millstream.state.reading import entries
from millstream.state.shard import ShardState
from millstream.storage import Storage

#: The batch of a decision that was made before there was any.
_BEFORE_ALL = -1

Change = Callable[[Any], Any]


def promise(storage: Storage, stage: str) -> str:
    """Let a stage that has not begun take over what will have the token that is returned."""
    known = imported(storage, stage)
    if known is not None:
        return known.token
    token = uuid.uuid4().hex
    decide(storage, stage, Imported(token, _BEFORE_ALL, (), promised=True))
    return token


def awaited(storage: Storage, stage: str) -> bool:
    """Tell whether a stage is promised state that it has not got yet."""
    known = imported(storage, stage)
    return known is not None and known.promised


def carry_as_it_is(
    old: StateFiles,
    new: StateFiles,
    token: str,
    shard: int,
    data: bytes,
    old_time: Callable[[Raw], int] = no_time,
) -> None:
    """Copy what a shard keeps, given its manifest."""
    known = load(data, old_time)
    runs = [_copied(old, new, shard, known.touches, run) for run in known.runs]
    following = Manifest(known.touches, runs, known.fresh, known.removed, imported=token)
    new.storage.put(imported_name(new.stage, token, shard), dump(following))


def _copied(old: StateFiles, new: StateFiles, shard: int, touch: int, run: Run) -> Run:
    content = old.open(run.name).to_pybytes()
    return msgspec.structs.replace(run, name=new.put(shard, touch, content))


def carry_changed(
    old: StateFiles,
    new: StateFiles,
    token: str,
    shard: int,
    data: bytes,
    change: Change,
    expired: int | None = None,
    old_time: Callable[[Raw], int] = no_time,
) -> list[tuple[bytes, Any, str]]:
    """Let a shard keep what `change` makes of each value; return the keys at which it failed.

    These have no state then: each with its value from before, and why. Entries that had `expired`
    are left out, whether they were removed already or not.
    """
    kept: dict[bytes, Entry | None] = {}
    failed: list[tuple[bytes, Any, str]] = []
    for key, value, time in entries(data, old.open, expired, old_time=old_time):
        try:
            after = msgspec.msgpack.encode(change(value))
        except Exception as error:  # noqa: BLE001 (the user's function may raise anything)
            failed.append((key, value, f"{type(error).__name__}: {error}"))
            continue
        kept[key] = Entry(after, NO_TIME if time is None else time)
    begin = Manifest(load(data).touches, imported=token)
    content = ShardState(begin, new, shard).commit(kept) or dump(begin)
    new.storage.put(imported_name(new.stage, token, shard), content)
    return failed


def decide_carried(new: StateFiles, token: str, shards: Iterable[int]) -> None:
    """Let the stage go on with what was carried for these shards, and with nothing for others."""
    decide(new.storage, new.stage, Imported(token, _BEFORE_ALL, tuple(sorted(shards))))
