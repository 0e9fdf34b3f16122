"""State of one checkpoint that another goes on with, shard by shard, in the way of an import.

    promised    the decision names a token and no shards: whoever builds the stage takes over what has the token
    carried     a manifest under that token for each shard, and its run files, copied: the old ones go with their checkpoint
    decided     the decision names the shards

A stage whose state is only promised must not see a row before the decision. Everything may be done
again: files of an attempt before are named by nobody.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw
from msgspec.msgpack import decode, encode

from millstream.state.appending import appended
from millstream.state.files import StateFiles, imported_name
from millstream.state.importing import Imported, decide, imported
from millstream.state.manifest import Manifest, Run, dump, load, no_time
from millstream.state.reading import whole
from millstream.state.run_file import RunFile
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
    added: Mapping[str, Any] | None = None,
) -> list[tuple[bytes, Any, str]]:
    """Let a shard keep what `change` makes of each value; return the keys at which it failed.

    These have no state then: each with its value from before, and why. Entries that had `expired`
    are left out, whether they were removed already or not. If all that `change` does is to add
    entries to mappings, `added` are these: then it is called for few values.
    """
    before = whole(data, old.open, expired, old_time=old_time)
    after, failed = _changed(before, change, added)
    following = Manifest(load(data).touches, imported=token)
    if after.nbytes <= new.inline:
        following.fresh = {
            key: (Raw(one[0]), one[1]) for key, one in after.items() if one is not None
        }
    else:
        content = after.dump()
        name = new.put(shard, following.touches, content)
        following.runs = [after.described(name, len(content))]
    new.storage.put(imported_name(new.stage, token, shard), dump(following))
    return failed


def _changed(
    before: RunFile, change: Change, added: Mapping[str, Any] | None
) -> tuple[RunFile, list[tuple[bytes, Any, str]]]:
    values, places = before.values, np.arange(len(before))
    if added is not None:
        values, places = appended(values, added)
    if not len(places):
        return before.changed(values, []), []
    failed: dict[int, tuple[bytes, Any, str]] = {}
    encoded: list[bytes] = []
    for place, data in zip(places.tolist(), before.at(places)[0], strict=True):
        value, content = decode(data), b""
        try:
            content = encode(change(value))
        except Exception as error:  # noqa: BLE001 (the user's function may raise anything)
            key = before.batch.column(1)[place].as_py()
            failed[place] = key, value, f"{type(error).__name__}: {error}"
        encoded.append(content)
    mask = np.zeros(len(before), bool)
    mask[places] = True
    values = pc.replace_with_mask(values, pa.array(mask), pa.array(encoded, values.type))
    return before.changed(values, list(failed)), list(failed.values())


def decide_carried(
    new: StateFiles, token: str, shards: Iterable[int], wake: int | None = None
) -> None:
    """Let the stage go on with what was carried for these shards, and with nothing for others.

    They are told so behind the batch `wake`, if there is something to do without rows.
    """
    decision = Imported(token, _BEFORE_ALL, tuple(sorted(shards)), wake=wake)
    decide(new.storage, new.stage, decision)
