"""Which rows of a source are late, while a switch changes its lateness.

Lateness is a matter of the journal and of the flow: a row is late if it is too far below the rows
before it. A switch may change how far that is, and then a row could be late for one of two versions
only, a dead letter and in a result. So the lateness changes in event time, at the cut, for both:
rows before it are late by the old version's, others by the new one's (`Steps`).

A version that goes on with another's checkpoint, with a longer lateness, leaves out what lies below
the floor that it found there: results up to it are out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream.journal import Entry, Slice, Steps, late_mask
from millstream.spark.io.arrays import moments

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Judge:
    """Tells the late rows of a batch: by the lateness of their time, and by a lowest time."""

    steps: Steps
    lowest: int | None = None

    def suspects(self, part: Slice | Entry) -> bool:
        """Tell whether any row can be late, without looking at the rows."""
        shortest = min(lateness for _, lateness in self.steps)
        return self.lowest is not None or (part.max_lag is not None and part.max_lag > shortest)

    def late(self, part: Slice, time: str) -> Mask:
        """Tell for each row of a slice whether it is late."""
        if part.batch is None:
            return np.zeros(0, dtype=np.bool_)
        times = moments(part.batch.column(time))
        found: Mask = np.zeros(len(times), dtype=np.bool_)
        for first, lateness in self.steps:
            later = late_mask(times, part.running_max_before, lateness, part.floor_before)
            found = later if first is None else np.where(times >= first, later, found)
        return found if self.lowest is None else found | (times < self.lowest)
