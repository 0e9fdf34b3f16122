"""Events for an automaton from Arrow rows, without Spark: the tests that they meet, and values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import NullTime
from millstream.patterns import sql
from millstream.patterns.automaton import Automaton, Event
from millstream.patterns.blocks import Predicate
from millstream.patterns.conditions import EARLIER
from millstream.patterns.history import MATCH_NUMBER

Bits = np.ndarray[Any, np.dtype[np.uint64]]
Times = np.ndarray[Any, np.dtype[np.int64]]


def met(automaton: Automaton, rows: pa.Table) -> Bits:
    """Return for each row the bits of the tests whose event's part holds."""
    bits = np.zeros(len(rows), np.uint64)
    for number, test in enumerate(automaton.tests):
        bit = np.uint64(1 << number)
        if test.alone:
            bits |= np.where(asked(test.alone, rows), bit, np.uint64(0))
        elif test.event is None:
            bits |= bit
        else:
            holds = pc.fill_null(sql.evaluate(test.event, rows), False).to_numpy(
                zero_copy_only=False
            )
            bits |= np.where(holds, bit, np.uint64(0))
    return bits


def asked(predicates: Sequence[Predicate], rows: pa.Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return for each row whether any of some Python predicates of the event alone holds."""
    return np.fromiter(
        (any(one(row) for one in predicates) for row in rows.to_pylist()), np.bool_, len(rows)
    )


def values(automaton: Automaton, rows: pa.Table) -> list[pa.Array]:
    """Return the columns of the values, times as microseconds; those of earlier rows are empty."""
    return [
        pa.nulls(len(rows))
        if value.startswith(EARLIER) or value == MATCH_NUMBER
        else plain(sql.evaluate(value, rows))
        for value in automaton.values
    ]


def plain(column: pa.Array) -> pa.Array:
    """Return a column with times, dates and lengths of time as whole microseconds."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        unit = pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.duration("us")
        return column.cast(unit).cast(pa.int64())
    if pa.types.is_date(kind):
        return column.cast(pa.timestamp("us")).cast(pa.int64())
    return column


def micros(column: pa.Array | pa.ChunkedArray) -> Times:
    """Return a column of times as whole microseconds.

    Raises:
        NullTime: A time is missing.
    """
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if whole.null_count:
        raise NullTime("an event has no time", hint="leave such events out")
    found: Times = plain(whole).cast(pa.int64()).to_numpy()
    return found


def events(automaton: Automaton, rows: pa.Table, time: str, first: int = 0) -> Iterator[Event]:
    """Yield the rows as events, numbered from `first` on."""
    columns = [column.to_pylist() for column in values(automaton, rows)]
    of = zip(*columns, strict=True) if columns else iter([()] * len(rows))
    bits, times = met(automaton, rows).tolist(), micros(rows.column(time)).tolist()
    for place, (bit, at, value, row) in enumerate(
        zip(bits, times, of, rows.to_pylist(), strict=True)
    ):
        yield Event(first + place, at, bit, tuple(value), row)
