"""Devices in one process that speak over real sockets, with networks that can be cut."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from millstream.clock import Clock
from millstream.links.keys import new_keys, read_public
from millstream.patterns.edge import EdgePattern
from millstream.patterns.pattern import Pattern
from millstream.watch.choice import Periods
from millstream.watch.device import Complete, Device, Sharing
from millstream.watch.disk import Store
from millstream.watch.messages import RunId
from millstream.watch.replicator import PeerStatus, Replicator
from millstream.watch.settings import Limits, Peer, Settings

S = 1_000_000
QUICK = Periods(
    ping=S // 2,
    resync=2 * S,
    stash_again=S // 5,
    ping_again=S // 5,
    resync_again=S // 5,
    limit=S,
)
ABC = (
    Pattern("abc")
    .begin("a", "kind = 'a'")
    .followed_by("b", "kind = 'b'")
    .followed_by("c", "kind = 'c'")
    .within("1 hour")
)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Proxy:
    """Passes TCP on to a port. `cut` ends its connections and takes no new ones until `heal`."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._open: list[socket.socket] = []
        self._guard = threading.Lock()
        self.is_cut = False
        self.silent = False
        """Take bytes, and lose them."""
        self.delay_s = 0.0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self.is_cut = True
        with self._guard:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def heal(self) -> None:
        self.is_cut = False

    def close(self) -> None:
        self.cut()
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                try:
                    if self.is_cut:
                        raise OSError
                    far = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    near.close()
                    continue
                with self._guard:
                    self._open += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with one:  # each thread closes the one that it reads
            with contextlib.suppress(OSError):
                while data := one.recv(1 << 16):
                    if self.delay_s:
                        time.sleep(self.delay_s)  # the network takes its time
                    if not self.silent:
                        other.sendall(data)
            for sock in (one, other):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)


@dataclass
class Member:
    """A device with what it has published."""

    name: str
    device: Device
    replicator: Replicator
    store: Store | None
    published: list[Complete] = field(default_factory=list)
    known: list[Complete] = field(default_factory=list)
    """What peers have completed."""

    def event(self, kind: str, number: int, **row: Any) -> None:
        with self.replicator.lock:
            found = self.device.event((f"sensor-{kind}", number), number * S, {"kind": kind, **row})
            self.replicator.save()
        self.published += found
        self.replicator.wake()

    def delivered(self) -> None:
        """Note that all that was published has reached its outputs."""
        with self.replicator.lock:
            for complete in self.published:
                self.device.delivered(complete.id)
        self.replicator.wake()

    def completed(self, complete: Complete, publish: bool) -> None:
        (self.published if publish else self.known).append(complete)

    def runs(self) -> dict[RunId, Any]:
        """Return what is known of each run: its status and history."""
        with self.replicator.lock:
            return {
                run.id: (run.status, [seen.id for _, seen in run.link.history])
                for matcher in self.device.matchers.values()
                for run in matcher
            }

    def peer(self, name: str) -> PeerStatus:
        return next(one for one in self.replicator.status().peers if one.name == name)

    def stop(self) -> None:
        self.replicator.stop()
        if self.store is not None:
            self.store.close()


def member(
    settings: Settings,
    store: Store | None = None,
    *,
    patterns: Sequence[Pattern] = (ABC,),
    stamps: bool = False,
    clock: Clock | None = None,
) -> Member:
    """Start a device."""
    device = Device(
        [EdgePattern.of(one, schema=None, time="at", key=()) for one in patterns],
        settings.device,
        os.urandom(8).hex(),
        [peer.name for peer in settings.peers],
        Sharing(
            periods=settings.periods,
            limit=settings.limits.changes,
            most_runs=settings.limits.runs,
        ),
        elapsed=time.monotonic_ns() // 1000,
    )
    replicator = Replicator(
        device,
        settings,
        store,
        on_complete=lambda complete, publish: found.completed(complete, publish),
        stamps=stamps,
        clock=clock,
    )
    found = Member(settings.device, device, replicator, store)
    replicator.start()
    return found


class Network:
    """Devices by name; every direction between two goes over a proxy of its own."""

    def __init__(self, folder: Path, names: Sequence[str] = "AB", periods: Periods = QUICK) -> None:
        self.folder, self.names, self.periods = folder, names, periods
        self.ports = {name: free_port() for name in names}
        for name in names:
            new_keys(folder / "keys", name)
        self.proxies = {
            (one, other): Proxy(self.ports[other])
            for one in names
            for other in names
            if one != other
        }
        self.members: dict[str, Member] = {}

    def settings(self, name: str, **changes: Any) -> Settings:
        peers = tuple(
            Peer(
                other,
                f"tcp://127.0.0.1:{self.proxies[name, other].port}",
                read_public(file := self.folder / "keys" / f"{other}.pub").public,
                file,
            )
            for other in self.names
            if other != name
        )
        found = Settings(
            name,
            f"tcp://127.0.0.1:{self.ports[name]}",
            tuple(self.names),
            peers,
            self.folder / "keys",
            self.periods,
            Limits(),
        )
        return replace(found, **changes)

    def start(self, name: str, *, stored: bool = False, **others: Any) -> Member:
        """Start a device; what `member` does not take changes the settings."""
        own = {key: others.pop(key) for key in ("patterns", "stamps", "clock") if key in others}
        settings = self.settings(name, **others)
        store = Store(self.folder / name, limit=settings.limits.log) if stored else None
        return self.join(member(settings, store, **own))

    def join(self, found: Member) -> Member:
        """Let the network end with a device."""
        self.members[found.name] = found
        return found

    def cut(self, one: str, other: str) -> None:
        for way in ((one, other), (other, one)):
            self.proxies[way].cut()

    def heal(self, one: str, other: str) -> None:
        for way in ((one, other), (other, one)):
            self.proxies[way].heal()

    def agree(self) -> bool:
        """Tell whether all devices know the same of all runs, and have nothing to say."""
        members = list(self.members.values())
        quiet = all(
            not peer.stash and not peer.resync
            for member in members
            for peer in member.replicator.status().peers
        )
        return quiet and all(member.runs() == members[0].runs() for member in members)

    def close(self) -> None:
        for member in self.members.values():
            member.stop()
        for proxy in self.proxies.values():
            proxy.close()


@contextlib.contextmanager
def network(
    folder: Path, names: Sequence[str] = "AB", periods: Periods = QUICK
) -> Iterator[Network]:
    """A network whose devices and proxies end with the test."""
    found = Network(folder, names, periods)
    try:
        yield found
    finally:
        found.close()
