"""Carries out the orders of the lifecycle: drivers, inboxes and files of jobs.

Every order may be carried out twice. One that fails is logged; if no driver or no inbox can be
without it, it counts as a death of the driver.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final

from millstream.actions.scheme import described_in
from millstream.engine.driver.process import DriverPool, DriverProcess
from millstream.engine.driver.protocol import Drain, Run
from millstream.engine.failed_jobs import FailedJobs
from millstream.engine.inboxes.inboxes import Inboxes
from millstream.engine.jobs import lifecycle as life
from millstream.engine.jobs import package
from millstream.engine.jobs.folders import Folders
from millstream.engine.jobs.lifecycle import Event, Order
from millstream.engine.jobs.store import JOURNALS, MOST_UNREAD, Store
from millstream.engine.managed_job import ManagedJob
from millstream.engine.programs.binaries import Binaries
from millstream.engine.schemes.guests import Guest, Guests
from millstream.errors import (
    DriverFailed,
    EngineAway,
    EngineError,
    MillstreamError,
    NoRoom,
    StorageError,
    TakenOver,
)
from millstream.joblog import Lease

_log = logging.getLogger(__name__)
#: How long a driver may take to stop between two batches.
STOP_S: Final = 30.0
#: How long a new job waits for the engines that have its other partitions.
MEET_S: Final = 5.0
#: Options of a job that are not its driver's.
_OURS: Final = (MOST_UNREAD, JOURNALS)
#: With less room (bytes) on its disk no driver can do anything.
LEAST_ROOM: Final = 1 << 20


class Orders:
    """The hands of the runner of jobs, on whose thread it is called."""

    def __init__(
        self,
        folders: Folders,
        store: Store,
        inboxes: Inboxes,
        binaries: Binaries,
        drivers: DriverPool,
        jobs: dict[str, ManagedJob],
        *,
        happened: Callable[[ManagedJob, Event], None],
        soon: Callable[[Callable[[], object]], None],
        lease: Callable[[str], Lease] | None = None,
    ) -> None:
        """Make them.

        Args:
            folders: Where files are.
            store: Has the packages, and forgets jobs.
            inboxes: All inboxes of the engine.
            binaries: The programs that drivers are given.
            drivers: Starts drivers.
            jobs: All jobs by their names; one whose files are removed is removed from it.
            happened: Is called with what comes of an order that fails.
            soon: Does something on the runner's thread.
            lease: Claims a job that other engines know too, for its driver.
        """
        self._folders, self._store, self._inboxes = folders, store, inboxes
        self._binaries, self._drivers, self._jobs = binaries, drivers, jobs
        self._happened, self._soon, self._lease = happened, soon, lease
        self.guests = Guests(self._guest)
        failed = FailedJobs(jobs)
        inboxes.explain(failed.notice, failed.absent)

    def carry_out(self, managed: ManagedJob, orders: list[Order]) -> None:
        """Carry out orders in turn, until one fails that the rest depends on."""
        for order in orders:
            if not self._attempt(managed, order, partial(self._do, managed, order)):
                return

    def _attempt(self, managed: ManagedJob, order: Order, work: Callable[[], None]) -> bool:
        """Carry out an order; return whether those after it still make sense."""
        try:
            work()
        except (MillstreamError, OSError) as error:
            _log.error("job %s: %s failed: %s", managed.name, type(order).__name__, error)
            if isinstance(order, life.OpenInboxes | life.StartDriver):
                hopeless, waiting = (
                    isinstance(order, life.OpenInboxes),
                    isinstance(error, EngineAway | NoRoom | StorageError | TakenOver),
                )
                self._happened(managed, life.DriverDied(str(error), hopeless, waiting))
                return False
        return True

    def _do(self, managed: ManagedJob, order: Order) -> None:
        match order:
            case life.StartDriver():
                if order.after_s > 0:
                    self._expect_driver(managed, order.after_s)
                elif not (managed.driver is not None and managed.running):
                    self._start_soon(managed, order)
            case life.StopDriver():
                self.stop_driver(managed)
            case life.KillDriver():
                self.kill_driver(managed)
            case life.DrainDriver():
                self._drain_soon(managed, order)
            case life.RemoveFiles():
                self._remove(managed, order)
            case _:
                self._do_intake(managed, order)

    def _do_intake(self, managed: ManagedJob, order: Order) -> None:
        match order:
            case life.OpenInboxes():
                settings, folder = managed.stored.settings, self._folders.flow(managed.name)
                wanted = {
                    name
                    for number in managed.needed
                    for name in managed.versions[number].settings.inboxes
                }
                self._inboxes.open(
                    managed.name,
                    folder,
                    settings.places,
                    driver=managed.job.driver,
                    only=wanted,
                    partitions=settings.inboxes,
                    spread=settings.spread,
                    root=self._folders.root(settings),
                )
            case life.CloseInboxes():
                self._inboxes.close_job(managed.name)
            case life.PauseIntake():
                self._inboxes.job(managed.name).pause(lambda: _stopped(managed))
            case life.OpenIntake():
                self._inboxes.job(managed.name).resume()
            case life.EndIntake():
                self._inboxes.end(managed.name)

    def _start_soon(self, managed: ManagedJob, order: life.StartDriver) -> None:
        start = partial(self._start_driver, managed)
        waits: list[Callable[[], object]] = []
        inboxes = self._inboxes.job(managed.name)
        if inboxes.elsewhere:
            # A driver begins where the partitions do: of those elsewhere that has to be known.
            waits.append(partial(inboxes.meet, MEET_S))
        # After a start of the engine every program is read once, which may be half a gigabyte.
        unread = [
            one
            for one in self._programs(managed).values()
            if not self._binaries.contents.checked(one)
        ]
        waits += [partial(self._binaries.path, sha256) for sha256 in unread]
        if managed.stored.settings.shared:
            waits.append(partial(_take_lease, managed, self._lease))
        if waits:
            self._hold(managed, order, partial(_each, waits), start)
        else:
            start()

    def _programs(self, managed: ManagedJob) -> dict[str, str]:
        """Return the programs of the versions that are needed: the content of each name."""
        return {
            name: sha
            for n in sorted(managed.needed)
            for name, sha in managed.versions[n].settings.binaries.items()
        }

    def _drain_soon(self, managed: ManagedJob, order: life.DrainDriver) -> None:
        inboxes = self._inboxes.job(managed.name)
        drain = partial(self._drain_driver, managed, order.flush)
        # With a flush the driver reads up to the end that is written into every partition, behind
        # all that was taken.
        if order.flush or (inboxes.settled and not inboxes.elsewhere):
            managed.held = None
            drain()
            return
        self._hold(managed, order, inboxes.catch_up, drain)

    def _hold(
        self, managed: ManagedJob, order: Order, wait: Callable[[], None], then: Callable[[], None]
    ) -> None:
        """Carry out an order when `wait` is over, on another thread: other jobs are not held up."""
        mark = managed.held = object()

        def work(waited: Future[None]) -> None:
            if managed.held is mark:
                managed.held = None
                waited.result()
                then()

        def wait_for_it() -> None:
            waited: Future[None] = Future()
            try:
                wait()
                waited.set_result(None)
            except Exception as error:  # noqa: BLE001 (it belongs to the runner)
                waited.set_exception(error)
            self._soon(lambda: self._attempt(managed, order, partial(work, waited)))

        threading.Thread(
            target=wait_for_it, name=f"{type(order).__name__} {managed.name}", daemon=True
        ).start()

    def _drain_driver(self, managed: ManagedJob, flush: bool) -> None:
        if managed.driver is not None:
            managed.driver.send(Drain(flush))

    def _expect_driver(self, managed: ManagedJob, after_s: float) -> None:
        """Let Java start in the pause before a start, if that is short."""
        with contextlib.suppress(MillstreamError, OSError):  # the start will find it too
            if after_s <= life.FIRST_PAUSE_S and self._needs_spark(managed):
                self._drivers.expect()

    def _needs_spark(self, managed: ManagedJob) -> bool:
        """Tell whether a job is certain to need Spark: the programs of a scheme may not."""
        return not described_in(self._unpacked(managed, managed.current))

    def _start_driver(self, managed: ManagedJob) -> None:
        self._kill_leaving(managed)
        if self.disk_is_full():
            hint = "the job continues when there is space"
            raise NoRoom(f"the disk of {self._folders.data} is full", hint=hint)
        settings = managed.stored.settings
        files = {number: self._unpacked(managed, number) for number in sorted(managed.needed)}
        if managed.driver is None or not managed.driver.alive:
            managed.driver = self._drivers.start(spark=self._needs_spark(managed))
        managed.running, managed.fresh = True, False
        managed.driver.run(
            Run(
                flow=str(files[managed.current]),
                name=managed.name,
                data=str(self._folders.job(managed.name)),
                root=str(self._folders.root(settings)),
                log=str(self._folders.log(managed.name)),
                options={k: v for k, v in settings.options.items() if k not in _OURS},
                engines=settings.engines,
                landings=self._inboxes.job(managed.name).open_landings(),
                spread=tuple(settings.spread),
                binaries={
                    name: str(self._binaries.path(sha256))
                    for name, sha256 in self._programs(managed).items()
                },
                version=str(managed.current),
                versions={str(number): str(file) for number, file in files.items()},
                lease=managed.lease,
            )
        )

    def _guest(self, job: str) -> Guest:
        """Return the runtimes of a job, whose driver is on another engine, that this one hosts."""
        from millstream.engine.schemes import hosting

        managed, settings = self._jobs[job], self._jobs[job].stored.settings
        return Guest(
            hosting.loaded(self._unpacked(managed, managed.current), managed.name),
            folder=self._folders.flow(job) / "runtimes",
            root=self._folders.root(settings),
            programs={
                name: self._binaries.path(sha256) for name, sha256 in settings.binaries.items()
            },
            log=self._folders.log(job),
            engine=self._folders.data,
        )

    def _unpacked(self, managed: ManagedJob, number: int) -> Path:
        """Return the file of a version's flow."""
        settings = managed.versions[number].settings
        folder = self._folders.package(settings)
        if not folder.is_dir():
            packed = self._store.package(managed.stored.id, number)
            if packed is None:
                hint = "undeploy it, and deploy it again"
                raise EngineError(f'the package of job "{managed.name}" is gone', hint=hint)
            package.unpack(packed, folder)
        return folder / settings.flow

    def stop_driver(self, managed: ManagedJob) -> None:
        """Let the driver stop between two batches."""
        managed.held = None
        if managed.driver is None:
            return
        self._kill_leaving(managed)
        managed.leaving, managed.driver = managed.driver, None
        managed.leave_by = time.monotonic() + STOP_S
        managed.running = False
        managed.leaving.stop()

    def kill_driver(self, managed: ManagedJob) -> None:
        """End the driver, one that was stopping, and runtimes hosted for another engine."""
        driver, managed.driver, managed.running, managed.held = managed.driver, None, False, None
        self.guests.close_job(managed.name)
        if driver is not None:
            _killed(driver)
        self._kill_leaving(managed)

    def _kill_leaving(self, managed: ManagedJob) -> None:
        leaving, managed.leaving = managed.leaving, None
        if leaving is not None:
            _killed(leaving)

    def _remove(self, managed: ManagedJob, order: life.RemoveFiles) -> None:
        for version in managed.versions.values():
            shutil.rmtree(self._folders.package(version.settings), ignore_errors=True)
        folder = self._folders.job(managed.name)
        if order.purge:
            shutil.rmtree(folder, ignore_errors=True)
        elif order.logs:
            for file in folder.glob("run.log*"):
                file.unlink(missing_ok=True)
        self._store.remove(managed.stored.id)
        self._jobs.pop(managed.name, None)

    def sweep_packages(self) -> None:
        """Remove what deployments that were never finished have left."""
        known = {
            version.settings.package
            for managed in self._jobs.values()
            for version in managed.versions.values()
        }
        if self._folders.packages.is_dir():
            for folder in self._folders.packages.iterdir():
                if folder.name not in known:
                    shutil.rmtree(folder, ignore_errors=True)

    def disk_is_full(self) -> bool:
        return shutil.disk_usage(self._folders.data).free < LEAST_ROOM


def _killed(driver: DriverProcess) -> None:
    driver.kill()
    if not driver.wait(STOP_S):
        raise DriverFailed(f"driver {driver.pid} could not be ended")


def _take_lease(managed: ManagedJob, lease: Callable[[str], Lease] | None) -> None:
    """Claim a job before its driver starts, which then may follow with a claim of its own."""
    assert lease is not None, "shared jobs have leases"
    managed.lease = lease(managed.name)


def _each(waits: Sequence[Callable[[], object]]) -> None:
    for wait in waits:
        wait()


def _stopped(managed: ManagedJob) -> str:
    """Return why the inboxes of a job take nothing, and what helps."""
    name, state = managed.name, managed.job.state
    helps = f'"millstream undeploy {name}", then deploy it again'
    if not managed.job.flush and state in (life.JobState.DRAINED, life.JobState.FAILED):
        helps = f'"millstream resume {name}"'
    return f'job "{name}" is {state.value}; {helps}'
