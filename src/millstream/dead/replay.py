"""Replaying letters, each once; discarding them.

    mark the letters     with numbers, under the lock of the dead letters: from here on they are replayed
    send the rows        of all marks that are not delivered, in the order of their numbers
    mark as delivered    nobody sends them again

Killed anywhere, the next replay sends what may be missing before its own rows, under the same numbers.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

from millstream import ingest
from millstream.clock import Clock, SystemClock
from millstream.dead.fitness import Newest, Rules, fitting
from millstream.dead.ways import Way
from millstream.errors import JournalMissing, LetterRefused, NotThere
from millstream.journal import Journal, journal_at
from millstream.journal.letters import (
    Delivered,
    Letter,
    Row,
    discard_marks,
    read_log,
    replay_marks,
)

#: How many rows are sent at a time.
_ROWS: Final = 8192


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay has done: letters by id, with the reason for each that was refused."""

    replayed: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)

    def plus(self, other: Replayed) -> Replayed:
        return Replayed((*self.replayed, *other.replayed), {**self.refused, **other.refused})


@dataclass(frozen=True, slots=True)
class Order:
    """How letters are replayed: into which source, late ones too, and edited to what, by id."""

    to: str | None = None
    late: bool = False
    edited: Mapping[str, str] = field(default_factory=dict)
    #: Whether none is replayed if one cannot be.
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Replayer:
    """Replays the dead letters of the journals of a flow, whose data are in a folder."""

    folder: Path
    way: Way
    clock: Clock = field(default_factory=SystemClock)

    def replay(self, letters: Sequence[Letter], order: Order) -> Replayed:
        """Replay letters, and return which; their rows are durable in their journals.

        What an earlier replay of the same journals has left is finished, too.

        Raises:
            LetterRefused: One cannot be replayed, and the order wants all of them.
            NotThere: There is no such source.
        """
        by_journal = {
            name: list(some) for name, some in groupby(sorted(letters, key=_journal), key=_journal)
        }
        fits = {
            name: fitting(some, self._rules(name, order), order.edited)
            for name, some in by_journal.items()
        }
        refused = {id_: why for fit in fits.values() for id_, why in fit.refused.items()}
        if order.whole and refused:
            id_, why = next(iter(refused.items()))
            others = f", and {len(refused) - 1} more" if len(refused) > 1 else ""
            msg = f"letter {id_} cannot be replayed{others}: {why}"
            raise LetterRefused(msg, hint="nothing was replayed")
        done = Replayed((), refused)
        for name, fit in fits.items():
            self._mark(name, fit.letters, order)
            self.finish(name)
            done = done.plus(Replayed(tuple(one.id for one in fit.letters)))
        return done

    def finish(self, name: str) -> None:
        """Send what replays of a journal's letters have left."""
        for to in read_log(name, self._journal(name)).targets():
            self._deliver(name, to)

    def discard(self, letters: Sequence[Letter]) -> int:
        """Mark letters as not wanted any more, and return how many were not before."""
        count = 0
        for name, some in groupby(sorted(letters, key=_journal), key=_journal):
            journal, wanted = self._journal(name), list(some)
            with journal.dead_letters(clock=self.clock) as dead:
                while marks := discard_marks(read_log(name, journal), wanted):
                    dead.put_marks(marks)
                    count += len(marks)
        return count

    def _rules(self, name: str, order: Order) -> Rules:
        source = order.to or name
        try:
            description, settings = ingest.declared(self.folder / "journals" / source)
        except (NotThere, JournalMissing):
            if order.to is None:
                msg = f'journal "{name}" is written by a group, which alone appends to it'
                hint = "replay to a source of the flow, with --to SOURCE, or discard the letters"
                raise LetterRefused(msg, hint=hint) from None
            known = [one.parent.name for one in self.folder.glob("journals/*/source.json")]
            hint = f"there are {', '.join(sorted(known))}" if known else "it has none"
            raise NotThere(
                f'flow "{self.folder.name}" has no source "{source}"', hint=hint
            ) from None
        newest = Newest.of(journal_at(description.path), settings.lateness)
        elsewhere = source != name
        return Rules(description, settings, newest, self.clock.now_us(), elsewhere, order.late)

    def _journal(self, name: str) -> Journal:
        return journal_at(self.folder / "journals" / name)

    def _mark(self, name: str, letters: Sequence[Letter], order: Order) -> None:
        """Mark letters, each once, also if other hosts mark at the same time."""
        journal, fresh = self._journal(name), f"replay:{uuid.uuid4().hex[:16]}"
        with journal.dead_letters(clock=self.clock) as dead:
            while marks := replay_marks(
                read_log(name, journal), letters, order.to or name, fresh, order.edited
            ):
                dead.put_marks(marks)

    def _deliver(self, name: str, to: str) -> None:
        journal = self._journal(name)
        log = read_log(name, journal)
        for sender, some in groupby(log.outstanding(to), key=lambda row: row.mark.sender):
            for part in _parts(list(some)):
                self.way.send(to, sender, part)
        through = max(mark.number for mark in log.replays().values() if mark.to == to)
        with journal.dead_letters(clock=self.clock) as dead:
            while (log := read_log(name, journal)).delivered(to) < through:
                dead.put_marks([Delivered(log.next, to, through)])


def _journal(letter: Letter) -> str:
    return letter.journal


def _parts(rows: list[Row]) -> list[list[Row]]:
    return [rows[at : at + _ROWS] for at in range(0, len(rows), _ROWS)]
