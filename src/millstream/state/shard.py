"""The state of one shard, for one batch: look up, change, commit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat
from operator import is_, itemgetter
from typing import cast

import numpy as np
from msgspec import Raw

from millstream.errors import InternalError
from millstream.state import tiers
from millstream.state.files import StateFiles
from millstream.state.manifest import NO_TIME, Manifest, Run, Stored, dump
from millstream.state.run_file import Hashes, Hashing, RunFile, hashed, merged

#: Multiples of it are spread evenly between 0 and 1.
_GOLDEN = 0.6180339887498949


@dataclass
class ShardState:
    """What a manifest says, and what becomes of it.

    Nothing here is changed by looking up, and `commit` returns the next manifest instead of
    changing this one: whoever fails begins again with the same bytes.

    Args:
        manifest: What is kept.
        files: Where run files lie; None keeps everything in the manifest.
        shard: The shard's number.
        hashing: How keys are hashed.
    """

    manifest: Manifest
    files: StateFiles | None = None
    shard: int = 0
    hashing: Hashing = field(default=hashed, repr=False)
    #: Those of keys that were looked up: a hash costs more than anything else that a key needs.
    _hashes: dict[bytes, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def lookup(self, keys: Iterable[bytes]) -> dict[bytes, Stored]:
        """Return the entries of those of the keys that have one."""
        fresh, wanted = self.manifest.fresh, set(keys)
        own = fresh.keys() & wanted if fresh else set()
        found = {key: (bytes(fresh[key][0]), fresh[key][1]) for key in own}
        if self.manifest.runs:
            wanted -= own
            wanted.difference_update(self.manifest.removed)
            found |= self._in_runs(wanted)
        return found

    def due(self, moment: int) -> dict[bytes, Stored]:
        """Return the entries whose time is at or before a moment."""
        fresh, runs = self.manifest.fresh, [self._run(run.name) for run in self.manifest.runs]
        hidden = {*fresh, *self.manifest.removed}
        found = {key: (bytes(one[0]), one[1]) for key, one in fresh.items() if one[1] <= moment}
        for number, run in enumerate(runs):
            keys, hashes, places = run.due(moment)
            for newer in runs[number + 1 :]:
                if not len(keys):
                    break
                rest = np.ones(len(keys), bool)
                rest[newer.find(keys, hashes)[0]] = False
                keys, hashes, places = keys[rest], hashes[rest], places[rest]
            here = run.entries(keys, places)
            found.update((key, entry) for key, entry in here if key not in hidden)
        return found

    def next_time(self, moment: int, changes: Mapping[bytes, Stored | None]) -> int:
        """Return the first time behind a moment that an entry has after changes, or one before it.

        It may be that of an entry that another has replaced.
        """
        times = [one[1] for key, one in self.manifest.fresh.items() if key not in changes]
        times += [one[1] for one in changes.values() if one is not None]
        times += [self._run(run.name).next_time(moment) for run in self.manifest.runs]
        return min((time for time in times if time > moment), default=NO_TIME)

    def _in_runs(self, asked: set[bytes]) -> dict[bytes, Stored]:
        if self._are_most(asked):
            return self._among_all(asked)
        wanted = list(asked)
        hashes = self._hashed(wanted)
        order = np.argsort(hashes)
        keys, hashes = np.array(wanted, object)[order], hashes[order]
        found: dict[bytes, Stored] = {}
        for run in reversed(self.manifest.runs):
            file = self._run(run.name)
            which, places = file.find(keys, hashes)
            found.update(file.entries(keys[which], places))
            rest = np.ones(len(keys), bool)
            rest[which] = False
            keys, hashes = keys[rest], hashes[rest]
            if not len(keys):
                break
        return found

    def _among_all(self, asked: set[bytes]) -> dict[bytes, Stored]:
        """Return the entries of keys, read with all others: that takes no hashes."""
        found: dict[bytes, Stored | None] = {}
        for run in self.manifest.runs:
            found.update(self._run(run.name).items())
        there, _ = _apart(found)
        if there.keys() <= asked:
            return dict(there)
        return {key: there[key] for key in there.keys() & asked}

    def _hashed(self, keys: Sequence[bytes]) -> Hashes:
        """Return the hashes of keys, computed at most once."""
        known = self._hashes
        if not known and self._are_most(keys):
            for run in self.manifest.runs:
                known.update(self._run(run.name).hashes())
        if known:
            with suppress(KeyError):  # most often all of them are known
                return np.fromiter(map(known.__getitem__, keys), np.uint64, len(keys))
        missing = [key for key in keys if key not in known] if known else keys
        hashes = self.hashing(missing)
        known.update(zip(missing, hashes.tolist(), strict=True))
        if missing is keys:
            return hashes
        return np.fromiter(map(known.__getitem__, keys), np.uint64, len(keys))

    def _are_most(self, keys: Collection[bytes]) -> bool:
        """Tell whether so many keys are wanted that it is quicker to read all hashes of files."""
        rows = sum(run.rows for run in self.manifest.runs)
        return 0 < rows < 2 * len(keys)

    def _run(self, name: str) -> RunFile:
        if self.files is None:
            raise InternalError(f'shard {self.shard} keeps state in "{name}", and has no files')
        return self.files.run(name)

    def commit(
        self, changes: Mapping[bytes, Stored | None], expired: int | None = None
    ) -> bytes | None:
        """Return the manifest after these changes; None if it is as before.

        The files that it names are durable when this returns. Files are deleted that no manifest
        has named since `retain` touches.

        Args:
            changes: Entries that were put, and None for keys that were removed.
            expired: Entries at or before this time are removed. Whoever looks them up must already
                take them as absent, by event times alone, so that it does not matter when they go.
        """
        before, files = self.manifest, self.files
        fresh = {key: one for key, one in before.fresh.items() if key not in changes}
        put, gone = _apart(changes)
        removed = dict.fromkeys(key for key in before.removed if key not in put)
        removed |= dict.fromkeys(gone)
        outlived, half = 0, None
        if expired is not None:
            stale = [key for own in (fresh, put) for key, one in own.items() if one[1] <= expired]
            for key in stale:
                fresh.pop(key, None)
            put = {key: one for key, one in put.items() if one[1] > expired} if stale else put
            removed |= dict.fromkeys(stale)
            outlived = tiers.outlived(before.runs, expired)
            half = tiers.half_gone(before.runs[outlived:], expired)
            changes = changes or dict.fromkeys(stale)
        if not changes and not outlived and half is None:
            return None
        runs, touch = before.runs[outlived:], before.touches + 1
        following = Manifest(touch, runs, fresh, list(removed) if runs else [])
        following.leaving = self._leaving(touch, before.runs[:outlived])
        following.imported = before.imported
        data = b""
        if files is None or _least_size(put) <= files.inline:
            following.fresh |= {key: (Raw(value), time) for key, (value, time) in put.items()}
            put, data = {}, dump(following)
        if files is None:
            return data
        large = not data or len(data) > files.inline
        if large or half is not None:
            own = self._of_own(following, put) if large else None
            self._merge(files, following, own, expired, half)
            data = dump(following)
        self._clear(files, following)
        return data

    def _merge(
        self,
        files: StateFiles,
        following: Manifest,
        own: RunFile | None,
        expired: int | None,
        half: int | None,
    ) -> None:
        """Move the manifest's `own` entries to a file if they are given, and merge what is due."""
        runs, above = following.runs, [] if own is None else [own]
        sizes = [run.size for run in runs]
        if own is not None:
            sizes.append(own.nbytes)
            following.fresh, following.removed = {}, []
        due = tiers.due(sizes, files.inline, self.shard * _GOLDEN % 1.0)
        begin = min((place for place in (due, half) if place is not None), default=len(runs))
        old = runs[begin:]
        found = [*(files.run(run.name) for run in old), *above]
        one = merged(found, whole=begin == 0, expired=expired) if old else above[0]
        following.runs = runs[:begin]
        following.leaving += [(following.touches, run.name) for run in old]
        if len(one):
            content = one.dump()
            name = files.put(self.shard, following.touches, content)
            following.runs.append(one.described(name, len(content)))
        if not following.runs:
            following.removed = []

    def _of_own(self, manifest: Manifest, put: Mapping[bytes, Stored]) -> RunFile:
        if not (manifest.fresh or manifest.removed):
            last = self._run(manifest.runs[-1].name) if manifest.runs else None
            again = None if last is None else last.with_entries(put)
            return again or RunFile.of(put, self._hashed)
        entries: dict[bytes, Stored | None] = {
            key: (bytes(value), time) for key, (value, time) in manifest.fresh.items()
        }
        return RunFile.of({**entries, **put, **dict.fromkeys(manifest.removed)}, self._hashed)

    def _leaving(self, touch: int, outlived: list[Run]) -> list[tuple[int, str]]:
        """Return the files that stay for now, though they were replaced."""
        oldest = touch - (0 if self.files is None else self.files.retain)
        recent = [one for one in self.manifest.leaving if one[0] > oldest]
        return recent + [(touch, run.name) for run in outlived]

    def _clear(self, files: StateFiles, following: Manifest) -> None:
        """Delete files that were replaced long ago, or left by attempts that failed then."""
        before, known = self.manifest, set(following.names())
        gone = [name for _, name in before.leaving if name not in known]
        if before.runs and before.runs[:1] != following.runs[:1]:
            # All was merged, which is seldom: only now is it worth a look at the folder.
            old = files.before(self.shard, following.touches - files.retain)
            gone += [name for name in old if name not in known]
        for name in gone:
            files.delete(name)


def _apart(
    changes: Mapping[bytes, Stored | None],
) -> tuple[Mapping[bytes, Stored], list[bytes]]:
    """Return what was put, and which keys were removed, which is seldom."""
    if not any(map(is_, changes.values(), repeat(None))):
        return cast("Mapping[bytes, Stored]", changes), []
    put = {key: one for key, one in changes.items() if one is not None}
    return put, [key for key, one in changes.items() if one is None]


def _least_size(put: Mapping[bytes, Stored]) -> int:
    """Return how many bytes entries take in a manifest at least."""
    values = map(itemgetter(0), put.values())
    return sum(map(len, put)) + sum(map(len, values)) + 4 * len(put)
