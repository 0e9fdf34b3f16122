"""Where reading stands, as senders and numbers of the journal; pure.

    kafka:<cluster>/<topic id>/<partition>            the records, numbered by their offsets
    kafka:<cluster>/<topic id>/<partition>/from       the offset that the first reader began at
    kafka:<cluster>/<topic id>/<partition>/until      the offset that a reader with stop= ends at
    kafka:<cluster>/<topic id>/topic/<name>           all partitions that there were have a beginning

The last is in the first partition of the journal, on each engine in the first that lives there. The
last three are PROGRESS alone. A partition without a beginning that is found after all others
have one is new: it is read from its first record, whatever `start` is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from millstream.brokers.clients import Topic
from millstream.connectors.kafka import Start
from millstream.errors import BrokerAway, InvalidOption, RecordsGone, TopicChanged
from millstream.journal.base import EarlierPartitions


def sender_of(topic: Topic, partition: int) -> str:
    """Return the sender of a partition's records."""
    return f"kafka:{topic.cluster}/{topic.id}/{partition}"


def from_of(topic: Topic, partition: int) -> str:
    return f"{sender_of(topic, partition)}/from"


def until_of(topic: Topic, partition: int) -> str:
    return f"{sender_of(topic, partition)}/until"


def begun_of(topic: Topic) -> str:
    return f"kafka:{topic.cluster}/{topic.id}/topic/{topic.name}"


def home(
    topic: Topic, partition: int, earlier: Sequence[EarlierPartitions], partitions: int
) -> int:
    """Return the journal's partition that belongs to one of the topic.

    It stays the same when the journal grows: those that were there before it grew keep their place.
    """
    sender = from_of(topic, partition)
    counts = (layout.partitions for layout in earlier if sender in layout.until)
    return partition % next(counts, partitions)


@dataclass(frozen=True, slots=True)
class Ends:
    """The offsets of the first record of a partition, and of the one after the last."""

    low: int
    high: int


def beginning(start: Start, partition: int, ends: Ends, at_time: int | None, *, new: bool) -> int:
    """Return the offset at which the first reader of a partition begins.

    Args:
        start: What the source says.
        partition: Its number.
        ends: What the partition holds.
        at_time: The first offset at or after the time of `start`; None if there is none yet.
        new: Whether it was made after the source has begun.
    """
    if new or start == "earliest":
        return ends.low
    if isinstance(start, str):
        return ends.high if start == "latest" or at_time is None else at_time
    wanted = dict(start).get(partition, ends.low)
    if wanted > ends.high:
        msg = f"start={{{partition}: {wanted}}} is behind the end of the partition, {ends.high}"
        raise InvalidOption(msg, hint='give an offset that exists, or start="latest"')
    return wanted


def check_partitions(start: Start, topic: Topic) -> None:
    """Refuse offsets of partitions that the topic does not have.

    Raises:
        InvalidOption: It does not have one.
    """
    wanted = () if isinstance(start, str) else (partition for partition, _ in start)
    for partition in wanted:
        if partition not in topic.partitions:
            msg = f'start= names partition {partition}, which topic "{topic.name}" does not have'
            raise InvalidOption(msg, hint=f"it has 0 to {max(topic.partitions)}")


def time_ms(start: Start) -> int | None:
    """Return the time of `start` in milliseconds, None if it is none."""
    if not isinstance(start, str) or start in ("earliest", "latest"):
        return None
    return int(datetime.fromisoformat(start).timestamp() * 1000)


def going_on(topic: Topic, partition: int, offset: int, ends: Ends, *, accept: bool) -> int:
    """Return the offset to go on at: this one, or the first that is left if a loss is accepted.

    Raises:
        RecordsGone: Retention has removed it, or the partition ends before it.
    """
    place = f'partition {partition} of topic "{topic.name}"'
    if offset > ends.high:
        msg = f"{place} ends at offset {ends.high}, and was read up to {offset}: the broker has lost records"
        hint = (
            "the offsets will be used again for others: read the topic in a source of another name"
        )
        raise RecordsGone(msg, hint=hint)
    if offset >= ends.low or accept:
        return max(offset, ends.low)
    gone = ends.low - offset
    msg = f"{gone} records of {place} are gone that were not read: {_span(offset, ends.low)}"
    hint = 'keep records for longer (retention.ms), or go on without them: loss="accept"'
    raise RecordsGone(msg, hint=hint)


def _span(first: int, stop: int) -> str:
    return f"offset {first}" if stop == first + 1 else f"offsets {first} to {stop - 1}"


def check_same_topic(topic: Topic, known: Mapping[str, int]) -> None:
    """Refuse a topic that is another one of the same name than the one that was read before.

    Args:
        topic: As it is now.
        known: The highest number of each sender of the journal.

    Raises:
        TopicChanged: It is another one.
    """
    if begun_of(topic) in known:
        return
    for before in _others(topic, known):
        stood = ", ".join(
            f"{sender.removeprefix(before + '/')} at offset {number + 1}"
            for sender, number in sorted(known.items())
            if sender.startswith(f"{before}/") and sender.removeprefix(f"{before}/").isdigit()
        )
        msg = (
            f'topic "{topic.name}" was made again: it is {topic.cluster}/{topic.id} now, and was '
            f"{before.removeprefix('kafka:')}. Records of the old one that were not read are gone; "
            f"its partitions were read up to: {stood or 'the beginning'}"
        )
        raise TopicChanged(msg, hint='to read the new one from start= on: loss="accept"')


def no_leader(topic: Topic, partitions: Sequence[int]) -> BrokerAway:
    """Return the error that partitions cannot be read for now."""
    numbers = ", ".join(map(str, partitions))
    which, have = ("partition", "has") if len(partitions) == 1 else ("partitions", "have")
    msg = f'{which} {numbers} of topic "{topic.name}" {have} no leader'
    return BrokerAway(msg, hint="is a broker down that has its only copy?")


def _others(topic: Topic, known: Iterable[str]) -> list[str]:
    """Return the beginnings of the senders of other topics of the same name."""
    end = f"/topic/{topic.name}"
    return [
        name.removesuffix(end) for name in known if name.startswith("kafka:") and name.endswith(end)
    ]
