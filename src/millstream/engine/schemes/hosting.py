"""A scheme as a job: its driver hosts runtimes, and Spark only if it has stages (mixing.py).

    runtimes/memory.json            which life each node lives, and which sources have ended
    runtimes/<job>_<node>/<place>/  the queue of a node

The driver, and with it all runtimes, ends with its engine; a new one starts them on their queues,
so nothing is lost.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from millstream.actions import scheme as schemes
from millstream.actions.handshake import secret_file, secret_of
from millstream.actions.scheme import Node, Scheme
from millstream.engine.driver import protocol
from millstream.engine.jobs.status import RuntimeStatus
from millstream.engine.jobs.switch_record import Compare
from millstream.engine.schemes import mixing
from millstream.engine.schemes.egress import Egress
from millstream.engine.schemes.elsewhere import Elsewhere, Places, owners_of
from millstream.engine.schemes.ends import Ends
from millstream.engine.schemes.runtimes import Runtimes
from millstream.engine.schemes.supervisor import Memory, SchemeSupervisor, keep, remembered
from millstream.engine.tokens import read_token
from millstream.errors import InvalidScheme, SwitchImpossible
from millstream.flow import binary
from millstream.flow.flow import Flow

_STATISTICS_S: Final = 1.0
_ENDS_S: Final = 1.0


def loaded(file: Path, name: str | None) -> Scheme:
    """Return the scheme in a file, under another name if one is given.

    Raises:
        InvalidScheme: It has a mistake.
        InvalidName: A job cannot be called so.
    """
    found = schemes.load(file)
    found = found if name is None else replace(found, name=name)
    Flow(found.name)  # a job has a name like a flow's
    return found


def binaries(scheme: Scheme) -> tuple[str, ...]:
    """Return the programs that an engine keeps, by the names that a scheme has for them."""
    actions = dict.fromkeys(node.action for node in scheme.nodes)
    return tuple(text for text in actions if binary.parse(text) is not None)


def no_switch(scheme: Scheme) -> SwitchImpossible:
    """Return why a running scheme cannot be replaced."""
    hint = "drain and undeploy it, then deploy the new one"
    return SwitchImpossible(f'"{scheme.name}" is a scheme, and cannot be switched', hint=hint)


def declare(folder: Path) -> None:
    """Begin again on what an earlier job of that name has left: its sources have not ended yet."""
    file = _memory(folder)
    if file.is_file():
        known = remembered(file)
        keep(file, Memory(known.lives, places=known.places))


def _memory(folder: Path) -> Path:
    return folder / "runtimes" / "memory.json"


def _placed(scheme: Scheme, memory: Path, ip: str) -> Scheme:
    """Give sources and sinks an address that have none: this host, always the same port."""
    known = remembered(memory)
    inside = mixing.stages(scheme)
    bare = [node.name for node in scheme.nodes if not node.addresses and node.name not in inside]
    places = {name: known.places.get(name) or _free(ip) for name in bare}
    if places != known.places:
        keep(memory, Memory(known.lives, known.ended, places))
    nodes = [
        replace(node, addresses=(places[node.name],)) if node.name in places else node
        for node in scheme.nodes
    ]
    return replace(scheme, nodes=tuple(nodes))


def _free(ip: str) -> str:
    with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET) as sock:
        sock.bind((ip, 0))
        return f"[{ip}]:{sock.getsockname()[1]}" if ":" in ip else f"{ip}:{sock.getsockname()[1]}"


def _supervised(
    scheme: Scheme, how: protocol.Run, wake: Callable[[], None]
) -> tuple[SchemeSupervisor, Places]:
    """Return the supervisor of a scheme, and where its runtimes can be started.

    Raises:
        InvalidScheme: An address belongs to no engine, or a program is not there.
    """
    folder, root = Path(how.data) / how.name, Path(how.root)
    programs = {name: Path(file) for name, file in how.binaries.items()}
    placed = _placed(scheme, _memory(folder), how.engines[0].ip if how.engines else "127.0.0.1")
    owners = {**dict.fromkeys(_addresses(placed), 0), **owners_of(scheme, how.engines)}
    here = [one for one in placed.nodes if any(owners[address] == 0 for address in one.addresses)]
    _check(here, root, programs)
    fixed = {
        name: at
        for name in mixing.stages(placed)
        if (at := how.landings.get(mixing.source_of(name)))
    }
    supervisor = SchemeSupervisor(placed, _memory(folder), wake, fixed)
    exited = supervisor.exited
    secret = secret_of(folder)
    own = Runtimes(
        placed,
        folder=folder / "runtimes",
        root=root,
        on_exit=exited,
        programs=programs,
        secret=secret_file(folder),
    )
    token = partial(read_token, Path(how.data).parents[1] / "token")
    others = {
        n: Elsewhere(one.url, token, how.name, secret, exited)
        for n, one in enumerate(how.engines)
        if n
    }
    return supervisor, Places(own, others, owners)


def _addresses(scheme: Scheme) -> list[str]:
    return [address for node in scheme.nodes for address in node.addresses]


class Beside:
    """The runtimes beside the stages of a scheme, and what the stages send them."""

    def __init__(self, scheme: Scheme, how: protocol.Run) -> None:
        """Start them; the journals of the stages have to be there."""
        self._supervisor, places = _supervised(scheme, how, _nothing)
        self._look_at = 0.0
        folder = Path(how.data) / how.name
        journals, secret = folder / "journals", secret_of(folder)
        self._egress = {
            name: Egress(
                f"{scheme.name}_{name}", (journals / mixing.journal_of(name)).resolve(), secret
            )
            for name in mixing.sending(scheme)
        }
        self._flushing = False
        self._ends = Ends(scheme, Path(how.data), ended=self._has_ended, egress=self._egress)
        self._supervisor.begin(places)
        self.step()

    def step(self) -> None:
        """Look after the runtimes.

        Raises:
            DriverFailed: A runtime ends time and again.
        """
        self._supervisor.step()
        for name, egress in self._egress.items():
            egress.send_to(self._supervisor.outs(name))
            egress.step()
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _ENDS_S
            self._ends.step()

    def flush(self) -> None:
        """Let the sources end, and with them, one after the other, what is fed by them."""
        self._flushing = True
        self._supervisor.drain()

    def _has_ended(self, node: str) -> bool:
        """Tell whether a source brings nothing more: by itself, or because all are to end."""
        return self._supervisor.has_ended(node) or (self._flushing and self._supervisor.gone(node))

    @property
    def delivered(self) -> bool:
        """Whether the runtimes have acknowledged everything that the stages have made."""
        return all(egress.idle for egress in self._egress.values())

    def status(self) -> tuple[RuntimeStatus, ...]:
        return self._supervisor.status()

    def close(self) -> None:
        """End the runtimes."""
        for egress in self._egress.values():
            egress.close()
        self._supervisor.close()


def _nothing() -> None:
    """Wake nobody: `step` is called again in a moment."""


class SchemeRun:
    """The runtimes of a scheme without stages, run once, as the engine commands."""

    def __init__(self, line: protocol.Line, scheme: Scheme, how: protocol.Run) -> None:
        self._line, self._scheme = line, scheme
        self._supervisor, self._host = _supervised(scheme, how, line.wake)
        self._ready = False
        self._flush: bool | None = None
        self._reported: object = None
        self._reported_at = 0.0

    def run(self) -> protocol.Report | None:
        """Host the runtimes until `Stop`, or until nothing is left to do; return the last report.

        Raises:
            DriverFailed: A runtime ends time and again.
        """
        try:
            self._supervisor.begin(self._host)
            while True:
                match self._line.next(self._step()):
                    case protocol.Stop():
                        return None
                    case protocol.Drain(flush=flush):
                        self._flush = flush
                        self._supervisor.drain()
                    case Compare():
                        self._line.report(
                            protocol.Refused(protocol.failure(no_switch(self._scheme)))
                        )
                    case protocol.ReadState(number=number):
                        self._line.report(protocol.StateRead(number=number, stages=[]))
                if self._supervisor.done:
                    return self._ended()
        finally:
            self._supervisor.close()

    def _step(self) -> float:
        pause = self._supervisor.step()
        if not self._ready and self._supervisor.ready:
            self._ready = True
            self._line.report(protocol.Ready())
        return min(pause, self._report())

    def _ended(self) -> protocol.Report:
        """Return what became of it: drained only if it was to be, and its sources could go on."""
        self._report(last=True)
        if not self._ready:
            self._line.report(protocol.Ready())  # it was quick
        drained = self._flush is False and not self._supervisor.ended
        return protocol.Drained() if drained else protocol.Finished()

    def _report(self, *, last: bool = False) -> float:
        """Report how the runtimes are doing, if that has changed; return when to look again."""
        now, status = time.monotonic(), self._supervisor.status()
        if status == self._reported:
            return float("inf")
        if not last and now < self._reported_at + _STATISTICS_S:
            return self._reported_at + _STATISTICS_S - now
        self._reported, self._reported_at = status, now
        self._line.report(protocol.Statistics({"runtimes": msgspec.to_builtins(status)}))
        return float("inf")


def _check(nodes: Sequence[Node], root: Path, programs: dict[str, Path]) -> None:
    """Refuse nodes with a program that is not there: no new start would find it.

    Raises:
        InvalidScheme: One is not there, or may not be run.
    """
    for node in nodes:
        if node.action in programs:
            continue
        where, program = "on its PATH", Path(node.action)
        if "/" in node.action:
            where, program = f"from {root}", root / node.action
        path = dict(node.env).get("PATH", f"/usr/local/bin:{os.defpath}")
        if shutil.which(program, path=path) is None:
            msg = f'the program "{node.action}" of node "{node.name}" is missing, or not executable'
            raise InvalidScheme(msg, hint=f"looked for it {where}")
