"""The client of engines: one, or several that are a cluster.

    with Cluster(["https://10.0.0.5:8340", "https://10.0.0.6:8340"], token=token) as cluster:
        cluster.deploy(Path("flights.py"))
        cluster.wait("flights")

A job is deployed downstream first: every engine makes its inboxes ready and returns where they
are, all engines get the places of all of them, then the job begins, with its driver on node 0. If
one engine cannot, none does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.cluster.client import (
    POLL_S,
    EngineClient,
    Progress,
    content_path,
    job_path,
    journal_path,
    state_path,
)
from millstream.cluster.letters import JobLetters
from millstream.cluster.programs import Programs
from millstream.cluster.switches import JobSwitches
from millstream.cluster.tasks import EngineTasks
from millstream.engine.access.audit import AuditEntry, AuditQuery
from millstream.engine.http.messages import (
    JournalDetail,
    JournalRows,
    JournalStatus,
    VerifiedJournal,
)
from millstream.engine.jobs.lifecycle import SETTLED, JobState
from millstream.engine.jobs.package import pack
from millstream.engine.jobs.state_status import StageStatus, StateRows
from millstream.engine.jobs.status import Happening, JobStatus, Peer, Place, Prepared, SourceStatus
from millstream.engine.programs.contents import Content
from millstream.errors import EngineAway, EnginesDiffer, MillstreamError, NoSuchJob

#: Verifying reads a journal from its beginning to its end.
_VERIFYING_S: Final = 3600.0


class _Log(msgspec.Struct):
    lines: list[str]
    next: str


class Cluster(Programs, JobSwitches, JobLetters, EngineTasks):
    """One or several engines. Node 0 has the drivers; with one engine that is all there is."""

    # deploying

    def deploy(
        self, flow: Path, *, name: str | None = None, options: Mapping[str, Any] | None = None
    ) -> JobStatus:
        """Deploy a flow on all engines: on every one of them, or on none.

        Raises:
            FlowError: The flow has a mistake.
            JobExists: A job of that name is deployed.
            EngineAway: An engine does not answer; the others have undone their part.
        """
        body: dict[str, Any] = {
            "package": pack(flow),
            "name": name,
            "root": str(flow.resolve().parent),
            "options": dict(options or {}),
        }
        self._narrow()
        if len(self.engines()) == 1:
            return self._engines[0].post("/jobs", JobStatus, body)
        prepared: list[Prepared] = []
        try:
            for engine in self._engines:
                if prepared:
                    body["binaries"] = prepared[0].binaries
                    self._deliver(prepared[0].binaries, engine)
                prepared.append(engine.post("/prepare", Prepared, body))
            return self._begin(prepared)
        except MillstreamError:
            self._undo(prepared)
            raise

    def _deliver(self, binaries: Mapping[str, str], to: EngineClient) -> None:
        """Bring programs of node 0 to another engine, unless it has them."""
        origin = self._engines[0]
        for sha256 in set(binaries.values()):
            there = to.content(sha256)
            if there is None or not there.whole:
                total = origin.get(content_path(sha256), Content).bytes
                to.send_content(sha256, total, partial(origin.read_content, sha256))

    def _begin(self, prepared: Sequence[Prepared]) -> JobStatus:
        """Begin a job on all engines, with the places of all inboxes; the driver comes last."""
        places = _places(prepared)
        peers = [Peer(engine.url, engine.about().inbox.ip) for engine in self._engines]
        begun = []
        for node, engine in reversed(list(enumerate(self._engines))):
            body = {"places": places, "driver": node == 0, "engines": peers}
            begun.append(engine.post(job_path(prepared[node].name, "begin"), JobStatus, body))
        return merged(begun)

    def _undo(self, prepared: Sequence[Prepared]) -> None:
        for engine, one in zip(self._engines, prepared, strict=False):
            with contextlib.suppress(MillstreamError):
                engine.delete(job_path(one.name), JobStatus, force=True)

    # looking

    def jobs(self) -> list[JobStatus]:
        """Return all jobs, those of several engines as one."""
        found: dict[str, list[JobStatus]] = {}
        for engine in self._there():
            for one in engine.get("/jobs", list[JobStatus]):
                found.setdefault(one.name, []).append(one)
        return [merged(parts) for parts in found.values()]

    def status(self, job: str) -> JobStatus:
        """Return a job as it is now.

        Raises:
            NoSuchJob: No engine has it.
            EngineAway: An engine does not answer.
        """
        return merged([status for _, status in self._with(job)])

    def logs(self, job: str, lines: int = 100) -> list[str]:
        """Return the last lines of the log of a job's driver."""
        return self._driver(job).get(job_path(job, "logs"), _Log, lines=lines).lines

    def follow(self, job: str, lines: int = 100) -> Iterator[list[str]]:
        """Yield the last lines of a job's log, and then what comes, for ever."""
        engine = self._driver(job)
        log = engine.get(job_path(job, "logs"), _Log, lines=lines)
        while True:
            yield log.lines
            time.sleep(0.0 if log.lines else POLL_S)
            log = engine.get(job_path(job, "logs"), _Log, after=log.next)

    def journals(self, job: str) -> list[JournalStatus]:
        """Return a job's journals in numbers, as the engine with its driver has them."""
        return self._driver(job).get(job_path(job, "journals"), list[JournalStatus])

    def journal(self, job: str, name: str) -> JournalDetail:
        """Return a journal of a job in detail; with ".dead", its dead letters."""
        return self._driver(job).get(journal_path(job, name), JournalDetail)

    def journal_pages(
        self,
        job: str,
        name: str,
        partition: int,
        *,
        start: int | None = None,
        columns: str | None = None,
        page: int = 1_000,
    ) -> Iterator[JournalRows]:
        """Yield the rows of a journal's partition that are there now, page by page."""
        engine, path = self._driver(job), journal_path(job, name, "rows")
        query = {"partition": partition, "limit": page, "columns": columns}
        end: int | None = None
        while True:
            found = engine.get(path, JournalRows, **query, **{"from": start})
            yield found
            end, start = end or found.end, found.next
            if start is None or start >= end:
                return

    def verify_journal(self, job: str, name: str) -> VerifiedJournal:
        """Compare a journal with its checksums, which reads all of it."""
        path = journal_path(job, name, "verify")
        return self._driver(job).post(path, VerifiedJournal, extra=_VERIFYING_S)

    def states(self, job: str) -> list[StageStatus]:
        """Return the stages of a job that keep state, as its driver reads them."""
        return self._driver(job).get_slowly(job_path(job, "state"), list[StageStatus])

    def state_rows(
        self,
        job: str,
        stage: str,
        *,
        key: str | None = None,
        at: int | None = None,
        limit: int = 100,
    ) -> StateRows:
        """Return the state of a stage as of one committed batch, a row for each key."""
        path = state_path(job, stage)
        return self._driver(job).get_slowly(path, StateRows, key=key, at=at, limit=limit)

    def history(self, job: str) -> list[Happening]:
        """Return what has happened to a job, on all engines, oldest first."""
        found = [
            one
            for engine, _ in self._with(job)
            for one in engine.get(job_path(job, "history"), list[Happening])
        ]
        return sorted(found, key=lambda one: one.at)

    def audit(self, query: AuditQuery) -> list[AuditEntry]:
        """Return the newest entries of the audit logs of all engines, oldest first."""
        asked = {"job": query.job, "who": query.who, "since": query.since, "limit": query.limit}
        found = [
            one
            for engine in self._there()
            for one in engine.get("/audit", list[AuditEntry], **asked)
        ]
        return sorted(found, key=lambda one: one.at)[-query.limit :]

    def wait(
        self, job: str, timeout: float | None = None, *, progress: Progress | None = None
    ) -> JobStatus:
        """Wait until a job has finished, drained or failed, or the time is over; return it.

        An engine that is away meanwhile is waited for, for a minute; a job that another engine takes
        over is followed there.
        """
        until = None if timeout is None else time.monotonic() + timeout
        engine = self._driver(job)
        self._tasks_at(engine.url)
        drained: set[EngineClient] = set()
        answered_at = time.monotonic()
        while True:
            left = POLL_S if until is None else max(0.0, min(POLL_S, until - time.monotonic()))
            try:
                status = engine.post(job_path(job, "wait"), JobStatus, limit=left)
            except (EngineAway, NoSuchJob) as error:
                if until is not None and time.monotonic() > until:
                    raise
                engine = self._follow(job, engine, error, answered_at)
                continue
            answered_at = time.monotonic()
            if status.state is JobState.DRAINING:
                self._drain_others(status, engine, drained)
            if progress is not None:
                progress(status)
            settled = status.state in SETTLED or status.state is JobState.UNDEPLOYED
            if settled:
                self._settle_others(status)
            if settled or (until is not None and answered_at >= until):
                return status

    def _drain_others(
        self, status: JobStatus, driver: EngineClient, drained: set[EngineClient]
    ) -> None:
        """Drain the job on the engines without the driver, once each."""
        for engine in self._engines:
            if engine is not driver and engine not in drained:
                with contextlib.suppress(MillstreamError):
                    _drain(engine, status.name, flush=status.flush)
                    drained.add(engine)

    def _settle_others(self, status: JobStatus) -> None:
        """Settle the job on the engines without the driver; `wait` reaches one that is away."""
        if status.state not in (JobState.DRAINED, JobState.FINISHED):
            return
        for engine in self._engines[1:]:
            with contextlib.suppress(MillstreamError):
                finished = status.state is JobState.FINISHED
                engine.post(job_path(status.name, "settled"), JobStatus, finished=finished)

    def _settle(self) -> None:
        """Settle jobs that are done on the engines without the driver, if nobody has waited."""
        if len(self._engines) > 1:
            for status in self.jobs():
                if not self._shares:
                    self._settle_others(status)

    # changing

    def drain(self, job: str, *, flush: bool = False) -> JobStatus:
        """Have a job take nothing more and process what it has; with `flush` it ends permanently.

        It does not wait until that is done: `wait` does, and drains an engine that is away now when
        it is back. One that stays away does not block the job forever: the driver's engine goes on
        without it, and the status names it.
        """
        # The inboxes come before the driver.
        return self._where(
            job,
            lambda: merged([_drain(one, job, flush=flush) for one in reversed(self._there())]),
        )

    def resume(self, job: str) -> JobStatus:
        """Have a drained or failed job go on."""
        self._narrow()
        self._settle()
        # The inboxes come before the driver.
        return self._where(
            job, lambda: merged([_resume(one, job) for one in reversed(self._whole())])
        )

    def undeploy(self, job: str, *, force: bool = False, purge: bool = False) -> JobStatus:
        """Remove a job that is finished, drained or failed, by `force` any; `purge`: its journals.

        Raises:
            JobBusy: It runs, and `force` was not given.
            EngineAway: An engine does not answer; the others have removed it.
        """
        return self._where(job, lambda: self._undeployed(job, force=force, purge=purge))

    def _undeployed(self, job: str, *, force: bool, purge: bool) -> JobStatus:
        gone: list[JobStatus] = []
        for engine, status in self._with(job):
            # The driver's engine knows whether the job is done; the others have inboxes only, and
            # follow it.
            gone.append(
                engine.delete(
                    job_path(status.name), JobStatus, force=force or bool(gone), purge=purge
                )
            )
        self._raise_away()
        return merged(gone)

    def stop(self, *, force: bool = False) -> None:
        """Stop all engines.

        Raises:
            JobsRunning: Jobs run, and `force` was not given; the engines stay.
            EngineAway: An engine does not answer; the others stop.
        """
        if not force:
            self._settle()
        for engine in self._there():
            engine.post("/stop", dict[str, Any], force=force)
        self._raise_away()


def _drain(engine: EngineClient, job: str, *, flush: bool) -> JobStatus:
    return engine.post(job_path(job, "drain"), JobStatus, flush=flush)


def _resume(engine: EngineClient, job: str) -> JobStatus:
    return engine.post(job_path(job, "resume"), JobStatus)


def _places(prepared: Sequence[Prepared]) -> dict[str, list[Place]]:
    """Return where every partition of every source lives, in the order of the partitions.

    Raises:
        EnginesDiffer: A partition lives on no engine, or on two.
    """
    found: dict[str, dict[int, Place]] = {}
    for one in prepared:
        for source, here in one.addresses.items():
            if source not in prepared[0].addresses:
                continue  # the driver of node 0 has read it before, and goes on
            known = found.setdefault(source, {})
            if double := known.keys() & here.keys():
                msg = f'partition {min(double)} of source "{source}" lives on two engines'
                raise EnginesDiffer(msg)
            known |= here
    for source, known in found.items():
        if missing := set(range(max(known, default=-1) + 1)) - known.keys():
            raise EnginesDiffer(f'partition {min(missing)} of source "{source}" lives on no engine')
    return {source: [known[number] for number in sorted(known)] for source, known in found.items()}


def merged(found: Sequence[JobStatus]) -> JobStatus:
    """Return a job of several engines as one: the driver's has its state, numbers are added up."""
    parts = sorted(found, key=lambda one: one.node)
    first = parts[0]
    if len(parts) == 1:
        return first
    inboxes = sorted(
        (one for part in parts for one in part.inboxes), key=lambda one: (one.source, one.partition)
    )
    return msgspec.structs.replace(
        first,
        reason=next((part.reason for part in parts if part.reason is not None), None),
        restarts=sum(part.restarts for part in parts),
        sources={name: _source(name, parts) for part in parts for name in part.sources},
        late=sum(part.late for part in parts),
        dead=sum(part.dead for part in parts),
        waiting=sum(part.waiting for part in parts),
        inboxes=tuple(inboxes),
    )


def _source(name: str, parts: Sequence[JobStatus]) -> SourceStatus:
    found = [part.sources[name] for part in parts if name in part.sources]
    return SourceStatus(
        rows=sum(one.rows for one in found),
        refused=sum(one.refused for one in found),
        bytes=sum(one.bytes for one in found),
        ended=all(one.ended for one in found),
        error=next((one.error for one in found if one.error is not None), None),
        waiting=next((one.waiting for one in found if one.waiting is not None), None),
    )
