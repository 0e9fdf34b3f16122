"""The programs that an engine keeps for actions: names, versions, and their bytes.

    score@1 ─┐
    score@2 ─┼─▶ contents, by SHA-256          a version never changes, its number is never reused
    rank@1  ─┘        ▲
                      └── jobs: what a job was deployed with is pinned as long as the job is there

In a cluster node 0 has the names. The others keep the bytes of what is deployed on them, by hash.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path

from millstream.clock import Clock
from millstream.engine.jobs.store import Binary, Store
from millstream.engine.programs.contents import Contents
from millstream.errors import ActionInUse, NoSuchAction
from millstream.flow.binary import BinaryName, parse

#: By the hash of a program, the jobs that run it.
Users = Callable[[], Mapping[str, list[str]]]


class Binaries:
    """Programs by name and version. Any thread may call."""

    def __init__(self, folder: Path, store: Store, clock: Clock) -> None:
        self.contents = Contents(folder)
        self._store = store
        self._clock = clock
        self._guard = threading.Lock()

    def add(self, name: str, sha256: str) -> Binary:
        """Give bytes that are here a name; return the new version, or the newest if that has them.

        Raises:
            NoSuchAction: They are not here.
        """
        with self._guard:
            size = self.contents.path(sha256).stat().st_size
            known = [one for one in self._store.binaries() if one.name == name]
            if known and known[-1].sha256 == sha256:
                return known[-1]
            return self._store.add_binary(name, sha256, size, self._clock.now_us() / 1e6)

    def all(self) -> list[Binary]:
        """Return all versions of all programs, by name, oldest first."""
        return self._store.binaries()

    def versions(self, name: str) -> list[Binary]:
        """Return all versions of a program, oldest first.

        Raises:
            NoSuchAction: There is none.
        """
        known = self._store.binaries()
        found = [one for one in known if one.name == name]
        if not found:
            close = get_close_matches(name, {one.name for one in known}, 1)
            if close:
                hint = f'did you mean "{close[0]}"?'
            else:
                hint = f"millstream actions add {name} FILE brings it"
            raise NoSuchAction(f'there is no action "{name}"', hint=hint)
        return found

    def find(self, text: str) -> Binary:
        """Return the program that a text like `score@2` or `score@latest` names.

        Raises:
            NoSuchAction: There is none.
        """
        named = parse(text)
        if named is None:
            hint = "write score@2 or score@latest"
            raise NoSuchAction(f'"{text}" names no program of an engine', hint=hint)
        return self._chosen(named)

    def _chosen(self, named: BinaryName) -> Binary:
        found = self.versions(named.name)
        if named.version is None:
            return found[-1]
        for one in found:
            if one.version == named.version:
                return one
        there = ", ".join(str(one.version) for one in found)
        msg = f'there is no version {named.version} of action "{named.name}"'
        raise NoSuchAction(msg, hint=f"versions that are there: {there}")

    def pinned(
        self, texts: Iterable[str], given: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Return the hash of each of our programs that is named: that in `given`, or the newest.

        Raises:
            NoSuchAction: One is not here.
        """
        found = {}
        for text in texts:
            if parse(text) is not None:
                found[text] = (given or {}).get(text) or self.find(text).sha256
                self.contents.path(found[text])
        return found

    def path(self, sha256: str) -> Path:
        """Return the executable file of a program, whose bytes have that hash.

        Raises:
            NoSuchAction: It is not here.
        """
        return self.contents.path(sha256)

    def remove(self, name: str, version: int | None, users: Users) -> list[Binary]:
        """Forget a version of a program, or all; return them. Bytes without a name are removed too.

        Raises:
            NoSuchAction: There is none.
            ActionInUse: A job runs it; then nothing is removed.
        """
        with self._guard:
            if version is None:
                gone = self.versions(name)
            else:
                gone = [self._chosen(BinaryName(name, version))]
            used = users()
            for one in gone:
                if one.sha256 in used:
                    raise _in_use(f'version {one.version} of action "{name}"', used[one.sha256])
            self._store.remove_binaries(gone)
            for one in gone:
                if not self._known(one.sha256):
                    self.contents.remove(one.sha256)
            return gone

    def drop(self, sha256: str, users: Users) -> None:
        """Forget bytes that no name of ours has: those of another engine's program.

        Raises:
            ActionInUse: A job runs them.
        """
        with self._guard:
            used = users()
            if sha256 in used:
                raise _in_use(f"the program with the SHA-256 {sha256}", used[sha256])
            if not self._known(sha256):
                self.contents.remove(sha256)

    def _known(self, sha256: str) -> bool:
        return any(one.sha256 == sha256 for one in self._store.binaries())


def _in_use(what: str, jobs: list[str]) -> ActionInUse:
    names = ", ".join(f'"{job}"' for job in jobs)
    hint = f"millstream undeploy {jobs[0]} first, or deploy it with another version"
    return ActionInUse(f"{what} is in use by job{'s' if len(jobs) > 1 else ''} {names}", hint=hint)
