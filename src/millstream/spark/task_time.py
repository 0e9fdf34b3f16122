"""What tasks spend their time on, by cause: they report it to the driver with their results.

A task of Spark's reads, computes, stages and keeps state in one go, so no clock of the driver can tell
these apart. Work of ours in executors measures itself, without the time in which it waits for rows or in
which others take what it has made, and an accumulator of Spark's adds up what tasks that count have said.

    driver                                      tasks
    TaskReports.begin(spark) ── accumulator ──▶ Timed(work, "staging"), measured(.., "python")
    TaskReports.wall(8.0)    ◀── seconds ─────

In the same way the driver learns of the programs that workers keep between tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.accumulators import Accumulator, AccumulatorParam

if TYPE_CHECKING:  # not wanted in executors, which import this
    from pyspark.sql import SparkSession

PYTHON, MATCHING, PROGRAMS = "python", "matching", "programs"
STATE, STAGING = "state", "staging"
#: How many tasks have staged rows, beside the seconds by cause.
_TASKS: Final = "tasks"

#: Of how many workers the driver knows the programs, those that were busy last.
_MOST_PROGRAMS: Final = 256

_END: Final = object()
Worked = dict[str, float]
Rows = Iterable[Any]


@dataclass(frozen=True, slots=True)
class ProgramSeen:
    """A program of a stage in one of Spark's Python workers, as it was after a task."""

    stage: str
    host: str
    #: The process of the worker, and that of its program; None: it has ended, or was not needed yet.
    worker: int
    pid: int | None
    starts: int
    rows: int
    failed: int
    #: In seconds since 1970.
    at: float


Programs = dict[tuple[str, str, int], ProgramSeen]


class _Adding(AccumulatorParam[Worked]):
    def zero(self, value: Worked) -> Worked:
        return {}

    def addInPlace(self, value1: Worked, value2: Worked) -> Worked:
        return {
            name: value1.get(name, 0.0) + value2.get(name, 0.0)
            for name in value1.keys() | value2.keys()
        }


class _Latest(AccumulatorParam[Programs]):
    def zero(self, value: Programs) -> Programs:
        return {}

    def addInPlace(self, value1: Programs, value2: Programs) -> Programs:
        found = {**value1, **value2}
        newest = sorted(found, key=lambda one: found[one].at)[-_MOST_PROGRAMS:]
        return {one: found[one] for one in newest}


@dataclass(frozen=True, slots=True)
class Timed:
    """What a task does with its batches, and how long it is at it."""

    work: Callable[[Any], Rows]
    cause: str
    worked: Accumulator[Worked]
    now: Callable[[], float] = time.monotonic

    def __call__(self, batches: Rows) -> Iterator[Any]:
        waited = spent = 0.0

        def fed() -> Iterator[Any]:
            nonlocal waited
            rows = iter(batches)
            while True:
                begun = self.now()
                batch = next(rows, _END)
                waited += self.now() - begun
                if batch is _END:
                    return
                yield batch

        try:
            begun = self.now()
            found = iter(self.work(fed()))
            while (made := next(found, _END)) is not _END:
                spent += self.now() - begun
                yield made
                begun = self.now()
            spent += self.now() - begun
        finally:
            tasks = 1.0 if self.cause == STAGING else 0.0
            self.worked.add({self.cause: spent - waited, _TASKS: tasks})


@contextmanager
def measured(
    worked: Accumulator[Worked] | None, cause: str, within: str | None = None
) -> Iterator[None]:
    """Report how long a part of a task takes, also one that lies `within` what is measured already.

    Without an accumulator nobody wants to know.
    """
    begun = time.monotonic()
    try:
        yield
    finally:
        if worked is not None:
            seconds = time.monotonic() - begun
            worked.add({cause: seconds} if within is None else {cause: seconds, within: -seconds})


class TaskReports:
    """The driver's side: what the tasks of a group have reported."""

    def __init__(
        self, worked: Accumulator[Worked], programs: Accumulator[Programs], cores: int
    ) -> None:
        self.worked = worked
        self.programs = programs
        self._cores = cores
        self._before: Worked = {}

    @classmethod
    def begin(cls, spark: SparkSession, cores: int) -> TaskReports:
        made = spark.sparkContext.accumulator
        return cls(made({}, _Adding()), made({}, _Latest()), cores)

    def wall(self, seconds: float) -> dict[str, float]:
        """Return the causes of so many seconds, in which tasks have run since the last call."""
        before, self._before = self._before, self.worked.value
        added = {name: one - before.get(name, 0.0) for name, one in self._before.items()}
        return on_the_wall(added, seconds, self._cores)


def on_the_wall(worked: Mapping[str, float], seconds: float, cores: int) -> dict[str, float]:
    """Return the part of `seconds` that each cause takes.

    Tasks that run at once divide their time by their number. Where they do not run evenly, that is too
    little; all causes together are never more than the time that went by.
    """
    at_once = max(1.0, min(cores, worked.get(_TASKS, 0.0) or cores))
    parts = {cause: one / at_once for cause, one in worked.items() if cause != _TASKS and one > 0}
    fits = min(1.0, seconds / (sum(parts.values()) or 1.0))
    return {cause: one * fits for cause, one in parts.items()}
