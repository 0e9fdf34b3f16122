"""The numbers of an engine for Prometheus; docs/deploy/grafana.json draws them.

Jobs are asked when somebody looks, so that a job which is gone leaves no series behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from millstream.engine.jobs.status import EngineStatus, JobStatus
from millstream.journal.health import Summary

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
#: Sizes of journals change slowly, and cost a look at every index.
SIZES_EVERY_S: Final = 30.0
_SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)

# A series beside each counter that nobody asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it

Row = tuple[list[str], float]
Of = Callable[[JobStatus], Iterable[Row]]


def _jobs(value: Callable[[JobStatus], float]) -> Of:
    return lambda job: [([], value(job))]


def _groups(field: str) -> Of:
    return lambda job: [([one.name], float(getattr(one, field))) for one in job.groups]


def _sources(field: str) -> Of:
    return lambda job: [([name], float(getattr(one, field))) for name, one in job.sources.items()]


def _inboxes(field: str) -> Of:
    return lambda job: [
        ([one.source, str(one.partition)], float(getattr(one, field))) for one in job.inboxes
    ]


def _copies(field: str) -> Of:
    return lambda job: [
        ([one.source, str(one.partition)], float(getattr(one, field))) for one in job.copies
    ]


def _watermarks(job: JobStatus) -> Iterable[Row]:
    return [
        ([one.name], one.watermark_ms / 1000) for one in job.groups if one.watermark_ms is not None
    ]


_GROUP: Final = ("group",)
_SOURCE: Final = ("source",)
_INBOX: Final = ("source", "partition")

# name, description, labels beside the job's, values; "_total" at the end of a name is a counter's.
_TABLE: Final[Sequence[tuple[str, str, tuple[str, ...], Of]]] = (
    ("job_restarts_total", "Restarts of the job's driver", (), _jobs(lambda job: job.restarts)),
    (
        "job_unprocessed_rows",
        "Rows in journals that are not processed",
        (),
        _jobs(lambda job: job.unprocessed),
    ),
    ("job_late_rows_total", "Rows that came too late", (), _jobs(lambda job: job.late)),
    ("job_dead_letters_total", "Records that were not taken", (), _jobs(lambda job: job.dead)),
    (
        "group_rows_in_total",
        "Rows that the group has read since its driver started",
        _GROUP,
        _groups("rows_in"),
    ),
    ("group_rows_out_total", "Rows that it has published since then", _GROUP, _groups("rows_out")),
    ("group_batch_seconds", "How long its last micro-batch took", _GROUP, _groups("batch_seconds")),
    ("group_batch_number", "The number of its last micro-batch", _GROUP, _groups("batch")),
    (
        "group_lag_rows",
        "Rows in its journals that it has not processed",
        _GROUP,
        _groups("lag_rows"),
    ),
    ("group_lag_seconds", "The age of the oldest of them", _GROUP, _groups("lag_seconds")),
    ("group_state_rows", "Rows of state that it keeps", _GROUP, _groups("state_rows")),
    ("group_watermark_timestamp_seconds", "Up to where event time has passed", _GROUP, _watermarks),
    (
        "source_rows_total",
        "Rows that a source has taken since the engine or driver started",
        _SOURCE,
        _sources("rows"),
    ),
    ("source_bytes_total", "Bytes that it has read since then", _SOURCE, _sources("bytes")),
    (
        "source_refused_total",
        "Records that it has refused since then",
        _SOURCE,
        _sources("refused"),
    ),
    (
        "inbox_rows_total",
        "Rows that an inbox has taken since the engine started",
        _INBOX,
        _inboxes("rows"),
    ),
    (
        "inbox_repeated_total",
        "Rows that came again since then, and were not stored",
        _INBOX,
        _inboxes("repeated"),
    ),
    ("inbox_waiting_rows", "Rows in an inbox that wait for the disk", _INBOX, _inboxes("waiting")),
    ("inbox_free_rows", "Rows that an inbox has room for", _INBOX, _inboxes("free")),
    ("inbox_senders", "Senders that an inbox knows", _INBOX, _inboxes("senders")),
    ("copy_rows", "Positions of a partition elsewhere that are copied", _INBOX, _copies("rows")),
    (
        "copy_behind_bytes",
        "Bytes of it that were to come when its engine last answered",
        _INBOX,
        _copies("behind_bytes"),
    ),
    (
        "copy_live",
        "1 if the copy was complete then, and its engine answers",
        _INBOX,
        _copies("live"),
    ),
)


class Metrics:
    """The metrics of an engine, for Prometheus."""

    def __init__(
        self,
        engine: Callable[[], EngineStatus],
        jobs: Callable[[], Sequence[JobStatus]],
        journals: Callable[[str], Sequence[Summary]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Engine(engine, jobs, _Sizes(journals, clock)))
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "millstream_http_requests",
            "Requests over HTTP",
            ("method", "path", "status"),
            registry=self._registry,
        )
        self._bytes = Counter(
            "millstream_http_received_bytes",
            "Bytes of bodies over HTTP",
            ("path",),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "millstream_http_request_seconds",
            "How long requests took",
            ("path",),
            buckets=_SECONDS,
            registry=self._registry,
        )

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
    ) -> None:
        self._engine = engine
        self._jobs = jobs
        self._sizes = sizes

    def describe(self) -> Iterable[Metric]:
        return []  # nothing is asked before somebody looks

    def collect(self) -> Iterator[Metric]:
        jobs = self._jobs()
        yield from _about(self._engine(), jobs)
        yield from _of_jobs(jobs)
        yield from self._journals(jobs)

    def _journals(self, jobs: Sequence[JobStatus]) -> Iterator[Metric]:
        labels = ("job", "journal")
        rows = GaugeMetricFamily(
            "millstream_journal_rows", "Rows that a journal holds", labels=labels
        )
        size = GaugeMetricFamily(
            "millstream_journal_bytes", "Bytes that it takes on disk", labels=labels
        )
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


def _of_jobs(jobs: Sequence[JobStatus]) -> Iterator[Metric]:
    for name, about, labels, values in _TABLE:
        kind: Any = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = kind(f"millstream_{name}", about, labels=("job", *labels))
        for job in jobs:
            for more, value in values(job):
                family.add_metric([job.name, *more], value)
        yield family
