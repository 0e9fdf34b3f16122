"""Dead letters in Kafka: a topic that many write, and a copy of it in the folder.

A letter is one record of the topic `<topic>.dead`, keyed by (origin, partition, position). Two hosts may
write the same letter, and a record whose writer has stopped waiting may still arrive: readers drop repeats.

The copy is the journal of dead letters that the kind `files` has. A letter is in Kafka before it is in the copy:

    DIR/dead/copied.json    up to which offset the copy goes, and how large a letter may be

If that file is missing, the topic is read again, and what only the copy has is written to it: folders in which
dead letters were kept before they were in Kafka have none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from millstream.brokers.clients import describe
from millstream.clock import Clock
from millstream.errors import AlreadyWriting, BrokerError, RecordTooLarge, TopicMissing
from millstream.journal.base import FOREVER, DeadLetter
from millstream.journal.kinds.files.dead import TIMEOUT_S, DeadLetters
from millstream.journal.kinds.files.layout import dead_folder
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.kafka.following import Topics
from millstream.journal.kinds.kafka.local import CACHE
from millstream.journal.kinds.kafka.topics import dead_topic, make_dead
from millstream.journal.kinds.kafka.wire import Spot, appender, delete_before, fetcher
from millstream.journal.letters import Mark, as_letter, without_marks
from millstream.storage.disk import write_whole

Timed = tuple[DeadLetter, int]
"""A letter, and when it was put."""

Key = tuple[str, int, int]

#: How many letters the topic keeps, and as many more; the oldest go first.
MOST_LETTERS: Final = 1_000_000
_READ_S: Final = 3.0
_AGAIN_S: Final = 10.0
#: When it may be asked again for a topic that was not there: pages and commands ask every moment.
_ask_at: dict[Path, float] = {}


@dataclass(frozen=True, slots=True)
class Copied:
    """How far a copy goes, and the bytes that a letter may have."""

    offset: int
    largest: int


class KafkaDeadLetters(DeadLetters):
    """The dead letters of a journal in Kafka, open for writing by one process of this host."""

    def __init__(
        self, topics: Topics, *, clock: Clock | None = None, timeout: float = TIMEOUT_S
    ) -> None:
        self._topics, self._timeout = topics, timeout
        self._spot = Spot(dead_topic(topics.topic), 0)
        super().__init__(topics.path, clock=clock, timeout=timeout)
        try:
            found = read_copied(self.path)
            self._copied = found or Copied(0, make_dead(topics.connection, topics.topic))
            known = self._follow()
            if found is None:
                self._send([one for one in self._own() if one[0].key not in known])
                self._keep()
        except BaseException:
            self.close()
            raise

    def put_all(self, letters: Iterable[DeadLetter]) -> int:
        """Store the letters that are not there yet, and return how many those were.

        Raises:
            BrokerError: Some, all or none of them may be there, or may come later: put them again.
        """
        fresh, now = self._fresh(without_marks(letters)), self._clock.now_us()
        if fresh:
            offsets = self._send([(letter, now) for letter in fresh])
            self._store(fresh, [now] * len(fresh))
            begin = self._copied.offset
            if offsets == list(range(begin, begin + len(offsets))):  # no other host's in between
                self._copied = replace(self._copied, offset=begin + len(offsets))
                self._keep()
        return len(fresh)

    def put_marks(self, marks: Sequence[Mark]) -> None:
        """Send marks, and take into the copy what counts of all that are in the topic.

        Raises:
            RecordTooLarge: The topic does not take what a letter was edited to; none was sent.
            BrokerError: As for `put_all`.
        """
        now = self._clock.now_us()
        fresh = [(letter, now) for letter in self._fresh(as_letter(mark) for mark in marks)]
        for letter, at in fresh:
            if packed(letter, at, self._copied.largest) != packed(letter, at, FOREVER):
                raise RecordTooLarge(
                    f"the edited row is larger than the {self._copied.largest:,} bytes that topic"
                    f' "{self._spot.topic}" takes',
                    hint="set max.message.bytes of the topic, or send the row itself: millstream send",
                )
        self._send(fresh)
        self._follow()

    def _send(self, letters: Sequence[Timed]) -> list[int]:
        if not letters:
            return []
        return appender(self._topics.connection).append(
            self._spot,
            [packed(letter, at, self._copied.largest) for letter, at in letters],
            keys=[json.dumps(letter.key).encode() for letter, _ in letters],
            patience=self._timeout,
        )

    def _follow(self) -> set[Key]:
        """Add to the copy what is new in the topic, and return the keys of that."""
        reader, known = fetcher(self._topics.connection), set[Key]()
        low, high = reader.watermarks(self._spot, self._timeout)
        # If it goes further than the topic, that is another one.
        at = max(low, self._copied.offset if self._copied.offset <= high else low)
        try:
            while at < high:
                found = [one for one in reader.some(self._spot, at) if one[0] < high]
                self._take(letters := [unpacked(raw) for _, raw in found])
                known.update(letter.key for letter, _ in letters)
                at = found[-1][0] + 1
        finally:
            reader.rest()
        if at != self._copied.offset:
            self._copied = replace(self._copied, offset=at)
            self._keep()
        if high - low > 2 * MOST_LETTERS:
            delete_before(self._topics.connection, {self._spot: high - MOST_LETTERS})
        return known

    def _take(self, letters: Sequence[Timed]) -> None:
        times = {letter.key: at for letter, at in reversed(letters)}
        fresh = self._fresh(letter for letter, _ in letters)
        self._store(fresh, [times[letter.key] for letter in fresh])

    def _own(self) -> list[Timed]:
        """Return the letters of the copy."""
        part, found = Reader(self.path).partition(0), list[Timed]()
        names = [field.name for field in fields(DeadLetter)]
        for piece in part.read(part.begin, part.end):
            if piece.batch is not None:
                times = piece.batch.column("at").cast(pa.int64()).to_pylist()
                rows = piece.batch.select(names).to_pylist()
                found += [(DeadLetter(**row), at) for row, at in zip(rows, times, strict=True)]
        return found

    def _keep(self) -> None:
        # Not synced: if it is lost, the topic is read again.
        write_whole(CACHE, _copied_file(self.path), json.dumps(asdict(self._copied)).encode())


def follow(topics: Topics) -> None:
    """Bring the copy up to date, as far as that is possible now: pages and commands show it."""
    try:
        if _behind(topics):
            KafkaDeadLetters(topics, timeout=_READ_S).close()
    except (BrokerError, AlreadyWriting):
        """What this host knows is shown."""


def _behind(topics: Topics) -> bool:
    found = read_copied(dead_folder(topics.path))
    name = dead_topic(topics.topic)
    if found is not None:
        _, high = fetcher(topics.connection).watermarks(Spot(name, 0), _READ_S)
        return high != found.offset
    if time.monotonic() < _ask_at.get(topics.path, 0.0):
        return False
    _ask_at[topics.path] = time.monotonic() + _AGAIN_S
    try:
        describe(topics.connection, name, timeout=_READ_S)
    except TopicMissing:
        return False
    return True


def packed(letter: DeadLetter, at: int, largest: int) -> bytes:
    """Return a letter as it is in its topic; what is too large is cut.

    Example:
        >>> len(packed(DeadLetter("s", 7, "late", "x" * 900), 5, 200))
        149
    """
    body: dict[str, Any] = {
        "origin": letter.origin,
        "partition": letter.partition,
        "position": letter.position,
        "reason": letter.reason,
        "record": letter.record,
        "at": at,
    }
    raw = json.dumps(body).encode()
    for name in ("record", "reason"):
        text: str = body[name]
        while len(raw) > largest and text:
            text = text[: len(text) // 2]
            body[name] = text + "…"
            raw = json.dumps(body).encode()
    return raw


def unpacked(raw: bytes) -> Timed:
    """Return the letter of a record."""
    body = json.loads(raw)
    at = int(body.pop("at"))
    return DeadLetter(**body), at


def read_copied(folder: Path) -> Copied | None:
    """Return how far the copy in a folder goes, if that is known."""
    try:
        return Copied(**json.loads(_copied_file(folder).read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _copied_file(folder: Path) -> Path:
    return folder / "copied.json"
