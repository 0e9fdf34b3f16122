"""A flow, running: its journals, the sources that fill them, one query per group.

    .millstream/<flow>/journals/<name>/     a journal per source and per `.journal("name")`
    .millstream/<flow>/groups/<group>/      a checkpoint per group
    .millstream/<flow>/run.log              what Spark has to say
    .millstream/<flow>/lock                 one run at a time

Life of a run: prepare (plan, analyse, journals), start (ingest, queries), poll
until everything has ended or somebody stops it, stop.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console

from millstream import errors, ingest, journal
from millstream.clock import Clock, SystemClock
from millstream.errors import AlreadyWriting, GroupFailed, InvalidOption, MillstreamError, RunError
from millstream.flow import binary
from millstream.flow import stages as s
from millstream.flow.flow import Flow
from millstream.flow.site import Site
from millstream.flow.sources import Inbox
from millstream.links.host import Host, Listening, declared_inboxes
from millstream.links.network import Address
from millstream.plan import fingerprint
from millstream.plan.cycles import cycle
from millstream.plan.groups import Group, Plan, plan
from millstream.spark.analyse import Analysis, analyse
from millstream.spark.checkpoint import Checkpoint
from millstream.spark.claim import Claim
from millstream.spark.query import GroupQuery, GroupStatistics, arrow_schema, inputs_of, ship_modules
from millstream.spark.sink import GroupSink
from millstream.spark.targets import JournalTarget, MemoryTarget, PostgresTarget, Target, open_target

#: How often retention is looked at.
TRIM_EVERY_S: Final = 30.0
#: How often to try to host inboxes that another process has.
HOST_EVERY_S: Final = 1.0
#: Static tables above this size are not read to tell whether they changed.
LARGE_BYTES: Final = 64 << 20


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
    #: Programs that an engine keeps, by the names that the flow has for them.
    binaries: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """The numbers of a run that people watch."""

    groups: tuple[GroupStatistics, ...]
    sources: dict[str, ingest.IngestStatistics]
    late: int
    dead: int
    ended: bool


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
    ) -> None:
        self.flow = flow
        self.plan: Plan = plan(flow)
        self._spark = spark
        self._options = options
        self._clock = clock or SystemClock()
        self._folder = options.data / flow.name
        self._claim = claim
        self._terminal = terminal
        self._ingests: dict[str, ingest.Ingest] = {}
        self._host: Host | None = None
        self._host_at = 0.0
        self._levelled: list[ingest.Feed] = []
        self._still = 0
        self.queries: dict[str, GroupQuery] = {}
        self._trim_at = time.monotonic() + TRIM_EVERY_S
        self.memory: dict[str, MemoryTarget] = {}

    @property
    def folder(self) -> Path:
        return self._folder

    def journal(self, name: str) -> Path:
        """Return the folder of a journal of this flow."""
        return (self._folder / "journals" / name).resolve()

    def start(self) -> None:
        """Check everything that can be checked, then start sources and groups.

        Raises:
            FlowError: The flow has a mistake that only Spark can see.
            AlreadyRunning: Another process runs this flow on the same data.
            GroupChanged: A group means something else than when its checkpoint was made.
        """
        self._check_binaries()
        self._claim = self._claim or Claim.take(self._folder, self.flow.name)
        try:
            ship_modules(self._options.root)
            analysis = analyse(self._spark, self.plan, self._options.root)
            # A start that is refused changes nothing: journals are made, or widened, after all groups are accepted.
            checkpoints = {group.name: self._checkpoint(group, analysis) for group in self.plan.groups}
            self._make_journals(analysis)
            self._register_readers()
            for group in self.plan.groups:
                self.queries[group.name] = self._query(group, analysis, checkpoints[group.name].begin())
            self._start_sources()
            for query in self.queries.values():
                query.start()
                # One after the other: each starts Python processes of its own, and
                # Spark gives them ten seconds, which is little when all start at once.
                query.wait_for_sources()
        except BaseException:
            self.stop()
            raise

    def poll(self) -> bool:
        """Notice failures and ends; return whether the whole flow has ended.

        Raises:
            GroupFailed: A query died; the message says which stage, if that can be told.
        """
        for source in self._ingests.values():
            source.check()
        for query in self.queries.values():
            self._raise_failure(query)
        self._host_inboxes()
        self._notice_ends()
        self._trim()
        return all(query.finished for query in self.queries.values())

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
        return all(query.caught_up() for query in self.queries.values())

    def drain(self, *, flush: bool = False) -> None:
        """Let the sources that run here bring nothing more, and `drained` tell when the rest is processed.

        With `flush` they end, for good, and `poll` tells when the flow has ended. Inboxes are their host's business.
        """
        self._let_go()
        for name, source in self._ingests.items():
            source.stop()
            if name not in self._inboxes and not source.ended:
                feed = ingest.open_feed(*ingest.declared(self.journal(name)), self._clock)
                if flush:
                    feed.end()
                    feed.close()
                else:
                    # Its idle partitions still hold up the others.
                    self._levelled.append(feed)

    def _let_go(self) -> None:
        while self._levelled:
            self._levelled.pop().close()

    def drained(self) -> bool:
        """Tell whether all that is in the journals is processed, and nothing is on its way; ask every moment."""
        for feed in self._levelled:
            feed.tick()
        before = self._ends()
        done = self.caught_up() and all(map(_at_rest, self.queries.values())) and self._ends() == before
        # Twice: a group that has caught up may have a batch to run because the watermark has moved.
        self._still = self._still + 1 if done else 0
        return self._still >= 2

    def _ends(self) -> list[int]:
        readers = [journal.Reader.cached(self.journal(name)) for name in self.plan.journals]
        return [one.partition(n).end for one in readers for n in range(one.description.partitions)]

    def statistics(self) -> RunStatistics:
        """Return the numbers as they are now."""
        now = self._clock.now_us()
        letters = [journal.dead_counts(self.journal(name)) for name in self.plan.journals]
        return RunStatistics(
            groups=tuple(query.statistics(now) for query in self.queries.values()),
            sources=self._source_statistics(),
            late=sum(counts.get("late", 0) for counts in letters),
            dead=sum(sum(counts.values()) - counts.get("late", 0) for counts in letters),
            ended=all(query.finished for query in self.queries.values()),
        )

    def stop(self) -> None:
        """Stop sources, then groups; nothing that was taken is lost."""
        if self._host is not None:
            self._host.close()
            self._host = None
        for source in self._ingests.values():
            source.stop()
        self._let_go()
        stoppers = [threading.Thread(target=query.stop) for query in self.queries.values()]
        for thread in stoppers:
            thread.start()
        for thread in stoppers:
            thread.join()
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    # Set-up

    def _actions(self) -> list[s.Action]:
        return [stage for stage in self.flow.stages.values() if isinstance(stage, s.Action)]

    def _check_binaries(self) -> None:
        for stage in self._actions():
            if binary.parse(stage.argv[0]) is not None and stage.argv[0] not in self._options.binaries:
                site = Site(self.flow.name, stage.name, "stage", stage.where)
                hint = "millstream actions add brings it to an engine, millstream deploy runs the flow there"
                raise site.mistake(InvalidOption, f'runs "{stage.argv[0]}", which is not here', hint=hint)

    def _sources(self) -> list[str]:
        return [name for name, stage in self.flow.stages.items() if isinstance(stage, s.Source)]

    def _make_journals(self, analysis: Analysis) -> None:
        for name, stage in self.flow.stages.items():
            if isinstance(stage, s.Source):
                self._make_journal(name, stage.schema.arrow(), stage.partitions, stage.time, "inbox")
            elif isinstance(stage, s.Journal):
                time_column = self.flow.stream(name).time
                schema = arrow_schema(analysis.schemas[name])
                self._make_journal(name, schema, stage.partitions, time_column, "group")

    def _make_journal(self, name: str, schema: pa.Schema, partitions: int, time: str | None, by: str) -> None:
        journal.create(self.journal(name), schema, partitions=partitions, time=time, written_by=by)

    def _register_readers(self) -> None:
        """Let every journal know who reads it before anything may be removed, and who no longer does."""
        readers = {f"{self.flow.name}.{group.name}" for group in self.plan.groups}
        for name, use in self.plan.journals.items():
            path = self.journal(name)
            known = {reader.reader for reader in journal.committed(path)}
            for gone in known - readers:
                if gone.startswith(f"{self.flow.name}."):
                    journal.forget(path, gone)
            views = [journal.Reader(path).partition(n) for n in range(journal.describe(path).partitions)]
            for group in use.readers:
                if f"{self.flow.name}.{group}" not in known:
                    journal.commit(path, f"{self.flow.name}.{group}", [view.begin for view in views])

    def _checkpoint(self, group: Group, analysis: Analysis) -> Checkpoint:
        description = fingerprint.fingerprint(self.plan, group.name, self._snapshots())
        for name, stage in description["stages"].items():
            needed = analysis.columns.get((group.name, name))
            if needed is not None and stage.get("schema"):
                # A column that a group does not use may come and go.
                stage["schema"] = [column for column in stage["schema"] if column[0] in needed]
        return Checkpoint.open(self._folder.resolve() / "groups" / group.name, group.name, description)

    def _snapshots(self) -> dict[str, str]:
        tables = [stage.table.path for stage in self.flow.stages.values() if isinstance(stage, s.Lookup)]
        shipped = [name for stage in self._actions() for name in fingerprint.shipped(stage)]
        found = {name: self._options.root / name for name in (*tables, *shipped)}
        return {name: snapshot(path) for name, path in {**found, **self._options.binaries}.items()}

    def _query(self, group: Group, analysis: Analysis, checkpoint: Checkpoint) -> GroupQuery:
        sink = GroupSink(
            job=self.flow.name,
            checkpoint=checkpoint,
            targets=self._targets(group, analysis),
            inputs=inputs_of(self.flow, group, self._folder.resolve() / "journals"),
            stateful=group.stateful,
            behind=group.behind,
        )
        return GroupQuery(
            spark=self._spark,
            flow=self.flow,
            group=group,
            analysis=analysis,
            checkpoint=checkpoint,
            sink=sink,
            root=self._options.root,
            journals=self._folder.resolve() / "journals",
            limit=self._options.rows_per_batch,
            state=self._options.state,
            binaries=self._options.binaries,
        )

    def _targets(self, group: Group, analysis: Analysis) -> Sequence[Target]:
        if group.journal is not None:
            stage = self.flow.stages[group.journal]
            assert isinstance(stage, s.Journal)
            return [JournalTarget(self.journal(group.journal), key=stage.key)]
        targets = []
        for name in group.sinks:
            sink = self.flow.sinks[name]
            folder = self._folder.resolve() / "groups" / group.name
            target = open_target(self.flow.name, name, sink.target, self._options.root, folder, self._terminal)
            if isinstance(target, MemoryTarget):
                self.memory[name] = target
            if isinstance(target, PostgresTarget):
                target.prepare(analysis.schemas[sink.input])
            targets.append(target)
        return targets

    def _start_sources(self) -> None:
        for name in self._sources():
            stage = self.flow.stages[name]
            assert isinstance(stage, s.Source)
            self._ingests[name] = ingest.open(stage, self.journal(name), root=self._options.root, clock=self._clock)
            self._ingests[name].start()
        self._host_inboxes()

    @property
    def _inboxes(self) -> list[str]:
        stages = [(name, self.flow.stages[name]) for name in self._sources()]
        return [name for name, stage in stages if isinstance(stage, s.Source) and isinstance(stage.origin, Inbox)]

    def _host_inboxes(self) -> None:
        """Host the flow's inboxes; while a client does, events come in through it, and we try again."""
        if not self._options.hosting or self._host is not None or not self._inboxes or time.monotonic() < self._host_at:
            return
        self._host_at = time.monotonic() + HOST_EVERY_S
        found = {name: source for name, source in declared_inboxes(self._folder).items() if name in self._inboxes}
        try:
            self._host = Host(self._folder.resolve(), found, listening_at=self._options.listening, clock=self._clock)
        except AlreadyWriting:
            return

    @property
    def address(self) -> Address | None:
        """Where this run takes events; None if it has no inboxes, or another process has them now."""
        return None if self._host is None else self._host.address

    @property
    def host(self) -> Host:
        """The inboxes of this run.

        Raises:
            RunError: Another process has them.
        """
        if self._host is None:
            raise RunError(f'another process has the inboxes of flow "{self.flow.name}"')
        return self._host

    def _source_statistics(self) -> dict[str, ingest.IngestStatistics]:
        found = {name: source.statistics() for name, source in self._ingests.items()}
        if self._host is None:
            return found
        for name, inboxes in self._host.statistics().items():
            rows, refused = sum(one.rows for one in inboxes), sum(one.refused for one in inboxes)
            error = next((one.error for one in inboxes if one.error is not None), None)
            found[name] = replace(found[name], rows=rows, refused=refused, error=error)
        return found

    # While it runs

    def _raise_failure(self, query: GroupQuery) -> None:
        if query.query is None or query.query.isActive or query.finished:
            return
        ours = query.sink.error
        if isinstance(ours, MillstreamError):
            raise ours
        failure = query.query.exception()
        if ours is None and query.restart_after(str(failure)):
            return
        said, hint = cause(ours or failure)
        log = self._options.log or self._folder / "run.log"
        raise GroupFailed(
            f'group "{query.group.name}" of flow "{self.flow.name}" failed: {said}',
            hint=hint or f"the whole story is in {log}; a new start goes on where it stopped",
        ) from (ours or failure)

    def _notice_ends(self) -> None:
        for query in self.queries.values():
            if query.finished:
                continue
            if query.ended():
                query.finish()
            elif self._cycle_ended(query):
                # All of them stop before the first says so: the end goes round too.
                ring = [self.queries[name] for name in cycle(self.plan, query.group.name)]
                for member in ring:
                    member.halt()
                for member in ring:
                    member.finish()

    def _trim(self) -> None:
        """Remove what all groups have read and nobody wants to keep, every now and then."""
        if time.monotonic() < self._trim_at:
            return
        self._trim_at = time.monotonic() + TRIM_EVERY_S
        for name, use in self.plan.journals.items():
            stage = self.flow.stages[name]
            assert isinstance(stage, s.Source | s.Journal)
            if stage.keep_for is not None or stage.keep_bytes is not None:
                back = max(
                    (self.plan.group(reader).look_back or timedelta(0) for reader in use.readers), default=timedelta(0)
                )
                journal.trim(self.journal(name), keep_for=stage.keep_for, keep_bytes=stage.keep_bytes, look_back=back)

    def _cycle_ended(self, query: GroupQuery) -> bool:
        """Tell whether a group in a cycle has ended: the way in has, and nothing goes round any more."""
        ring = cycle(self.plan, query.group.name)
        if not ring:
            return False
        written = {self.queries[name].group.journal for name in ring}
        for name in ring:
            other = self.queries[name]
            outside = [journal for journal in other.sink.inputs if journal not in written]
            if not other.inputs_ended(outside) or not other.caught_up():
                return False
        return True


def _at_rest(query: GroupQuery) -> bool:
    if query.finished or query.query is None:
        return True
    committed = query.checkpoint.last("offsets") == query.checkpoint.last("commits")
    return committed and not query.query.status["isDataAvailable"]


def snapshot(path: Path) -> str:
    """Return a text that changes with the content of a static table."""
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    total = hashlib.sha256()
    for file in files:
        status = file.stat()
        total.update(f"{file.relative_to(path.parent)} {status.st_size}\n".encode())
        # A large file is known by when it was written: reading it at every start would take too long.
        total.update(file.read_bytes() if status.st_size < LARGE_BYTES else str(status.st_mtime_ns).encode())
    return total.hexdigest()


def cause(error: Any) -> tuple[str, str | None]:
    """Return the few words of an error of Spark's that tell what happened, and the hint of one of ours."""
    text = str(error)
    raised = list(re.finditer(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Warning)|\w+): (.+)$", text, flags=re.MULTILINE))
    python = [one for one in raised if _is_error(one[1])] if "Traceback" in text else []
    if python:
        name, message = python[-1][1], python[-1][2].strip()
        noted = re.match(r"\s*hint: (.+)", text[python[-1].end() :])
        ours = isinstance(getattr(errors, name, None), type)
        return (message if ours else f"{name}: {message}"), noted[1].strip() if noted else None
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    spark = re.search(r"\[([A-Z_]+)[A-Z_.]*\] (.+?)(?: SQLSTATE.*)?$", first)
    said = spark[2] if spark else first
    # Spark computes as the SQL standard says: a bad cast or a division by zero is an error, not a null.
    arithmetic = spark is not None and spark[1] in ("CAST_INVALID_INPUT", "DIVIDE_BY_ZERO", "ARITHMETIC_OVERFLOW")
    return said[:400], "use try_cast, try_divide and the like where a value may not fit" if arithmetic else None


def _is_error(name: str) -> bool:
    return name.endswith(("Error", "Exception", "Warning")) or isinstance(getattr(errors, name, None), type)
