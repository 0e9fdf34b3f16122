"""The numbers of an engine for Prometheus; docs/deploy/grafana.json draws them.

Jobs are asked when somebody looks, so that a job which is gone leaves no series behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.status import (
    CopyStatus,
    EngineStatus,
    GroupStatus,
    InboxStatus,
    JobStatus,
)
from millstream.engine.leases.tasks import Tasks
from millstream.journal.health import Summary

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
#: Sizes of journals change slowly, and cost a look at every index.
SIZES_EVERY_S: Final = 30.0
_SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)

# A series beside each counter that nobody asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it

#: Given a job, yields parts of it, each with its labels.
Of = Callable[[JobStatus], Iterable[tuple[list[str], Any]]]


def _watermark(group: GroupStatus) -> float | None:
    return None if group.watermark_ms is None else group.watermark_ms / 1000


def _spent(job: JobStatus) -> Iterable[tuple[list[str], Any]]:
    return [([one.name, cause], spent) for one in job.groups for cause, spent in one.spent.items()]


def _placed(parts: Iterable[InboxStatus | CopyStatus]) -> Iterable[tuple[list[str], Any]]:
    return [([one.source, str(one.partition)], one) for one in parts]


# Of what, labels beside the job's, and its numbers: name, description and field. "_total" at the
# end of a name is a counter's.
_TABLE: Final[Sequence[tuple[str, tuple[str, ...], Of, Sequence[tuple[str, str, Any]]]]] = (
    (
        *("job", (), lambda job: [([], job)]),
        (
            ("restarts_total", "Restarts of the job's driver", "restarts"),
            ("unprocessed_rows", "Rows in journals that are not processed", "unprocessed"),
            ("late_rows_total", "Rows that came too late", "late"),
            ("dead_letters_total", "Records that were not taken", "dead"),
            ("dead_letters_waiting", "Late rows and dead letters to replay or discard", "waiting"),
        ),
    ),
    (
        *("group", ("group",), lambda job: [([one.name], one) for one in job.groups]),
        (
            ("rows_in_total", "Rows that the group has read since its driver started", "rows_in"),
            ("rows_out_total", "Rows that it has published since then", "rows_out"),
            ("batch_seconds", "How long its last micro-batch took", "batch_seconds"),
            ("batch_number", "The number of its last micro-batch", "batch"),
            ("lag_rows", "Rows in its journals that it has not processed", "lag_rows"),
            ("lag_seconds", "The age of the oldest of them", "lag_seconds"),
            ("state_rows", "Rows of state that it keeps", "state_rows"),
            ("state_bytes", "What Spark's state stores hold in memory", "state_bytes"),
            ("watermark_timestamp_seconds", "Up to where event time has passed", _watermark),
        ),
    ),
    (
        *("batch", ("group", "cause"), _spent),
        (("cause_seconds_total", "Time that its batches have taken since then, by cause", float),),
    ),
    (
        *("source", ("source",), lambda job: [([name], one) for name, one in job.sources.items()]),
        (
            (
                "rows_total",
                "Rows that a source has taken since the engine or driver started",
                "rows",
            ),
            ("bytes_total", "Bytes that it has read since then", "bytes"),
            ("refused_total", "Records that it has refused since then", "refused"),
        ),
    ),
    (
        *("inbox", ("source", "partition"), lambda job: _placed(job.inboxes)),
        (
            ("rows_total", "Rows that an inbox has taken since the engine started", "rows"),
            ("repeated_total", "Rows that came again since then, and were not stored", "repeated"),
            ("waiting_rows", "Rows in an inbox that wait for the disk", "waiting"),
            ("free_rows", "Rows that an inbox has room for", "free"),
            ("senders", "Senders that an inbox knows", "senders"),
        ),
    ),
    (
        *("copy", ("source", "partition"), lambda job: _placed(job.copies)),
        (
            ("rows", "Positions of a partition elsewhere that are copied", "rows"),
            (
                "behind_bytes",
                "Bytes of it that were to come when its engine last answered",
                "behind_bytes",
            ),
            ("live", "1 if the copy was complete then, and its engine answers", "live"),
        ),
    ),
)


class Metrics:
    """The metrics of an engine, for Prometheus."""

    def __init__(
        self,
        engine: Callable[[], EngineStatus],
        jobs: Callable[[], Sequence[JobStatus]],
        journals: Callable[[str], Sequence[Summary]],
        tasks: Callable[[], Tasks] = lambda: Tasks("", False, ()),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Engine(engine, jobs, _Sizes(journals, clock), tasks))
        ProcessCollector(registry=self._registry)
        ours: Any = {"registry": self._registry}
        path = ("path",)
        labels = ("method", "path", "status")
        self._requests = Counter("millstream_http_requests", "Requests over HTTP", labels, **ours)
        about = "Bytes of bodies over HTTP"
        self._bytes = Counter("millstream_http_received_bytes", about, path, **ours)
        name, about = "millstream_http_request_seconds", "How long requests took"
        self._seconds = Histogram(name, about, path, buckets=_SECONDS, **ours)

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request; `path` is that of its operation, without anybody's names."""
        self._requests.labels(method, path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def received(self, path: str, size: int) -> None:
        self._bytes.labels(path).inc(size)

    def text(self) -> bytes:
        """Return all numbers as they are now, as Prometheus reads them."""
        return bytes(generate_latest(self._registry))


class _Sizes:
    """The sizes of a job's journals, looked at every now and then."""

    def __init__(
        self, journals: Callable[[str], Sequence[Summary]], clock: Callable[[], float]
    ) -> None:
        self._journals = journals
        self._clock = clock
        self._known: dict[str, tuple[float, list[tuple[str, int, int]]]] = {}

    def of(self, jobs: Sequence[JobStatus]) -> Iterator[tuple[str, str, int, int]]:
        """Yield job, journal, rows and bytes."""
        self._known = {job.name: self._known[job.name] for job in jobs if job.name in self._known}
        for job in jobs:
            at, found = self._known.get(job.name, (float("-inf"), []))
            if self._clock() - at >= SIZES_EVERY_S:
                found = [(one.path.name, one.rows, one.bytes) for one in self._journals(job.name)]
                self._known[job.name] = (self._clock(), found)
            for name, rows, size in found:
                yield job.name, name, rows, size


class _Engine(Collector):
    def __init__(
        self,
        engine: Callable[[], EngineStatus],
        jobs: Callable[[], Sequence[JobStatus]],
        sizes: _Sizes,
        tasks: Callable[[], Tasks],
    ) -> None:
        self._engine, self._tasks = engine, tasks
        self._jobs = jobs
        self._sizes = sizes

    def describe(self) -> Iterable[Metric]:
        return []  # nothing is asked before somebody looks

    def collect(self) -> Iterator[Metric]:
        jobs = self._jobs()
        yield from _about(self._engine(), jobs)
        yield from _of_jobs(jobs)
        yield from self._journals(jobs)
        yield from _of_tasks(self._tasks())

    def _journals(self, jobs: Sequence[JobStatus]) -> Iterator[Metric]:
        gauge = partial(GaugeMetricFamily, labels=("job", "journal"))
        rows = gauge("millstream_journal_rows", "Rows that a journal holds")
        size = gauge("millstream_journal_bytes", "Bytes that it takes on disk")
        for job, journal, count, taken in self._sizes.of(jobs):
            rows.add_metric([job, journal], count)
            size.add_metric([job, journal], taken)
        yield rows
        yield size


def _about(engine: EngineStatus, jobs: Sequence[JobStatus]) -> Iterator[Metric]:
    info = GaugeMetricFamily("millstream_engine", "The engine", labels=("node", "of", "version"))
    info.add_metric([str(engine.node), str(engine.of), engine.version], 1)
    yield info
    states = GaugeMetricFamily("millstream_jobs", "Jobs in each state", labels=("state",))
    for state in JobState:
        states.add_metric([str(state)], sum(job.state is state for job in jobs))
    yield states
    running = GaugeMetricFamily(
        "millstream_job_state", "1 for the state that a job is in", labels=("job", "state")
    )
    for job in jobs:
        running.add_metric([job.name, str(job.state)], 1)
    yield running


def _of_tasks(tasks: Tasks) -> Iterator[Metric]:
    """Yield who runs the jobs that several engines know."""
    gauge = partial(GaugeMetricFamily, labels=("job",))
    here = gauge("millstream_task_here", "1 if this engine runs a job that others know too")
    generation = gauge("millstream_task_generation", "The number of the last claim in its log")
    pause = gauge("millstream_task_move_seconds", "How long it did not run when it was moved")
    for one in tasks.tasks:
        if one.generation is not None:
            here.add_metric([one.job], one.here)
            generation.add_metric([one.job], one.generation)
    for move in tasks.moves:
        if move.pause_s is not None:
            pause.add_metric([move.job], move.pause_s)
    yield from (one for one in (here, generation, pause) if one.samples)


def _of_jobs(jobs: Sequence[JobStatus]) -> Iterator[Metric]:
    for what, labels, parts, numbers in _TABLE:
        for name, about, field in numbers:
            kind: Any = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(f"millstream_{what}_{name}", about, labels=("job", *labels))
            for job in jobs:
                for more, part in parts(job):
                    value = field(part) if callable(field) else getattr(part, field)
                    if value is not None:
                        family.add_metric([job.name, *more], float(value))
            yield family
