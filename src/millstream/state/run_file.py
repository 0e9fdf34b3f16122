"""A run file: entries sorted by the hash of their key, as one Arrow record batch.

Of several entries with one hash the order is that of nothing; no key is there twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.state.manifest import NO_TIME, Run, Stored

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Hashing = Callable[[Sequence[bytes]], Hashes]
#: Keys as objects, of which numpy takes some by their places.
Keys = np.ndarray[Any, np.dtype[np.object_]]
_Places = np.ndarray[Any, np.dtype[np.int64]]

#: Offsets of 64 bits: a merged run may have more than 2 GiB of keys or values.
SCHEMA: Final = pa.schema(
    [
        pa.field("hash", pa.uint64(), nullable=False),
        pa.field("key", pa.large_binary(), nullable=False),
        pa.field("value", pa.large_binary()),
        pa.field("time", pa.int64(), nullable=False),
    ]
)


def hashed(keys: Sequence[bytes]) -> Hashes:
    """Return the hashes of keys: the same in every process and version."""
    # Not a quicker one: keys come from outside, and many with one hash would make lookups slow.
    digests = b"".join([hashlib.blake2b(key, digest_size=8).digest() for key in keys])
    return np.frombuffer(digests, "<u8")


class RunFile:
    """The entries of a run, in memory or mapped."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self._hashes: Hashes = batch.column(0).to_numpy()

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @property
    def nbytes(self) -> int:
        """About how many bytes its file has."""
        return int(self.batch.nbytes)

    @classmethod
    def of(cls, entries: Mapping[bytes, Stored | None], hashing: Hashing = hashed) -> RunFile:
        """Return a run of these entries; None says that a key was removed."""
        keys, found = list(entries), entries.values()
        hashes = hashing(keys)
        order = np.argsort(hashes, kind="stable")
        places = pa.array(order)
        values = [None if one is None else one[0] for one in found]
        times = [NO_TIME if one is None else one[1] for one in found]
        columns = [
            pa.array(hashes[order], pa.uint64()),
            pa.array(keys, pa.large_binary()).take(places),
            pa.array(values, pa.large_binary()).take(places),
            pa.array(np.array(times, np.int64)[order]),
        ]
        return cls(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))

    @classmethod
    def load(cls, data: pa.Buffer) -> RunFile:
        """Return the run in a file; nothing is copied."""
        with pa.ipc.open_file(data) as file:
            return cls(file.get_batch(0))

    def dump(self) -> bytes:
        """Return the run as a file."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, SCHEMA) as writer:
            writer.write_batch(self.batch)
        data: bytes = sink.getvalue().to_pybytes()
        return data

    def described(self, name: str, size: int) -> Run:
        """Return how a manifest names this run."""
        rows, times = len(self), self._times
        # What was removed has no time, and outlives nothing.
        newest = times[self.batch.column(2).is_valid().to_numpy(zero_copy_only=False)]
        middle = int(np.partition(times, rows // 2)[rows // 2])
        return Run(name, rows, size, int(newest.max(initial=-NO_TIME)), middle)

    def find(self, keys: Keys, hashes: Hashes) -> tuple[_Places, _Places]:
        """Return which of the keys are here, and at which places."""
        at = np.searchsorted(self._hashes, hashes)
        candidates = np.flatnonzero(self._hashes[np.minimum(at, len(self) - 1)] == hashes)
        places = at[candidates].astype(np.int64)
        wanted = pa.array(keys[candidates], pa.large_binary())
        same = pc.equal(self.batch.column(1).take(pa.array(places)), wanted)
        same = same.to_numpy(zero_copy_only=False)
        if same.all():
            return candidates, places
        others = candidates[~same]
        elsewhere = ((which, self._behind(keys[which], int(at[which]))) for which in others)
        found = [(which, place) for which, place in elsewhere if place is not None]
        more, theirs = np.array(found, np.int64).reshape(-1, 2).T
        return np.append(candidates[same], more), np.append(places[same], theirs)

    def _behind(self, key: bytes, at: int) -> int | None:
        """Return where a key is among those that have the hash of the entry before it."""
        keys, mine = self.batch.column(1), self._hashes[at]
        end = int(np.searchsorted(self._hashes, mine, side="right"))
        places = range(at + 1, end)
        return next((place for place in places if keys[place].as_py() == key), None)

    def at(self, places: _Places) -> tuple[list[Any], list[int]]:
        """Return the values and times at places; None in place of a value where a key was removed."""
        values = self.batch.column(2).take(pa.array(places)).to_numpy(zero_copy_only=False)
        return values.tolist(), self._times[places].tolist()

    def entries(self, keys: Keys, places: _Places) -> Iterable[tuple[bytes, Stored]]:
        """Return the entries of keys, which are at these places, without those that were removed."""
        values, times = self.at(places)
        found = zip(keys.tolist(), zip(values, times, strict=True), strict=True)
        return (one for one in found if one[1][0] is not None) if None in values else found

    def due(self, moment: int) -> tuple[Keys, Hashes, _Places]:
        """Return the keys of the entries at or before a moment, their hashes and places."""
        places = np.flatnonzero(self._times <= moment)
        keys = self.batch.column(1).take(pa.array(places)).to_numpy(zero_copy_only=False)
        return keys, self._hashes[places], places

    def next_time(self, moment: int) -> int:
        """Return the first time behind a moment."""
        times = self._times
        return int(times[times > moment].min(initial=NO_TIME))

    def is_hidden_by(self, newer: RunFile) -> bool:
        """Tell whether another run has the same keys, as when a batch touches all that there are."""
        if not np.array_equal(self._hashes, newer._hashes):
            return False
        return bool(self.batch.column(1).equals(newer.batch.column(1)))

    def hashes(self) -> Iterator[tuple[bytes, int]]:
        """Yield all keys with their hashes."""
        keys = self.batch.column(1).to_numpy(zero_copy_only=False).tolist()
        return zip(keys, self._hashes.tolist(), strict=True)

    def items(self) -> Iterator[tuple[bytes, Stored | None]]:
        """Yield all entries."""
        keys, values = (self.batch.column(n).to_numpy(zero_copy_only=False) for n in (1, 2))
        found = zip(values.tolist(), self._times.tolist(), strict=True)
        if self.values.null_count:
            found = (None if one[0] is None else one for one in found)  # type: ignore[assignment]
        return zip(keys.tolist(), found, strict=True)

    def with_entries(self, entries: Mapping[bytes, Stored]) -> RunFile | None:
        """Return a run of other entries of the same keys in the same order; None if these differ.

        So it is if a batch touches all keys that there are.
        """
        keys = self.batch.column(1)
        if len(entries) != len(self) or not keys.equals(pa.array(list(entries), keys.type)):
            return None
        values, times = zip(*entries.values(), strict=True)
        columns = [self.batch.column(0), keys, pa.array(values, keys.type), pa.array(times)]
        return RunFile(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))

    @property
    def values(self) -> pa.Array:
        """The values of all entries."""
        return self.batch.column(2)

    def changed(self, values: pa.Array, gone: Sequence[int]) -> RunFile:
        """Return the same keys with other values, without those at some places."""
        batch = self.batch.set_column(2, SCHEMA.field(2), values)
        if gone:
            stays = np.ones(len(self), bool)
            stays[list(gone)] = False
            batch = batch.filter(pa.array(stays))
        return RunFile(batch)

    @property
    def _times(self) -> _Places:
        times: _Places = self.batch.column(3).to_numpy()
        return times


def merged(runs: Sequence[RunFile], *, whole: bool, expired: int | None = None) -> RunFile:
    """Return one run in the place of several, oldest first: the newest entry of a key stays.

    Args:
        runs: The runs, which follow each other.
        whole: Nothing lies below them, so that what was removed need not be remembered.
        expired: Entries at or before this time are removed.
    """
    *older, newest = runs
    runs = [*(run for run in older if not run.is_hidden_by(newest)), newest]
    if len(runs) == 1 and expired is None and not (whole and newest.batch.column(2).null_count):
        return newest
    table = pa.Table.from_batches([run.batch for run in reversed(runs)]).combine_chunks()
    # Stable: among equal hashes the newest come first. Sorted runs are merged, not sorted again.
    hashes = table.column(0).to_numpy()
    order = np.argsort(hashes, kind="stable")
    if expired is not None:
        table = _without(table, expired)
    order = order[_newest(table.column(1).combine_chunks(), hashes[order], order)]
    if whole:
        order = order[table.column(2).is_valid().to_numpy()[order]]
    columns = [column.combine_chunks() for column in table.take(pa.array(order)).columns]
    return RunFile(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


def _without(table: pa.Table, expired: int) -> pa.Table:
    """Return entries of which those at or before a time are removed."""
    gone = pa.array(table.column(3).to_numpy() <= expired)
    values, times = (table.column(number).combine_chunks() for number in (2, 3))
    table = table.set_column(2, SCHEMA.field(2), pc.if_else(gone, None, values))
    return table.set_column(3, SCHEMA.field(3), pc.if_else(gone, NO_TIME, times))


def _newest(keys: pa.Array, hashes: Hashes, order: _Places) -> Any:
    """Return which of the entries stay: of those with the same key, the first."""
    stays = np.ones(len(hashes), bool)
    again = np.flatnonzero(hashes[1:] == hashes[:-1]) + 1
    if not len(again):
        return stays
    same = pc.equal(keys.take(pa.array(order[again - 1])), keys.take(pa.array(order[again])))
    stays[again] = ~same.to_numpy(zero_copy_only=False)
    # Keys that differ and have one hash are rare: these are looked at one by one.
    for hash_ in np.unique(hashes[again[stays[again]]]):
        begin, end = (np.searchsorted(hashes, hash_, side=side) for side in ("left", "right"))
        seen: set[bytes] = set()
        for place in range(int(begin), int(end)):
            key = keys[int(order[place])].as_py()
            stays[place] = key not in seen
            seen.add(key)
    return stays
