"""The engine: the jobs of one node, their inboxes, and the processes that run them.

    engine.lock       one engine per folder
    jobs.sqlite       the store
    packages/         what was deployed, unpacked
    actions/          programs, by their hash
    jobs/<name>/      the data of a job: run.log, and under its name journals and checkpoints
    scratch/          temporary files of drivers
    inbox_<port>      the IPC socket of all inboxes, inboxes.json where they are

A job whose engine dies, whose driver dies, or both, goes on where it was: nothing that was
acknowledged is lost, and nothing is processed twice. Intake goes on while a driver is started
again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from millstream.clock import Clock, SystemClock
from millstream.engine.job_switching import JobSwitching
from millstream.engine.jobs import lifecycle as life
from millstream.engine.jobs.folders import Folders, claim
from millstream.engine.jobs.lifecycle import Event, JobState
from millstream.engine.jobs.status import JobStatus, Peer, Places, Prepared
from millstream.engine.jobs.store import Binary
from millstream.engine.leases.coordination import Coordination
from millstream.engine.parts import Parts
from millstream.engine.schemes.guests import Guest, GuestOrder, GuestStatus
from millstream.engine.shared_queries import unclaimed
from millstream.engine.switch_service import check_undivided
from millstream.errors import InvalidTransition, JobsRunning, WrongNodes
from millstream.links.client import Client
from millstream.links.host import Listening
from millstream.storage import Claim

_DEFAULT: Final = Listening()


class Engine(JobSwitching):
    """The jobs of one node. Any thread may call; what a method did is on disk when it returns."""

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
        coordination: str | None = None,
        lease_s: float | None = None,
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
            coordination: A folder or bucket that engines share: any of them may run its jobs.
            lease_s: For how long an engine may be silent before others take its jobs; None: as the
                others have it.
        """
        self._coordination, self._lease_s = coordination, lease_s
        self.data, self.node, self.of = data.resolve(), node, of
        self._listening, self._master, self._spares = listening, master, warm
        self._clock = clock or SystemClock()
        self._folders = Folders(self.data)
        self._claim: Claim | None = None
        self._clients: dict[str, Client] = {}
        self._guard = threading.Lock()
        self._parts: Parts | None = None
        #: Set by `stop`: whoever runs this engine waits for it, and closes it.
        self.stopped = threading.Event()

    def start(self) -> None:
        """Take the data folder, and go on with the jobs that are in it.

        Raises:
            EngineRunning: Another engine has the folder.
            WrongNodes: The node number is not one of 0 to N-1, or the folder is another node's.
        """
        if not 0 <= self.node < self.of:
            hint = "nodes are numbered from 0"
            raise WrongNodes(f"there is no node {self.node} of {self.of}", hint=hint)
        if self._coordination is not None and self.of > 1:
            hint = "leave --node and --of out: whoever has the same coordination belongs together"
            raise WrongNodes("engines with a coordination have no numbers", hint=hint)
        self._claim = claim(self.data)
        try:
            shared = self._coordination and Coordination(
                self._coordination, self._lease_s, clock=self._clock
            )
            self._parts = Parts.open(
                self._folders,
                self._listening,
                node=self.node,
                of=self.of,
                clock=self._clock,
                master=self._master,
                spares=self._spares,
                coordination=shared or None,
            )
        except BaseException:
            self._release_folder()
            raise

    def _release_folder(self) -> None:
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    def close(self, *, drain_s: float = 0.0) -> None:
        """Stop all drivers, after `drain_s` to process what was taken; the next engine goes on."""
        parts, self._parts = self._parts, None
        if parts is None:
            return
        with contextlib.ExitStack() as stack:
            stack.callback(self._release_folder)
            if parts.leases is not None:
                stack.callback(parts.leases.leave)
            stack.callback(parts.close)
            for client in self._clients.values():
                stack.callback(client.abort)
            if parts.leases is not None:
                parts.leases.stop()
            parts.runner.close(drain_s)

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

        `options` are "rows_per_batch", "most_unread" (int), "state" ("memory", "rocksdb"), "journals".

        Raises:
            BadPackage: It is not what `package.pack` makes.
            FlowError: The flow has a mistake.
            JobExists: A job of that name is deployed.
            InvalidOption: An option is not known.
            WrongNodes: This engine is one of several.
        """
        if self.of > 1:
            hint = "deploy on all of them: millstream deploy"
            raise WrongNodes(f"this is node {self.node} of {self.of}", hint=hint)
        parts = self._open
        if parts.leases is None:
            return self._status(parts.deployments.deploy(package, name, root, options or {}))
        named = parts.deployments.check_shared(package, name, root, options or {})
        deployed = parts.leases.claims.deploy(named, package, root, options or {})
        parts.leases.look_soon()
        return self._status(unclaimed(deployed))

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

        `binaries` are the hashes of the programs that it names, from node 0; without it, this
        engine looks the names up.
        """
        deployments = self._open.deployments
        return deployments.prepare(package, name, root, options or {}, binaries)

    def begin(
        self, job: str, places: Places, *, driver: bool, engines: Sequence[Peer] = ()
    ) -> JobStatus:
        """Begin a prepared job; `places` are its inboxes, one for each partition of each source.

        `engines` are all of them, by their nodes.

        Raises:
            NoSuchJob: It was not prepared here.
        """
        managed = self._managed(job)
        self._open.deployments.begin(managed, places, driver=driver, engines=engines)
        return self._status(managed)

    def host(self, job: str, node: str, order: GuestOrder) -> GuestStatus:
        """Start, end, drain or ask the runtime of a node for the engine that has the job's driver.

        Raises:
            NoSuchJob: It was not prepared here.
            InvalidTransition: Its driver is here.
            InvalidScheme: It is no scheme.
            RequestRefused: There is no such node.
        """
        managed, runner = self._managed(job), self._open.runner
        if managed.job.driver:
            raise InvalidTransition(f'job "{managed.name}" has its driver here, or has not begun')

        def obey() -> Guest:
            guest = runner.guests.of(managed.name)
            guest.check(node, order)
            guest.obey(node, order)
            return guest

        return runner.call(obey).status(node, order.command)

    # changing

    def drain(self, job: str, *, flush: bool = False) -> JobStatus:
        """Have a job take nothing more and process what it has; with `flush` it ends permanently.

        What it has taken here is durable when this returns, but not processed: `wait` waits for
        that.

        Raises:
            InvalidTransition: It has failed, or has not begun.
            SwitchRefused: It is to end, and two versions share its keys.
        """
        job = self._named(job)
        if self._rests(job) and job not in self._open.runner.jobs:
            return self._status(self._rested(job, life.DrainAsked(flush)))
        managed = self._managed(job)
        if flush:
            check_undivided(managed)
        self._open.runner.call(partial(self._open.runner.apply, managed, life.DrainAsked(flush)))
        self._open.inboxes.job(managed.name).settle()
        return self._status(managed)

    def _apply(self, job: str, event: Event) -> JobStatus:
        managed = self._managed(job)
        self._open.runner.call(partial(self._open.runner.apply, managed, event))
        return self._status(managed)

    def settled(self, job: str, state: JobState) -> JobStatus:
        """Settle a job whose driver, on another engine, is DRAINED or FINISHED."""
        return self._apply(job, life.Finished() if state is JobState.FINISHED else life.Drained())

    def missed(self, job: str, peer: str) -> JobStatus:
        """Go on without an engine that has not answered for too long while the job drains."""
        return self._apply(job, life.PeerMissed(peer))

    def resume(self, job: str) -> JobStatus:
        """Have a drained or failed job go on.

        Raises:
            InvalidTransition: It has finished, or is draining.
        """
        job = self._named(job)
        if self._rests(job):
            return self._resume_anywhere(job)
        return self._apply(job, life.ResumeAsked())

    def undeploy(self, job: str, *, force: bool = False, purge: bool = False) -> JobStatus:
        """Remove a job that is finished, drained or failed, by `force` any; `purge`: its journals.

        Raises:
            JobBusy: It runs, and `force` was not given.
        """
        job = self._named(job)
        if self._rests(job) and job not in self._open.runner.jobs:
            return self._forget_anywhere(job, purge=purge)
        managed = self._managed(job)
        unprocessed = self._status(managed).unprocessed
        asked = life.UndeployAsked(force, purge, unprocessed)
        if managed.stored.settings.shared:
            with self._leases.aside(managed.name):
                status = self._apply(job, asked)
                self._leases.claims.undeploy(managed.name, purge=purge)
        else:
            status = self._apply(job, asked)
        client = self._clients.pop(managed.stored.id, None)
        if client is not None:
            client.abort()
        return status

    def stop(self, *, force: bool = False) -> None:
        """Set `stopped` if no jobs run; with `force`, those go on when an engine starts again.

        Raises:
            JobsRunning: Some do.
        """
        jobs = list(self._open.runner.jobs.values())
        running = [managed.name for managed in jobs if managed.job.state in life.ALIVE]
        if running and not force:
            verb = "job runs" if len(running) == 1 else "jobs run"
            later = "they continue when the engine is started again"
            hint = f"drain them first, or use --force: {later}"
            raise JobsRunning(f"{len(running)} {verb}: {', '.join(sorted(running))}", hint=hint)
        self.stopped.set()

    # programs

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

    def send(self, target: str, rows: Any, *, timeout: float = 30.0) -> int:
        """Send rows to "job.source", as `Client.send` does; return how many when durable."""
        managed = self._managed(target.partition(".")[0])
        with self._guard:
            client = self._clients.get(managed.stored.id)
            if client is None:
                client = self._clients[managed.stored.id] = Client(str(self.address))
        return client.send(target, rows, timeout=timeout)
