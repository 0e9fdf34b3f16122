"""What goes into a matcher and comes out of it: batches of events, and what was found in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Truths = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Events of several keys in the order of their times.

    Attributes:
        keys: Whose each event is.
        times: In microseconds, never falling.
        masks: Bit i is set if the event's part of test i holds.
        values: The values that the automaton asks for; times among them as whole microseconds.
        rows: The columns that outputs, and Python predicates, need.
    """

    keys: pa.Array
    times: Numbers
    masks: Numbers
    values: list[pa.Array]
    rows: pa.Table

    def __len__(self) -> int:
        return len(self.times)

    def select(self, chosen: Truths) -> Batch:
        """Return the events for which `chosen` holds."""
        some = pa.array(chosen)
        return Batch(
            self.keys.filter(some),
            self.times[chosen],
            self.masks[chosen],
            [column.filter(some) for column in self.values],
            self.rows.filter(some),
        )


@dataclass(frozen=True, slots=True)
class Found:
    """Matches, and runs that ran out of time, with their histories one after the other.

    Attributes:
        keys: Whose each is.
        at: When it was known, in microseconds.
        started: When its first event was.
        late: Whether it ran out of time.
        ends: Where its history ends in `blocks` and `rows`; it begins where the one before ends.
        blocks: The block that took each event.
        rows: The events.
        numbers: The number of each match among those of its key, if they are counted.
    """

    keys: pa.Array
    at: Numbers
    started: Numbers
    late: Truths
    ends: Numbers
    blocks: Numbers
    rows: pa.Table
    numbers: Numbers | None = None

    def __len__(self) -> int:
        return len(self.at)

    @property
    def starts(self) -> Numbers:
        return np.concatenate([np.zeros(1, np.int64), self.ends[:-1]]) if len(self) else self.ends

    def select(self, chosen: Truths) -> Found:
        """Return those for which `chosen` holds."""
        lengths = self.ends - self.starts
        rows = np.repeat(chosen, lengths)
        kept = np.flatnonzero(rows)
        return Found(
            self.keys.filter(pa.array(chosen)),
            self.at[chosen],
            self.started[chosen],
            self.late[chosen],
            np.cumsum(lengths[chosen]),
            self.blocks[rows],
            self.rows.take(pa.array(kept)),
            None if self.numbers is None else self.numbers[chosen],
        )

    def joined(self, other: Found) -> Found:
        """Return these and others."""
        numbers = None
        if self.numbers is not None and other.numbers is not None:
            numbers = np.concatenate([self.numbers, other.numbers])
        return Found(
            pa.concat_arrays([self.keys, other.keys]),
            np.concatenate([self.at, other.at]),
            np.concatenate([self.started, other.started]),
            np.concatenate([self.late, other.late]),
            np.concatenate([self.ends, other.ends + len(self.rows)]),
            np.concatenate([self.blocks, other.blocks]),
            pa.concat_tables([self.rows, other.rows]),
            numbers,
        )

    def prefixes(self) -> Found:
        """Return for every event of every match what the match was up to there."""
        owners = np.repeat(np.arange(len(self)), self.ends - self.starts)
        return self._beginnings(owners, np.arange(len(owners)) - self.starts[owners] + 1)

    def repeated(self) -> Found:
        """Return every match as often as it has events."""
        lengths = self.ends - self.starts
        owners = np.repeat(np.arange(len(self)), lengths)
        return self._beginnings(owners, lengths[owners])

    def _beginnings(self, owners: Numbers, lengths: Numbers) -> Found:
        """Return the first events, so many of each, of some matches."""
        ends = np.cumsum(lengths)
        before = ends - lengths - self.starts[owners]
        places = np.arange(ends[-1] if len(ends) else 0) - np.repeat(before, lengths)
        return Found(
            self.keys.take(pa.array(owners)),
            self.at[owners],
            self.started[owners],
            self.late[owners],
            ends,
            self.blocks[places],
            self.rows.take(pa.array(places)),
            None if self.numbers is None else self.numbers[owners],
        )


def table_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    data: bytes = sink.getvalue().to_pybytes()
    return data


def table_of(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()
