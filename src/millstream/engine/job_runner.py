"""The runner of jobs: one thread that applies events, writes jobs down and carries out orders.

    reports and exits of drivers ─┐
    calls of the engine          ─┼─▶ lifecycle.advance ─▶ store ─▶ orders: drivers, inboxes, files
    moments that are due         ─┘

Jobs change on this thread alone, and it waits for nobody: what other engines or a slow disk hold up
is waited for elsewhere. A report counts only if it comes from the driver that the job has now.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from millstream.clock import Clock
from millstream.engine.driver import protocol
from millstream.engine.driver.process import DriverPool, DriverProcess
from millstream.engine.driver.protocol import Report
from millstream.engine.inboxes.inboxes import Inboxes
from millstream.engine.jobs import lifecycle as life
from millstream.engine.jobs import package
from millstream.engine.jobs.lifecycle import Event, Job, JobState, Order
from millstream.engine.jobs.store import JobSettings, Noted, Store, Stored, Version
from millstream.engine.jobs.switch_record import Switch
from millstream.engine.programs.binaries import Binaries
from millstream.engine.schemes.guests import Guest, Guests
from millstream.engine.switch_service import Switches, first_version
from millstream.errors import (
    DriverFailed,
    EngineAway,
    EngineClosed,
    EngineError,
    MillstreamError,
    NoRoom,
    StoreBroken,
)

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
#: How long a driver may take to stop between two batches.
STOP_S: Final = 30.0
#: How long a new job waits for the engines that have its other partitions.
MEET_S: Final = 5.0
#: How long engines wait for one another while a job drains.
PEERS_S: Final = 300.0
#: With less room (bytes) on its disk no driver can do anything.
LEAST_ROOM: Final = 1 << 20
_TICK_S: Final = 1.0
_ENDING_S: Final = 0.02


@dataclass(slots=True)
class ManagedJob:
    """A job, with its processes."""

    stored: Stored
    driver: DriverProcess | None = None
    #: Whether the driver was told to run the flow.
    running: bool = False
    #: The mark of the order that waits for other engines or the disk; one that has another mark has been overtaken.
    held: object | None = None
    #: One that was told to stop, and by when it has to be gone.
    leaving: DriverProcess | None = None
    leave_by: float = 0.0
    #: What a driver has reported last, and whether that is the one that runs now.
    statistics: dict[str, Any] = field(default_factory=dict)
    fresh: bool = False
    #: Engines that did not answer when a drain was looked at last, and since when.
    away: dict[str, float] = field(default_factory=dict)
    #: All versions of the job, by their numbers.
    versions: dict[int, Version] = field(default_factory=dict)

    @property
    def job(self) -> Job:
        return self.stored.job

    @property
    def name(self) -> str:
        return self.stored.name

    @property
    def current(self) -> int:
        """The version that runs: the old one until a switch is done."""
        return max(
            (one.number for one in self.versions.values() if one.current_at is not None), default=1
        )

    @property
    def before(self) -> int | None:
        """The version that ran before that one, if there was any."""
        earlier = [one.number for one in self.versions.values() if one.current_at is not None]
        return max((number for number in earlier if number < self.current), default=None)

    @property
    def switch(self) -> Switch | None:
        """The switch that goes on, or the last one."""
        return self.versions[max(self.versions)].switch if self.versions else None

    @property
    def needed(self) -> set[int]:
        """The versions that a driver may need: the one that runs, and one that it is switched to."""
        going = {
            one.number
            for one in self.versions.values()
            if one.switch is not None and not one.switch.over
        }
        return {self.current} | going


class Folders:
    """Where an engine keeps what belongs to its jobs."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def job(self, name: str) -> Path:
        """Return the folder of all that a job has; it stays when the job is undeployed, unless that purges it."""
        return self.data / "jobs" / name

    def flow(self, name: str) -> Path:
        """Return the folder of its journals and checkpoints."""
        return self.job(name) / name

    def log(self, name: str) -> Path:
        return self.job(name) / "run.log"

    @property
    def packages(self) -> Path:
        return self.data / "packages"

    @property
    def actions(self) -> Path:
        return self.data / "actions"

    def package(self, settings: JobSettings) -> Path:
        return self.packages / settings.package

    def root(self, settings: JobSettings) -> Path:
        """Return what the paths of a flow count from."""
        given = None if settings.root is None else Path(settings.root)
        return given if given is not None and given.is_dir() else self.package(settings)


class JobRunner:
    """The jobs of an engine, kept as the lifecycle says."""

    def __init__(
        self,
        folders: Folders,
        store: Store,
        inboxes: Inboxes,
        binaries: Binaries,
        *,
        clock: Clock,
        master: str | None,
        spares: int,
    ) -> None:
        self._folders, self._store, self._inboxes, self._clock = folders, store, inboxes, clock
        self._binaries = binaries
        self.jobs: dict[str, ManagedJob] = {}
        self.drivers = DriverPool(
            folders.data,
            on_report=lambda driver, report: self._soon(lambda: self._heard(driver, report)),
            on_exit=lambda driver: self._soon(lambda: self._exited(driver)),
            master=master,
            spares=spares,
        )
        self.switches = Switches(folders, store, inboxes, binaries, self, self._now)
        self.guests = Guests(self._guest)
        self.changed = threading.Condition()
        self._tasks: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._refused: list[tuple[ManagedJob, Event]] = []
        self._over = self._closing = False
        self._tick_at = 0.0
        self._thread = threading.Thread(target=self._work, name="runner", daemon=True)

    # the thread

    def start(self) -> None:
        """Go on with the jobs that the store has; their inboxes are open when this returns."""
        self.drivers.clear()
        for stored in self._store.jobs():
            self.jobs[stored.name] = ManagedJob(stored, versions=self._versions(stored.id))
        self._sweep_packages()
        self._thread.start()
        for kept in list(self.jobs.values()):
            self.call(partial(self._go_on, kept))

    def _versions(self, id: str) -> dict[int, Version]:
        return {version.number: version for version in self._store.versions(id)}

    def add(
        self, stored: Stored, package: bytes, noted: Noted, driver: DriverProcess
    ) -> ManagedJob:
        """Write down a new job, and keep it."""
        first = first_version(self._folders.flow(stored.name))
        self._store.add(stored, package, noted, first=first)
        kept = self.jobs[stored.name] = ManagedJob(
            stored, driver=driver, versions=self._versions(stored.id)
        )
        return kept

    def _go_on(self, kept: ManagedJob) -> None:
        """Go on with a job of an engine before, which may have been killed without a word."""
        with contextlib.suppress(StoreBroken):
            self._store.update(kept.stored.id, kept.job, Noted(self._now(), "engine started"))
        self.happened(kept, life.EngineStarted())

    def call(self, work: Callable[[], _T]) -> _T:
        """Do something on the runner's thread, and return what it returns."""
        if threading.current_thread() is self._thread:
            return work()
        answer: Future[_T] = Future()

        def task() -> None:
            try:
                answer.set_result(work())
            except BaseException as error:  # noqa: BLE001 (it belongs to the caller)
                answer.set_exception(error)

        if self._over:
            raise EngineClosed("the engine is closed")
        self._soon(task)
        return answer.result()

    def _soon(self, task: Callable[[], object]) -> None:
        self._tasks.put(task)

    def _work(self) -> None:
        while not self._over:
            with contextlib.suppress(queue.Empty):
                self._safely(self._tasks.get(timeout=self._pause()))
            self._safely(self._tick)

    def _safely(self, task: Callable[[], object]) -> None:
        try:
            task()
        except Exception:  # noqa: BLE001 (one job's trouble is not the others')
            _log.exception("the runner of jobs failed unexpectedly")

    def _pause(self) -> float:
        now, real = self._now(), time.monotonic()
        due = [
            kept.job.paused_until - now
            for kept in self.jobs.values()
            if kept.job.paused_until is not None
        ]
        due += [kept.leave_by - real for kept in self.jobs.values() if kept.leaving is not None]
        due.append(_ENDING_S if self._inboxes.ending() else self._tick_at - real)
        return max(0.0, min(due))

    def _tick(self) -> None:
        if self._inboxes.ending():
            self._inboxes.tick()
        now, real = self._now(), time.monotonic()
        for kept in list(self.jobs.values()):
            if kept.job.paused_until is not None and now >= kept.job.paused_until:
                self.happened(kept, life.PauseOver())
            if kept.leaving is not None and real >= kept.leave_by:
                _log.warning(
                    "driver %s of job %s did not stop in time", kept.leaving.pid, kept.name
                )
                kept.leaving.kill()
                kept.leave_by = real + STOP_S
            if kept.job.state is JobState.DRAINING:
                self._miss_peers(kept, now, real)
        if real >= self._tick_at:
            self._tick_at = real + _TICK_S
            self._inboxes.tick()
            self._retry()
            for kept in list(self.jobs.values()):
                self.switches.tick(kept)
                if kept.job.state is JobState.UNDEPLOYED:  # the store would not forget it
                    self._carry_out(kept, [life.RemoveFiles(kept.job.purge)])
            if not self._closing:
                self.drivers.fill()

    def _miss_peers(self, kept: ManagedJob, now: float, real: float) -> None:
        """Notice which engines a job that drains has waited for long enough."""
        if not kept.job.driver:
            if now - kept.job.since > PEERS_S:
                self.happened(kept, life.PeerMissed("the engine with the driver"))
            return
        away = self._inboxes.away(kept.name)
        kept.away = {peer: kept.away.get(peer, real) for peer in away}
        for peer, since in kept.away.items():
            if real - since > PEERS_S:
                self.happened(kept, life.PeerMissed(peer))

    def _now(self) -> float:
        return self._clock.now_us() / 1e6

    # events

    def apply(self, kept: ManagedJob, event: Event) -> None:
        """Let something happen to a job: write down what becomes of it, then do what is to be done.

        Raises:
            InvalidTransition: It makes no sense.
            JobBusy: It would lose events.
            StoreBroken: It could not be written down, so it has not happened.
        """
        before = kept.job
        after, orders = life.advance(before, event, self._now())
        if after != before:
            self._store.update(kept.stored.id, after, self._noted(before, after, event))
            kept.stored = msgspec.structs.replace(kept.stored, job=after)
        self._carry_out(kept, orders)
        self._notify()

    def _noted(self, before: Job, after: Job, event: Event) -> Noted | None:
        if isinstance(event, life.DriverDied):
            return Noted(self._now(), after.state, after.reason)
        if isinstance(event, life.EngineStopping):
            return Noted(self._now(), "engine stopping")
        if isinstance(event, life.EngineStarted):
            return None  # noted already
        if (
            before.state is after.state
            and before.flush == after.flush
            and before.missed == after.missed
        ):
            return None
        return Noted(
            self._now(), after.state, after.reason or ("with flush" if after.flush else None)
        )

    def happened(self, kept: ManagedJob, event: Event) -> None:
        """Let something happen that nobody has asked for: if it cannot be written down, again in a moment."""
        try:
            self.apply(kept, event)
        except StoreBroken as error:
            _log.error("job %s: %s", kept.name, error)
            self._refused.append((kept, event))

    def _retry(self) -> None:
        refused, self._refused = self._refused, []
        for kept, event in refused:
            self.happened(kept, event)

    def _owner(self, driver: DriverProcess) -> ManagedJob | None:
        return next(
            (kept for kept in self.jobs.values() if driver in (kept.driver, kept.leaving)), None
        )

    def _heard(self, driver: DriverProcess, report: Report) -> None:
        kept = self._owner(driver)
        if kept is None or kept.driver is not driver:
            return
        match report:
            case protocol.Statistics():
                kept.statistics, kept.fresh = report.numbers, True
            case protocol.SwitchRecovered():
                self.switches.standing(kept, report.state)
                self._notify()
            case protocol.SwitchMoved():
                self.switches.told(kept, report.switch)
                self._notify()
            case protocol.Ready():
                self.happened(kept, life.DriverReady())
            case protocol.Drained():
                self.happened(kept, life.Drained())
            case protocol.Finished():
                self.happened(kept, life.Finished())
            case protocol.Failed() if kept.running:
                self._lost(kept, driver)

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def _exited(self, driver: DriverProcess) -> None:
        kept = self._owner(driver)
        if kept is None:
            return
        if kept.leaving is driver:
            kept.leaving = None
            self._notify()
        elif kept.running:
            self._lost(kept, driver)
        else:
            kept.driver = None  # prepared, and not needed yet

    def _lost(self, kept: ManagedJob, driver: DriverProcess) -> None:
        kept.driver, kept.running, kept.held = None, False, None
        driver.kill()
        failed = driver.failed
        full = self._full() or (failed is not None and failed.full)
        reason = f"the disk is full: {driver.reason}" if full else driver.reason
        hopeless = failed is not None and failed.hopeless
        self.happened(kept, life.DriverDied(reason, hopeless=hopeless, waiting=full))

    def _full(self) -> bool:
        return shutil.disk_usage(self._folders.data).free < LEAST_ROOM

    # orders

    def _carry_out(self, kept: ManagedJob, orders: list[Order]) -> None:
        for order in orders:
            if not self._attempt(kept, order, partial(self._do, kept, order)):
                return

    def _attempt(self, kept: ManagedJob, order: Order, work: Callable[[], None]) -> bool:
        """Carry out an order; return whether those after it still make sense."""
        try:
            work()
        except (MillstreamError, OSError) as error:
            _log.error("job %s: %s failed: %s", kept.name, type(order).__name__, error)
            if isinstance(order, life.OpenInboxes | life.StartDriver):
                hopeless, waiting = (
                    isinstance(order, life.OpenInboxes),
                    isinstance(error, EngineAway | NoRoom),
                )
                self.happened(kept, life.DriverDied(str(error), hopeless, waiting))
                return False
        return True

    def _do(self, kept: ManagedJob, order: Order) -> None:
        match order:
            case life.StartDriver():
                if order.after_s == 0 and not (kept.driver is not None and kept.running):
                    self._start_soon(kept, order)
            case life.StopDriver():
                self._stop_driver(kept)
            case life.KillDriver():
                self._kill_driver(kept)
            case life.DrainDriver():
                self._drain_soon(kept, order)
            case life.RemoveFiles():
                self._remove(kept, purge=order.purge)
            case _:
                self._do_intake(kept, order)

    def _do_intake(self, kept: ManagedJob, order: Order) -> None:
        match order:
            case life.OpenInboxes():
                settings, folder = kept.stored.settings, self._folders.flow(kept.name)
                wanted = {
                    name
                    for number in kept.needed
                    for name in kept.versions[number].settings.inboxes
                }
                self._inboxes.open(
                    kept.name,
                    folder,
                    settings.places,
                    driver=kept.job.driver,
                    only=wanted,
                    partitions=settings.inboxes,
                )
            case life.CloseInboxes():
                self._inboxes.close_job(kept.name)
            case life.PauseIntake():
                self._inboxes.pause(kept.name)
            case life.OpenIntake():
                self._inboxes.resume(kept.name)
            case life.EndIntake():
                self._inboxes.end(kept.name)

    def _start_soon(self, kept: ManagedJob, order: life.StartDriver) -> None:
        start = partial(self._start_driver, kept)
        waits: list[Callable[[], object]] = []
        if self._inboxes.elsewhere(kept.name):
            # A driver begins where the partitions do: of those elsewhere that has to be known.
            waits.append(partial(self._inboxes.meet, kept.name, MEET_S))
        # After a start of the engine every program is read once, which may be half a gigabyte.
        unread = [
            one for one in self._programs(kept).values() if not self._binaries.contents.checked(one)
        ]
        waits += [partial(self._binaries.path, sha256) for sha256 in unread]
        if waits:
            self._hold(kept, order, partial(_each, waits), start)
        else:
            start()

    def _programs(self, kept: ManagedJob) -> dict[str, str]:
        """Return the programs of the versions that are needed: the content of each name."""
        return {
            name: sha
            for n in sorted(kept.needed)
            for name, sha in kept.versions[n].settings.binaries.items()
        }

    def _drain_soon(self, kept: ManagedJob, order: life.DrainDriver) -> None:
        name, drain = kept.name, partial(self._drain_driver, kept, order.flush)
        # With a flush the driver reads up to the end that is written into every partition, behind
        # all that was taken.
        if order.flush or (self._inboxes.settled(name) and not self._inboxes.elsewhere(name)):
            kept.held = None
            drain()
            return
        self._hold(kept, order, partial(self._inboxes.catch_up, name), drain)

    def _hold(
        self, kept: ManagedJob, order: Order, wait: Callable[[], None], then: Callable[[], None]
    ) -> None:
        """Carry out an order when `wait` is over, which is done elsewhere: other jobs are not held up by it."""
        mark = kept.held = object()

        def work(waited: Future[None]) -> None:
            if kept.held is mark:
                kept.held = None
                waited.result()
                then()

        def wait_for_it() -> None:
            waited: Future[None] = Future()
            try:
                wait()
                waited.set_result(None)
            except Exception as error:  # noqa: BLE001 (it belongs to the runner)
                waited.set_exception(error)
            self._soon(lambda: self._attempt(kept, order, partial(work, waited)))

        threading.Thread(
            target=wait_for_it, name=f"{type(order).__name__} {kept.name}", daemon=True
        ).start()

    def _drain_driver(self, kept: ManagedJob, flush: bool) -> None:
        if kept.driver is not None:
            kept.driver.send(protocol.Drain(flush))

    def _start_driver(self, kept: ManagedJob) -> None:
        self._kill_leaving(kept)
        if self._full():
            raise NoRoom(
                f"the disk of {self._folders.data} is full",
                hint="the job goes on when there is room",
            )
        settings = kept.stored.settings
        files = {number: self._unpacked(kept, number) for number in sorted(kept.needed)}
        if kept.driver is None or not kept.driver.alive:
            kept.driver = self.drivers.start()
        kept.running, kept.fresh = True, False
        kept.driver.run(
            protocol.Run(
                flow=str(files[kept.current]),
                name=kept.name,
                data=str(self._folders.job(kept.name)),
                root=str(self._folders.root(settings)),
                log=str(self._folders.log(kept.name)),
                options=settings.options,
                engines=settings.engines,
                landings=self._inboxes.landings(kept.name),
                binaries={
                    name: str(self._binaries.path(sha256))
                    for name, sha256 in self._programs(kept).items()
                },
                version=str(kept.current),
                versions={str(number): str(file) for number, file in files.items()},
            )
        )

    def _guest(self, job: str) -> Guest:
        """Return the runtimes of a job, whose driver is on another engine, that this one hosts."""
        from millstream.engine.schemes import hosting

        kept, settings = self.jobs[job], self.jobs[job].stored.settings
        return Guest(
            hosting.loaded(self._unpacked(kept, kept.current), kept.name),
            folder=self._folders.flow(job) / "runtimes",
            root=self._folders.root(settings),
            programs={
                name: self._binaries.path(sha256) for name, sha256 in settings.binaries.items()
            },
            log=self._folders.log(job),
            engine=self._folders.data,
        )

    def _unpacked(self, kept: ManagedJob, number: int) -> Path:
        """Return the file of a version's flow."""
        settings = kept.versions[number].settings
        folder = self._folders.package(settings)
        if not folder.is_dir():
            packed = self._store.package(kept.stored.id, number)
            if packed is None:
                raise EngineError(
                    f'the package of job "{kept.name}" is gone',
                    hint="undeploy it, and deploy it anew",
                )
            package.unpack(packed, folder)
        return folder / settings.flow

    def _stop_driver(self, kept: ManagedJob) -> None:
        kept.held = None
        if kept.driver is None:
            return
        self._kill_leaving(kept)
        kept.leaving, kept.driver = kept.driver, None
        kept.leave_by = time.monotonic() + STOP_S
        kept.running = False
        kept.leaving.stop()

    def dismiss(self, kept: ManagedJob) -> None:
        """End the driver that has read a flow which another engine will run."""
        self._kill_driver(kept)

    def _kill_driver(self, kept: ManagedJob) -> None:
        driver, kept.driver, kept.running, kept.held = kept.driver, None, False, None
        self.guests.close_job(kept.name)
        if driver is not None:
            _killed(driver)
        self._kill_leaving(kept)

    def _kill_leaving(self, kept: ManagedJob) -> None:
        leaving, kept.leaving = kept.leaving, None
        if leaving is not None:
            _killed(leaving)

    def _remove(self, kept: ManagedJob, *, purge: bool) -> None:
        for version in kept.versions.values():
            shutil.rmtree(self._folders.package(version.settings), ignore_errors=True)
        folder = self._folders.job(kept.name)
        if purge:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            for file in folder.glob("run.log*"):
                file.unlink(missing_ok=True)
        self._store.remove(kept.stored.id)
        self.jobs.pop(kept.name, None)

    def _sweep_packages(self) -> None:
        """Remove what deployments that were never finished have left."""
        known = {
            version.settings.package
            for kept in self.jobs.values()
            for version in kept.versions.values()
        }
        if self._folders.packages.is_dir():
            for folder in self._folders.packages.iterdir():
                if folder.name not in known:
                    shutil.rmtree(folder, ignore_errors=True)

    # closing

    def close(self, drain_s: float) -> None:
        """Stop all drivers, after they have had `drain_s` to process what was taken; the store says where to go on."""
        if not self._thread.is_alive():
            return
        self.call(self._begin_to_close)
        self._wait_for(lambda: not any(kept.driver for kept in list(self.jobs.values())), drain_s)
        self.call(self._stop_all)
        self._wait_for(lambda: not any(kept.leaving for kept in list(self.jobs.values())), STOP_S)
        self.call(self._finish)
        self._thread.join()

    def _begin_to_close(self) -> None:
        self._closing = True
        for kept in list(self.jobs.values()):
            self.happened(kept, life.EngineStopping())

    def _stop_all(self) -> None:
        for kept in self.jobs.values():
            self._stop_driver(kept)

    def _wait_for(self, true: Callable[[], bool], timeout_s: float) -> None:
        with self.changed:
            self.changed.wait_for(true, timeout_s)

    def _finish(self) -> None:
        for kept in self.jobs.values():
            self._kill_driver(kept)
        self.guests.close()
        self.drivers.close()
        self._over = True


def _killed(driver: DriverProcess) -> None:
    driver.kill()
    if not driver.wait(STOP_S):
        raise DriverFailed(f"driver {driver.pid} could not be ended")


def _each(waits: Sequence[Callable[[], object]]) -> None:
    for wait in waits:
        wait()
