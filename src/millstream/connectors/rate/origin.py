"""Makes rows at a steady rate."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from millstream.clock import Clock
from millstream.connectors.rate import Rate
from millstream.ingest.feed import Feed
from millstream.ingest.origin import CHUNK, OriginContext, Pause
from millstream.ingest.rows import Rows

_LINGER_S: Final = 0.02
_LONGEST_S: Final = 1.0
_SECOND_US: Final = 1_000_000


class RateOrigin:
    """Rows `value, at` at a steady rate; the values go on from what the journal has."""

    sender: Final = "rate"

    def __init__(self, spec: Rate, schema: pa.Schema, clock: Clock) -> None:
        self._spec = spec
        self._schema = schema
        self._clock = clock

    def pump(self, feed: Feed, pause: Pause) -> bool:
        value = feed.highest(self.sender) + 1
        began, first = self._clock.now_us(), value
        per_us = self._spec.rows_per_second / _SECOND_US
        while self._spec.rows is None or value < self._spec.rows:
            due = first + int((self._clock.now_us() - began) * per_us)
            stop = min(due, value + CHUNK, due if self._spec.rows is None else self._spec.rows)
            if stop > value:
                feed.take(self.sender, self._rows(value, stop, began - first / per_us))
                value = stop
            wait_s = 0 if due > value else max(_LINGER_S, 1 / self._spec.rows_per_second / 2)
            if not pause(min(wait_s, _LONGEST_S)):
                return False
        feed.flush()
        return True

    def _rows(self, start: int, stop: int, zero_us: float) -> Rows:
        values = np.arange(start, stop, dtype=np.int64)
        moments = (zero_us + values * (_SECOND_US / self._spec.rows_per_second)).astype(np.int64)
        columns = [pa.array(values), pa.array(moments).cast(self._schema.field("at").type)]
        return Rows(pa.RecordBatch.from_arrays(columns, schema=self._schema), values)


def open_rate(spec: Rate, context: OriginContext) -> RateOrigin:
    """Open a generator."""
    return RateOrigin(spec, context.schema, context.clock)
