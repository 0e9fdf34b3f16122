"""What groups elsewhere have staged at an inbox and never came back for: pure rules.

    noticed ──▶ nobody asks for it, for as long as it is kept ──▶ due: it is removed
       ▲                    │
       └── the inbox is paused, or its sender stages or publishes ──┘

Time counts while the inbox is open and takes events: a job that is drained for a week, or an engine
that was off, removes nothing. It is the time that passes here, not that of a file or a calendar.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Final

from millstream.flow import durations

KEPT: Final = timedelta(days=1)
VARIABLE: Final = "MILLSTREAM_KEEP_STAGED"
"""How long leftovers are kept, like "1 day"."""


def kept_for() -> timedelta:
    """Return how long leftovers are kept.

    Raises:
        InvalidDuration: The environment has no length of time.
    """
    return durations.duration(os.environ.get(VARIABLE) or KEPT)


def noticed(before: Mapping[str, int], left: Collection[str], now: int) -> dict[str, int]:
    """Return since when each leftover is known, in microseconds; what is gone is forgotten.

    >>> noticed({"a": 1, "b": 2}, ["b", "c"], 9)
    {'b': 2, 'c': 9}
    """
    return {name: before.get(name, now) for name in left}


def due(known: Mapping[str, int], now: int, kept: timedelta) -> list[str]:
    """Return what is known for so long that it can be removed."""
    kept_us = kept // timedelta(microseconds=1)
    return [name for name, at in known.items() if now - at >= kept_us]
