"""The keeper of leases: one thread that looks, and carries out the steps of the observer.

    every interval: show that we are there ─▶ look at engines and logs ─▶ steps ─▶ claim, renew, lose

What takes long (to read a flow and start its driver, to move a job away) has a thread of its own;
renewals wait for nobody. Whether a driver may publish is not decided here: it has a claim of its
own, after the engine's, and stops when the log has a later one.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from millstream.clock import iso
from millstream.engine.jobs.lifecycle import SETTLED, JobState
from millstream.engine.leases import rules, same_host
from millstream.engine.leases.claims import Claims
from millstream.engine.leases.coordination import Coordination, Deployment, Presence, TakenJob
from millstream.engine.leases.loads import Ages, EngineLoad, Measured
from millstream.engine.leases.moving import Moves
from millstream.engine.leases.observer import Local, Observer, Step, holder_of
from millstream.engine.leases.rules import EngineView
from millstream.engine.leases.tasks import TaskStatus
from millstream.errors import MillstreamError, StorageError, TakenOver
from millstream.joblog.entries import NOBODY
from millstream.joblog.protocol import Log

_log = logging.getLogger(__name__)
#: For how many looks an engine leaves a job alone that it could not run.
_LEAVE_ALONE: Final = 12
#: How long an engine that closes waits for jobs that arrive.
_ARRIVES_S: Final = 20.0
#: How long a driver may take to claim its job: it may have to start Spark, on a busy machine.
_STARTS_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Here:
    """A job that runs on this engine."""

    state: JobState
    #: Whether its driver has the command to run it.
    running: bool


class Jobs(Protocol):
    """What the keeper asks of its engine."""

    def here(self) -> dict[str, Here]:
        """Return the jobs in the engine that other engines know too."""
        ...

    def adopt(self, taken: TakenJob) -> None:
        """Run a job, which this engine has claimed."""
        ...

    def stop(self, job: str) -> None:
        """Take no more events for a job, and let its driver stop; it has when this returns."""
        ...

    def restart(self, job: str, why: str) -> None:
        """End a job's driver, which hangs, and start it again."""
        ...

    def lose(self, job: str, why: str) -> None:
        """End a job's driver, close its inboxes, and forget it."""
        ...


class LeaseKeeper:
    """Which jobs this engine runs, of those that all engines know. Any thread may call."""

    def __init__(self, coordination: Coordination, me: str, jobs: Jobs) -> None:
        self._shared, self.me, self._jobs = coordination, me, jobs
        self.claims = Claims(coordination, me)
        self.moves = Moves(self)
        #: Where this engine is asked.
        self.url = ""
        #: How busy this engine was when it last looked.
        self.measured: Callable[[], Measured | None] = lambda: None
        self.closing = False
        self._observer = Observer(me, patience=math.ceil(_STARTS_S / self._interval))
        self._busy: set[str] = set()  # those that arrive or leave
        self._failed: dict[str, tuple[int, str]] = {}
        self._presence: dict[str, Presence] = {}
        self._ages = Ages()
        self._guard = threading.RLock()
        self._beat, self._counted_at = 0, 0.0
        self._adopting: list[threading.Thread] = []
        self._soon = threading.Event()
        self._thread = threading.Thread(target=self._work, name="leases", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def look_soon(self) -> None:
        """Look before the interval is over: something has changed."""
        self._soon.set()

    # looking

    @property
    def _interval(self) -> float:
        return self._shared.lease_s / rules.INTERVALS

    def _work(self) -> None:
        while not self.closing:
            try:
                self._look()
            except MillstreamError as error:
                # Not counted: nobody knows what has changed.
                _log.warning("the coordination cannot be read: %s", error)
            except Exception:  # noqa: BLE001 (the next look may be better)
                _log.exception("the keeper of leases failed unexpectedly")
            self._soon.wait(self._interval)
            self._soon.clear()

    def _look(self) -> None:
        self._show()
        engines, names = self._shared.engines(), self._shared.names()
        logs: dict[str, Log] = {}
        for name in names:
            try:
                known = self._observer.logs.get(name, Log())
                logs[name] = self._shared.log(name, self.me).glance(known)
            except StorageError as error:
                _log.warning("the log of job %s cannot be read: %s", name, error)
        with self._guard:
            counted = self._counts()
            self._presence = {one.id: one for one in engines}
            self._ages.see((one.id, one.measured) for one in engines)
            self._observer.see_engines(map(_view, engines), counted=counted)
            self._observer.see_jobs(names, logs, counted=counted)
            self._failed = {
                name: (left - counted, why) for name, (left, why) in self._failed.items() if left
            }
            steps = self._steps()
        for name, step in steps.items():
            self._act(name, step)
        self._settle()

    def _counts(self) -> bool:
        """Tell whether an interval has passed since the last look that was counted."""
        now = time.monotonic()
        if now - self._counted_at < self._interval * 0.9:
            return False
        self._counted_at = now
        return True

    def _show(self) -> None:
        self._beat += 1
        presence = Presence(
            id=self.me,
            beat=self._beat,
            cores=os.cpu_count() or 1,
            url=self.url,
            draining=self.moves.begun or self.closing,
            jobs={name: str(one.state) for name, one in self._jobs.here().items()},
            process=os.getpid(),
            space=same_host.space(),
            measured=self.measured(),
        )
        self._shared.show(presence)

    def _steps(self) -> dict[str, Step]:
        held = self.claims.generation
        local = {name: Local(one.running, held(name)) for name, one in self._jobs.here().items()}
        local |= {name: Local(False, held(name)) for name in self._busy}
        skipped = self._busy | {name for name, (left, _) in self._failed.items() if left}
        return {
            name: step
            for name, step in self._observer.steps(local).items()
            if name not in skipped or step is Step.RENEW
        }

    # steps

    def _act(self, name: str, step: Step) -> None:
        try:
            match step:
                case Step.TAKE:
                    self._take(name)
                case Step.HOLD:
                    self.claims.hold(name)
                case Step.RENEW:
                    self.claims.renew(name)
                case Step.RESTART:
                    self._restart(name)
                case Step.LOSE:
                    self._lose(name)
        except TakenOver as error:
            _log.info("job %s was claimed by another: %s", name, error)
            self.claims.forget(name)
        except StorageError as error:
            _log.warning("job %s: %s failed: %s", name, step.name, error)
            self.claims.forget(name)

    def _take(self, name: str) -> None:
        self.claims.take(name, self._observer.logs[name])
        with self._guard:
            self._busy.add(name)
        standing = self.claims.standing(name)
        adopting = threading.Thread(target=self._adopt, args=(name, *standing), daemon=True)
        adopting.name = f"adopt {name}"
        adopting.start()
        self._adopting = [one for one in self._adopting if one.is_alive()] + [adopting]

    def _adopt(self, name: str, generation: int, record: str | None) -> None:
        """Run a job that was claimed; if that fails, let others have it."""
        try:
            taken = self._shared.taken(name, generation, record)
            if taken is not None:
                self._jobs.adopt(taken)
        except Exception as error:  # noqa: BLE001 (whatever it is, another engine may do better)
            _log.error("job %s cannot run here: %s", name, error)
            with self._guard:
                self._failed[name] = _LEAVE_ALONE, str(error)
            self.claims.release(name)
        finally:
            with self._guard:
                self._busy.discard(name)

    def _restart(self, name: str) -> None:
        why = f"the driver has not renewed its lease for {self._shared.lease_s:g} s"
        _log.warning("job %s: %s; it is ended, and started again", name, why)
        self._jobs.restart(name, why)

    def _lose(self, name: str) -> None:
        log = self._observer.logs.get(name)
        engine = None if log is None else holder_of(log)
        why = "it was undeployed" if log is None else f"engine {engine} has taken over the job"
        _log.warning("job %s is lost: %s; its driver here is ended", name, why)
        self.claims.forget(name)
        self._jobs.lose(name, why)

    def _settle(self) -> None:
        """Write down which jobs of ours are done, so that nobody runs them again."""
        for name, one in self._jobs.here().items():
            log = self._observer.logs.get(name)
            ours = log is not None and holder_of(log) == self.me and log.state.settled != one.state
            if one.state in SETTLED and ours and name not in self._busy:
                with contextlib.suppress(TakenOver, StorageError):
                    self.claims.settle(name, str(one.state))

    @contextlib.contextmanager
    def aside(self, name: str) -> Iterator[None]:
        """Leave a job alone while something else is done with it."""
        with self._guard:
            self._busy.add(name)
        try:
            yield
        finally:
            with self._guard:
                self._busy.discard(name)
            self.look_soon()

    # moving jobs away

    def movable(self) -> tuple[list[str], bool]:
        """Return the jobs that another engine could take, and whether there are others."""
        here = [name for name, one in self._jobs.here().items() if one.state not in SETTLED]
        with self._guard:
            order = rules.next_candidates(self._observer.jobs, self._observer.engines)
            more = bool(here or self._busy)
        movable = [name for name in sorted(here) if set(order.get(name, ())) - {self.me}]
        return movable, more

    def send_away(self, name: str) -> None:
        """Stop a job, and let others have it."""
        with self.aside(name):
            self._jobs.stop(name)
            self._jobs.lose(name, "it was moved to another engine")
            self.claims.release(name)

    def others(self) -> list[Presence]:
        """Return the other engines as they are now, as far as they can be seen."""
        try:
            found = self._shared.engines()
        except StorageError:
            return []
        return [one for one in found if one.id != self.me]

    def stop(self) -> None:
        """Stop looking: drivers renew their leases themselves, until they stop."""
        self.closing = True
        self._soon.set()
        if self._thread.is_alive():
            self._thread.join()
        for adopting in self._adopting:
            adopting.join(_ARRIVES_S)

    def leave(self) -> None:
        """Let others have all jobs at once; their drivers have stopped."""
        for name in dict.fromkeys([*self._jobs.here(), *self.claims.names]):
            if self.settled(name) is None:
                self.claims.release(name)
        self._shared.leave(self.me)

    # showing

    def settled(self, name: str) -> str | None:
        """Return the state in which a job rests by its log; None if it is to run."""
        with self._guard:
            log = self._observer.logs.get(name)
        return None if log is None else log.state.settled

    def named(self, job: str) -> str:
        """Return the name of a job that is known by its name or id; what was given otherwise."""
        with self._guard:
            if job in self._observer.logs:
                return job
        found = self._shared.deployment(name) if (name := job.rpartition("-")[0]) else None
        return job if found is None or found.id != job else name

    def unclaimed(self, name: str) -> Deployment | None:
        """Return a job that no other engine has; None if one has, or nobody knows the job."""
        with self._guard:
            log = self._observer.logs.get(name)
        there = log is not None and log.state.settled is None and holder_of(log)
        return None if there and there != self.me else self._shared.deployment(name)

    def where(self, job: str) -> str | None:
        """Return which engine has a job, and how to reach it; None if nobody knows the job."""
        job = self.named(job)
        found = next((one for one in self.tasks() if one.job == job), None)
        return None if found is None else found.url or found.engine or "no engine yet"

    @property
    def urls(self) -> dict[str, str]:
        """Where engines are asked, by their ids."""
        with self._guard:
            return {one.id: one.url for one in self._presence.values() if one.url}

    def loads(self) -> dict[str, EngineLoad]:
        """Return how busy engines are, by their ids, as far as this one has seen."""
        with self._guard:
            return {
                view.id: _load(view, there, self._ages.of(view.id))
                for view in self._observer.engines
                if (there := self._presence.get(view.id)) is not None
            }

    def tasks(self) -> list[TaskStatus]:
        """Return which engine runs which job, as far as this one has seen."""
        with self._guard:
            order = rules.next_candidates(self._observer.jobs, self._observer.engines)
            logs = self._observer.logs.items()
            found = [self._task(name, log, order[name]) for name, log in logs]
        return sorted(found, key=lambda one: one.job)

    def _task(self, name: str, log: Log, order: list[str]) -> TaskStatus:
        engine, state = holder_of(log), log.state
        there = self._presence.get(engine or "")
        shown = None if there is None else there.jobs.get(name)
        reason = self._failed.get(name)
        return TaskStatus(
            job=name,
            state=state.settled or shown or "waiting",
            engine=engine,
            url="" if there is None else there.url,
            since=None if engine is None else _since(log),
            generation=None if state.generation == NOBODY else state.generation,
            next=next((one for one in order if one != engine), None),
            here=engine == self.me,
            reason=None if reason is None else reason[1],
        )


def _view(there: Presence) -> tuple[EngineView, int]:
    """Return an engine as it is seen from here, and its beat."""
    gone = same_host.ended(there.process, there.space)
    return EngineView(there.id, there.cores, there.draining, gone=gone), there.beat


def _since(log: Log) -> str | None:
    return None if log.state.holder is None else iso(log.state.holder.since_us / 1e6)


def _load(view: rules.EngineView, there: Presence, age_s: float) -> EngineLoad:
    state = "up" if view.candidate else "draining" if view.there else "away"
    found = EngineLoad(state=state, url=there.url, jobs=len(there.jobs), cores=there.cores)
    return found.with_measured(there.measured, age_s)
