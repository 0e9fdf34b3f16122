"""Partitions of a topic that share one partition of a journal, brought into the order of time; pure.

A row is late by the highest time before it in its journal's partition. If a backlog were read one
topic partition after the other, the rows of the second would be late for no reason of their own. So
their rows wait in lanes, and are handed over in slices of time. A lane that is at the end of its
partition holds nobody up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from millstream.ingest.rows import Numbers, Rows

_NEVER: Final = -(2**63)
_ALWAYS: Final = 2**63 - 1


@dataclass(slots=True)
class Lane:
    """Rows of one topic partition that wait, with the highest time of the partition up to each."""

    number: int
    at_end: bool = False
    peak: int = _NEVER
    _waiting: list[tuple[Rows, Numbers]] = field(default_factory=list)

    def put(self, rows: Rows, times: Numbers | None) -> None:
        """Let rows wait; without times they wait for nothing."""
        if not len(rows):
            return
        if times is None:
            times = np.full(len(rows), _NEVER, dtype=np.int64)
        peaks = np.maximum.accumulate(np.maximum(times, self.peak))
        self.peak = int(peaks[-1])
        self._waiting.append((rows, peaks))

    def __len__(self) -> int:
        return sum(len(rows) for rows, _ in self._waiting)

    @property
    def first_number(self) -> int | None:
        """The number of the first row that waits."""
        return int(self._waiting[0][0].numbers[0]) if self._waiting else None

    @property
    def first_peak(self) -> int:
        return int(self._waiting[0][1][0]) if self._waiting else _ALWAYS

    def take(self, bound: int) -> Iterator[Rows]:
        """Yield, and forget, the rows up to a time."""
        while self._waiting:
            rows, peaks = self._waiting[0]
            count = int(np.searchsorted(peaks, bound, side="right"))
            if count == len(rows):
                del self._waiting[0]
                yield rows
                continue
            if count:
                self._waiting[0] = rows.slice(count, len(rows)), peaks[count:]
                yield rows.slice(0, count)
            return


def due(lanes: Sequence[Lane], width: int) -> Iterator[tuple[Lane, Rows]]:
    """Yield the rows that can be handed over, in slices of time of this width.

    What may still come in a lane that is not at its end is not before the highest time in it, so
    rows up to the lowest of these times wait for nothing more.
    """
    bound = min((lane.peak for lane in lanes if not lane.at_end), default=_ALWAYS)
    while True:
        filled = [lane for lane in lanes if len(lane) and lane.first_peak <= bound]
        if not filled:
            return
        first = min(lane.first_peak for lane in filled)
        edge = bound if len(filled) == 1 else min(bound, max(first, first + width))
        for lane in filled:
            for rows in lane.take(edge):
                yield lane, rows
