"""What becomes of dead letters: waiting, replayed, discarded. Rules without I/O.

The dead letters of a journal are a log, and so is what is decided about them: a *mark* is an entry of the same log.

    replay     a letter's row goes into a journal, under a sender and a number that no other mark has
    delivered  all rows up to a number, for one journal, are there
    discard    a letter is not wanted any more

Marks are numbered. Of two with one number the first in the log counts, of two that replay one letter the first:
so hosts that mark at once agree, whoever of them reads. Rows are sent in the order of their numbers, and those of
marks that are not delivered are sent again by whoever replays next, before others. A journal takes of each sender only
numbers above the highest that it has, so each row is there once, however often it is sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import xxhash

from millstream.journal.base import DeadLetter
from millstream.journal.kind import Journal

MARKS: Final = "mark:"
"""The origin of marks. No letter has it: those of a sender with such a name are renamed."""

#: The origins of letters that are not an inbox's, and what follows is a stage or a group.
_STAGES: Final = ("fold:", "match:", "action:", "keyed:", "row:", "sink:", "group:", "late:")

Key = tuple[str, int, int]
"""What a letter is known by: origin, partition, position."""


class State(StrEnum):
    """What has become of a letter."""

    WAITING = "waiting"
    #: It is marked, and its row may or may not be there yet.
    REPLAYING = "replaying"
    REPLAYED = "replayed"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter of a journal, when it was put, and what has become of it."""

    journal: str
    letter: DeadLetter
    at: int
    state: State = State.WAITING

    @property
    def id(self) -> str:
        """Its name for people: the same for ever, and of no other letter of the job."""
        key = json.dumps([self.journal, *self.letter.key])
        return xxhash.xxh3_64_hexdigest(key.encode())

    @property
    def kind(self) -> str:
        """What has refused it: "source", or the kind of stage."""
        return self._parts[0]

    @property
    def stage(self) -> str:
        """The stage that has refused it; the source, if it did not come so far."""
        return self._parts[1]

    @property
    def _parts(self) -> tuple[str, str]:
        prefix = next((one for one in _STAGES if self.letter.origin.startswith(one)), None)
        if prefix is None:
            return "source", self.journal
        return prefix.removesuffix(":"), self.letter.origin.removeprefix(prefix)

    @property
    def row(self) -> dict[str, Any] | None:
        """The record as an object, if it is one."""
        try:
            found = json.loads(self.letter.record)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


@dataclass(frozen=True, slots=True)
class Replay:
    """A letter's row is sent to a journal; `record` is what it was edited to, if it was."""

    number: int
    of: Key
    reason: str
    to: str
    sender: str
    record: str | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """All rows for a journal up to a number are there."""

    number: int
    to: str
    through: int


@dataclass(frozen=True, slots=True)
class Discard:
    """A letter is not wanted any more."""

    number: int
    of: Key
    reason: str


Mark = Replay | Delivered | Discard


@dataclass(frozen=True, slots=True)
class Row:
    """A row on its way: its mark, and the record."""

    mark: Replay
    record: str


@dataclass(frozen=True, slots=True)
class Log:
    """The letters of a journal in order, and the marks by their numbers."""

    letters: tuple[Letter, ...] = ()
    marks: tuple[Mark, ...] = ()

    @property
    def next(self) -> int:
        """The number of the next mark."""
        return max((mark.number for mark in self.marks), default=-1) + 1

    def sender(self, fresh: str) -> str:
        """Return under which name rows are sent: that of the newest mark, else a fresh one.

        If all marks were removed with the oldest letters, numbers begin again: so does the name.
        """
        names = [mark.sender for mark in self.marks if isinstance(mark, Replay)]
        return names[-1] if names else fresh

    def replays(self) -> dict[Key, Replay]:
        """Return the mark that counts of each letter that is replayed."""
        found: dict[Key, Replay] = {}
        discarded: set[Key] = set()
        for mark in self.marks:
            if isinstance(mark, Discard):
                discarded.add(mark.of)
            elif isinstance(mark, Replay) and mark.of not in discarded:
                found.setdefault(mark.of, mark)
        return found

    def delivered(self, to: str) -> int:
        """Return up to which number the rows for a journal are there."""
        found = (m.through for m in self.marks if isinstance(m, Delivered) and m.to == to)
        return max(found, default=-1)

    def outstanding(self, to: str) -> list[Row]:
        """Return the rows that may not be there yet, in the order in which they are sent."""
        records = {one.letter.key: one.letter.record for one in self.letters}
        after = self.delivered(to)
        marks = [m for m in self.replays().values() if m.to == to and m.number > after]
        return [
            Row(mark, records[mark.of] if mark.record is None else mark.record)
            for mark in sorted(marks, key=lambda mark: mark.number)
            if mark.record is not None or mark.of in records
        ]

    def targets(self) -> list[str]:
        """Return the journals that rows may be missing from."""
        return sorted({m.to for m in self.replays().values() if m.number > self.delivered(m.to)})

    def settled(self) -> list[Letter]:
        """Return the letters, each with what has become of it."""
        replays = self.replays()
        discarded = {mark.of for mark in self.marks if isinstance(mark, Discard)}
        through = {to: self.delivered(to) for to in {mark.to for mark in replays.values()}}

        def state(key: Key) -> State:
            if key in discarded:
                return State.DISCARDED
            if key not in replays:
                return State.WAITING
            mark = replays[key]
            return State.REPLAYED if mark.number <= through[mark.to] else State.REPLAYING

        return [replace(one, state=state(one.letter.key)) for one in self.letters]


def replay_marks(
    log: Log, wanted: Iterable[Letter], to: str, fresh: str, edited: Mapping[str, str]
) -> list[Replay]:
    """Return the marks that replay letters, without those that are marked already.

    Args:
        log: What is known.
        wanted: The letters.
        to: The journal that the rows go to.
        fresh: A name for the sender that nobody has had.
        edited: What the records of letters were edited to, by their ids.
    """
    taken = {mark.of for mark in log.marks if not isinstance(mark, Delivered)}
    fitting = [one for one in wanted if one.letter.key not in taken]
    sender = log.sender(fresh)
    return [
        Replay(number, one.letter.key, one.letter.reason, to, sender, edited.get(one.id))
        for number, one in enumerate(fitting, log.next)
    ]


def discard_marks(log: Log, wanted: Iterable[Letter]) -> list[Discard]:
    """Return the marks that discard letters, without those that are discarded already."""
    gone = {mark.of for mark in log.marks if isinstance(mark, Discard)}
    fitting = [one for one in wanted if one.letter.key not in gone]
    return [
        Discard(number, one.letter.key, one.letter.reason)
        for number, one in enumerate(fitting, log.next)
    ]


# marks as letters


def as_letter(mark: Mark) -> DeadLetter:
    """Return a mark as it is in the log."""
    match mark:
        case Replay():
            body = {"replay": mark.of, "to": mark.to, "sender": mark.sender, "record": mark.record}
            return DeadLetter(MARKS, mark.number, mark.reason, json.dumps(body))
        case Discard():
            return DeadLetter(MARKS, mark.number, mark.reason, json.dumps({"discard": mark.of}))
        case Delivered():
            done = {"delivered": mark.through, "to": mark.to}
            return DeadLetter(MARKS, mark.number, "", json.dumps(done))


def as_mark(letter: DeadLetter) -> Mark:
    """Return the mark that an entry of the log is."""
    body = json.loads(letter.record)
    number, reason = letter.position, letter.reason
    if "replay" in body:
        of: Key = tuple(body["replay"])
        return Replay(number, of, reason, body["to"], body["sender"], body["record"])
    if "discard" in body:
        return Discard(number, tuple(body["discard"]), reason)
    return Delivered(number, body["to"], body["delivered"])


def without_marks(letters: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
    """Return letters, none of which looks like a mark: senders choose their names."""
    for one in letters:
        reserved = one.origin.startswith(MARKS)
        yield replace(one, origin=f"sender {one.origin}") if reserved else one


# reading


def read_log(name: str, journal: Journal) -> Log:
    """Return the dead letters of a journal, and what is marked; empty if it has none."""
    found = journal.dead_journal()
    if not found.exists():
        return Log()
    part = found.reader().partition(0)
    letters: list[Letter] = []
    marks: list[Mark] = []
    for piece in part.read(part.begin, part.end):
        if piece.batch is None:
            continue
        times = piece.batch.column("at").cast(pa.int64()).to_pylist()
        for row, at in zip(piece.batch.drop_columns(["at"]).to_pylist(), times, strict=True):
            one = DeadLetter(**row)
            if one.origin == MARKS:
                marks.append(as_mark(one))
            else:
                letters.append(Letter(name, one, at))
    return Log(tuple(letters), tuple(sorted(marks, key=lambda mark: mark.number)))


def chosen(letters: Sequence[Letter], id_: str) -> list[Letter]:
    """Return the letters whose id begins so."""
    return [one for one in letters if one.id.startswith(id_)]
