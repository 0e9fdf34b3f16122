"""Where the dead letters of a job are: in a data folder on this host, or at an engine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from millstream.cli.data import data_of
from millstream.cli.journal import flow_folders
from millstream.dead.editing import read_lines, resolved
from millstream.dead.replay import Order, Replayed, Replayer
from millstream.dead.ways import way_to
from millstream.errors import JournalMissing, LetterRefused
from millstream.journal import DeadLetter, journals_in
from millstream.journal.letters import Letter, State
from millstream.links.client import Client
from millstream.links.keys import read_key, read_public

if TYPE_CHECKING:
    from millstream.cluster import Cluster

_PATIENCE_S: Final = 30.0


class Place(Protocol):
    """The dead letters of one job."""

    def letters(self) -> list[Letter]:
        """Return all letters, oldest first."""
        ...

    def replay(self, letters: list[Letter], to: str | None, *, late: bool) -> Replayed:
        """Replay letters, and return which were."""
        ...

    def replay_edited(self, lines: str, to: str | None, *, late: bool) -> Replayed:
        """Replay the rows of an edited file, all of them or none."""
        ...

    def discard(self, letters: list[Letter]) -> int:
        """Discard letters, and return how many were not before."""
        ...


@dataclass(frozen=True, slots=True)
class LettersHere:
    """Those in the folder of a flow."""

    folder: Path
    key: Path | None = None
    server: Path | None = None

    @classmethod
    def of(cls, job: str, data: Path | None, key: Path | None, server: Path | None) -> LettersHere:
        """Find a flow, or a job of an engine, in a data folder.

        Raises:
            JournalMissing: It is not there.
        """
        known = flow_folders(data_of(data))
        if job not in known:
            there = ", ".join(known)
            hint = f"there are {there}" if there else "run a flow, or give --data or --engine"
            raise JournalMissing(f'there is no flow "{job}" in "{data_of(data)}"', hint=hint)
        return cls(known[job].parent, key, server)

    def letters(self) -> list[Letter]:
        from millstream.dead.choice import letters_of

        return letters_of(journals_in(self.folder / "journals"))

    def replay(self, letters: list[Letter], to: str | None, *, late: bool) -> Replayed:
        return self._replayer.replay(letters, Order(to, late))

    def replay_edited(self, lines: str, to: str | None, *, late: bool) -> Replayed:
        chosen, edited = resolved(self.letters(), read_lines(lines))
        return self._replayer.replay(chosen, Order(to, late, edited, whole=True))

    def discard(self, letters: list[Letter]) -> int:
        return self._replayer.discard(letters)

    @property
    def _replayer(self) -> Replayer:
        return Replayer(self.folder, way_to(self.folder, self._connect))

    def _connect(self, sender: str) -> Client:
        # Not alone under its name: two replays at once send the same rows.
        return Client(
            self.folder.parent,
            sender=sender,
            key=None if self.key is None else read_key(self.key),
            server=None if self.server is None else read_public(self.server).public,
            timeout=_PATIENCE_S,
        )


@dataclass(frozen=True, slots=True)
class LettersThere:
    """Those of a job, at the engine with its driver."""

    cluster: Cluster
    job: str

    def letters(self) -> list[Letter]:
        return [
            Letter(
                one.journal,
                DeadLetter(one.origin, one.position, one.reason, one.record, one.partition),
                round(datetime.fromisoformat(one.at).timestamp() * 1e6),
                State(one.state),
            )
            for one in self.cluster.dead_letters(self.job)
        ]

    def replay(self, letters: list[Letter], to: str | None, *, late: bool) -> Replayed:
        ids = [one.id for one in letters]
        found = self.cluster.replay_letters(self.job, ids, to=to, late=late)
        return Replayed(tuple(found.replayed), found.refused)

    def replay_edited(self, lines: str, to: str | None, *, late: bool) -> Replayed:
        rows = {id_: json.loads(row) for id_, row in read_lines(lines).items()}
        if not rows:
            raise LetterRefused("the file has no rows")
        found = self.cluster.replay_edited(self.job, rows, to=to, late=late)
        return Replayed(tuple(found.replayed), found.refused)

    def discard(self, letters: list[Letter]) -> int:
        return self.cluster.discard_letters(self.job, [one.id for one in letters])
