"""The client of engines: one, or several that are a cluster.

    with Cluster(["http://10.0.0.5:8340", "http://10.0.0.6:8340"], token=token) as cluster:
        cluster.deploy(Path("flights.py"))
        cluster.wait("flights")

A job is deployed downstream first: every engine makes its inboxes ready and says where they are,
all engines are told where all of them are, then the job begins, with its driver on node 0. If one
engine cannot, none does.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from millstream import errors
from millstream.engine import tokens
from millstream.engine.http.openapi import JSON, OCTETS
from millstream.engine.jobs.lifecycle import SETTLED, JobState
from millstream.engine.jobs.package import pack
from millstream.engine.jobs.status import (
    BinaryStatus,
    EngineStatus,
    Happening,
    JobStatus,
    Peer,
    Place,
    Prepared,
    SourceStatus,
    SwitchStatus,
    VersionStatus,
)
from millstream.engine.jobs.switch_record import OVER
from millstream.engine.programs.contents import MOST_BYTES, Content
from millstream.errors import (
    BadBinary,
    EngineAway,
    EngineError,
    EnginesDiffer,
    InvalidAddress,
    MillstreamError,
    NoSuchAction,
    NoSuchJob,
)
from millstream.flow.binary import NAME
from millstream.links.network import Address, spanning
from millstream.switch.cut import WHOLE
from millstream.switch.request import SwitchRequest

DEFAULT: Final = "http://127.0.0.1:8340"
_POLL_S: Final = 1.0
_PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 0.2
_CONNECT_S: Final = 5.0
#: How much longer a driver may take to answer that asks Spark first.
_PLANNING_S: Final = 120.0
_PIECE: Final = 4 << 20

Answer = TypeVar("Answer")
Progress = Callable[[JobStatus], None]
#: Given an offset and a limit, returns bytes.
Read = Callable[[int, int], bytes]
#: Told how many bytes of how many are there.
Sent = Callable[[int, int], None]


class EngineClient:
    """One engine, asked over HTTP."""

    def __init__(self, url: str, token: str | None = None, *, timeout_s: float = 60.0) -> None:
        """Ask the engine at `url`; nothing is sent yet.

        Without a token, that of an engine of ours on this host is looked up when it is first
        needed.
        """
        self.url = _checked(url)
        self._token = token
        self._timeout_s = timeout_s
        # What the environment says about proxies is not for this host; what it says about
        # certificates is.
        direct = {f"all://{urlsplit(self.url).hostname}": None} if self.local else None
        self._http = httpx.Client(base_url=self.url, timeout=timeout_s, mounts=direct)

    @property
    def local(self) -> bool:
        host = urlsplit(self.url).hostname or ""
        with contextlib.suppress(ValueError):
            return ip_address(host).is_loopback
        return False

    def about(self) -> EngineStatus:
        return self.get("/engine", EngineStatus)

    # asking

    def get(self, path: str, kind: type[Answer], **query: Any) -> Answer:
        return self._ask("GET", path, kind, query)

    def post(
        self,
        path: str,
        kind: type[Answer],
        body: Any = None,
        *,
        patience_s: float = 0.0,
        **query: Any,
    ) -> Answer:
        return self._ask("POST", path, kind, query, body, patience_s=patience_s)

    def delete(self, path: str, kind: type[Answer], **query: Any) -> Answer:
        return self._ask("DELETE", path, kind, query)

    def _ask(
        self,
        method: str,
        path: str,
        kind: type[Answer],
        query: Mapping[str, Any],
        body: Any = None,
        *,
        patience_s: float = 0.0,
    ) -> Answer:
        if body is None:
            return self._decoded(self._send(method, path, query, patience_s=patience_s), kind)
        # Bytes go as they are.
        media, content = (
            (OCTETS, body) if isinstance(body, bytes) else (JSON, msgspec.json.encode(body))
        )
        return self._decoded(
            self._send(method, path, query, content, media, patience_s=patience_s), kind
        )

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        content: bytes | None = None,
        media: str | None = None,
        *,
        patience_s: float = 0.0,
    ) -> httpx.Response:
        headers = self._headers(method, path)
        if media is not None:
            headers["Content-Type"] = media
        given = {name: _text(value) for name, value in query.items() if value is not None}
        limit = httpx.Timeout(
            self._timeout_s + patience_s + float(query.get("limit", 0.0)),
            connect=min(_CONNECT_S, self._timeout_s),
        )
        try:
            return self._http.request(
                method, path, params=given, headers=headers, content=content, timeout=limit
            )
        except (httpx.ReadTimeout, httpx.WriteTimeout) as exc:
            raise EngineAway(
                f"the engine at {self.url} did not answer in {self._timeout_s:g} s"
            ) from exc
        except httpx.HTTPError as exc:
            hint = "is it running? millstream engine starts one, --engine names another"
            raise EngineAway(
                f"the engine at {self.url} cannot be reached: {str(exc) or type(exc).__name__}",
                hint=hint,
            ) from exc

    def _decoded(self, answer: httpx.Response, kind: type[Answer]) -> Answer:
        try:
            if answer.is_success:
                # What is not JSON is wanted as it is.
                if kind is bytes:
                    return answer.content  # type: ignore[return-value]
                return msgspec.json.decode(answer.content, type=kind)
            problem = msgspec.json.decode(answer.content, type=_Problem)
        except msgspec.MsgspecError as exc:
            said = f"{answer.status_code} {answer.reason_phrase}"
            raise EngineError(
                f"{self.url} does not answer as an engine does: {said}",
                hint="is it one of this version?",
            ) from exc
        raise problem.as_error()

    # the bytes of programs

    def content(self, sha256: str) -> Content | None:
        """Return how much of a program is there, None if nothing is."""
        try:
            return self.get(_content(sha256), Content)
        except NoSuchAction:
            return None

    def send_content(
        self, sha256: str, total: int, read: Read, *, progress: Sent | None = None
    ) -> None:
        """Bring the bytes of a program there, from where an earlier attempt has stopped.

        Raises:
            BadBinary: They are not what the hash says, or too many.
        """
        there = self.content(sha256)
        at = 0 if there is None else there.bytes
        while there is None or not there.whole:
            data = read(at, min(_PIECE, total - at))
            there = self.post(_content(sha256), Content, data, offset=at, bytes=total)
            at = there.bytes
            if progress is not None:
                progress(at, total)

    def read_content(self, sha256: str, offset: int, limit: int) -> bytes:
        """Return bytes of a program that is there."""
        return self._ask(
            "GET", f"{_content(sha256)}/bytes", bytes, {"offset": offset, "limit": limit}
        )

    def _headers(self, method: str, path: str) -> dict[str, str]:
        if self._token is None and self.local and (method != "GET" or path.endswith("/bytes")):
            self._token = tokens.local_token(Path(self.about().data), self.url)
        return {} if self._token is None else {"Authorization": f"Bearer {self._token}"}

    def close(self) -> None:
        self._http.close()


class SwitchPlanned(msgspec.Struct, frozen=True):
    """What a switch would do: as data, and as people read it."""

    plan: dict[str, Any]
    text: str


class _Log(msgspec.Struct):
    lines: list[str]
    next: str


class _Problem(msgspec.Struct):
    error: str
    message: str
    hint: str | None = None
    where: str | None = None

    def as_error(self) -> MillstreamError:
        """Return the error that the engine has raised."""
        kind = getattr(errors, self.error, None)
        if not (isinstance(kind, type) and issubclass(kind, MillstreamError)):
            kind = EngineError
        error = MillstreamError.__new__(kind)
        if self.where is not None:
            error.add_note(f"  {self.where}")
        MillstreamError.__init__(error, self.message, hint=self.hint)
        if issubclass(kind, errors.FlowError):
            error.where = None  # type: ignore[attr-defined]  # its place is a note already
        return error


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidAddress(
            f'"{url}" is not the address of an engine', hint=f"it is written like {DEFAULT}"
        )
    return url.rstrip("/").replace("://localhost", "://127.0.0.1", 1)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Cluster:
    """One or several engines. Node 0 has the drivers; with one engine that is all there is."""

    def __init__(
        self,
        urls: Sequence[str] = (DEFAULT,),
        token: str | Mapping[str, str] | None = None,
        *,
        timeout_s: float = 60.0,
    ) -> None:
        """Name the engines; nothing is asked yet.

        Args:
            urls: All engines of the cluster, in any order.
            token: The token of all of them, or of each by its URL; None: those of engines on this
                host are looked up.
            timeout_s: How long an engine may take to answer.
        """
        given = token if isinstance(token, Mapping) else dict.fromkeys(urls, token)
        self._engines = [EngineClient(url, given.get(url), timeout_s=timeout_s) for url in urls]
        self._away: dict[EngineClient, EngineAway] = {}

    # engines

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(engine.url for engine in self._engines)

    def engines(self) -> list[EngineStatus]:
        """Return what the engines say of themselves, by node number.

        Raises:
            EngineAway: One of them does not answer.
            WrongNodes: Their numbers are not 0 to N-1, each once.
            LoopbackInCluster: They are on several hosts, and one listens on its own alone.
            EnginesDiffer: They are some of another number of engines.
        """
        found = self._ask_all()
        if self._away:
            raise next(iter(self._away.values()))
        return found

    @property
    def away(self) -> tuple[str, ...]:
        """The engines that did not answer when they were last asked."""
        return tuple(engine.url for engine in self._away)

    def _ask_all(self) -> list[EngineStatus]:
        """Ask all engines who they are, and bring them into the order of their nodes, those that are away last."""
        told: list[tuple[EngineStatus, EngineClient]] = []
        self._away = {}
        for engine in self._engines:
            try:
                told.append((engine.about(), engine))
            except EngineAway as error:
                self._away[engine] = error
        told.sort(key=lambda one: one[0].node)
        found = [about for about, _ in told]
        if not self._away:
            self._check(found)
        self._engines = [*(engine for _, engine in told), *self._away]
        return found

    def _there(self) -> list[EngineClient]:
        """Return the engines that answer, node 0 first, which has the drivers.

        Raises:
            EngineAway: It does not answer.
        """
        if len(self._engines) == 1:
            return self._engines
        found = self._ask_all()
        if self._away and (not found or found[0].node != 0):
            raise next(iter(self._away.values()))
        return [engine for engine in self._engines if engine not in self._away]

    def _whole(self) -> list[EngineClient]:
        """Return all engines, node 0 first.

        Raises:
            EngineAway: One of them does not answer.
        """
        found = self._there()
        if self._away:
            raise next(iter(self._away.values()))
        return found

    def _check(self, found: Sequence[EngineStatus]) -> None:
        spanning([Address(one.inbox.ip, one.inbox.port, one.node) for one in found])
        for one in found:
            if one.of != len(found):
                raise EnginesDiffer(
                    f"the engine at {one.url} is node {one.node} of {one.of}, and not of {len(found)}",
                    hint="name every engine of the cluster, each with --engine",
                )

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
        """Bring programs that node 0 keeps to another engine, which keeps what it was brought once."""
        origin = self._engines[0]
        for sha256 in set(binaries.values()):
            there = to.content(sha256)
            if there is None or not there.whole:
                total = origin.get(_content(sha256), Content).bytes
                to.send_content(sha256, total, partial(origin.read_content, sha256))

    def _begin(self, prepared: Sequence[Prepared]) -> JobStatus:
        """Tell all engines where all inboxes are; the driver comes last, when nobody it needs is missing."""
        places = _places(prepared)
        peers = [Peer(engine.url, engine.about().inbox.ip) for engine in self._engines]
        begun = []
        for node, engine in reversed(list(enumerate(self._engines))):
            body = {"places": places, "driver": node == 0, "engines": peers}
            begun.append(engine.post(_job(prepared[node].name, "begin"), JobStatus, body))
        return merged(begun)

    def _undo(self, prepared: Sequence[Prepared]) -> None:
        for engine, one in zip(self._engines, prepared, strict=False):
            with contextlib.suppress(MillstreamError):
                engine.delete(_job(one.name), JobStatus, force=True)

    # programs

    def add_action(self, name: str, file: Path, *, progress: Sent | None = None) -> BinaryStatus:
        """Have the engines keep a program, as a new version of `name`, unless the newest is the same.

        Node 0 gets it; the others do when a flow is deployed that names it.

        Raises:
            BadBinary: It is no file, empty, or too large.
        """
        path, engine = _action(name), self._there()[0]
        try:
            with file.open("rb") as opened:
                sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
                total = opened.seek(0, io.SEEK_END)
                if not 0 < total <= MOST_BYTES:
                    hint = f"a program has 1 byte to {MOST_BYTES >> 20} MB"
                    raise BadBinary(f'"{file}" has {total:,} bytes', hint=hint)
                engine.send_content(sha256, total, partial(_read_at, opened), progress=progress)
        except OSError as exc:
            raise BadBinary(
                f'"{file}" cannot be read: {exc.strerror}', hint="name the file of a program"
            ) from exc
        return engine.post(path, BinaryStatus, {"sha256": sha256})

    def actions(self) -> list[BinaryStatus]:
        """Return all versions of all programs that the engines keep, by name, oldest first."""
        return self._there()[0].get("/actions", list[BinaryStatus])

    def action(self, name: str) -> list[BinaryStatus]:
        """Return all versions of a program, oldest first.

        Raises:
            NoSuchAction: There is none.
        """
        return self._there()[0].get(_action(name), list[BinaryStatus])

    def remove_action(self, name: str, version: int | None = None) -> list[BinaryStatus]:
        """Have the engines forget a version of a program, or all of them.

        Raises:
            NoSuchAction: There is none.
            ActionInUse: A job was deployed with it.
            EngineAway: An engine does not answer; nothing is removed.
        """
        first, *others = self._whole()
        gone = first.delete(_action(name), list[BinaryStatus], version=version)
        for engine in others:
            for one in gone:
                engine.delete(_content(one.sha256), dict[str, Any])
        return gone

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
        return self._driver(job).get(_job(job, "logs"), _Log, lines=lines).lines

    def follow(self, job: str, lines: int = 100) -> Iterator[list[str]]:
        """Yield the last lines of a job's log, and then what comes, for ever."""
        engine = self._driver(job)
        log = engine.get(_job(job, "logs"), _Log, lines=lines)
        while True:
            yield log.lines
            time.sleep(0.0 if log.lines else _POLL_S)
            log = engine.get(_job(job, "logs"), _Log, after=log.next)

    def history(self, job: str) -> list[Happening]:
        """Return what has happened to a job, on all engines, oldest first."""
        found = [
            one
            for engine, _ in self._with(job)
            for one in engine.get(_job(job, "history"), list[Happening])
        ]
        return sorted(found, key=lambda one: one.at)

    def wait(
        self, job: str, timeout_s: float | None = None, *, progress: Progress | None = None
    ) -> JobStatus:
        """Wait until a job has finished, is drained or has failed, or the time is over; return it as it is then.

        An engine that is away meanwhile is waited for, for a minute.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        engine = self._driver(job)
        told: set[EngineClient] = set()
        heard_at = time.monotonic()
        while True:
            left = _POLL_S if until is None else max(0.0, min(_POLL_S, until - time.monotonic()))
            try:
                status = engine.post(_job(job, "wait"), JobStatus, limit=left)
            except EngineAway:
                now = time.monotonic()
                if now - heard_at > _PATIENCE_S or (until is not None and now > until):
                    raise
                time.sleep(_PAUSE_S)
                continue
            heard_at = time.monotonic()
            if status.state is JobState.DRAINING:
                self._drain_others(status, engine, told)
            if progress is not None:
                progress(status)
            settled = status.state in SETTLED or status.state is JobState.UNDEPLOYED
            if settled:
                self._tell_settled(status)
            if settled or (until is not None and heard_at >= until):
                return status

    def _drain_others(
        self, status: JobStatus, driver: EngineClient, told: set[EngineClient]
    ) -> None:
        """Tell, once each, the engines without the driver that the job drains: one may have been away before."""
        for engine in self._engines:
            if engine is not driver and engine not in told:
                with contextlib.suppress(MillstreamError):
                    _drain(engine, status.name, flush=status.flush)
                    told.add(engine)

    def _tell_settled(self, status: JobStatus) -> None:
        """Tell the engines without the driver that it is done; one that is away now is told by the next who waits."""
        if status.state not in (JobState.DRAINED, JobState.FINISHED):
            return
        for engine in self._engines[1:]:
            with contextlib.suppress(MillstreamError):
                finished = status.state is JobState.FINISHED
                engine.post(_job(status.name, "settled"), JobStatus, finished=finished)

    def _settle(self) -> None:
        """Tell the engines without the driver which jobs are done: nobody may have waited for them."""
        if len(self._engines) > 1:
            for status in self.jobs():
                self._tell_settled(status)

    # changing

    def drain(self, job: str, *, flush: bool = False) -> JobStatus:
        """Have a job take nothing more, on all engines, and process what it has; with `flush` it ends, for good.

        It does not wait until that is done: `wait` does, and tells an engine that is away now when
        it is back. One that stays away blocks nobody for good: the driver's engine gives up, and
        the job says whom it misses.
        """
        # The inboxes come before the driver.
        return merged([_drain(engine, job, flush=flush) for engine in reversed(self._there())])

    def resume(self, job: str) -> JobStatus:
        """Have a drained or failed job go on."""
        self._settle()
        # The inboxes come before the driver.
        return merged(
            [engine.post(_job(job, "resume"), JobStatus) for engine in reversed(self._whole())]
        )

    def undeploy(self, job: str, *, force: bool = False, purge: bool = False) -> JobStatus:
        """Remove a job that is finished, drained or failed, by `force` any; its journals stay, unless `purge`.

        Raises:
            JobBusy: It runs, and `force` was not given.
            EngineAway: An engine does not answer; the others have removed it.
        """
        gone: list[JobStatus] = []
        for engine, status in self._with(job):
            # The driver's engine knows whether the job is done; the others have inboxes only, and
            # follow it.
            gone.append(
                engine.delete(_job(status.name), JobStatus, force=force or bool(gone), purge=purge)
            )
        self._complain()
        return merged(gone)

    # switching

    def plan_switch(
        self, job: str, flow: Path | None, request: SwitchRequest | None = None
    ) -> SwitchPlanned:
        """Return what a switch of a job to another version, without a flow to the one before, would do.

        Nothing is touched.

        Raises:
            FlowError: The new version has a mistake.
            InvalidTransition: The job does not run.
        """
        body, driver = _body(flow, request or SwitchRequest()), self._driver(job)
        return driver.post(_job(job, "switch/plan"), SwitchPlanned, body, patience_s=_PLANNING_S)

    def switch(
        self, job: str, flow: Path | None, request: SwitchRequest | None = None
    ) -> JobStatus:
        """Begin to replace the running version of a job; `wait_switch` waits until that is done.

        Args:
            job: Its name or id.
            flow: The new version; None goes back, or gives the one that shares the keys another
                share.
            request: What is asked for.

        Raises:
            FlowError: The new version has a mistake.
            SwitchImpossible: It cannot replace the running version.
            SwitchRefused: A switch is going on, there is nothing to switch, or no version to go
                back to.
        """
        body, driver = _body(flow, request or SwitchRequest()), self._driver(job)
        return driver.post(_job(job, "switch"), JobStatus, body, patience_s=_PLANNING_S)

    def abort_switch(self, job: str) -> JobStatus:
        """Abort a switch before its cut, or end a shadow.

        Raises:
            SwitchRefused: There is none, or it is past its cut.
        """
        return self._driver(job).delete(_job(job, "switch"), JobStatus)

    def versions(self, job: str) -> list[VersionStatus]:
        """Return the versions of a job, oldest first, each with the switch that led to it."""
        return self._driver(job).get(_job(job, "versions"), list[VersionStatus])

    def wait_switch(
        self, job: str, timeout_s: float | None = None, *, progress: Progress | None = None
    ) -> JobStatus:
        """Wait until no switch of a job is going on, or the time is over; return the job as it is then.

        A new version that is to have a share of the keys is waited for until it has it. An engine
        that is away meanwhile is waited for, for a minute.
        """
        engine, heard_at = self._driver(job), time.monotonic()
        until = None if timeout_s is None else heard_at + timeout_s
        while True:
            try:
                status = engine.get(_job(job), JobStatus)
            except EngineAway:
                if time.monotonic() - heard_at > _PATIENCE_S:
                    raise
                time.sleep(_PAUSE_S)
                continue
            heard_at = time.monotonic()
            if progress is not None:
                progress(status)
            over = status.switch is None or status.switch.state in OVER or _shared(status.switch)
            if over or status.state in SETTLED or (until is not None and heard_at >= until):
                return status
            time.sleep(_PAUSE_S)

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
        self._complain()

    def _complain(self) -> None:
        for error in self._away.values():
            raise error

    def gone(self, timeout_s: float = 60.0) -> bool:
        """Wait until no engine answers any more; return whether that is so."""
        until = time.monotonic() + timeout_s
        for engine in self._engines:
            while self._answers(engine):
                if time.monotonic() > until:
                    return False
                time.sleep(_PAUSE_S)
        return True

    def _answers(self, engine: EngineClient) -> bool:
        try:
            engine.get("/health", dict[str, Any])
        except EngineAway:
            return False
        return True

    # finding

    def _with(self, job: str) -> list[tuple[EngineClient, JobStatus]]:
        """Return the engines that answer and have a job, that of its driver first.

        Raises:
            NoSuchJob: None of them has it.
        """
        missing: NoSuchJob | None = None
        found: list[tuple[EngineClient, JobStatus]] = []
        for engine in self._there():
            try:
                found.append((engine, engine.get(_job(job), JobStatus)))
                job = found[0][1].name  # ids are each engine's own
            except NoSuchJob as error:
                missing = error
        if not found and missing is not None:
            raise missing
        return found

    def _driver(self, job: str) -> EngineClient:
        return self._with(job)[0][0]

    # closing

    def close(self) -> None:
        for engine in self._engines:
            engine.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _job(job: str, what: str | None = None) -> str:
    if "/" in job or job in ("", ".", ".."):
        raise NoSuchJob(f'there is no job "{job}"', hint="millstream jobs lists them")
    path = f"/jobs/{quote(job, safe='')}"
    return path if what is None else f"{path}/{what}"


def _action(name: str) -> str:
    if re.fullmatch(NAME, name) is None:
        hint = "a name begins with a letter, and goes on with letters, digits, dots, dashes and underscores"
        raise NoSuchAction(f'"{name}" is not the name of an action', hint=hint)
    return f"/actions/{name}"


def _content(sha256: str) -> str:
    return f"/contents/{sha256}"


def _read_at(file: BinaryIO, offset: int, limit: int) -> bytes:
    file.seek(offset)
    return file.read(limit)


def _shared(switch: SwitchStatus) -> bool:
    """Tell whether the new version has the share of the keys that it is to have."""
    return switch.phase == "sharing" and switch.share == switch.wanted


def _body(flow: Path | None, request: SwitchRequest) -> dict[str, Any]:
    """Return a request as an engine gets it."""
    body: dict[str, Any] = {
        "consent": request.consent,
        "limit": request.timeout.total_seconds(),
    }
    if flow is not None:
        body |= {"package": pack(flow), "root": str(flow.resolve().parent)}
    elif request.share is None:
        body["back"] = True
    if request.share is not None:
        body["share"] = request.share / WHOLE
    if request.since is not None:
        body["since"] = request.since
    if request.duration is not None:
        body["shadow"] = request.duration.total_seconds()
    if (trial := request.trial) is not None:
        body["probation"] = {
            "seconds": trial.seconds,
            "back": trial.back,
            "errors": trial.limits.errors,
            "dead_letters": trial.limits.dead_letters,
            "lag_seconds": trial.limits.lag_s,
        }
    return body


def _drain(engine: EngineClient, job: str, *, flush: bool) -> JobStatus:
    return engine.post(_job(job, "drain"), JobStatus, flush=flush)


def _places(prepared: Sequence[Prepared]) -> dict[str, list[Place]]:
    """Return where every partition of every source lives, in the order of the partitions.

    Raises:
        EnginesDiffer: A partition lives on no engine, or on two.
    """
    found: dict[str, dict[int, Place]] = {}
    for one in prepared:
        for source, here in one.addresses.items():
            known = found.setdefault(source, {})
            if double := known.keys() & here.keys():
                raise EnginesDiffer(
                    f'partition {min(double)} of source "{source}" lives on two engines'
                )
            known |= here
    for source, known in found.items():
        if missing := set(range(max(known, default=-1) + 1)) - known.keys():
            raise EnginesDiffer(f'partition {min(missing)} of source "{source}" lives on no engine')
    return {source: [known[number] for number in sorted(known)] for source, known in found.items()}


def merged(found: Sequence[JobStatus]) -> JobStatus:
    """Return a job of several engines as one: the driver's engine knows its state and what is left; others add up."""
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
    )
