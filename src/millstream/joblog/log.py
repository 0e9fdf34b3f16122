"""A job's log on a storage, for one driver."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

from millstream.clock import Clock, SystemClock
from millstream.errors import InternalError, StorageError
from millstream.joblog import protocol
from millstream.joblog.entries import (
    Claim,
    Decided,
    Holder,
    Release,
    Renewal,
    Settled,
    State,
    SwitchStep,
)
from millstream.joblog.lease import Lease
from millstream.joblog.protocol import Allowed, Log, Numbers, Put, Read, Remove, Request
from millstream.storage import Storage

_FOLDER: Final = "log"
_T = TypeVar("_T")

#: A driver appends at least this often, so that others know that it lives.
RENEW_EVERY_S: Final = 5.0
#: It is taken for dead when nothing came for so many of the observer's own intervals.
INTERVALS: Final = 3


class JobLog:
    """The log of a job; `claim` it before anything else. Any thread may use it."""

    def __init__(
        self,
        storage: Storage,
        *,
        clock: Clock | None = None,
        renew_every: float = RENEW_EVERY_S,
        engine: str = "",
    ) -> None:
        self._storage, self._engine = storage, engine
        self._clock = clock or SystemClock()
        self._renew_every = renew_every
        self._log: Log | None = None
        self._guard = threading.Lock()
        self._appended_at = time.monotonic()

    @property
    def state(self) -> State:
        """What all entries amount to."""
        return self._known.state

    @property
    def generation(self) -> int:
        """The number of this driver's claim."""
        return self._known.state.generation

    @property
    def _known(self) -> Log:
        if self._log is None:
            raise InternalError("a job's log is used before the job is claimed")
        return self._log

    def peek(self) -> State:
        """Return what all entries amount to now, whoever has the job; nothing is claimed."""
        return self._run(protocol.load()).state

    def claim(self, *, wait: Callable[[float], object] = time.sleep) -> int:
        """Take the job once nobody seems to have it; return this driver's generation.

        Whoever has it and lives appends; if nothing comes for some intervals, measured here, it is
        taken for dead. If it is not, it finds this claim, and stops.

        Raises:
            TakenOver: Another driver has taken it at the same time.
            StorageError: The storage cannot be used.
        """
        with self._guard:
            self._wait_for_silence(wait)
            return self._claim(protocol.always)

    def claim_if(self, allowed: Allowed) -> int:
        """Take the job at once, right behind a log that is `allowed`; return the generation.

        Raises:
            TakenOver: It is not allowed, or another driver has taken it at the same time.
            StorageError: The storage cannot be used; the claim may be there, or may come.
        """
        with self._guard:
            return self._claim(allowed)

    def _claim(self, allowed: Allowed) -> int:
        holder = Holder(socket.gethostname(), os.getpid(), self._clock.now_us(), self._engine)
        self._log = self._run(protocol.claim(Claim(holder=holder), allowed))
        self._appended_at = time.monotonic()
        self._sum_up()
        return self._log.state.generation

    def follow(self, lease: Lease) -> int:
        """Take the job for a driver of the engine that has it; return the driver's generation.

        Raises:
            TakenOver: Another engine has claimed it, or this engine another time.
        """
        return self.claim_if(lambda log: protocol.of_generation(log, lease.generation))

    def glance(self, known: Log) -> Log:
        """Return where the log ends and who has the job, without a claim.

        Raises:
            StorageError: The storage cannot be used.
        """
        return self._run(protocol.glance(known))

    def _wait_for_silence(self, wait: Callable[[float], object]) -> None:
        log, quiet = self._run(protocol.load()), 0
        while not (log.state.released or _gone(log.state.holder)) and quiet < INTERVALS:
            wait(self._renew_every)
            end = max(self._numbers(), default=-1) + 1
            quiet = quiet + 1 if end == log.end else 0
            log = log if end == log.end else self._run(protocol.load())

    def decided(self, key: str) -> Decided | None:
        """Return the last decision for a sender and target."""
        return self._known.state.decided.get(key)

    def decide(self, key: str, decided: Decided) -> Decided | None:
        """Let an epoch exist; return what was decided for it: this, or what was before.

        None if later epochs are decided, and nobody knows any more what this one was.

        Raises:
            TakenOver: Another driver has taken the job: publish nothing.
            StorageAway: The storage does not answer: publish nothing.
        """
        with self._guard:
            self._advance(protocol.decide(self._known, key, decided))
            found = self._known.state.decided[key]
            return found if found.epoch == decided.epoch else None

    def note_switch(self, record: str) -> None:
        """Write down where the job's switch stands.

        Raises:
            TakenOver: Another driver has taken the job.
        """
        with self._guard:
            step = SwitchStep(generation=self.generation, record=record)
            self._advance(protocol.append(self._known, step))

    def settle(self, state: str | None) -> None:
        """Write down that the job rests in a state, and nobody is to run it; None: it runs again.

        Raises:
            TakenOver: Another driver has taken the job.
        """
        with self._guard:
            entry = Settled(generation=self.generation, state=state)
            self._advance(protocol.append(self._known, entry))

    def renew(self, *, now: bool = False) -> None:
        """Let others know that this driver lives, if nothing else has for a while, or `now`.

        Raises:
            TakenOver: Another driver has taken the job.
        """
        with self._guard:
            if now or time.monotonic() - self._appended_at >= self._renew_every:
                self._advance(protocol.append(self._known, Renewal(generation=self.generation)))

    def release(self) -> None:
        """Let others take the job at once."""
        with self._guard:
            log, self._log = self._log, None
            if log is not None:
                self._run(protocol.append(log, Release(generation=log.state.generation)))

    def _advance(self, rule: Generator[Request, Any, Log]) -> None:
        before, self._log = self._known, self._run(rule)
        if self._log.end != before.end:
            self._appended_at = time.monotonic()
        if protocol.due(self._log):
            self._sum_up()

    def _sum_up(self) -> None:
        self._log = self._run(protocol.sum_up(self._known))

    def _run(self, rule: Generator[Request, Any, _T]) -> _T:
        try:
            request = next(rule)
            while True:
                try:
                    answer = self._answer(request)
                except StorageError as error:
                    request = rule.throw(error)
                else:
                    request = rule.send(answer)
        except StopIteration as end:
            found: _T = end.value
            return found

    def _answer(self, request: Request) -> object:
        match request:
            case Put(number, content):
                return self._storage.put_if_absent(_name(number), content)
            case Read(number):
                return self._storage.read(_name(number))
            case Numbers():
                return self._numbers()
            case Remove(number):
                self._storage.delete(_name(number))
                return None

    def _numbers(self) -> list[int]:
        names = [name.rpartition("/")[2] for name in self._storage.list(_FOLDER)]
        return [int(name) for name in names if name.isdigit()]


def _gone(holder: Holder | None) -> bool:
    """Tell whether it is known that a driver has died: it was on this host."""
    if holder is None or holder.host != socket.gethostname():
        return False
    try:
        os.kill(holder.process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _name(number: int) -> str:
    return f"{_FOLDER}/{number:012d}"
