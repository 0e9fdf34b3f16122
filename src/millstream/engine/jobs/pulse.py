"""The pulse of jobs: rates from numbers that only grow, and the last hour of them in points.

A driver reports what it has done since it was started. A rate is what was added over the last
seconds; a number that is smaller than before is that of a new driver, which began again. Nothing
here reads a clock: whoever looks says when.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from millstream.engine.jobs.slowness import CAUSES, why_slow
from millstream.engine.jobs.status import GroupStatus, JobStatus

#: Over how many seconds a rate is measured: some batches of a job that is well.
WINDOW_S: Final = 10.0
#: How many points are kept, and how many seconds are between them: an hour.
POINTS: Final = 720
EVERY_S: Final = 5.0

#: The numbers of a group in each point, and what they are of.
NUMBERS: Final = (
    "rows_in",
    "rows_out",
    "lag_rows",
    "lag_seconds",
    "batch_seconds",
    "watermark_ms",
    "state_rows",
    "state_bytes",
    *(f"spent_{cause}" for cause in CAUSES),
)
_ALL: Final = ""


class Rates(msgspec.Struct, frozen=True):
    """Rows a second: into the job and out of it, by source and by group."""

    rows_in: float = 0.0
    rows_out: float = 0.0
    sources: dict[str, float] = {}
    groups_in: dict[str, float] = {}
    groups_out: dict[str, float] = {}
    #: The part of the time that each group spends, by cause.
    spent: dict[str, dict[str, float]] = {}


class Pulse(msgspec.Struct, frozen=True):
    """A job as it is now, with its rates, and why groups are slow, if they are."""

    job: JobStatus
    rates: Rates
    slow: dict[str, str] = {}

    @property
    def into_inboxes(self) -> float:
        """Rows a second that the inboxes on this engine take."""
        sources = {one.source for one in self.job.inboxes}
        return sum(self.rates.sources.get(name, 0.0) for name in sources)


class Series(msgspec.Struct, frozen=True):
    """Numbers over time: `at` are seconds since 1970, and each number has as many values.

    Rows in and out are rows a second; `spent_*` are parts of the time. A value that was not known is null.
    """

    at: list[float]
    groups: dict[str, dict[str, list[float | None]]]


class Lines(msgspec.Struct, frozen=True):
    """A job's rows a second and its lag over time."""

    at: list[float]
    rows_in: list[float | None]
    rows_out: list[float | None]
    lag_rows: list[float | None]


class Meter:
    """Measures the rates of one job."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, dict[str, float]]] = deque()

    def rates(self, job: JobStatus, published: Iterable[str], now: float) -> Rates:
        """Return the rates of a job; `published` are the groups whose rows leave it."""
        counts: dict[str, float] = {
            **{f"s{name}": one.rows for name, one in job.sources.items()},
            **{f"i{one.name}": one.rows_in for one in job.groups},
            **{f"o{one.name}": one.rows_out for one in job.groups},
            **{f"t{one.name}/{cause}": s for one in job.groups for cause, s in one.spent.items()},
        }
        before = self._seen[-1][1] if self._seen else {}
        if any(count < before.get(name, 0) for name, count in counts.items()):
            self._seen.clear()
        self._seen.append((now, counts))
        while len(self._seen) > 2 and self._seen[1][0] <= now - self._window_s:
            self._seen.popleft()
        then, first = self._seen[0]
        passed = now - then
        found = {
            name: (count - first.get(name, count)) / passed if passed > 0 else 0.0
            for name, count in counts.items()
        }
        leaving = set(published)
        return Rates(
            sum(found[f"s{name}"] for name in job.sources),
            sum(found[f"o{one.name}"] for one in job.groups if one.name in leaving),
            {name: found[f"s{name}"] for name in job.sources},
            {one.name: found[f"i{one.name}"] for one in job.groups},
            {one.name: found[f"o{one.name}"] for one in job.groups},
            {
                one.name: {cause: round(found[f"t{one.name}/{cause}"], 3) for cause in one.spent}
                for one in job.groups
                if one.spent
            },
        )


class History:
    """The points of one job, the newest of an hour."""

    def __init__(self, points: int = POINTS, every_s: float = EVERY_S) -> None:
        self._points, self._every_s = points, every_s
        self._at = np.full(points, np.nan)
        self._groups: dict[str, np.ndarray] = {}
        self._count = 0

    def add(self, pulse: Pulse, now: float) -> bool:
        """Add a point, unless the last one is too new; return whether it was added."""
        if self._count and now < self._at[(self._count - 1) % self._points] + self._every_s:
            return False
        place = self._count % self._points
        self._at[place] = now
        values = {one.name: _of_group(one, pulse.rates) for one in pulse.job.groups}
        values[_ALL] = _of_job(pulse)
        for name in values:
            if name not in self._groups:
                self._groups[name] = np.full((self._points, len(NUMBERS)), np.nan)
        for name, kept in self._groups.items():
            kept[place] = values.get(name, np.nan)
        self._count += 1
        if place == 0:  # once in a round: groups of versions that are gone
            self._groups = {
                name: kept for name, kept in self._groups.items() if not np.isnan(kept).all()
            }
        return True

    def series(self) -> Series:
        order = self._order()
        return Series(
            self._at[order].tolist(),
            {
                name: {number: _plain(kept[order, column]) for column, number in enumerate(NUMBERS)}
                for name, kept in self._groups.items()
                if name != _ALL
            },
        )

    def lines(self, points: int) -> Lines:
        """Return the newest points of the whole job."""
        order = self._order()[-points:]
        if _ALL not in self._groups:
            return Lines([], [], [], [])
        kept = self._groups[_ALL][order]
        rows_in, rows_out, lag = (_plain(kept[:, column]) for column in range(3))
        return Lines(self._at[order].tolist(), rows_in, rows_out, lag)

    def _order(self) -> Sequence[int]:
        if self._count <= self._points:
            return list(range(self._count))
        begin = self._count % self._points
        return [(begin + n) % self._points for n in range(self._points)]


class Pulses:
    """The pulse of all jobs of an engine. Any thread may call."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._meters: dict[str, Meter] = {}
        self._histories: dict[str, History] = {}

    def take(
        self, jobs: Sequence[JobStatus], published: Mapping[str, Iterable[str]], now: float
    ) -> list[Pulse]:
        """Return the pulse of each job at a moment; jobs that are gone are forgotten."""
        ids = {job.id for job in jobs}
        with self._guard:
            self._meters = {known: one for known, one in self._meters.items() if known in ids}
            self._histories = {known: one for known, one in self._histories.items() if known in ids}
            return [self._take(job, published.get(job.name), now) for job in jobs]

    def _take(self, job: JobStatus, published: Iterable[str] | None, now: float) -> Pulse:
        leaving = [one.name for one in job.groups] if published is None else published
        rates = self._meters.setdefault(job.id, Meter()).rates(job, leaving, now)
        pulse = Pulse(job, rates, dict(_slow(job, rates)))
        self._histories.setdefault(job.id, History()).add(pulse, now)
        return pulse

    def series(self, id: str) -> Series:
        with self._guard:
            return self._histories.get(id, History()).series()

    def lines(self, id: str, points: int) -> Lines:
        with self._guard:
            return self._histories.get(id, History()).lines(points)


def _slow(job: JobStatus, rates: Rates) -> Iterator[tuple[str, str]]:
    for one in job.groups:
        why = why_slow(
            one.name,
            rates.spent.get(one.name, {}),
            lag_rows=one.lag_rows,
            lag_seconds=one.lag_seconds,
        )
        if why is not None:
            yield one.name, why


def _of_group(group: GroupStatus, rates: Rates) -> tuple[float, ...]:
    return (
        rates.groups_in[group.name],
        rates.groups_out[group.name],
        group.lag_rows,
        group.lag_seconds,
        group.batch_seconds,
        np.nan if group.watermark_ms is None or group.finished else group.watermark_ms,
        group.state_rows,
        group.state_bytes,
        *(rates.spent.get(group.name, {}).get(cause, 0.0) for cause in CAUSES),
    )


def _of_job(pulse: Pulse) -> tuple[float, ...]:
    missing = [np.nan] * (len(NUMBERS) - 3)
    return (pulse.rates.rows_in, pulse.rates.rows_out, pulse.job.unprocessed, *missing)


def _plain(values: np.ndarray) -> list[float | None]:
    return [
        None if np.isnan(value) else float(f"{value:.6g}") if value < 1e12 else value
        for value in values.tolist()
    ]
