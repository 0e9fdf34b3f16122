"""What appends become: the entries that follow all those which are queued already.

The thinking of a writer, without its disk: which rows are new, their times, their bytes. One thread
uses it at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import xxhash

from millstream.clock import Clock
from millstream.errors import Ended
from millstream.journal.base import Accepted, Description, Kind
from millstream.journal.kinds.files.arrivals import Arrival
from millstream.journal.kinds.files.description import describe
from millstream.journal.kinds.files.index import NOBODY, NOTHING, Record, State
from millstream.journal.kinds.files.log import Item
from millstream.journal.kinds.files.senders import Senders
from millstream.journal.lateness import spread
from millstream.journal.rows import conform, times_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

ENTRY_ROWS = 2**17

Drafted = tuple[list[Item], Accepted]
"""Entries to be written, none for a repetition, and the answer once they are."""


@dataclass(frozen=True, slots=True)
class EpochPart:
    """What one epoch adds to one partition."""

    sender: str
    epoch: int
    buffers: Sequence[Buffer]
    parts: int
    rows: int
    length: int
    checksum: int
    min_time: int | None
    max_time: int | None
    floor: int | None
    ended: bool
    version: int


class Drafts:
    """Drafts the next entries of a partition; `state` is that after all which are queued."""

    def __init__(
        self, description: Description, partition: int, state: State, senders: Senders, clock: Clock
    ) -> None:
        self.description = description
        self.state = state
        self._partition = partition
        self._senders = senders
        self._clock = clock

    def highest(self, sender: str) -> int:
        """Return the highest sequence number of a sender, or -1."""
        number = self._senders.find(sender)
        return -1 if number is None else self.state.highest.get(number, -1)

    def numbers(self) -> dict[str, int]:
        """Return the highest sequence number of each sender."""
        return {self._senders.names[number]: seq for number, seq in self.state.highest.items()}

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self.description.schema):
            return batch
        if not set(batch.schema.names) <= set(self.description.schema.names):
            self._reload()
        return conform(batch, self.description.schema)

    def _reload(self) -> None:
        """Take over columns that were added to the journal since the writer was opened."""
        self.description = describe(self.description.path)

    def rows(
        self, sender: str, first_seq: int, batch: pa.RecordBatch, message: pa.Buffer | None
    ) -> Drafted:
        rows = batch.num_rows
        highest = self.highest(sender)
        seen = max(0, min(rows, highest + 1 - first_seq))
        if seen == rows:
            return [], Accepted(rows, self.state.position, 0)
        self._refuse_if_ended()
        fresh = batch.slice(seen) if seen else batch
        # All records are made before any counts: a row without a time refuses the batch as a whole.
        ahead, items = self.state.copy() if fresh.num_rows > ENTRY_ROWS else self.state, []
        for begin in range(0, fresh.num_rows, ENTRY_ROWS):
            part = fresh.slice(begin, ENTRY_ROWS) if fresh.num_rows > ENTRY_ROWS else fresh
            whole = message if part is batch else None
            item = self._row_item(sender, first_seq + seen + begin, part, whole, ahead)
            if ahead is not self.state:
                ahead.apply(item.record)
            items.append(item)
        return items, Accepted(rows, self.state.position, rows - seen)

    def _row_item(
        self,
        sender: str,
        first_seq: int,
        batch: pa.RecordBatch,
        message: pa.Buffer | None,
        state: State,
    ) -> Item:
        rows, running_max = batch.num_rows, state.running_max
        low = high = lag = None
        if self.description.time is not None:
            low, high, lag = spread(
                times_of(batch, self.description.time), running_max, state.floor
            )
        message = batch.serialize() if message is None else message
        record = Record(
            kind=Kind.ROWS,
            position=state.position,
            count=rows,
            appended_at=self._clock.now_us(),
            sender=self._senders.number(sender),
            version=self.description.version,
            parts=1,
            length=message.size,
            first_seq=first_seq,
            last_seq=first_seq + rows - 1,
            min_time=low,
            max_time=high,
            max_before=running_max,
            max_after=_higher(running_max, high),
            max_lag=lag,
            floor_after=state.floor,
            data_checksum=xxhash.xxh3_64_intdigest(message),
        )
        return Item(record, [message])

    def arrival(self, sender: str, epoch: int, arrival: Arrival | None) -> Drafted:
        state = self.state
        rows = 0 if arrival is None else arrival.rows
        if arrival is None or rows == 0 or epoch <= self.highest(sender):
            return [], Accepted(rows, state.position, 0)
        self._refuse_if_ended()
        if arrival.version > self.description.version:
            self._reload()
        low = high = lag = None
        if arrival.times is not None:
            low, high, lag = spread(arrival.times, state.running_max, state.floor)
        record = Record(
            kind=Kind.ROWS,
            position=state.position,
            count=rows,
            appended_at=self._clock.now_us(),
            sender=self._senders.number(sender),
            version=arrival.version,
            parts=arrival.parts,
            length=arrival.length,
            first_seq=epoch,
            last_seq=epoch,
            min_time=low,
            max_time=high,
            max_before=state.running_max,
            max_after=_higher(state.running_max, high),
            max_lag=lag,
            floor_after=state.floor,
            data_checksum=arrival.checksum,
        )
        return [Item(record, arrival.buffers)], Accepted(rows, state.position, rows)

    def instruction(
        self, kind: Kind, floor: int | None, sender: str | None, seq: int | None
    ) -> Drafted:
        state = self.state
        nothing = Accepted(0, state.position, 0)
        number = NOBODY if sender is None else self._senders.number(sender)
        if sender is not None and seq is not None and seq <= state.highest.get(number, -1):
            return [], nothing
        if state.ended and kind is Kind.END_OF_STREAM:
            return [], nothing
        self._refuse_if_ended()
        raised = _higher(state.floor, floor)
        if kind in (Kind.IDLE, Kind.WATERMARK) and raised == state.floor:
            return [], nothing
        record = Record(
            kind=kind,
            position=state.position,
            count=1,
            appended_at=self._clock.now_us(),
            sender=number,
            version=self.description.version,
            first_seq=NOTHING if seq is None else seq,
            last_seq=NOTHING if seq is None else seq,
            max_before=state.running_max,
            max_after=state.running_max,
            floor_after=raised,
            ended=kind is Kind.END_OF_STREAM,
        )
        return [Item(record, [])], Accepted(0, state.position, 0)

    def epoch(self, part: EpochPart) -> Drafted:
        state = self.state
        if part.epoch <= self.highest(part.sender):
            return [], Accepted(part.rows, state.position, 0)
        if part.rows == 0:
            kind = Kind.END_OF_STREAM if part.ended else Kind.WATERMARK
            return self.instruction(kind, part.floor, part.sender, part.epoch)
        self._refuse_if_ended()
        if part.version > self.description.version:
            self._reload()
        record = Record(
            kind=Kind.EPOCH,
            position=state.position,
            count=part.rows,
            appended_at=self._clock.now_us(),
            sender=self._senders.number(part.sender),
            version=part.version,
            parts=part.parts,
            length=part.length,
            first_seq=part.epoch,
            last_seq=part.epoch,
            min_time=part.min_time,
            max_time=part.max_time,
            max_before=state.running_max,
            max_after=_higher(state.running_max, part.max_time),
            floor_after=_higher(state.floor, part.floor),
            ended=part.ended,
            data_checksum=part.checksum,
        )
        return [Item(record, part.buffers)], Accepted(part.rows, state.position, part.rows)

    def _refuse_if_ended(self) -> None:
        if self.state.ended:
            msg = f'partition {self._partition} of journal "{self.description.path}" has ended'
            raise Ended(msg, hint="END_OF_STREAM was written: no rows can follow it")


def _higher(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)
