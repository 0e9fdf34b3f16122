"""The state of one shard, for one batch: look up, change, commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from msgspec import Raw

from millstream.errors import InternalError
from millstream.state import tiers
from millstream.state.files import StateFiles
from millstream.state.manifest import Entry, Manifest, Run, dump
from millstream.state.run_file import Hashing, RunFile, hashed, merged

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

    def lookup(self, keys: Iterable[bytes]) -> dict[bytes, Entry]:
        """Return the entries of those of the keys that have one."""
        fresh, removed = self.manifest.fresh, set(self.manifest.removed)
        found, wanted = {}, []
        for key in set(keys):
            if (known := fresh.get(key)) is not None:
                found[key] = Entry(bytes(known[0]), known[1])
            elif key not in removed:
                wanted.append(key)
        if wanted and self.manifest.runs:
            found |= self._in_runs(wanted)
        return found

    def _in_runs(self, wanted: list[bytes]) -> dict[bytes, Entry]:
        hashes = self.hashing(wanted)
        order = np.argsort(hashes)
        keys, hashes = np.array(wanted, object)[order], hashes[order]
        found: dict[bytes, Entry] = {}
        for run in reversed(self.manifest.runs):
            file = self._run(run.name)
            which, places = file.find(keys, hashes)
            both = zip(keys[which], file.at(places), strict=True)
            found.update((key, entry) for key, entry in both if entry is not None)
            rest = np.ones(len(keys), bool)
            rest[which] = False
            keys, hashes = keys[rest], hashes[rest]
            if not len(keys):
                break
        return found

    def _run(self, name: str) -> RunFile:
        if self.files is None:
            raise InternalError(f'shard {self.shard} keeps state in "{name}", and has no files')
        return self.files.run(name)

    def commit(
        self, changes: Mapping[bytes, Entry | None], expired: int | None = None
    ) -> bytes | None:
        """Return the manifest after these changes; None if it is as before.

        The files that it names are durable when this returns. Files are deleted that no manifest
        has named since `retain` touches.

        Args:
            changes: Entries that were put, and None for keys that were removed.
            expired: Entries at or before this time are removed. Whoever looks them up must already
                take them as absent, by event times alone, so that it does not matter when they go.
        """
        before = self.manifest
        fresh, removed = self._own(changes)
        outlived, half = 0, None
        if expired is not None:
            stale = [key for key, (_, time) in fresh.items() if time <= expired]
            for key in stale:
                del fresh[key]
                removed[key] = None
            outlived = tiers.outlived(before.runs, expired)
            half = tiers.half_gone(before.runs[outlived:], expired)
            changes = changes or dict.fromkeys(stale)
        if not changes and not outlived and half is None:
            return None
        runs, touch = before.runs[outlived:], before.touches + 1
        following = Manifest(touch, runs, fresh, list(removed) if runs else [])
        following.leaving = self._leaving(touch, before.runs[:outlived])
        following.imported = before.imported
        data = dump(following)
        if self.files is None:
            return data
        large = len(data) > self.files.inline
        if large or half is not None:
            self._merge(self.files, following, expired, half, large=large)
            data = dump(following)
        self._clear(self.files, following)
        return data

    def _own(
        self, changes: Mapping[bytes, Entry | None]
    ) -> tuple[dict[bytes, tuple[Raw, int]], dict[bytes, None]]:
        """Return the manifest's own entries, and the keys that it removes, after changes."""
        fresh, removed = dict(self.manifest.fresh), dict.fromkeys(self.manifest.removed)
        for key, entry in changes.items():
            if entry is None:
                fresh.pop(key, None)
                removed[key] = None
            else:
                fresh[key] = (Raw(entry.value), entry.time)
                removed.pop(key, None)
        return fresh, removed

    def _merge(
        self,
        files: StateFiles,
        following: Manifest,
        expired: int | None,
        half: int | None,
        *,
        large: bool,
    ) -> None:
        """Move the manifest's own entries to a file if they are `large`, and merge what is due."""
        runs, above = following.runs, []
        sizes = [run.size for run in runs]
        if large:
            above = [self._of_own(following)]
            sizes.append(above[0].nbytes)
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

    def _of_own(self, manifest: Manifest) -> RunFile:
        entries: dict[bytes, Entry | None] = {
            key: Entry(bytes(value), time) for key, (value, time) in manifest.fresh.items()
        }
        return RunFile.of(entries | dict.fromkeys(manifest.removed), self.hashing)

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
