"""The status of jobs and engines: plain data, for the API, the command line and the page.

The numbers of groups and sources are those of `spark.run.RunStatistics`, spelled out here so that
an engine, which runs no Spark itself, need not load it to speak of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.switch_record import SwitchState
from millstream.switch.comparison import Comparison


class ProgramStatus(msgspec.Struct, frozen=True):
    """A program of a stage, in one of Spark's Python workers, as it was after its last task.

    What it prints is in the job's log, in lines with `worker PID:`.
    """

    stage: str
    host: str
    worker: int
    pid: int | None = None
    starts: int = 0
    rows: int = 0
    failed: int = 0
    #: When it was last at work, in seconds since 1970.
    at: float = 0.0


class GroupStatus(msgspec.Struct, frozen=True):
    """The numbers of a group that people watch."""

    name: str
    batch: int = 0
    rows_in: int = 0
    rows_out: int = 0
    batch_seconds: float = 0.0
    watermark_ms: int | None = None
    lag_rows: int = 0
    lag_seconds: float = 0.0
    state_rows: int = 0
    finished: bool = False
    #: Seconds of its batches since its driver was started, by cause.
    spent: dict[str, float] = {}
    #: What Spark's state stores hold in memory.
    state_bytes: int = 0
    #: Programs of its stages that were at work in the last minutes.
    programs: tuple[ProgramStatus, ...] = ()


class SourceStatus(msgspec.Struct, frozen=True):
    """What a source has brought in since its engine or its driver was started."""

    rows: int = 0
    refused: int = 0
    bytes: int = 0
    ended: bool = False
    error: str | None = None
    #: What it waits for, if the system that it reads is away.
    waiting: str | None = None


class InboxStatus(msgspec.Struct, frozen=True):
    """An inbox of a job on this engine: where it is, what waits in it and how much room it has."""

    source: str
    partition: int
    address: str
    rows: int = 0
    repeated: int = 0
    refused: int = 0
    waiting: int = 0
    free: int = 0
    senders: int = 0
    error: str | None = None
    #: Where runtimes send to, if that is listened for here.
    runtimes: str | None = None
    #: How many staged files were removed because nobody came for them.
    expired: int = 0
    #: What it waits for, if the system is away that this engine reads for it.
    away: str | None = None


class ProducerStatus(msgspec.Struct, frozen=True):
    """A producer with a quota that has sent to a job: what it may send, and how it does.

    Rows and bytes are those for all jobs of the engine; `waits` counts requests of which not all
    could be taken at once.
    """

    name: str
    rows_per_second: int | None = None
    bytes_per_second: int | None = None
    most_connections: int | None = None
    connections: int = 0
    rows: int = 0
    bytes: int = 0
    waits: int = 0


class CopyStatus(msgspec.Struct, frozen=True):
    """The copy of another engine's partition: how far it is, and whether all of it is here."""

    source: str
    partition: int
    original: str
    rows: int = 0
    behind_bytes: int = 0
    live: bool = False
    error: str | None = None


class Happening(msgspec.Struct, frozen=True):
    """Something that has happened to a job."""

    at: str
    what: str
    detail: str | None = None


class SwitchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A switch of a job: one that goes on, or the last one; moments are ISO 8601 in UTC.

    `cut` is a moment in event time: results that start before it are the old version's. `left_s` is
    how much event time the old version still has to read. `probation` says how the new version
    does, if it is watched, and `shadow` how it compares, if it only runs in the shadow of the old
    one. `share` is the part of the keys that the new version has from the cut on, and `wanted` the
    part that it is to have, if they are shared out. `waits` says which source the switch waits for;
    with `until_quiet` those that are idle pass their time on.
    """

    version: str
    previous: str
    state: SwitchState
    phase: str
    why: str | None = None
    asked_at: str
    ended_at: str | None = None
    cut: str | None = None
    left_s: float | None = None
    steps: tuple[Happening, ...] = ()
    probation: str | None = None
    shadow: Comparison | None = None
    share: float | None = None
    wanted: float | None = None
    waits: str | None = None
    until_quiet: bool = False


class VersionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a job, with the switch that led to it."""

    version: str
    flow: str
    added_at: str
    current_at: str | None = None
    running: bool = False
    back_to: str | None = None
    switch: SwitchStatus | None = None


class RuntimeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime of a job: starting, running, waiting (for a restart), silent, stopped or ended.

    `oldest` is the id of the oldest message that not all downstreams have; 0: they have all.
    """

    node: str
    role: str
    state: str
    address: str | None = None
    generation: int = 0
    restarts: int = 0
    oldest: int = 0
    pid: int | None = None
    #: How often its queue was damaged and set aside, since the job was started.
    set_aside: int = 0


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is now on one engine; moments are ISO 8601 in UTC."""

    id: str
    name: str
    state: JobState
    reason: str | None = None
    flush: bool = False
    node: int = 0
    of: int = 1
    deployed_at: str
    since: str
    restarts: int = 0
    pid: int | None = None
    groups: tuple[GroupStatus, ...] = ()
    sources: dict[str, SourceStatus] = {}
    late: int = 0
    dead: int = 0
    #: Late rows and other dead letters that are neither replayed nor discarded.
    waiting: int = 0
    #: What its user should know: which sources lose rows.
    notices: tuple[str, ...] = ()
    #: Of all partitions; 0 on engines without the job's driver.
    unprocessed: int = 0
    inboxes: tuple[InboxStatus, ...] = ()
    producers: tuple[ProducerStatus, ...] = ()
    copies: tuple[CopyStatus, ...] = ()
    #: Which version runs: the old one until a switch is done.
    version: str = "1"
    switch: SwitchStatus | None = None
    runtimes: tuple[RuntimeStatus, ...] = ()


class Place(msgspec.Struct, frozen=True):
    """Where an inbox is: the address of `links.network`."""

    ip: str
    port: int
    node: int = 0
    folder: str | None = None


#: Where the inboxes of each source are, by partition.
Places = Mapping[str, Sequence[Place]]


class Peer(msgspec.Struct, frozen=True):
    """An engine of a cluster: where it is asked, and the address of its inboxes."""

    url: str
    ip: str


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An engine as it is now."""

    node: int
    of: int
    version: str
    url: str
    inbox: Place
    data: str
    started_at: str
    jobs: int
    #: How many drivers are in reserve, ready for the next jobs.
    warm: int = 0
    #: Whether it shares its jobs with other engines (`--coordination`).
    shares: bool = False
    #: Whether this is no engine, but the run of one flow with a page.
    single: bool = False
    #: Of its host: processes that run or wait to, on average over a minute, and its cores.
    load: float = 0.0
    cores: int = 1
    #: Of the disk with its data, in bytes.
    disk_free: int = 0
    disk_size: int = 0
    #: Rows a second that its inboxes take.
    rows_in: float = 0.0


class Prepared(msgspec.Struct, frozen=True):
    """A job that is ready to begin: where its partitions on this engine are, by source."""

    id: str
    name: str
    addresses: dict[str, dict[int, Place]]
    #: The content (SHA-256) of each program of the engine's that the flow names.
    binaries: dict[str, str] = {}


class BinaryStatus(msgspec.Struct, frozen=True):
    """A version of a program that an engine keeps, and the jobs that run it."""

    name: str
    version: int
    sha256: str
    bytes: int
    added_at: str
    jobs: list[str] = []
