"""Reads a topic into a source's journal, each record once.

    describe the topic -> where to begin -> consume -> parse -> same topic? -> lanes -> feed
                            ^                                                           |
                            +--------------- the journal's numbers ---------------------+

Offsets that are committed to the broker are for Kafka's own tools to show: nothing reads them. What
the journal knows of a sender (`places.py`) is where the next reader goes on.

A topic may be deleted and made again at any moment, with other records at the same offsets. So what
was consumed is taken only after the cluster has been asked again, and the topic's id is still that
of the beginning: ids do not come back, so what was fetched in between is of that topic.

While no broker answers, the source waits and says so once; librdkafka connects again by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import numpy as np

from millstream.brokers import clients
from millstream.brokers.clients import Topic
from millstream.brokers.errors import away, named, translated
from millstream.connectors.kafka import Kafka, places
from millstream.connectors.kafka.merge import due
from millstream.connectors.kafka.places import Ends
from millstream.connectors.kafka.reading import Reading, begin
from millstream.connectors.kafka.records import Records, records_of
from millstream.errors import BrokerAway, MillstreamError, TopicMissing
from millstream.ingest.checks import times_us
from millstream.ingest.feed import Feed
from millstream.ingest.origin import CHUNK, OriginContext, Pause
from millstream.ingest.rows import Numbers, Rows
from millstream.journal import journal_at

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_POLL_S: Final = 0.1
_AGAIN_S: Final = 1.0
_ASK_S: Final = 5.0
#: How often to note how far it has come; to look for new partitions, or whether a broker is back.
_NOTE_US: Final = 1_000_000
_LOOK_US: Final = 10_000_000
_LOOK_WAITING_US: Final = 1_000_000
_LEAST_LOOK_US: Final = 10_000
#: A broker that starts may not know its topics at once.
_MISSING_US: Final = 5_000_000
#: Rows of a partition that wait for others before no more are fetched.
_MOST_WAITING: Final = 4 * CHUNK
_LEAST_WIDTH_US: Final = 10_000
_DAY_US: Final = 86_400_000_000
#: So long after a broker is back, a consumer may still report that it was away.
_NEWS_US: Final = 5_000_000
#: Further options of a flow may change these, and none of `_SETTINGS`.
_TUNING: Final = {"fetch.message.max.bytes": 8 << 20, "queued.max.messages.kbytes": 64 << 10}
_SETTINGS: Final = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "check.crcs": True,
    "allow.auto.create.topics": False,
}


class KafkaOrigin:
    """One topic."""

    def __init__(self, spec: Kafka, context: OriginContext) -> None:
        self._spec = spec
        self._context = context
        self._records = records_of(spec, context.schema, context.root)

    def pump(self, feed: Feed, pause: Pause) -> bool:
        waiting = _Waiting(self._context.source, feed)
        while True:
            try:
                with _Session(self._spec, self._context, self._records, feed, waiting) as session:
                    ended = session.run(pause)
                if ended is not None:
                    return ended
            except BrokerAway as error:
                waiting.for_(error)
                if not pause(_AGAIN_S):
                    return False


class _Waiting:
    """Says once what the source waits for, and once that it reads again."""

    def __init__(self, source: str, feed: Feed) -> None:
        self._source = source
        self._feed = feed

    def __bool__(self) -> bool:
        return self._feed.waiting is not None

    def for_(self, error: MillstreamError) -> None:
        if not self:
            _log.warning('source "%s" waits: %s', self._source, error.message)
        self._feed.waiting = error.message

    def over(self) -> None:
        if self:
            _log.warning('source "%s" reads again', self._source)
            self._feed.waiting = None


@dataclass(frozen=True, slots=True)
class _Piece:
    """Records of a partition that were consumed one after the other, and its end if that came then."""

    number: int
    rows: Rows | None
    times: Numbers | None
    last: int
    end: int | None


class _Session:
    """One consumer, from its first question to its end."""

    def __init__(
        self,
        spec: Kafka,
        context: OriginContext,
        records: Records,
        feed: Feed,
        waiting: _Waiting,
    ) -> None:
        self._spec, self._context, self._records = spec, context, records
        self._feed, self._waiting, self._clock = feed, waiting, context.clock
        self._trouble = clients.Trouble()
        self._place = f'topic "{spec.topic}" at {spec.connection.servers}'
        half = context.lateness // timedelta(microseconds=2)
        self._width_us = max(half, _LEAST_WIDTH_US)
        self._looked_at = self._noted_at = self._clock.elapsed_us()
        self._missing_at: int | None = None
        self._back_at: int | None = None
        self._readings: dict[int, Reading] = {}
        self._committed: dict[int, int] = {}
        self._paused: set[int] = set()
        #: What was consumed, while nobody says whether the topic is still the same, or what it means.
        self._held: list[Message] = []
        self._topic = clients.describe(spec.connection, spec.topic, timeout=_ASK_S)
        self._check_same(self._topic)
        group = spec.group or f"millstream-{context.source}"
        tuning = {**_TUNING, **dict(spec.connection.options)}
        settings = {**tuning, **_SETTINGS, "group.id": group, "on_commit": _on_commit}
        self._watch = clients.Watch(spec.connection, self._topic)
        self._consumer = clients.consumer(spec.connection, settings, self._trouble)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._consumer.close()

    def run(self, pause: Pause) -> bool | None:
        """Read until the end (True), until it is stopped (False), or must begin again (None)."""
        self._begin()
        self._back()
        while pause(self._rest_s()):
            if self._readings and all(one.done for one in self._readings.values()):
                self._note()
                return True
            if not self._step():
                self._note()
                return None
            now = self._clock.elapsed_us()
            if now - self._noted_at >= _NOTE_US:
                self._noted_at = now
                self._note()
        self._note()
        return False

    def _rest_s(self) -> float:
        if not self._held:
            return 0
        return _AGAIN_S if self._waiting else _POLL_S

    # where to begin

    def _check_same(self, topic: Topic) -> None:
        if self._spec.loss == "accept":
            return
        partitions = journal_at(self._context.journal).summary().partitions
        known = partitions[self._feed.here[0]].highest
        places.check_same_topic(topic, known)

    def _begin(self) -> None:
        if self._topic.leaderless:
            raise places.no_leader(self._topic, self._topic.leaderless)
        for one in begin(self._spec, self._topic, self._feed, self._ends_of, self._at_time):
            self._readings[one.number] = one
            self._feed.shown[one.sender] = (
                f'topic "{self._topic.name}" ({self._topic.id}), partition {one.number}'
            )
        self._assign()

    def _assign(self) -> None:
        reading = [one for one in self._readings.values() if not one.done]
        self._consumer.assign([self._at(one.number, one.next) for one in reading])
        self._paused.clear()

    def _ends_of(self, number: int) -> Ends:
        return Ends(
            *self._asked(lambda: self._consumer.get_watermark_offsets(self._at(number), _ASK_S))
        )

    def _at_time(self, number: int, moment_ms: int) -> int | None:
        (found,) = self._asked(
            lambda: self._consumer.offsets_for_times([self._at(number, moment_ms)], _ASK_S)
        )
        return None if found.offset < 0 else int(found.offset)

    def _at(self, number: int, offset: int | None = None) -> Any:
        from confluent_kafka import TopicPartition

        if offset is None:
            return TopicPartition(self._topic.name, number)
        return TopicPartition(self._topic.name, number, offset)

    def _asked(self, ask: Callable[[], _Answer | None]) -> _Answer:
        from confluent_kafka import KafkaError, KafkaException

        try:
            found = ask()
        except KafkaException as error:
            raise translated(error, self._place, self._trouble.last) from None
        if found is None:
            raise translated(KafkaError(KafkaError._TIMED_OUT), self._place, self._trouble.last)
        return found

    # reading

    def _step(self) -> bool:
        """Take what has come; return whether the topic is the same, with the same partitions."""
        messages = self._held or self._consumed()
        asked = self._asked_again(messages)
        errors: list[tuple[int | None, KafkaError]] = []
        try:
            pieces = list(self._pieces(messages, errors))
        except BrokerAway as silent:  # the registry, which has the schemas of values
            self._waiting.for_(silent)
            self._held = messages
            return True
        if asked is not None:
            topic = self._answered(asked)
            if topic is None:
                self._held = messages
                return True
            # A consumer would not hear of new partitions for minutes: the next one knows them.
            if (topic.id, topic.partitions) != (self._topic.id, self._topic.partitions):
                return False
        self._held = []
        for piece in pieces:
            self._add(piece)
        for number, error in errors:
            self._failed(error, number)
        self._hand_over()
        self._feed.tick()
        return True

    def _consumed(self) -> list[Message]:
        first = self._consumer.poll(_POLL_S)
        self._check_trouble(first)
        if first is None:
            return []
        # Each lot is followed by a question: a trickle of records waits to become one.
        left_us = self._looked_at + _LEAST_LOOK_US - self._clock.elapsed_us()
        return [first, *self._consumer.consume(CHUNK, max(left_us, 0) / 1_000_000)]

    def _check_trouble(self, first: Message | None) -> None:
        if first is not None and first.error() is None:
            self._trouble.clear()
        elif self._trouble.down and self._trouble.last is not None:
            error = translated(self._trouble.last, f"the broker at {self._spec.connection.servers}")
            self._trouble.clear()
            if not isinstance(error, BrokerAway):
                raise error
            # The consumer may be the last to notice that the broker is back.
            if self._back_at is None or self._clock.elapsed_us() - self._back_at > _NEWS_US:
                self._waiting.for_(error)

    def _pieces(
        self, messages: list[Message], errors: list[tuple[int | None, KafkaError]]
    ) -> Iterator[_Piece]:
        """Yield what messages hold, partition by partition; errors go to a list of their own."""
        batches: dict[int, list[Message]] = {}
        for message in messages:
            number, error = message.partition(), message.error()
            if error is None:
                batches.setdefault(number or 0, []).append(message)
            elif named(error) == "_PARTITION_EOF":
                batch = batches.pop(number or 0, [])
                yield self._piece(number or 0, batch, message.offset() or 0)
            else:
                errors.append((number, error))
        for number, batch in batches.items():
            yield self._piece(number, batch, None)

    def _piece(self, number: int, batch: list[Message], end: int | None) -> _Piece:
        until = self._readings[number].until
        if batch and until is not None and (batch[-1].offset() or 0) >= until:
            batch = [one for one in batch if (one.offset() or 0) < until]
        if not batch:
            return _Piece(number, None, None, -1, end)
        rows = self._records.rows(batch)
        return _Piece(number, rows, self._times(rows), batch[-1].offset() or 0, end)

    def _add(self, piece: _Piece) -> None:
        reading = self._readings[piece.number]
        if piece.rows is not None:
            self._feed.refuse(reading.sender, piece.rows.refused)
            kept = Rows(piece.rows.batch, piece.rows.numbers)
            reading.add(kept, piece.last, piece.times)
        if piece.end is not None:
            reading.reached_end(piece.end)

    def _times(self, rows: Rows) -> Numbers | None:
        if self._context.time is None or not len(rows):
            return None
        times, _ = times_us(rows.batch, self._context.time)
        # One that is far ahead will be refused, and must not hold the others up.
        return np.where(times > self._clock.now_us() + _DAY_US, 0, times)

    def _hand_over(self) -> None:
        groups: dict[int | None, list[Reading]] = {}
        for one in self._readings.values():
            groups.setdefault(one.route, []).append(one)
        for route, readings in groups.items():
            for lane, rows in due([one.lane for one in readings], self._width_us):
                self._feed.take(self._readings[lane.number].sender, rows, route)
        self._hold_back()

    def _hold_back(self) -> None:
        """Fetch no more of partitions that are far ahead of others."""
        full = {n for n, one in self._readings.items() if len(one.lane) > _MOST_WAITING}
        if ahead := full - self._paused:
            self._consumer.pause([self._at(number) for number in ahead])
        if behind := self._paused - full:
            self._consumer.resume([self._at(number) for number in behind])
        self._paused = full

    def _failed(self, error: Any, number: int | None) -> None:
        if named(error) in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE") and number is not None:
            one = self._readings[number]
            accept = self._spec.loss == "accept"
            ends = self._ends_of(number)
            offset = places.going_on(self._topic, number, one.next, ends, accept=accept)
            _log.warning("%s: partition %s goes on at offset %s", self._place, number, offset)
            one.consumed = offset - 1
            self._assign()
        elif isinstance(found := translated(error, self._place), TopicMissing):
            self._assign()  # it is there again: the cluster was asked after this
        elif not away(error):
            raise found

    # looking around

    def _note(self) -> None:
        """Note how far it has come: in the journal, and then for Kafka's tools."""
        for one in self._readings.values():
            self._feed.progress(one.sender, one.settled, one.route)
        self._feed.flush()
        fresh = {
            number: one.settled + 1
            for number, one in self._readings.items()
            if one.settled + 1 > self._committed.get(number, 0)
        }
        if fresh and not self._waiting:
            self._consumer.commit(
                offsets=[self._at(number, offset) for number, offset in fresh.items()],
                asynchronous=True,
            )
            self._committed.update(fresh)

    def _asked_again(self, messages: list[Message]) -> Callable[[], Topic] | None:
        """Ask what the topic is now, if something would be taken, and every few seconds."""
        now, every = self._clock.elapsed_us(), _LOOK_WAITING_US if self._waiting else _LOOK_US
        if now - self._looked_at < every and not any(self._counts(one) for one in messages):
            return None
        self._looked_at = now
        return self._watch.ask(_ASK_S)

    def _counts(self, message: Message) -> bool:
        """Return whether a message tells more than that a partition is still at its end."""
        error = message.error()
        if error is None or named(error) != "_PARTITION_EOF":
            return True
        return (message.offset() or 0) > self._readings[message.partition() or 0].next

    def _answered(self, answer: Callable[[], Topic]) -> Topic | None:
        """Return what the topic is now; None if nobody knows for the moment."""
        try:
            topic = answer()
        except BrokerAway as error:
            self._waiting.for_(error)
            return None
        except TopicMissing:
            now = self._clock.elapsed_us()
            self._missing_at = now if self._missing_at is None else self._missing_at
            if now - self._missing_at >= _MISSING_US:
                raise
            self._looked_at -= _LOOK_US
            return None
        self._missing_at = None
        stuck = [n for n in topic.leaderless if n in self._readings and not self._readings[n].done]
        if stuck:
            self._waiting.for_(places.no_leader(topic, stuck))
        else:
            self._back()
        return topic

    def _back(self) -> None:
        if self._waiting:
            self._back_at = self._clock.elapsed_us()
        self._waiting.over()


def _on_commit(error: Any, _partitions: Any) -> None:
    if error is not None:
        _log.debug("offsets were not committed: %s", error)


def open_kafka(spec: Kafka, context: OriginContext) -> KafkaOrigin:
    """Open a topic; nobody is asked yet."""
    return KafkaOrigin(spec, context)
