"""The engine: the jobs of one node, their inboxes, and the processes that run them.

    engine.lock       one engine per folder
    jobs.sqlite       the store
    packages/         what was deployed, unpacked
    actions/          programs, by their hash
    jobs/<name>/      the data of a job: run.log, and under its name journals and checkpoints
    scratch/          what drivers put down in passing
    inbox_<port>      the IPC socket of all inboxes, inboxes.json where they are

A job whose engine dies, whose driver dies, or both, goes on where it was: nothing that was
acknowledged is lost, and nothing is processed twice. Intake goes on while a driver is started
again.
"""

from __future__ import annotations

import contextlib
import difflib
import shutil
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream import journal
from millstream.clock import Clock, SystemClock, iso
from millstream.engine.driver.process import DriverProcess
from millstream.engine.driver.protocol import Declare, Declared, Describe, Described
from millstream.engine.inboxes.inboxes import Inboxes
from millstream.engine.job_runner import Folders, JobRunner, ManagedJob
from millstream.engine.jobs import lifecycle as life
from millstream.engine.jobs import package as packages
from millstream.engine.jobs.lifecycle import Event, Job, JobState
from millstream.engine.jobs.status import (
    GroupStatus,
    Happening,
    InboxStatus,
    JobStatus,
    Peer,
    Place,
    Prepared,
    RuntimeStatus,
    SourceStatus,
    VersionStatus,
)
from millstream.engine.jobs.store import Binary, JobSettings, Noted, Store, Stored
from millstream.engine.jobs.switch_record import Planned
from millstream.engine.programs.binaries import Binaries
from millstream.engine.schemes.guests import Guest, GuestOrder, GuestStatus
from millstream.engine.switch_service import (
    Wanted,
    check_undivided,
    switch_status,
    version_statuses,
)
from millstream.errors import (
    EngineClosed,
    EngineRunning,
    InvalidOption,
    InvalidTransition,
    JobExists,
    JobsRunning,
    JournalError,
    NoSuchJob,
    WrongNodes,
)
from millstream.journal.kinds.files.summary import Summary, summary
from millstream.links.client import Client
from millstream.links.host import Listening
from millstream.links.network import Address
from millstream.storage import Claim, Folder

#: How long a driver may take to read a flow.
_DESCRIBE_S: Final = 120.0
#: How long to wait for an engine that lets go of the folder.
_LOCK: Final = "engine.lock"
_LOCK_S: Final = 3.0
_DEFAULT: Final = Listening()


class _Numbers(msgspec.Struct, frozen=True):
    """What a driver reports: `RunStatistics`."""

    groups: tuple[GroupStatus, ...] = ()
    sources: dict[str, SourceStatus] = {}
    late: int = 0
    dead: int = 0
    runtimes: tuple[RuntimeStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A flow that is being deployed: its driver has read it."""

    driver: DriverProcess
    described: Described
    settings: JobSettings
    package: bytes


class Engine:
    """The jobs of one node. Any thread may call; what a method promises is on disk when it returns."""

    def __init__(
        self,
        data: Path,
        *,
        node: int = 0,
        of: int = 1,
        listening: Listening = _DEFAULT,
        master: str | None = None,
        warm: int = 0,
        clock: Clock | None = None,
    ) -> None:
        """Make an engine; `start` begins.

        Args:
            data: Its folder.
            node: Its number among the engines of a cluster, 0 to N-1.
            of: How many they are, N.
            listening: Where its inboxes listen, and who may send.
            master: The Spark master of its drivers; this machine's cores if it is None.
            warm: How many drivers are kept with Spark started, for jobs to come.
            clock: Tells the time.
        """
        self.data, self.node, self.of = data.resolve(), node, of
        self._listening, self._master, self._spares = listening, master, warm
        self._clock = clock or SystemClock()
        self._folders = Folders(self.data)
        self._claim: Claim | None = None
        self._names: set[str] = set()
        self._clients: dict[str, Client] = {}
        self._guard = threading.Lock()
        self._parts: _Parts | None = None
        #: Set by `stop`: whoever runs this engine waits for it, and closes it.
        self.stopped = threading.Event()

    def start(self) -> None:
        """Take the data folder, and go on with the jobs that are in it.

        Raises:
            EngineRunning: Another engine has the folder.
            WrongNodes: The node number is not one of 0 to N-1, or the folder is another node's.
        """
        if not 0 <= self.node < self.of:
            raise WrongNodes(
                f"there is no node {self.node} of {self.of}", hint="nodes are numbered from 0"
            )
        self._claim = _claimed(self.data)
        with contextlib.ExitStack() as stack:
            stack.callback(self._release_folder)
            store = Store(self.data / "jobs.sqlite")
            stack.callback(store.close)
            self._check_node(store)
            inboxes = Inboxes(
                self.data, self._listening, node=self.node, of=self.of, clock=self._clock
            )
            stack.callback(inboxes.close)
            binaries = Binaries(self._folders.actions, store, self._clock)
            runner = JobRunner(
                self._folders,
                store,
                inboxes,
                binaries,
                clock=self._clock,
                master=self._master,
                spares=self._spares,
            )
            stack.callback(runner.close, 0.0)
            runner.start()
            inboxes.start()
            self._parts = _Parts(store, inboxes, runner, binaries)
            stack.pop_all()

    def _check_node(self, store: Store) -> None:
        was, now = store.fact("node", f"{self.node} of {self.of}"), f"{self.node} of {self.of}"
        if was != now:
            raise WrongNodes(
                f"{self.data} belongs to node {was}, this is node {now}",
                hint="give each node a folder of its own",
            )

    def _release_folder(self) -> None:
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    @property
    def _open(self) -> _Parts:
        if self._parts is None:
            raise EngineClosed("the engine is not started, or closed")
        return self._parts

    def close(self, *, drain_s: float = 0.0) -> None:
        """Stop all drivers cleanly, after they have had `drain_s` to process what was taken; the next engine goes on."""
        parts, self._parts = self._parts, None
        if parts is None:
            return
        with contextlib.ExitStack() as stack:
            stack.callback(self._release_folder)
            stack.callback(parts.store.close)
            stack.callback(parts.inboxes.close)
            for client in self._clients.values():
                stack.callback(client.abort)
            parts.runner.close(drain_s)
        with parts.runner.changed:
            parts.runner.changed.notify_all()

    @property
    def address(self) -> Address:
        """Where this engine's inboxes are."""
        return self._open.inboxes.address

    # deploying

    def deploy(
        self,
        package: bytes,
        *,
        name: str | None = None,
        root: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> JobStatus:
        """Deploy a flow on this engine alone: prepare and begin.

        `options` are "rows_per_batch" (int) and "state" ("memory" or "rocksdb").

        Raises:
            BadPackage: It is not what `package.pack` makes.
            FlowError: The flow has a mistake.
            JobExists: A job of that name is deployed.
            InvalidOption: An option is not known.
            WrongNodes: This engine is one of several.
        """
        if self.of > 1:
            raise WrongNodes(
                f"this is node {self.node} of {self.of}",
                hint="deploy on all of them: millstream deploy",
            )
        with self._arriving(package, name, root, options) as arrival, self._opened(arrival):
            # Written down as beginning at once: a job that nobody has been told of is not left half
            # done.
            job, _ = life.advance(self._new_job(arrival), life.Deployed(), self._now())
            kept = self._add(arrival, job)
        self._open.runner.call(partial(self._open.runner.happened, kept, life.EngineStarted()))
        return self._status(kept)

    @contextlib.contextmanager
    def _opened(self, arrival: _Arrival) -> Iterator[None]:
        """Open the inboxes of a job to be; close them if it does not come to that."""
        inboxes, name = self._open.inboxes, arrival.described.name
        inboxes.open(name, self._folders.flow(name), {}, partitions=arrival.settings.inboxes)
        try:
            yield
        except BaseException:
            inboxes.close_job(name)
            raise

    def prepare(
        self,
        package: bytes,
        *,
        name: str | None = None,
        root: str | None = None,
        options: Mapping[str, Any] | None = None,
        binaries: Mapping[str, str] | None = None,
    ) -> Prepared:
        """Take a flow, and return where its partitions that live here will be; nothing runs yet.

        `binaries` says which content the programs have that it names, as node 0 has told; else this
        engine's names count.
        """
        with self._arriving(package, name, root, options, binaries) as arrival:
            kept = self._add(arrival, self._new_job(arrival))
        place, inboxes = self._open.inboxes.place, arrival.settings.inboxes
        here = self._open.inboxes.here
        return Prepared(
            kept.stored.id,
            kept.name,
            {source: dict.fromkeys(here(n), place) for source, n in inboxes.items()},
            arrival.settings.binaries,
        )

    @contextlib.contextmanager
    def _arriving(
        self,
        package: bytes,
        name: str | None,
        root: str | None,
        options: Mapping[str, Any] | None,
        binaries: Mapping[str, str] | None = None,
    ) -> Iterator[_Arrival]:
        """Unpack a flow, have a driver read it and make its journals; take all of it back if that fails."""
        given, runner = _checked(options or {}), self._open.runner
        folder = self._folders.packages / uuid.uuid4().hex
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            flow = packages.unpack(package, folder)
            driver = runner.call(runner.drivers.start)
            stack.callback(driver.kill)
            described = driver.ask(Describe(str(flow), name), Described, _DESCRIBE_S)
            pinned = self._open.binaries.pinned(described.binaries, binaries)
            with self._reserved(described.name):
                declare = Declare(str(self._folders.flow(described.name)))
                driver.ask(declare, Declared, _DESCRIBE_S)
                settings = JobSettings(
                    flow=flow.name,
                    package=folder.name,
                    root=root,
                    options=given,
                    inboxes=described.inboxes,
                    binaries=pinned,
                )
                yield _Arrival(driver, described, settings, package)
            stack.pop_all()

    @contextlib.contextmanager
    def _reserved(self, name: str) -> Iterator[None]:
        """Keep a name for a job that is being deployed."""
        with self._guard:
            there = self._open.runner.jobs.get(name)
            if there is not None or name in self._names:
                state = (
                    "being deployed" if there is None else f"{there.job.state}, {there.stored.id}"
                )
                hint = f"millstream undeploy {name} first, or deploy under another name: --name"
                raise JobExists(f'job "{name}" is deployed already ({state})', hint=hint)
            self._names.add(name)
        try:
            yield
        finally:
            self._names.discard(name)

    def _new_job(self, arrival: _Arrival) -> Job:
        return Job(arrival.described.name, since=self._now(), hosted=arrival.described.hosted)

    def _add(self, arrival: _Arrival, job: Job) -> ManagedJob:
        parts, name, now = self._open, arrival.described.name, self._now()
        its_id, number = parts.store.next_id(name)
        stored = Stored(
            id=its_id, name=name, number=number, deployed_at=now, settings=arrival.settings, job=job
        )

        def add() -> ManagedJob:
            for sha256 in arrival.settings.binaries.values():
                parts.binaries.contents.status(sha256)  # nobody has removed it meanwhile
            noted = Noted(now, JobState.DEPLOYED, arrival.settings.flow)
            return parts.runner.add(stored, arrival.package, noted, arrival.driver)

        return parts.runner.call(add)

    def _now(self) -> float:
        return self._clock.now_us() / 1e6

    def begin(
        self,
        job: str,
        places: Mapping[str, Sequence[Place]],
        *,
        driver: bool,
        engines: Sequence[Peer] = (),
    ) -> JobStatus:
        """Begin a prepared job, whose inboxes are at `places`, one for each partition of each source.

        `engines` are all of them, by their nodes.

        Raises:
            NoSuchJob: It was not prepared here.
        """
        kept = self._kept(job)
        settings = msgspec.structs.replace(
            kept.stored.settings,
            places={source: list(all_of_it) for source, all_of_it in places.items()},
            engines=list(engines),
        )

        def begin() -> None:
            if kept.job.state is JobState.DEPLOYED:
                self._open.store.update(kept.stored.id, kept.job, settings=settings)
                kept.stored = msgspec.structs.replace(kept.stored, settings=settings)
            self._open.runner.apply(kept, life.Deployed(driver))
            if not driver:
                self._open.runner.dismiss(kept)

        self._open.runner.call(begin)
        return self._status(kept)

    def host(self, job: str, node: str, order: GuestOrder) -> GuestStatus:
        """Start, end, drain or ask the runtime of a node for the engine that has the job's driver.

        Raises:
            NoSuchJob: It was not prepared here.
            InvalidTransition: Its driver is here.
            InvalidScheme: It is no scheme.
            RequestRefused: There is no such node.
        """
        kept, runner = self._kept(job), self._open.runner
        if kept.job.driver:
            raise InvalidTransition(f'job "{kept.name}" has its driver here, or has not begun')

        def obey() -> Guest:
            guest = runner.guests.of(kept.name)
            guest.check(node, order)
            guest.obey(node, order)
            return guest

        return runner.call(obey).status(node, order.command)

    # looking

    def jobs(self) -> list[JobStatus]:
        """Return the jobs that are deployed, in the order of their deployment."""
        deployed = sorted(
            self._open.runner.jobs.values(),
            key=lambda kept: (kept.stored.deployed_at, kept.stored.id),
        )
        return [self._status(kept) for kept in deployed]

    def status(self, job: str) -> JobStatus:
        """Return a job, by its name or its id; undeployed ones by their id.

        Raises:
            NoSuchJob: There is none.
        """
        return self._status(self._found(job))

    def _kept(self, job: str) -> ManagedJob:
        """Return a deployed job by its name or id."""
        jobs = self._open.runner.jobs
        found = jobs.get(job) or next(
            (kept for kept in list(jobs.values()) if kept.stored.id == job), None
        )
        if found is not None:
            return found
        known = [name for kept in list(jobs.values()) for name in (kept.name, kept.stored.id)]
        close = difflib.get_close_matches(job, known, 1)
        deployed = ", ".join(sorted(jobs)) or "none"
        hint = f'did you mean "{close[0]}"?' if close else f"jobs that are deployed: {deployed}"
        raise NoSuchJob(f'there is no job "{job}"', hint=hint)

    def _found(self, job: str) -> ManagedJob:
        """Return a job by its name or id, also one that is undeployed."""
        try:
            return self._kept(job)
        except NoSuchJob:
            stored = self._open.store.job(job)
            if stored is None:
                raise
            return ManagedJob(stored)

    def _status(self, kept: ManagedJob) -> JobStatus:
        stored, job, driver = kept.stored, kept.job, kept.driver
        numbers = msgspec.convert(kept.statistics, _Numbers)
        gone = job.state is JobState.UNDEPLOYED
        inboxes = () if gone else self._open.inboxes.status(kept.name)
        return JobStatus(
            id=stored.id,
            name=stored.name,
            state=job.state,
            reason=job.reason or _trouble(inboxes) or self._open.inboxes.missing(kept.name),
            flush=job.flush,
            node=self.node,
            of=self.of,
            deployed_at=iso(stored.deployed_at),
            since=iso(job.since),
            restarts=job.restarts,
            pid=driver.pid if driver is not None and kept.running else None,
            groups=numbers.groups,
            sources=_with_inboxes(numbers.sources, inboxes),
            late=numbers.late,
            dead=numbers.dead,
            unprocessed=0 if gone else self._unprocessed(kept, numbers),
            inboxes=inboxes,
            copies=() if gone else self._open.inboxes.copies(kept.name),
            version=str(kept.current),
            switch=switch_status(kept.switch),
            runtimes=numbers.runtimes if kept.running else tuple(map(_stopped, numbers.runtimes)),
        )

    def _unprocessed(self, kept: ManagedJob, numbers: _Numbers) -> int:
        """Return how many rows of the sources are not processed: as the driver says, without one by the journals.

        The driver's engine, which has copies of all partitions, counts them; the others count
        nothing twice.
        """
        if not kept.job.driver:
            return 0
        if kept.job.ready_at is not None and kept.fresh:
            return max((group.lag_rows for group in numbers.groups), default=0)
        folder = self._folders.flow(kept.name)
        return sum(_behind(file.parent) for file in sorted(folder.glob("journals/*/source.json")))

    def wait(self, job: str, timeout_s: float | None = None) -> JobStatus:
        """Wait until a job is FINISHED, DRAINED, FAILED or UNDEPLOYED, or the time is over; return it as it is then."""
        kept, runner = self._found(job), self._open.runner

        def settled() -> bool:
            return (
                self._parts is None
                or kept.job.state in life.SETTLED
                or kept.job.state is JobState.UNDEPLOYED
            )

        with runner.changed:
            runner.changed.wait_for(settled, timeout_s)
        return self._status(kept)

    def logs(self, job: str, lines: int = 100) -> list[str]:
        """Return the last lines of a job's log."""
        log = self._folders.log(self._found(job).name)
        text: list[str] = []
        for file in (log, log.with_name(f"{log.name}.1")):
            if len(text) < lines and file.is_file():
                text = [*file.read_text(errors="replace").splitlines()[-lines:], *text]
        return text[-lines:] if lines > 0 else []

    def history(self, job: str) -> list[Happening]:
        """Return what has happened to a job, oldest first."""
        noted = self._open.store.history(self._found(job).stored.id)
        return [Happening(iso(one.at), one.what, one.detail) for one in noted]

    def statistics(self, job: str) -> dict[str, Any]:
        """Return the numbers that the driver reported last, as `RunStatistics` has them; empty if it never did."""
        return self._found(job).statistics

    def journals(self, job: str) -> list[Summary]:
        """Return a job's journals that are on this engine, in numbers."""
        folder = self._folders.flow(self._found(job).name)
        return [summary(file.parent) for file in sorted(folder.glob("journals/*/journal.json"))]

    # changing

    def drain(self, job: str, *, flush: bool = False) -> JobStatus:
        """Have a job take nothing more and process what it has; with `flush` it ends, for good.

        What it has taken here is durable when this returns, but not processed: `wait` waits for
        that.

        Raises:
            InvalidTransition: It has failed, or has not begun.
            SwitchRefused: It is to end, and two versions share its keys.
        """
        kept = self._kept(job)
        if flush:
            check_undivided(kept)
        self._open.runner.call(partial(self._open.runner.apply, kept, life.DrainAsked(flush)))
        self._open.inboxes.settle(kept.name)
        return self._status(kept)

    def _apply(self, job: str, event: Event) -> JobStatus:
        kept = self._kept(job)
        self._open.runner.call(partial(self._open.runner.apply, kept, event))
        return self._status(kept)

    def settled(self, job: str, state: JobState) -> JobStatus:
        """Hear, on an engine without the job's driver, that the driver's job is DRAINED or FINISHED."""
        return self._apply(job, life.Finished() if state is JobState.FINISHED else life.Drained())

    def missed(self, job: str, peer: str) -> JobStatus:
        """Hear that an engine of a job that drains has not answered for too long."""
        return self._apply(job, life.PeerMissed(peer))

    def resume(self, job: str) -> JobStatus:
        """Have a drained or failed job go on.

        Raises:
            InvalidTransition: It has finished, or is draining.
        """
        return self._apply(job, life.ResumeAsked())

    def undeploy(self, job: str, *, force: bool = False, purge: bool = False) -> JobStatus:
        """Remove a job: one that is finished, drained or failed, by `force` any. Its journals stay, unless `purge`.

        Raises:
            JobBusy: It runs, and `force` was not given.
        """
        kept = self._kept(job)
        unprocessed = self._status(kept).unprocessed
        status = self._apply(job, life.UndeployAsked(force, purge, unprocessed))
        client = self._clients.pop(kept.stored.id, None)
        if client is not None:
            client.abort()
        return status

    # switching

    def plan_switch(self, job: str, wanted: Wanted) -> Planned:
        """Say what a switch to another version would do; nothing is touched.

        Raises:
            FlowError: The new version has a mistake.
            InvalidTransition: The job does not run.
        """
        return self._open.runner.switches.plan(self._kept(job), wanted)

    def switch(self, job: str, wanted: Wanted) -> JobStatus:
        """Begin to put another version in the place of the one that runs; `status` tells how that goes.

        Raises:
            FlowError: The new version has a mistake.
            SwitchImpossible: It cannot take the place of the one that runs.
            SwitchRefused: A switch is going on, there is nothing to switch, or no version to go
                back to.
            InvalidTransition: The job does not run.
        """
        kept = self._kept(job)
        self._open.runner.switches.begin(kept, wanted)
        return self._status(kept)

    def give_up(self, job: str) -> JobStatus:
        """Have a switch given up, which goes until its cut.

        Raises:
            SwitchRefused: There is none, or it is past its cut.
        """
        kept = self._kept(job)
        self._open.runner.switches.give_up(kept)
        return self._status(kept)

    def versions(self, job: str) -> list[VersionStatus]:
        """Return the versions of a job, oldest first."""
        kept = self._found(job)
        return version_statuses(list(kept.versions.values()), kept.current)

    def stop(self, *, force: bool = False) -> None:
        """Set `stopped`, if no jobs run or `force` is given; those that run then go on when an engine starts again.

        Raises:
            JobsRunning: Some do.
        """
        running = [
            kept.name
            for kept in list(self._open.runner.jobs.values())
            if kept.job.state in life.ALIVE
        ]
        if running and not force:
            verb = "job runs" if len(running) == 1 else "jobs run"
            hint = "drain them first, or --force: they go on when the engine is started again"
            raise JobsRunning(f"{len(running)} {verb}: {', '.join(sorted(running))}", hint=hint)
        self.stopped.set()

    # programs

    @property
    def binaries(self) -> Binaries:
        """The programs that this engine keeps."""
        return self._open.binaries

    def users(self) -> dict[str, list[str]]:
        """Return, by the hash of a program, the jobs that have it, in any version that one may go back to."""
        found: dict[str, list[str]] = {}
        for kept in list(self._open.runner.jobs.values()):
            settings = [
                kept.stored.settings,
                *(version.settings for version in list(kept.versions.values())),
            ]
            for sha256 in {sha256 for one in settings for sha256 in one.binaries.values()}:
                found.setdefault(sha256, []).append(kept.name)
        return found

    def remove_binary(self, name: str, version: int | None) -> list[Binary]:
        """Forget a version of a program, or all of them.

        Raises:
            NoSuchAction: There is none.
            ActionInUse: A job was deployed with it.
        """
        # On the runner's thread, as deployments are: nobody is deployed with what is being removed.
        return self._open.runner.call(lambda: self.binaries.remove(name, version, self.users))

    def drop_content(self, sha256: str) -> None:
        """Forget the bytes of a program whose name another engine has removed.

        Raises:
            ActionInUse: A job was deployed with it.
        """
        self._open.runner.call(lambda: self.binaries.drop(sha256, self.users))

    # sending

    def send(self, target: str, rows: Any, *, time_limit_s: float = 30.0) -> int:
        """Send rows (see `Client.send`) to "job.source", and return how many once they are in the journal."""
        kept = self._kept(target.partition(".")[0])
        with self._guard:
            client = self._clients.get(kept.stored.id)
            if client is None:
                client = self._clients[kept.stored.id] = Client(str(self.address))
        return client.send(target, rows, time_limit_s=time_limit_s)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What an engine has while it is started."""

    store: Store
    inboxes: Inboxes
    runner: JobRunner
    binaries: Binaries


def _claimed(data: Path) -> Claim:
    """Claim an engine's folder; wait for an engine that was stopped a moment ago to let go of it."""
    storage = Folder(data)
    claim = storage.claim(_LOCK, timeout=_LOCK_S)
    if claim is None:
        holder = (storage.read(_LOCK) or b"").decode() or "unknown"
        raise EngineRunning(
            f"an engine runs in {data} already, in process {holder}",
            hint="stop that one first, or give this one another folder: --data",
        )
    return claim


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in options.items():
        rows = (
            name == "rows_per_batch"
            and isinstance(value, int)
            and not isinstance(value, bool)
            and value > 0
        )
        if not rows and not (name == "state" and value in (None, "memory", "rocksdb")):
            hint = 'options are "rows_per_batch", a number, and "state", which is "memory" or "rocksdb"'
            raise InvalidOption(f'a job cannot have the option "{name}": {value!r}', hint=hint)
    return dict(options)


def _stopped(runtime: RuntimeStatus) -> RuntimeStatus:
    """Return a runtime of a job that has no driver now, and so none of its runtimes."""
    state = "ended" if runtime.state == "ended" else "stopped"
    return msgspec.structs.replace(runtime, state=state, pid=None)


def _trouble(inboxes: Sequence[InboxStatus]) -> str | None:
    """Return what keeps a job from taking events, if anything does."""
    found = next((one for one in inboxes if one.error is not None), None)
    return (
        None
        if found is None
        else f"inbox {found.source}/{found.partition} takes nothing: {found.error}"
    )


def _with_inboxes(
    sources: dict[str, SourceStatus], inboxes: Sequence[InboxStatus]
) -> dict[str, SourceStatus]:
    """Return what sources have brought in, with the numbers of inboxes, which the driver does not know."""
    found = dict(sources)
    for name in {one.source for one in inboxes}:
        ours = [one for one in inboxes if one.source == name]
        found[name] = SourceStatus(
            rows=sum(one.rows for one in ours),
            refused=sum(one.refused for one in ours),
            ended=name in sources and sources[name].ended,
            error=next((one.error for one in ours if one.error is not None), None),
        )
    return found


def _behind(path: Path) -> int:
    """Return how many rows of a source some group has not processed."""
    try:
        reader = journal.Reader(path)
        views = [reader.partition(number) for number in range(reader.description.partitions)]
        readers = [one.positions for one in journal.committed(path)]
        done = [
            min((r.get(n, view.begin) for r in readers), default=view.begin)
            for n, view in enumerate(views)
        ]
        return sum(
            view.rows(max(passed, view.begin), view.end)
            for passed, view in zip(done, views, strict=True)
        )
    except (JournalError, OSError):
        return 0
