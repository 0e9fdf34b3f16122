"""A scheme as a job: its driver hosts runtimes, and no Spark.

    runtimes/memory.json            which life each node lives, and which sources have ended
    runtimes/<job>_<node>/<place>/  the queue of a node

The driver, and with it all runtimes, ends with its engine; a new one starts them on their queues, so nothing is lost.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from millstream.actions import scheme as schemes
from millstream.actions.scheme import Node, Scheme
from millstream.engine.driver import Command, Described, Line, Nothing, Report, Run, failure
from millstream.engine.elsewhere import Elsewhere, Places, owners_of
from millstream.engine.runtimes import Runtimes
from millstream.engine.supervisor import Memory, Supervisor, keep, remembered
from millstream.engine.tokens import read_token
from millstream.errors import InvalidScheme, SwitchImpossible
from millstream.flow import binary
from millstream.flow.flow import Flow

_STATISTICS_S: Final = 1.0


def loaded(file: Path, name: str | None) -> Scheme:
    """Return the scheme in a file, under another name if one is given.

    Raises:
        InvalidScheme: It cannot be a job.
        InvalidName: A job cannot be called so.
    """
    found = schemes.load(file)
    found = found if name is None else replace(found, name=name)
    Flow(found.name)  # a job has a name like a flow's
    for node in found.nodes:
        if not node.addresses:
            hint = "give it addresses: [host:port], or make it a stage of a flow"
            raise InvalidScheme(f'node "{node.name}" has no address to run at', hint=hint)
    return found


def described(scheme: Scheme) -> Described:
    """Say what an engine must know of a scheme."""
    actions = dict.fromkeys(node.action for node in scheme.nodes)
    return Described(scheme.name, {}, tuple(text for text in actions if binary.parse(text) is not None))


def declare(folder: Path) -> None:
    """Begin anew with what an earlier job of that name has left: its sources have not ended yet."""
    file = _memory(folder)
    if file.is_file():
        keep(file, Memory(remembered(file).lives))


def _memory(folder: Path) -> Path:
    return folder / "runtimes" / "memory.json"


class SchemeRun:
    """The runtimes of a scheme, run once, as the engine says."""

    def __init__(self, line: Line, scheme: Scheme, how: Run) -> None:
        self._line, self._scheme = line, scheme
        folder = Path(how.data) / how.name
        programs = {name: Path(file) for name, file in how.binaries.items()}
        owners = owners_of(scheme, how.engines)
        here = [one for one in scheme.nodes if any(owners[address] == 0 for address in one.addresses)]
        _check(here, Path(how.root), programs)
        self._supervisor = Supervisor(scheme, _memory(folder), wake=line.wake)
        heard = self._supervisor.exited
        own = Runtimes(scheme, folder=folder / "runtimes", root=Path(how.root), on_exit=heard, programs=programs)
        token = read_token(Path(how.data).parents[1] / "token") if len(how.engines) > 1 else ""
        others = {n: Elsewhere(one.url, token, how.name, heard) for n, one in enumerate(how.engines) if n}
        self._host = Places(own, others, owners)
        self._ready = False
        self._flush: bool | None = None
        self._told: object = None
        self._told_at = 0.0

    def run(self) -> Report | None:
        """Host the runtimes until the engine says stop or there is nothing left to do; return what there is to say then.

        Raises:
            DriverFailed: A runtime ends time and again.
        """
        try:
            self._supervisor.begin(self._host)
            while True:
                command = self._line.next(self._step())
                if command is not None and command.stop is not None:
                    return None
                if command is not None:
                    self._heard(command)
                if self._supervisor.done:
                    return self._ended()
        finally:
            self._supervisor.close()

    def _step(self) -> float:
        pause = self._supervisor.step()
        if not self._ready and self._supervisor.ready:
            self._ready = True
            self._line.say(Report(ready=Nothing()))
        return min(pause, self._tell())

    def _heard(self, command: Command) -> None:
        if command.drain is not None:
            self._flush = command.drain.flush
            self._supervisor.drain()
        elif command.compare is not None:
            hint = "drain and undeploy it, then deploy the new one"
            refusal = SwitchImpossible(f'"{self._scheme.name}" is a scheme, and cannot be switched', hint=hint)
            self._line.say(Report(unplanned=failure(refusal)))

    def _ended(self) -> Report:
        """Return what became of it: drained only if it was to be, and its sources could go on."""
        self._tell(last=True)
        if not self._ready:
            self._line.say(Report(ready=Nothing()))  # it was quick
        drained = self._flush is False and not self._supervisor.ended
        return Report(drained=Nothing()) if drained else Report(finished=Nothing())

    def _tell(self, *, last: bool = False) -> float:
        """Say how the runtimes are doing, if that has changed; return when to look again."""
        now, status = time.monotonic(), self._supervisor.status()
        if status == self._told:
            return float("inf")
        if not last and now < self._told_at + _STATISTICS_S:
            return self._told_at + _STATISTICS_S - now
        self._told, self._told_at = status, now
        self._line.say(Report(statistics={"runtimes": msgspec.to_builtins(status)}))
        return float("inf")


def _check(nodes: Sequence[Node], root: Path, programs: dict[str, Path]) -> None:
    """Refuse nodes with a program that is not there: no new start would find it.

    Raises:
        InvalidScheme: One is not there, or may not be run.
    """
    for node in nodes:
        if node.action in programs:
            continue
        found = shutil.which(root / node.action) if "/" in node.action else _on_path(node)
        if found is None:
            where = f"looked for it from {root}" if "/" in node.action else "looked for it on its PATH"
            raise InvalidScheme(
                f'the program "{node.action}" of node "{node.name}" is not there, or may not be run', hint=where
            )


def _on_path(node: Node) -> str | None:
    return shutil.which(node.action, path=dict(node.env).get("PATH", f"/usr/local/bin:{os.defpath}"))
