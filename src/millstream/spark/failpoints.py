"""Named points at which a test can make the process die at once, and the clock of a batch is read.

`MILLSTREAM_FAIL_AT=decided:3` kills the process, as kill -9 would, the third
time that it passes the point "decided". In one process, `watched` calls a function instead.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millstream.spark.batch_clock import note

_passed: Counter[str] = Counter()
_watchers: list[Callable[[str], None]] = []


def passing(point: str) -> None:
    """Die here if a test asked for it."""
    note(point)
    for seen in _watchers:
        seen(point)
    wanted = os.environ.get("MILLSTREAM_FAIL_AT")
    if wanted is None:
        return
    name, _, count = wanted.partition(":")
    _passed[point] += 1
    if name == point and _passed[point] == int(count or 1):
        die()


@contextmanager
def watched(seen: Callable[[str], None]) -> Iterator[None]:
    """Call a function with every point that is passed meanwhile; what it raises is raised there."""
    _watchers.append(seen)
    try:
        yield
    finally:
        _watchers.remove(seen)


def die() -> None:
    """End the process without a word to anybody."""
    os._exit(137)


def forget() -> None:
    """Count from the beginning, as a process does that has just started."""
    _passed.clear()
