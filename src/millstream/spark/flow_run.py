"""A flow, running: its journals, the sources that fill them, the queries of its groups.

    .millstream/<flow>/journals/<name>/     a journal per source and per `.journal("name")`
    .millstream/<flow>/groups/<group>/      a checkpoint per group
    .millstream/<flow>/shared/              Spark's files of queries that groups share, for this run
    .millstream/<flow>/switch/              what is known of switches from one version to the next
    .millstream/<flow>/run.log              Spark's log
    .millstream/<flow>/lock                 one run at a time

Life of a run: prepare (plan, analyse, journals), start (ingest, queries), poll
until everything has ended or it is stopped.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from rich.console import Console

from millstream import ingest
from millstream.clock import Clock, SystemClock
from millstream.errors import GroupFailed, MillstreamError, RunError
from millstream.flow.flow import Flow
from millstream.joblog import Lease
from millstream.journal import journal_at
from millstream.links.host import Host, Listening
from millstream.links.network import Address
from millstream.plan.groups import Plan
from millstream.spark.io.targets import Readable
from millstream.spark.run.claim import claim as take_claim
from millstream.spark.run.driver_log import release_job, renew_job, take_job, take_time
from millstream.spark.run.ends import notice_ends
from millstream.spark.run.failure import cause
from millstream.spark.run.late import dead_letters, late_notices, waiting_letters
from millstream.spark.run.query import GroupQuery, GroupStatistics, ship_modules
from millstream.spark.run.sources import Hosting, RunSources
from millstream.spark.run.upkeep import Upkeep
from millstream.spark.run.version import RunContext, at_rest, up_to_date
from millstream.spark.served.serving import PORT, SERVE, serve
from millstream.spark.session.memory import end_planners, give_memory_back
from millstream.spark.switching.versions import FlowVersions
from millstream.storage import Claim
from millstream.switch.comparison import Comparison
from millstream.switch.machine import Entry
from millstream.switch.plan import SwitchPlan
from millstream.switch.progress import SwitchProgress
from millstream.switch.request import SwitchRequest

#: A switch without wishes.
DEFAULT: Final = SwitchRequest()


@dataclass(frozen=True, slots=True)
class Options:
    """How to run a flow."""

    data: Path = Path(".millstream")
    root: Path = Path()
    rows_per_batch: int = 500_000
    state: str | None = None
    log: Path | None = None
    listening: Listening = field(default_factory=Listening)
    #: Whether to host the flow's inboxes here; an engine hosts those of its jobs.
    hosting: bool = True
    #: The sources that engines read; here only their journals are.
    read_elsewhere: frozenset[str] = frozenset()
    #: Programs that an engine keeps, by the names that the flow has for them.
    binaries: Mapping[str, Path] = field(default_factory=dict)
    #: Storage that all hosts reach which may run the flow, "s3://bucket/prefix": its log and
    #: checkpoints are there.
    storage: str | None = None
    #: The claim of the engine that runs the flow, if several engines may.
    lease: Lease | None = None
    #: Whether to serve journals and writes to executors: "auto", "always" or "never".
    serve: str = field(default_factory=lambda: os.environ.get(SERVE, "auto"))
    serve_port: int = field(default_factory=lambda: int(os.environ.get(PORT, "0")))

    def take(self, ground: RunContext, flow: str, clock: Clock) -> None:
        """Claim the job in its log, if it has one."""
        take_job(ground, self.storage, flow, clock, self.lease)

    def prepare(self, ground: RunContext) -> None:
        """Make ready for another version, about which Spark is asked, however long that takes."""
        ship_modules(self.root)
        take_time(ground)

    def reach_executors(self, spark: SparkSession, folder: Path) -> None:
        """Let executors have the flow's modules, and its folder, if they do not see it."""
        ship_modules(self.root)
        serve(spark, folder, self.serve, self.serve_port)


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """The numbers of a run that people watch."""

    groups: tuple[GroupStatistics, ...]
    sources: dict[str, ingest.IngestStatistics]
    late: int
    dead: int
    ended: bool
    #: What its user should know: which sources lose rows.
    notices: tuple[str, ...] = ()
    #: Late rows and other dead letters that are neither replayed nor discarded.
    waiting: int = 0


class FlowRun:
    """One run of a flow in this process."""

    def __init__(
        self,
        spark: SparkSession,
        flow: Flow,
        options: Options,
        *,
        clock: Clock | None = None,
        claim: Claim | None = None,
        terminal: Console | None = None,
        versions: Callable[[str], Flow] | None = None,
        version: str = "1",
    ) -> None:
        """Make ready to run a flow.

        Args:
            spark: Where it runs.
            flow: The version of the flow called `version`.
            options: How it runs.
            clock: Tells the time.
            claim: The claim on the flow's folder, if it is taken already.
            terminal: Where console sinks show their rows.
            versions: Loads a version by its name, if a switch has replaced `flow`.
            version: The name of this version.
        """
        self._options = options
        self._clock = clock or SystemClock()
        self._folder = options.data / flow.name
        self._claim = claim
        how = (options.root, options.rows_per_batch, options.state)
        self._ground = RunContext(spark, self._folder, *how, terminal, options.binaries)
        self._versions = FlowVersions(
            self._ground, flow, version, load=versions, failure=self._failure_of, clock=self._clock
        )
        hosting = Hosting(
            self._folder, options.root, options.listening, options.hosting, options.read_elsewhere
        )
        self._sources = RunSources(hosting, self._clock, lambda: self._versions.flows)
        self._still = 0
        self._upkeep = Upkeep(self._versions.trim, self._rest)

    @property
    def flow(self) -> Flow:
        """The current version of the flow."""
        return self._versions.current.flow

    @property
    def plan(self) -> Plan:
        """Its plan."""
        return self._versions.current.plan

    @property
    def version(self) -> str:
        """Its name."""
        return self._versions.current.name

    @property
    def queries(self) -> dict[str, GroupQuery]:
        """The queries by group.

        In a switch those of the new version are under `<group>@<version>`.
        """
        return self._versions.queries

    @property
    def memory(self) -> dict[str, Readable]:
        """The rows of sinks in memory."""
        return self._ground.memory

    @property
    def folder(self) -> Path:
        return self._folder

    def journal(self, name: str) -> Path:
        """Return the folder of a journal of this flow."""
        return self._versions.current.journal(name)

    def start(self) -> None:
        """Check everything that can be checked, then start sources and groups.

        Raises:
            FlowError: The flow has a mistake that only Spark can see.
            AlreadyRunning: Another process runs this flow on the same data.
            GroupChanged: A group means something else than when its checkpoint was made.
        """
        self._claim = self._claim or take_claim(self._folder, self.flow.name)
        try:
            self._options.take(self._ground, self.flow.name, self._clock)
            self._options.reach_executors(self._ground.spark, self._folder)
            self._versions.open()
            self._sources.start()
            self._versions.start_all()
        except BaseException:
            self.stop()
            raise

    def poll(self) -> bool:
        """Notice failures and ends; return whether the whole flow has ended.

        Raises:
            GroupFailed: A query died; the message names the stage, if it is known.
            TakenOver: Another driver has taken the job.
        """
        renew_job(self._ground)
        self._sources.check()
        for query in self.queries.values():
            failure = self._failure_of(query)
            if failure is not None:
                raise failure
        if self._versions.under_way:
            self._versions.poll()
            self._sources.start()
        self._sources.host_inboxes()
        notice_ends(self.plan, self.queries)
        self._upkeep.look(self.queries.values())
        return not self._versions.under_way and all(
            query.finished for query in self.queries.values()
        )

    def _rest(self) -> None:
        """Give back what is not needed while nothing happens."""
        give_memory_back(self._ground.spark)
        if not self._versions.under_way:  # else queries are planned
            end_planners(self._ground.spark)

    # Switching

    def plan_switch(self, flow: Flow, request: SwitchRequest = DEFAULT) -> SwitchPlan:
        """Return what a switch to another version of the flow would do; nothing is touched.

        Raises:
            FlowError: That version has a mistake that only Spark can see.
        """
        self._options.prepare(self._ground)
        return self._versions.compare(flow, "next", request)[1]

    def switch(self, flow: Flow, version: str, request: SwitchRequest = DEFAULT) -> None:
        """Begin to replace the running version with another one; `poll` goes on with it.

        Nothing has been touched if this raises. Until the cut the switch is aborted if the new
        version fails, or after its timeout. With a share both versions run until `share` gives all
        keys to one of them.

        In a shadow the results of the new version go to no sink and to no journal that others read:
        they are compared with those of the running version (`comparison`), and removed. It ends
        after its duration, with `abort`, when all input has ended, or if it fails; a process that
        dies ends it too. Programs of both versions run, with whatever they do besides answering.

        Args:
            flow: The new version.
            version: Its name, which no other version has had.
            request: What is asked for.

        Raises:
            SwitchImpossible: What the two versions are does not allow it.
            SwitchRefused: One is under way, the name is taken, the flow has ended, or there is
                nothing to compare.
            FlowError: The new version has a mistake that only Spark can see.
        """
        self._options.prepare(self._ground)
        self._versions.switch(flow, version, request)

    def share(self, request: SwitchRequest) -> None:
        """Give the new version another share of the keys by another cut; `poll` goes on with it.

        With all keys the old version leaves, without a share the new one, once its results are out.

        Raises:
            SwitchRefused: No keys are shared out, or it is the share that the new version has.
        """
        self._versions.share(request)

    def comparison(self) -> Comparison | None:
        """Return how the version in the shadow compares so far, or the last one did.

        None if there was none.
        """
        return self._versions.comparison()

    def abort(self) -> None:
        """Abort a switch, or another share, before its cut, or end a shadow.

        Raises:
            SwitchRefused: There is none, or it is past its cut: then a switch back undoes it.
        """
        self._versions.abort()

    def switching(self) -> SwitchProgress | None:
        """Return how a switch goes; None if there is none."""
        return self._versions.progress()

    def history(self) -> tuple[Entry, ...]:
        """Return every step of all switches of this flow, oldest first."""
        return self._versions.history()

    def wait(self, *, timeout: float | None = None) -> bool:
        """Poll until the flow has ended; return False if it has not in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.poll():
            if deadline is not None and time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def caught_up(self) -> bool:
        """Tell whether all that is in the journals now has been processed."""
        self.poll()
        return all(map(up_to_date, self.queries.values()))

    def drain(self, *, flush: bool = False) -> None:
        """Stop the sources that run here; `drained` tells when the rest is processed.

        With `flush` they end permanently, and `poll` tells when the flow has ended. Inboxes are their
        host's business. A version in the shadow is compared up to the end, or ends without `flush`.
        """
        if not flush and self._versions.shadowing:
            self._versions.abort()
        self._sources.drain(flush=flush)

    def drained(self) -> bool:
        """Tell whether all that is in the journals is processed; ask from time to time."""
        self._sources.level()
        before = self._ends()
        done = (
            self.caught_up() and all(map(at_rest, self.queries.values())) and self._ends() == before
        )
        # Twice: a group that has caught up may have a batch to run because the watermark has moved.
        self._still = self._still + 1 if done else 0
        return self._still >= 2

    def _ends(self) -> list[int]:
        readers = [journal_at(path).cached_reader() for path in self._journals()]
        return [one.partition(n).end for one in readers for n in range(one.description.partitions)]

    def _journals(self) -> list[Path]:
        paths = [one.journal(name) for one in self._versions.flows for name in one.plan.journals]
        return list(dict.fromkeys(paths))

    def statistics(self) -> RunStatistics:
        """Return the numbers as they are now."""
        now = self._clock.now_us()
        late, dead = dead_letters(self._journals())
        return RunStatistics(
            groups=tuple(
                replace(query.statistics(now), name=name) for name, query in self.queries.items()
            ),
            sources=self._sources.statistics(),
            late=sum(late.values()),
            dead=dead,
            ended=all(query.finished for query in self.queries.values()),
            notices=tuple(late_notices(self._versions.current, late)),
            waiting=waiting_letters(self._journals()) if dead or any(late.values()) else 0,
        )

    def stop(self) -> None:
        """Stop sources, then groups; nothing that was taken is lost."""
        self._sources.stop()
        stoppers = [threading.Thread(target=query.stop) for query in self._versions.everything]
        for thread in stoppers:
            thread.start()
        for thread in stoppers:
            thread.join()
        release_job(self._ground)
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    @property
    def address(self) -> Address | None:
        """Where this run takes events.

        None if it has no inboxes, or another process has them now.
        """
        return None if self._sources.host is None else self._sources.host.address

    @property
    def host(self) -> Host:
        """The inboxes of this run.

        Raises:
            RunError: Another process has them.
        """
        if self._sources.host is None:
            raise RunError(f'another process has the inboxes of flow "{self.flow.name}"')
        return self._sources.host

    # While it runs

    def _failure_of(self, query: GroupQuery) -> MillstreamError | None:
        """Return why a query has died, if it has; the message names the stage, if it is known."""
        if query.query is None or query.query.isActive or query.finished:
            return None
        ours = query.sink.error
        if isinstance(ours, MillstreamError):
            return ours
        failure = query.query.exception()
        if query.restart_after(str(ours or failure)):
            return None
        fact, hint = cause(ours or failure)
        log = self._options.log or self._folder / "run.log"
        error = GroupFailed(
            f'group "{query.group.name}" of {self._versions.whose(query)} failed: {fact}',
            hint=hint or f"details are in {log}; a new start goes on where it stopped",
        )
        error.__cause__ = ours or failure
        return error
