"""Runtimes that this engine hosts for a job whose driver is on another engine.

The other engine's supervisor gives the orders, over HTTP. They end with this engine, and their log
is the job's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Annotated, Final, Literal

import msgspec
from msgspec import Meta

from millstream.actions.handshake import keep_secret, secret_file
from millstream.actions.scheme import Scheme
from millstream.actions.supervision import Start
from millstream.engine.schemes.runtimes import Runtimes
from millstream.errors import RequestRefused

BASE64: Final = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


class GuestOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to do with the runtime of a node: start it at an address, end it, drain it or ask it."""

    do: Literal["start", "kill", "drain", "ask"]
    address: str = ""
    generation: int = 0
    outs: list[str] = []
    drain: bool = False
    #: What the runtimes of the scheme prove to each other, to start.
    secret: str = ""
    #: A command of the runtimes' protocol, to ask.
    command: Annotated[bytes, Meta(extra_json_schema={"pattern": BASE64})] = b""


class GuestStatus(msgspec.Struct, frozen=True):
    """A runtime that an engine hosts for another: its process, how it ended, and its answer."""

    pid: int | None = None
    generation: int = 0
    code: int | None = None
    answer: bytes | None = None


class Guest:
    """The runtimes of one job. Start and end them from one thread that never ends."""

    def __init__(
        self,
        scheme: Scheme,
        *,
        folder: Path,
        root: Path,
        programs: Mapping[str, Path],
        log: Path,
        engine: Path,
    ) -> None:
        """Host nodes of `scheme` for the engine with the folder `engine`; see also `Runtimes`."""
        self._scheme, self._data = scheme, folder.parent
        self._ends: dict[str, tuple[int, int]] = {}
        self._lives: dict[str, int] = {}
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log: IO[bytes] = log.open("ab")
        self._runtimes = Runtimes(
            scheme,
            folder=folder,
            root=root,
            on_exit=self._exited,
            programs=programs,
            log=self._log,
            env=_marked(engine),
            secret=secret_file(self._data),
        )

    def _exited(self, node: str, generation: int, code: int) -> None:
        self._ends[node] = (generation, code)

    def check(self, node: str, order: GuestOrder) -> None:
        """Refuse what makes no sense.

        Raises:
            RequestRefused: There is no such node, or it has not such an address.
        """
        found = next((one for one in self._scheme.nodes if one.name == node), None)
        if found is None or (order.do == "start" and order.address not in found.addresses):
            raise RequestRefused(f'"{node}" is no node that could run at "{order.address}"')

    def obey(self, node: str, order: GuestOrder) -> None:
        """Carry out an order, except to ask."""
        match order.do:
            case "start":
                self._ends.pop(node, None)
                self._lives[node] = order.generation
                keep_secret(self._data, order.secret.encode())
                start = Start(node, order.address, order.generation, tuple(order.outs))
                self._runtimes.start(start, drain=order.drain)
            case "kill":
                self._runtimes.kill(node)
            case "drain":
                self._runtimes.drain(node)

    def status(self, node: str, command: bytes = b"") -> GuestStatus:
        """Return how a runtime is doing, with its answer to a command if there is one."""
        pid = self._runtimes.pid(node)
        answer = self._runtimes.ask(node, command) if command and pid is not None else None
        generation, code = self._ends.get(node, (self._lives.get(node, 0), None))
        return GuestStatus(pid, generation, code, answer)

    def close(self) -> None:
        """End all of them at once: jobs are kept by one thread, which waits for nobody."""
        self._runtimes.close(grace_s=0.0)
        self._log.close()


class Guests:
    """The runtimes of all such jobs; `make` makes those of one, by its name."""

    def __init__(self, make: Callable[[str], Guest]) -> None:
        self._make = make
        self._jobs: dict[str, Guest] = {}

    def of(self, job: str) -> Guest:
        """Return the runtimes of a job; call from the thread that keeps jobs."""
        if job not in self._jobs:
            self._jobs[job] = self._make(job)
        return self._jobs[job]

    def close_job(self, job: str) -> None:
        """End those of a job."""
        found = self._jobs.pop(job, None)
        if found is not None:
            with contextlib.suppress(OSError):
                found.close()

    def close(self) -> None:
        for job in list(self._jobs):
            self.close_job(job)


def _marked(folder: Path) -> dict[str, str]:
    """Return the environment of a process that belongs to the engine with this folder."""
    return {**os.environ, "MILLSTREAM_ENGINE": str(folder.resolve())}
