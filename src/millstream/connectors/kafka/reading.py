"""How far each partition of a topic is read, and where it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from millstream.brokers.clients import Topic
from millstream.connectors.kafka import Kafka, places
from millstream.connectors.kafka.merge import Lane
from millstream.connectors.kafka.places import Ends
from millstream.ingest.feed import Feed
from millstream.ingest.rows import Numbers, Rows

EndsOf = Callable[[int], Ends]
AtTime = Callable[[int, int], int | None]


@dataclass(slots=True)
class Reading:
    """One partition of the topic."""

    number: int
    sender: str
    #: The journal's partition that all rows go to; None if their keys decide.
    route: int | None
    #: The last offset that was consumed, or passed over.
    consumed: int
    #: The offset to end before; None if there is no end.
    until: int | None
    lane: Lane

    @property
    def next(self) -> int:
        """The offset to consume next."""
        return self.consumed + 1

    @property
    def settled(self) -> int:
        """The last offset up to which everything was handed over."""
        first = self.lane.first_number
        return self.consumed if first is None else first - 1

    @property
    def done(self) -> bool:
        """Whether its end was reached."""
        return self.until is not None and self.settled + 1 >= self.until

    def add(self, rows: Rows, last: int, times: Numbers | None) -> None:
        """Take rows that were consumed; `last` is the offset of the last record."""
        self.consumed = max(self.consumed, last)
        self.lane.put(rows, times)
        self.lane.at_end = self.until is not None and self.next >= self.until

    def reached_end(self, offset: int) -> None:
        """Note that the partition ends here; what lies before was no record for us."""
        last = offset - 1 if self.until is None else min(offset, self.until) - 1
        self.consumed = max(self.consumed, last)
        self.lane.at_end = True


def begin(spec: Kafka, topic: Topic, feed: Feed, ends_of: EndsOf, at_time: AtTime) -> list[Reading]:
    """Return where to read partitions from, after it is durable for those that are read first.

    Raises:
        InvalidOption: The topic does not have the offsets of `start`; nothing is noted then.
        RecordsGone: Records are gone that were not read, and the source does not accept that.
    """
    numbers = [number for number in topic.partitions if _home(topic, feed, number) in feed.here]
    first = feed.here[0]
    began_with = feed.highest(places.begun_of(topic), first)
    if began_with < 0:
        places.check_partitions(spec.start, topic)
    ends = {number: ends_of(number) for number in numbers}
    # What is noted stays, so all of it is known to be right before the first is noted.
    beginnings = [
        one
        for number in numbers
        for one in _beginning(spec, topic, feed, number, ends[number], at_time, began_with)
    ]
    for sender, offset, home in beginnings:
        feed.progress(sender, offset, home)
    feed.flush()
    if began_with < 0:
        feed.progress(places.begun_of(topic), len(topic.partitions), first)
        feed.flush()
    found = [_reading(spec, topic, feed, number, ends[number]) for number in numbers]
    # With stop=, a partition that was made later has no end, and is not read.
    return [one for one in found if spec.stop is None or one.until is not None]


def _home(topic: Topic, feed: Feed, number: int) -> int:
    journal = feed.description
    return places.home(topic, number, journal.earlier, journal.partitions)


def _beginning(
    spec: Kafka,
    topic: Topic,
    feed: Feed,
    number: int,
    ends: Ends,
    at_time: AtTime,
    began_with: int,
) -> Iterator[tuple[str, int, int]]:
    """Yield what is to be noted of a partition that is read first: sender, offset, partition."""
    home, new = _home(topic, feed, number), 0 <= began_with <= number
    if feed.highest(places.from_of(topic, number), home) < 0:
        moment = places.time_ms(spec.start)
        found = None if moment is None or new else at_time(number, moment)
        wanted = places.beginning(spec.start, number, ends, found, new=new)
        offset = places.going_on(topic, number, wanted, ends, accept=spec.loss == "accept")
        yield places.from_of(topic, number), offset, home
    until = places.until_of(topic, number)
    if spec.stop is not None and not new and feed.highest(until, home) < 0:
        yield until, ends.high, home


def _reading(spec: Kafka, topic: Topic, feed: Feed, number: int, ends: Ends) -> Reading:
    home = _home(topic, feed, number)
    route = home if feed.key is None else None
    sender = places.sender_of(topic, number)
    read = feed.highest(sender, route) + 1
    offset = max(read, feed.highest(places.from_of(topic, number), home))
    until = feed.highest(places.until_of(topic, number), home) if spec.stop is not None else -1
    if until < 0 or offset < until:
        offset = places.going_on(topic, number, offset, ends, accept=spec.loss == "accept")
    lane = Lane(number, at_end=0 <= until <= offset)  # one that is done holds nobody up
    return Reading(number, sender, route, offset - 1, until if until >= 0 else None, lane)
