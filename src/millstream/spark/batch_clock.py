"""Where the time of micro-batches goes: a clock that is read at the points which every batch passes.

    Spark:  reading ─▶ planning ─▶ commit ─▶ our sink ─▶ commit
    sink:                                    waiting ─▶ running ─▶ commit ─▶ publishing

What is between two points is put down to the cause of the second. Points are those of `failpoints`:
targets pass them between the same steps between which a test lets them die. Of "running", tasks report
what they spend on Python, patterns, programs, state and staging (`task_time`); what is left is Spark's own work.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from millstream.spark.task_time import MATCHING, PROGRAMS, PYTHON, STAGING, STATE, TaskReports

READING, PLANNING, WAITING = "reading", "planning", "waiting"
RUNNING, PUBLISHING, COMMIT = "running", "publishing", "commit"
#: In the order in which they come in a batch.
CAUSES: Final = (
    *(READING, PLANNING, WAITING, RUNNING),
    *(PYTHON, MATCHING, PROGRAMS, STATE, STAGING),
    *(PUBLISHING, COMMIT),
)

_UP_TO: Final = {
    "logged": PLANNING,
    "turn": WAITING,
    "staged": RUNNING,
    "refused": PUBLISHING,
    "logged-decision": COMMIT,
    "decided": COMMIT,
    "produced": PUBLISHING,
    "committed": PUBLISHING,
    "published": PUBLISHING,
    "before-commit": PUBLISHING,
}
#: What Spark measures of a trigger, by cause.
_SPARKS: Final = {
    "latestOffset": READING,
    "getBatch": READING,
    "queryPlanning": PLANNING,
    "walCommit": COMMIT,
    "commitOffsets": COMMIT,
}
_OF_STATE: Final = ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs")
#: Of stages in Python, Spark counts all that goes on in a task as updates: these report for themselves.
_IN_PYTHON: Final = "transformWithStateInPandasExec"
_here = threading.local()


class BatchClock:
    """Measures what the sink of a group does, in the thread that publishes a batch."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._staged = False
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """All batches so far, by cause."""
        #: When the last point was passed.
        self.last_at = 0.0
        #: What tasks report, once the group has a session.
        self.tasks: TaskReports | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Read the clock at the points that are passed meanwhile."""
        self.last_at, self._staged = self._now(), False
        _here.clock = self
        try:
            yield
        finally:
            _here.clock = None

    def passed(self, point: str) -> None:
        """Put down the time since the last point to a cause; unknown points are no end of one."""
        if point == "written":  # some targets have no points of their own
            cause = PUBLISHING if self._staged else RUNNING
        elif point in _UP_TO:
            cause = _UP_TO[point]
        else:
            return
        self._staged = point not in ("logged", "turn", "written")
        now = self._now()
        passed, self.last_at = now - self.last_at, now
        if cause == RUNNING and self.tasks is not None:
            for part, seconds in self.tasks.wall(passed).items():
                self.seconds[part] += seconds
                passed -= seconds
        self.seconds[cause] += passed


def note(point: str) -> None:
    """Read the clock of the batch that this thread publishes, if it does."""
    clock = current()
    if clock is not None:
        clock.passed(point)


def current() -> BatchClock | None:
    """Return the clock of the batch that this thread publishes, if it does."""
    return getattr(_here, "clock", None)


def spent(
    durations_ms: Mapping[str, int], sink: Mapping[str, float], state_ms: float, tasks: int
) -> dict[str, float]:
    """Return the seconds of one trigger by cause.

    Args:
        durations_ms: What Spark has measured: `durationMs` of its progress.
        sink: What our sink has measured of the same batch.
        state_ms: The time of Spark's own stateful operators, of all tasks together.
        tasks: How many tasks run at once, at most.
    """
    found: defaultdict[str, float] = defaultdict(float, sink)
    for name, cause in _SPARKS.items():
        found[cause] += durations_ms.get(name, 0) / 1000
    if "addBatch" in durations_ms:
        # What is neither ours nor named: Spark prepares the batch and calls us.
        found[PLANNING] += max(0.0, durations_ms["addBatch"] / 1000 - sum(sink.values()))
    state = min(found[RUNNING], state_ms / 1000 / max(1, tasks))
    found[STATE] += state
    found[RUNNING] -= state
    return {cause: found[cause] for cause in CAUSES if found[cause] > 0}


class Spending:
    """The time of all batches of a query so far, by cause."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._clock: BatchClock | None = None
        self._sink: dict[str, float] = {}

    def add(self, triggers: Sequence[Any], clock: BatchClock, tasks: int) -> None:
        """Add the triggers since the last time, as Spark reports their progress.

        Of several batches, the clock has only what they took together.
        """
        durations, ours = Counter[str](), dict[str, float]()
        for one in triggers:
            durations.update(one["durationMs"])
        if "addBatch" in durations:
            before = self._sink if clock is self._clock else {}
            self._clock, self._sink = clock, dict(clock.seconds)
            ours = {name: one - before.get(name, 0.0) for name, one in self._sink.items()}
        state_ms = sum(_state_ms(one) for trigger in triggers for one in trigger["stateOperators"])
        for cause, seconds in spent(durations, ours, state_ms, tasks).items():
            self.seconds[cause] = round(self.seconds.get(cause, 0.0) + seconds, 3)


def _state_ms(operator: Any) -> int:
    names = _OF_STATE[-1:] if operator.get("operatorName") == _IN_PYTHON else _OF_STATE
    return sum(operator[name] for name in names)
