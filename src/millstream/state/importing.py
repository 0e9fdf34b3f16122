"""State from elsewhere, which the shards of a stage take over, each once.

    keys/<stage>/<shard>/<touch>-<random>.arrow   run files, as always
    keys/<stage>/imported/<token>/<shard>         the manifest that the shard goes on with
    keys/<stage>/imported.json                    the decision: the token, written last

A shard takes over the manifest when a batch first touches it after a start: its own manifest has
another token, or none. What the batch stores then has the token, in step with everything else that
belongs to the batch. So a crash before the decision changes nothing, and one after it repeats at
most what was not committed. A shard that no batch touches takes it over later, and a later import
is another token.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final

import msgspec

from millstream.state.files import StateFiles, imported_name
from millstream.state.manifest import Entry, Manifest, dump, load
from millstream.state.shard import ShardState
from millstream.storage import Storage

_DECISION: Final = "imported.json"


class Imported(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decision: the token, the batch that was the last one then, and the shards that have keys."""

    token: str
    batch: int
    shards: tuple[int, ...]
    #: There is nothing under the token yet: see `carrying`.
    promised: bool = False
    #: Shards that have something to do without rows take it over right behind this batch.
    wake: int | None = None


def imported(storage: Storage, stage: str) -> Imported | None:
    """Return the last import of a stage's state, if there is one."""
    found = storage.read(f"keys/{stage}/{_DECISION}")
    return None if found is None else msgspec.json.decode(found, type=Imported)


def put(
    files: StateFiles,
    batch: int,
    before: Mapping[int, bytes],
    entries: Mapping[int, Mapping[bytes, Entry]],
) -> Imported:
    """Decide what the shards of a stage go on with; nobody runs it now.

    Args:
        files: Where run files lie.
        batch: The last committed batch.
        before: The manifests of all shards that there are.
        entries: By shard, all that it shall keep.
    """
    token = uuid.uuid4().hex
    shards = tuple(sorted({*before, *entries}))
    for shard in shards:
        known = load(before.get(shard, b""))
        # Its files leave as they would if they were merged.
        leaving = [(known.touches + 1, run.name) for run in known.runs]
        begin = Manifest(known.touches, leaving=[*known.leaving, *leaving], imported=token)
        data = ShardState(begin, files, shard).commit(entries.get(shard, {}))
        files.storage.put(imported_name(files.stage, token, shard), data or dump(begin))
    decision = Imported(token, batch, shards)
    decide(files.storage, files.stage, decision)
    return decision


def decide(storage: Storage, stage: str, decision: Imported) -> None:
    """Make a decision durable, in the place of the one before."""
    storage.put(f"keys/{stage}/{_DECISION}", msgspec.json.encode(decision))


def current(
    files: StateFiles, decision: Imported | None, found: Mapping[int, bytes]
) -> dict[int, bytes]:
    """Return the manifests of all shards with an import that some have not taken over yet."""
    if decision is None:
        return dict(found)
    shards = sorted({*found, *decision.shards})
    taking = {shard: load(found.get(shard, b"")).imported != decision.token for shard in shards}
    return {
        shard: (files.storage.read(imported_name(files.stage, decision.token, shard)) or b"")
        if taking[shard]
        else found[shard]
        for shard in shards
    }
