"""The runner of jobs: one thread that applies events, stores jobs and carries out orders.

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
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Final, TypeVar

import msgspec

from millstream.clock import Clock
from millstream.engine.driver import protocol
from millstream.engine.driver.process import DriverPool, DriverProcess
from millstream.engine.driver.protocol import Report
from millstream.engine.inboxes.inboxes import Inboxes
from millstream.engine.jobs import lifecycle as life
from millstream.engine.jobs.folders import Folders
from millstream.engine.jobs.lifecycle import Event, Job, JobState, Order
from millstream.engine.jobs.store import Noted, Packed, Store, Stored, Version
from millstream.engine.managed_job import ManagedJob
from millstream.engine.orders import STOP_S, Orders
from millstream.engine.programs.binaries import Binaries
from millstream.engine.schemes.guests import Guests
from millstream.engine.switch_service import Switches
from millstream.engine.unread import allowance
from millstream.engine.version_sharing import VersionSharing
from millstream.errors import EngineClosed, StoreBroken
from millstream.joblog import Lease

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
#: How long engines wait for one another while a job drains.
PEERS_S: Final = 300.0
_TICK_S: Final = 1.0
_ENDING_S: Final = 0.02
_GONE: Final = (JobState.UNDEPLOYED, JobState.MOVED)
#: Errors of a driver that are no fault of its job's: another has it, or its storage is away.
_AWAY: Final = ("TakenOver", "StorageAway")


class JobRunner:
    """The jobs of an engine, run by the rules of the lifecycle."""

    def __init__(
        self,
        folders: Folders,
        store: Store,
        inboxes: Inboxes,
        binaries: Binaries,
        sharing: VersionSharing,
        *,
        clock: Clock,
        master: str | None,
        spares: int,
        storage: str | None = None,
        lease: Callable[[str], Lease] | None = None,
    ) -> None:
        self._folders, self._store, self._inboxes, self._clock = folders, store, inboxes, clock
        self.jobs: dict[str, ManagedJob] = {}
        self.drivers = DriverPool(
            folders.data,
            on_report=lambda driver, report: self._soon(lambda: self._received(driver, report)),
            on_exit=lambda driver: self._soon(lambda: self._exited(driver)),
            master=master,
            storage=storage,
            spares=spares,
        )
        self.switches = Switches(folders, store, inboxes, binaries, self, self._now, sharing)
        self.orders = Orders(
            folders,
            store,
            inboxes,
            binaries,
            self.drivers,
            self.jobs,
            happened=self.happened,
            soon=self._soon,
            lease=lease,
        )
        #: Is called when a driver was told that another engine has its job.
        self.on_taken: Callable[[], object] = lambda: None
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
            if stored.settings.shared:  # another engine may have it: the keeper of leases looks
                self._store.remove(stored.id)
                continue
            self.jobs[stored.name] = ManagedJob(stored, versions=self._versions(stored.id))
        self.orders.sweep_packages()
        self._thread.start()
        for managed in list(self.jobs.values()):
            self.call(partial(self._go_on, managed))

    def _versions(self, id: str) -> dict[int, Version]:
        return {version.number: version for version in self._store.versions(id)}

    @property
    def guests(self) -> Guests:
        """The runtimes that this engine hosts for jobs with a driver elsewhere."""
        return self.orders.guests

    def add(
        self, stored: Stored, versions: Packed, driver: DriverProcess, orders: list[Order]
    ) -> ManagedJob:
        """Store a new job with its versions, then carry out the orders of its first step."""
        noted = Noted(stored.deployed_at, JobState.DEPLOYED, stored.settings.flow)
        self._store.add(stored, versions, noted)
        managed = ManagedJob(stored, driver=driver, versions=self._versions(stored.id))
        self.jobs[stored.name] = managed
        self.orders.carry_out(managed, orders)
        self._notify()
        return managed

    def _go_on(self, managed: ManagedJob) -> None:
        """Go on with a job of an engine before, which may have been killed without a word."""
        with contextlib.suppress(StoreBroken):
            self._store.update(managed.stored.id, managed.job, Noted(self._now(), "engine started"))
        self.happened(managed, life.EngineStarted())

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
            managed.job.paused_until - now
            for managed in self.jobs.values()
            if managed.job.paused_until is not None
        ]
        due += [
            managed.leave_by - real for managed in self.jobs.values() if managed.leaving is not None
        ]
        due.append(_ENDING_S if self._inboxes.ending() else self._tick_at - real)
        return max(0.0, min(due))

    def _tick(self) -> None:
        if self._inboxes.ending():
            self._inboxes.tick()
        now, real = self._now(), time.monotonic()
        for managed in list(self.jobs.values()):
            if life.pause_is_over(managed.job, now):
                self.happened(managed, life.PauseOver())
            if managed.leaving is not None and real >= managed.leave_by:
                _log.warning(
                    "driver %s of job %s did not stop in time", managed.leaving.pid, managed.name
                )
                managed.leaving.kill()
                managed.leave_by = real + STOP_S
            if managed.job.state is JobState.DRAINING:
                self._miss_peers(managed, now, real)
        if real >= self._tick_at:
            self._tick_at = real + _TICK_S
            self._inboxes.tick()
            self._retry()
            for managed in list(self.jobs.values()):
                self.switches.tick(managed)
                inboxes = self._inboxes.job(managed.name)
                inboxes.allow(allowance(managed, self._folders, inboxes.taken))
                if managed.job.state in _GONE:  # the store would not forget it
                    self.orders.carry_out(managed, life.removed(managed.job))
            if not self._closing:
                self.drivers.fill()

    def _miss_peers(self, managed: ManagedJob, now: float, real: float) -> None:
        """Notice which engines a job that drains has waited for long enough."""
        if not managed.job.driver:
            if now - managed.job.since > PEERS_S:
                self.happened(managed, life.PeerMissed("the engine with the driver"))
            return
        away = self._inboxes.away(managed.name)
        managed.away = {peer: managed.away.get(peer, real) for peer in away}
        for peer, since in managed.away.items():
            if real - since > PEERS_S:
                self.happened(managed, life.PeerMissed(peer))

    def _now(self) -> float:
        return self._clock.now_us() / 1e6

    # events

    def apply(self, managed: ManagedJob, event: Event) -> None:
        """Apply an event to a job: store what becomes of it, then carry out the orders.

        Raises:
            InvalidTransition: It makes no sense in this state.
            JobBusy: It would lose events.
            StoreBroken: It could not be stored, so it has not happened.
        """
        before = managed.job
        after, orders = life.advance(before, event, self._now())
        if after != before:
            self._store.update(managed.stored.id, after, _noted(before, after, event, self._now()))
            managed.stored = msgspec.structs.replace(managed.stored, job=after)
        self.orders.carry_out(managed, orders)
        self._notify()

    def happened(self, managed: ManagedJob, event: Event) -> None:
        """Apply an event that nobody has asked for; if it cannot be stored, try again soon."""
        try:
            self.apply(managed, event)
        except StoreBroken as error:
            _log.error("job %s: %s", managed.name, error)
            self._refused.append((managed, event))

    def _retry(self) -> None:
        refused, self._refused = self._refused, []
        for managed, event in refused:
            self.happened(managed, event)

    def _received(self, driver: DriverProcess, report: Report) -> None:
        managed = _owner(self.jobs, driver)
        if managed is None or managed.driver is not driver:
            return
        match report:
            case protocol.Statistics():
                managed.report(report.numbers, self._inboxes.job(managed.name).taken)
            case protocol.Drawn():
                managed.drawing = report.drawing
            case protocol.SwitchRecovered():
                self.switches.recovered(managed, report.state)
                self._notify()
            case protocol.SwitchMoved():
                self.switches.reported(managed, report.switch)
                self._notify()
            case protocol.Ready():
                self.happened(managed, life.DriverReady())
            case protocol.Drained() | protocol.Finished():
                drained = isinstance(report, protocol.Drained)
                self.happened(managed, life.Drained() if drained else life.Finished())
            case protocol.Failed() if managed.running:
                self._lost(managed, driver)

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def _exited(self, driver: DriverProcess) -> None:
        managed = _owner(self.jobs, driver)
        if managed is None:
            return
        if managed.leaving is driver:
            managed.leaving = None
            self._notify()
        elif managed.running:
            self._lost(managed, driver)
        else:
            managed.driver = None  # prepared, and not needed yet

    def end_driver(self, managed: ManagedJob, why: str) -> None:
        """End a driver that hangs; the job goes on as after any death of one."""
        if managed.driver is not None and managed.running:
            self._lost(managed, managed.driver, why)

    def _lost(self, managed: ManagedJob, driver: DriverProcess, why: str | None = None) -> None:
        managed.driver, managed.running, managed.held = None, False, None
        driver.kill()
        failed, reason = driver.failed, why or driver.reason
        full = self.orders.disk_is_full() or (failed is not None and failed.full)
        reason = f"the disk is full: {reason}" if full else reason
        hopeless = failed is not None and failed.hopeless
        away = failed is not None and failed.error in _AWAY
        if away:
            self.on_taken()
        self.happened(managed, managed.death(reason, hopeless=hopeless, waiting=full or away))

    # closing

    def close(self, drain_s: float) -> None:
        """Stop all drivers, after `drain_s` to process what was taken; the store has the rest."""
        if not self._thread.is_alive():
            return
        self.call(self._begin_to_close)
        self._wait_for(
            lambda: not any(managed.driver for managed in list(self.jobs.values())), drain_s
        )
        self.call(self._stop_all)
        self._wait_for(
            lambda: not any(managed.leaving for managed in list(self.jobs.values())), STOP_S
        )
        self.call(self._finish)
        self._thread.join()

    def _begin_to_close(self) -> None:
        self._closing = True
        for managed in list(self.jobs.values()):
            self.happened(managed, life.EngineStopping())

    def _stop_all(self) -> None:
        for managed in self.jobs.values():
            self.orders.stop_driver(managed)

    def _wait_for(self, true: Callable[[], bool], timeout: float) -> None:
        with self.changed:
            self.changed.wait_for(true, timeout)

    def _finish(self) -> None:
        for managed in self.jobs.values():
            self.orders.kill_driver(managed)
        self.orders.guests.close()
        self.drivers.close()
        self._over = True


def _owner(jobs: Mapping[str, ManagedJob], driver: DriverProcess) -> ManagedJob | None:
    found = (one for one in jobs.values() if driver in (one.driver, one.leaving))
    return next(found, None)


def _noted(before: Job, after: Job, event: Event, now: float) -> Noted | None:
    """Return what the history of a job records of an event, if anything."""
    match event:
        case life.DriverDied():
            return Noted(now, after.state, after.reason)
        case life.EngineStopping():
            return Noted(now, "engine stopping")
        case life.EngineStarted():
            return None  # noted already
    if (before.state, before.flush, before.missed) == (after.state, after.flush, after.missed):
        return None
    return Noted(now, after.state, after.reason or ("with flush" if after.flush else None))
