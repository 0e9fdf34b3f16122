"""The last step into a journal: check, refuse, route, append.

The numbers of rows are places at the origin, and rising. For every partition the
journal knows the highest place that it has of a sender; rows up to there are
passed over. So an origin that starts again may begin anywhere before its last
row, with blocks cut as it likes, and nothing is taken twice.

An origin whose senders stay in order, such as the partitions of a topic, names the partition that
all rows of a sender go to. What it passes over, and the end of what it refused, it notes as progress.

Refused records are written before the rows around them: what the journal
remembers of a sender covers its dead letters too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from millstream.clock import Clock
from millstream.ingest import idle
from millstream.ingest.checks import Rules, check
from millstream.ingest.routing import dealt_with, first_sequence, laid_out, route
from millstream.ingest.rows import Refused, Rows
from millstream.journal import DeadLetter, Description, PartitionWriter, journal_at
from millstream.journal.base import Accepted, Kind

#: Appends that may wait for the disk before an origin has to.
_IN_FLIGHT: Final = 16
_TICK_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Idleness:
    """When a partition is idle, and how late its rows may be."""

    idle: timedelta
    lateness: timedelta


class Feed(ABC):
    """Takes rows for one journal. One thread uses it at a time."""

    def __init__(self, description: Description, rules: Rules, clock: Clock) -> None:
        self._path, self._earlier = description.path, description.earlier
        self._partitions = description.partitions
        self._rules = rules
        self._clock = clock
        self.rows = 0
        self.repeated = 0
        self.refused = 0
        self.bytes = 0
        #: What the origin waits for, if its system is away.
        self.waiting: str | None = None
        #: What dead letters call a sender, where its name says little.
        self.shown: dict[str, str] = {}

    @property
    @abstractmethod
    def description(self) -> Description:
        """What the journal is."""

    @property
    def key(self) -> str | None:
        """The column that decides the partition of a row, if there is one and a choice."""
        return self._rules.key if self._partitions > 1 else None

    @property
    def here(self) -> range:
        """The partitions of the journal whose senders are read here: all, or those of an engine."""
        return range(self._partitions)

    @abstractmethod
    def highest(self, sender: str, partition: int | None = None) -> int:
        """Return the place up to which all of a sender is in the journal or refused, or -1.

        With a partition, all rows of the sender go there.
        """

    def take(self, sender: str, rows: Rows, partition: int | None = None) -> None:
        """Take rows and refused records of a sender; `flush` waits until they are durable.

        Rows are routed by key or in turn, or all go to the given partition. If it raises, some, all
        or none of them may have been taken: take them again.
        """
        fresh = rows.above(self.highest(sender, partition))
        self.repeated += len(rows) - len(fresh)
        checked = check(fresh, self._rules, self._clock.now_us())
        self.refuse(sender, checked.refused)
        if partition is None:
            self._spread(sender, checked)
        else:
            self._append(partition, sender, checked)
        self.tick()

    def _spread(self, sender: str, rows: Rows) -> None:
        for some, partitions in laid_out(rows, sender, self._earlier, self._partitions):
            for partition, part in route(some, self._rules.key, partitions):
                self._append(partition, sender, part)

    @abstractmethod
    def _append(self, partition: int, sender: str, given: Rows) -> None:
        """Take rows for a partition, without those that it has."""

    @abstractmethod
    def progress(self, sender: str, number: int, partition: int | None = None) -> None:
        """Note that all of a sender up to a place was dealt with, as rows or not."""

    def refuse(self, sender: str, refused: Sequence[Refused]) -> None:
        """Put records among the dead letters, each once, however often it is refused."""
        if not refused:
            return
        # Open for a moment only: the groups that find rows late write there too.
        with journal_at(self._path).dead_letters(clock=self._clock) as dead:
            origin = self.shown.get(sender, sender)
            letters = [DeadLetter(origin, one.number, one.reason, one.record) for one in refused]
            self.refused += dead.put_all(letters)

    @abstractmethod
    def flush(self) -> None:
        """Wait until all that was taken is durable."""

    @abstractmethod
    def tick(self) -> None:
        """Bring idle partitions level with the others, about once a second."""


class JournalFeed(Feed):
    """Takes rows for a journal whose writers it owns, all of them."""

    def __init__(
        self,
        writers: Sequence[PartitionWriter],
        rules: Rules,
        clock: Clock,
        idleness: Idleness | None = None,
    ) -> None:
        self._writers = tuple(writers)
        super().__init__(self.description, rules, clock)
        # A journal of one partition has nobody to wait for.
        self._idleness = idleness if len(self._writers) > 1 and rules.time is not None else None
        self._rows_at = [clock.elapsed_us()] * len(self._writers)
        self._ticked_at = clock.elapsed_us()
        self._waiting: deque[Future[Accepted]] = deque()

    @property
    def description(self) -> Description:
        return self._writers[0].description

    def highest(self, sender: str, partition: int | None = None) -> int:
        if partition is not None:
            return self._writers[partition].highest(sender)
        return min(
            max(one.highest(sender), dealt_with(one.partition, sender, self._earlier))
            for one in self._writers
        )

    def take(self, sender: str, rows: Rows, partition: int | None = None) -> None:
        super().take(sender, rows, partition)
        while len(self._waiting) > _IN_FLIGHT:
            self._settle()

    def progress(self, sender: str, number: int, partition: int | None = None) -> None:
        for writer in self._writers if partition is None else [self._writers[partition]]:
            if number > writer.highest(sender):
                self._waiting.append(
                    writer.instruct_nowait(Kind.PROGRESS, sender=sender, seq=number)
                )

    def _append(self, partition: int, sender: str, given: Rows) -> None:
        rows = given.above(self._writers[partition].highest(sender))
        self.repeated += len(given) - len(rows)
        if not len(rows):
            return
        self._waiting.append(
            self._writers[partition].append_nowait(sender, first_sequence(rows), rows.batch)
        )
        self._rows_at[partition] = self._clock.elapsed_us()
        self.bytes += rows.batch.nbytes

    def _settle(self) -> None:
        self.rows += self._waiting.popleft().result().stored

    def flush(self) -> None:
        while self._waiting:
            self._settle()

    def tick(self) -> None:
        now = self._clock.elapsed_us()
        if self._idleness is None or now - self._ticked_at < _TICK_US:
            return
        self._ticked_at = now
        if self.waiting is not None:
            # Not idle: nobody knows what is there. It gets its turn when it can be read again.
            self._rows_at = [now] * len(self._writers)
            return
        microsecond = timedelta(microseconds=1)
        floors = idle.proposals(
            [self._progress(partition) for partition in range(len(self._writers))],
            now_us=now,
            idle_us=self._idleness.idle // microsecond,
            lateness_us=self._idleness.lateness // microsecond,
        )
        for partition, floor in floors:
            self._writers[partition].instruct(Kind.IDLE, floor)

    def _progress(self, partition: int) -> idle.Progress:
        writer = self._writers[partition]
        return idle.Progress(
            partition, writer.running_max, writer.floor, writer.ended, self._rows_at[partition]
        )

    def end(self) -> None:
        """End the stream in every partition; again, if a crash has left it ended in some."""
        self.flush()
        for writer in self._writers:
            writer.instruct(Kind.END_OF_STREAM)

    def close(self) -> None:
        """Write what is queued and let go of the journal."""
        try:
            self.flush()
        finally:
            for writer in self._writers:
                writer.close()

    def abort(self) -> None:
        """Let go of the journal without writing what is queued."""
        for writer in self._writers:
            writer.abort()
