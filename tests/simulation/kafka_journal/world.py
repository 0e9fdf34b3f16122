"""A partition of a journal in a broker that loses, delays and repeats, and writers that never knew.

The broker is a model: two logs with a high watermark each, before which nothing is visible and
nothing is acknowledged; what lies after it can be taken back by a new leader. Writers run the real
`Owner` and `Counting`; a scheduler with a seed picks what happens next. Rules are arguments, so that
a test can break one of them and see that it is noticed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from millstream.journal.kinds.kafka.log import (
    Counting,
    Fenced,
    Found,
    FromIndex,
    IndexRecord,
    Owner,
    ToData,
    ToIndex,
    What,
)

Row = tuple[str, int]
SENDERS = ("a", "b", "c")
STEPS = 220


class Failed(Exception):
    """A delivery that was reported as failed: the record may be there, or come later, or never."""


class Broken(AssertionError):
    """A promise that was not kept."""


@dataclass
class Kept:
    """One partition in the broker: `low` is the first offset that is there."""

    records: list[Any] = field(default_factory=list)
    visible: int = 0
    low: int = 0

    def append(self, record: Any) -> int:
        self.records.append(record)
        return len(self.records) - 1


@dataclass
class Sent:
    """Records of one produce on their way, or in the log before they are visible."""

    to: Kept
    records: list[Any]
    writer: int
    offsets: list[int] | None = None
    #: Its producer has given up or died. The record may still arrive.
    orphan: bool = False


def newer(record: Any, batch: tuple[Row, ...]) -> dict[str, int]:
    """Return the state after a batch of rows."""
    highest = dict(record)
    for sender, number in batch:
        highest[sender] = max(number, highest.get(sender, -1))
    return highest


def parsed(record: IndexRecord) -> tuple[int, tuple[Row, ...]]:
    """Return where the data of an entry is, and its rows."""
    offset, rows = json.loads(record.body)
    return offset, tuple((sender, number) for sender, number in rows)


@dataclass(frozen=True)
class Rules:
    """How writers and readers behave; what is there is right."""

    counting: type[Counting] = Counting
    owner: type[Owner] = Owner
    #: Data is in the log before the index names it.
    data_first: bool = True
    #: A writer whose delivery failed claims again.
    claims_again: bool = True
    #: Rows that are stored are known to the next writer.
    remembers: bool = True
    #: Only a snapshot that counts is deleted up to.
    sure_of_snapshots: bool = True


class Writer:
    """A writer process: it claims, takes rows from senders, stores and acknowledges them."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.reader = Reader(world)
        self.owner = world.rules.owner(self.reader.counting, f"w{number}")
        self.work: Generator[Any, Any, None] = self.run()
        self.waiting: Sent | None = None
        self.answer: Any = None
        self.wants: FromIndex | None = None

    def run(self) -> Generator[Any, Any, None]:
        while True:
            try:
                if self.owner.generation < 0 or self.world.rules.claims_again:
                    yield from self.owner.claim()
                    self.reader.note(self.owner.taken())
                while True:
                    if self.world.random.random() < 0.15:
                        yield from self.snapshot()
                    else:
                        yield from self.store()
            except Failed:
                self.world.say(f"w{self.number} learns of a failure")
                self.reader.note(self.owner.taken())
            except Fenced:
                self.reader.note(self.owner.taken())
                self.world.say(f"w{self.number} is fenced")
                if self.world.random.random() < 0.5:
                    return
                self.owner.generation = -1

    def store(self) -> Generator[Any, Any, None]:
        world = self.world
        drafts: list[tuple[Row, ...]] = []
        ahead = dict(self.reader.highest) if world.rules.remembers else dict(self.reader.own)
        for _ in range(world.random.randint(1, 3)):
            sender = world.random.choice(SENDERS)
            first = world.acked.get(sender, -1) + 1
            sent = range(first, first + world.random.randint(1, 4))
            rows = tuple((sender, n) for n in sent if n > ahead.get(sender, -1))
            if rows:
                ahead = newer(ahead, rows)
                drafts.append(rows)
        if not drafts:
            return
        if world.rules.data_first:
            offsets = yield ToData(drafts)
        else:
            end = len(world.data.records)
            offsets = list(range(end, end + len(drafts)))
        position, records = self.reader.counting.position, []
        for offset, rows in zip(offsets, drafts, strict=True):
            body = json.dumps([offset, rows]).encode()
            records.append(self.owner.record(What.ENTRY, position, len(rows), body))
            position += len(rows)
        yield from self.owner.append(records)
        if not world.rules.data_first:
            yield ToData(drafts)
        self.reader.note(self.owner.taken())
        world.acknowledge(self, [row for rows in drafts for row in rows])

    def snapshot(self) -> Generator[Any, Any, None]:
        counting = self.reader.counting
        body = json.dumps(self.reader.highest).encode()
        record = self.owner.record(What.SNAPSHOT, counting.position, 0, body)
        if not self.world.rules.sure_of_snapshots:
            (offset,) = yield ToIndex([record])
            self.world.trim(offset)
            counting.take(offset, record)
            return
        yield from self.owner.append([record])
        found = self.owner.taken()
        self.reader.note(found)
        if self.world.random.random() < 0.5:
            self.world.trim(found[-1][0])


class Reader:
    """Someone who reads the index from the beginning, as it grows: a process, or a writer's memory."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.restart()
        self.rows: dict[int, tuple[int, Row]] = {}

    def restart(self) -> None:
        low = self.world.index.low
        self.counting = self.world.rules.counting(next=low, truncated=low > 0)
        self.highest: dict[str, int] = {}
        self.own: dict[str, int] = {}

    def note(self, found: list[Found]) -> None:
        """Take over records that count."""
        for _, record in found:
            if record.what is What.SNAPSHOT:
                self.highest = json.loads(record.body)
            if record.what is What.ENTRY:
                offset, rows = parsed(record)
                for place, row in enumerate(rows):
                    self.rows[record.position + place] = (offset, row)
                self.highest = newer(self.highest, rows)

    def follow(self) -> None:
        """Read what is visible."""
        index = self.world.index
        if self.counting.next < index.low:
            self.restart()
        for offset in range(self.counting.next, index.visible):
            record = index.records[offset]
            if self.counting.take(offset, record):
                self.note([(offset, record)])


class World:
    """One seed: a broker, writers that come and go, readers, and what was promised so far."""

    def __init__(self, seed: int, rules: Rules = Rules()) -> None:  # noqa: B008 it is frozen
        self.random = random.Random(seed)
        self.rules = rules
        self.data, self.index = Kept(), Kept()
        self.sent: list[Sent] = []
        self.writers: list[Writer] = []
        self.acked: dict[str, int] = {}
        self.promised: set[Row] = set()
        self.readers = [Reader(self)]
        self.story: list[str] = []
        self.seen: set[str] = set()
        #: The truth: what counts, from the first record on.
        self.truth = Counting()
        self.counted: dict[int, tuple[int, Row]] = {}
        self.where: dict[Row, int] = {}
        self.trouble = self.random.choice((0.0, 0.1, 0.3))

    def say(self, text: str) -> None:
        self.story.append(text)

    # what a writer asks for

    def start(self, writer: Writer) -> None:
        self._advance(writer, None)

    def _advance(self, writer: Writer, answer: Any, error: Exception | None = None) -> None:
        writer.waiting = writer.wants = None
        try:
            asked = writer.work.throw(error) if error else writer.work.send(answer)
        except StopIteration:
            self._gone(writer)
            return
        if isinstance(asked, FromIndex):
            writer.wants = asked
        else:
            to, records = (
                (self.data, list(asked.values))
                if isinstance(asked, ToData)
                else (self.index, list(asked.records))
            )
            writer.waiting = Sent(to, records, writer.number)
            self.sent.append(writer.waiting)

    def _gone(self, writer: Writer) -> None:
        self.writers.remove(writer)
        for sent in self.sent:
            if sent.writer == writer.number:
                sent.orphan = True

    def acknowledge(self, writer: Writer, rows: list[Row]) -> None:
        self._know()
        for row in rows:
            self.say(f"w{writer.number} acknowledges {row}")
            if row not in self.where:
                raise Broken(f"w{writer.number} acknowledged {row}, which does not count")
            self.acked[row[0]] = max(row[1], self.acked.get(row[0], -1))
            self.promised.add(row)

    def trim(self, offset: int) -> None:
        self.seen.add("trim")
        self.say(f"deleted up to {offset}")
        self.index.low = max(self.index.low, offset)

    # what happens

    def run(self) -> None:
        for _ in range(STEPS):
            happens = self.random.choice(self._possible())
            happens()
        self._settle()
        self._check()

    def _possible(self) -> list[Callable[[], None]]:
        bad = self.random.random() < self.trouble
        found: list[Callable[[], None]] = []
        if len(self.writers) < (3 if bad else 1):
            found.append(self._new_writer)
        for writer in self.writers:
            if writer.wants is not None:
                found.append(lambda writer=writer: self._read(writer))
            if bad:
                found.append(lambda writer=writer: self._crash(writer))
        for sent in self.sent:
            if sent.offsets is None and (not sent.orphan or bad):
                found.append(lambda sent=sent: self._arrive(sent))
            if sent.offsets is not None and sent.offsets[-1] < sent.to.visible:
                found.append(lambda sent=sent: self._confirm(sent))
            if bad and not sent.orphan:
                found.append(lambda sent=sent: self._fail(sent))
        for kept in (self.data, self.index):
            if kept.visible < len(kept.records):
                found.append(lambda kept=kept: self._replicate(kept))
                if bad:
                    found.append(lambda kept=kept: self._new_leader(kept))
        found.append(self._follow)
        return found

    def _new_writer(self) -> None:
        self.seen.add("takeover" if self.writers else "start")
        writer = Writer(self, self.random.getrandbits(30))
        writer.reader.follow()  # it may have read before it claims
        self.writers.append(writer)
        self.start(writer)

    def _crash(self, writer: Writer) -> None:
        self.seen.add("crash")
        self.say(f"w{writer.number} crashes")
        self._gone(writer)

    def _read(self, writer: Writer) -> None:
        """Answer with some of what is visible."""
        wants = writer.wants
        assert wants is not None
        if wants.start < self.index.low:
            writer.reader.restart()
            writer.owner = self.rules.owner(writer.reader.counting, writer.owner.name)
            self._advance(writer, None, Failed())
            return
        stop = min(wants.stop, self.index.visible)
        if wants.start < stop:
            stop = self.random.randint(wants.start + 1, stop)
            found = [(at, self.index.records[at]) for at in range(wants.start, stop)]
            self._advance(writer, found)

    def _arrive(self, sent: Sent) -> None:
        self.seen.add("late arrival" if sent.orphan else "arrival")
        records = sent.records
        if sent.orphan and self.random.random() < 0.5:
            records = records[self.random.randrange(len(records)) :]  # those before it were lost
        sent.offsets = [sent.to.append(record) for record in records]
        if self.random.random() < self.trouble / 3:
            self.seen.add("repeated")
            for record in records:
                sent.to.append(record)
        if sent.orphan:
            self.sent.remove(sent)

    def _confirm(self, sent: Sent) -> None:
        if sent not in self.sent:
            return
        self.sent.remove(sent)
        writer = next((one for one in self.writers if one.waiting is sent), None)
        if writer is not None:
            self._advance(writer, sent.offsets)

    def _fail(self, sent: Sent) -> None:
        """Report a failure; of the request nobody knows."""
        writer = next((one for one in self.writers if one.waiting is sent), None)
        if sent.offsets is None and self.random.random() < 0.6:
            self.seen.add("delayed")
            sent.orphan = True
        else:
            self.seen.add("lost" if sent.offsets is None else "ack lost")
            self.sent.remove(sent)
        if writer is not None:
            self._advance(writer, None, Failed())

    def _replicate(self, kept: Kept) -> None:
        kept.visible = self.random.randint(kept.visible + 1, len(kept.records))

    def _new_leader(self, kept: Kept) -> None:
        """Take back what is not visible yet; producers send it again, or give up."""
        self.seen.add("new leader")
        cut = self.random.randint(kept.visible, len(kept.records) - 1)
        del kept.records[cut:]
        for sent in [one for one in self.sent if one.to is kept and one.offsets is not None]:
            assert sent.offsets is not None
            if sent.offsets[-1] >= cut:
                if sent.offsets[0] < cut:
                    self._fail(
                        sent
                    )  # part of it is there: it can be neither repeated nor confirmed
                else:
                    sent.offsets = None

    def _follow(self) -> None:
        if self.random.random() < 0.05:
            self.readers.append(Reader(self))
        self.random.choice(self.readers).follow()
        self._know()

    def _settle(self) -> None:
        for kept in (self.data, self.index):
            kept.visible = len(kept.records)

    # what was promised

    def _know(self) -> None:
        """Find out what counts, by the rules as they should be, in what is visible."""
        for offset in range(self.truth.next, self.index.visible):
            record: IndexRecord = self.index.records[offset]
            if self.truth.take(offset, record) and record.what is What.ENTRY:
                at, rows = parsed(record)
                for place, row in enumerate(rows):
                    if row in self.where:
                        raise Broken(
                            f"{row} is there twice, at {self.where[row]} and {record.position}"
                        )
                    self.where[row] = record.position + place
                    self.counted[record.position + place] = (at, row)

    def _check(self) -> None:
        self._know()
        for reader in [*self.readers, Reader(self)]:
            reader.follow()
            for position, found in reader.rows.items():
                if self.counted.get(position) != found:
                    raise Broken(
                        f"a reader saw {found} at {position}, not {self.counted.get(position)}"
                    )
            if reader.counting.position != self.truth.position:
                raise Broken(
                    f"a reader ends at {reader.counting.position}, not {self.truth.position}"
                )
        for position, (at, row) in self.counted.items():
            if at >= len(self.data.records) or row not in self.data.records[at]:
                raise Broken(f"the data of {row} at {position} is not there")
        lost = self.promised - self.where.keys()
        if lost:
            raise Broken(f"{min(lost)} was acknowledged and is lost")


def violation(seed: int, rules: Rules = Rules()) -> str | None:  # noqa: B008
    """Return the promise that a seed breaks."""
    try:
        World(seed, rules).run()
    except Broken as broken:
        return str(broken)
    return None


def first_violation(rules: Rules, seeds: int) -> str | None:
    """Return the first promise that any of some seeds breaks."""
    found: Iterator[str | None] = (violation(seed, rules) for seed in range(seeds))
    return next((one for one in found if one is not None), None)
