"""Three hosts on this machine: network namespaces, with a network between them that can be cut.

    this machine ──field──▶ each device        the sensors of the device, always there
    this machine ◀─plant──▶ all devices        devices and the flow; `cut` takes one of them off

Where namespaces are not permitted, the devices are processes on this host, and proxies between them
are cut instead.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

PLANT, FIELD = "10.235.0", "10.236"


class Hosts(Protocol):
    """Where devices run."""

    kind: str
    #: Where the flow listens, as devices reach it.
    flow_ip: str

    def prefix(self, device: str) -> list[str]:
        """Return what a command begins with to run on a device."""
        ...

    def http(self, device: str) -> str:
        """Return where a device takes the readings of its sensors."""
        ...

    def listen(self, device: str) -> str:
        """Return where a device listens to its peers."""
        ...

    def address(self, device: str, peer: str) -> str:
        """Return where a device reaches a peer."""
        ...

    def flow(self, device: str, port: int) -> str:
        """Return where a device reaches the flow."""
        ...

    def cut(self, device: str) -> None: ...

    def join(self, device: str) -> None: ...


@dataclass
class Namespaces:
    """A network namespace for each device."""

    devices: tuple[str, ...]
    kind: str = "network namespaces"
    flow_ip: str = f"{PLANT}.1"
    _tag: str = field(default_factory=lambda: f"e{os.getpid() % 100_000}")

    def open(self) -> None:
        bridge = f"{self._tag}b"
        ip("link", "add", bridge, "type", "bridge")
        ip("addr", "add", f"{self.flow_ip}/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for number, device in enumerate(self.devices, 2):
            name = self._name(device)
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            for kind, far in (("p", f"{PLANT}.{number}"), ("f", f"{FIELD}.{number}.2")):
                near = f"{self._tag}{kind}{number}"
                ip("link", "add", near, "type", "veth", "peer", "name", kind, "netns", name)
                ip("-n", name, "addr", "add", f"{far}/24", "dev", kind)
                ip("-n", name, "link", "set", kind, "up")
                if kind == "p":
                    ip("link", "set", near, "master", bridge)
                else:
                    ip("addr", "add", f"{FIELD}.{number}.1/24", "dev", near)
                ip("link", "set", near, "up")

    def close(self) -> None:
        for number, device in enumerate(self.devices, 2):
            for kind in "pf":
                ip("link", "del", f"{self._tag}{kind}{number}", check=False)
            ip("netns", "del", self._name(device), check=False)
        ip("link", "del", f"{self._tag}b", check=False)

    def _name(self, device: str) -> str:
        return f"{self._tag}-{device}"

    def _number(self, device: str) -> int:
        return self.devices.index(device) + 2

    def prefix(self, device: str) -> list[str]:
        return ["ip", "netns", "exec", self._name(device)]

    def http(self, device: str) -> str:
        return f"{FIELD}.{self._number(device)}.2:8710"

    def listen(self, device: str) -> str:
        return f"tcp://{PLANT}.{self._number(device)}:7400"

    def address(self, device: str, peer: str) -> str:  # noqa: ARG002
        return self.listen(peer)

    def flow(self, device: str, port: int) -> str:  # noqa: ARG002
        return f"tcp://{self.flow_ip}:{port}"

    def cut(self, device: str) -> None:
        ip("link", "set", f"{self._tag}p{self._number(device)}", "down")

    def join(self, device: str) -> None:
        ip("link", "set", f"{self._tag}p{self._number(device)}", "up")


@dataclass
class Proxies:
    """Processes of this host; what goes from one to another passes a proxy, which can be cut."""

    devices: tuple[str, ...]
    kind: str = "processes with proxies between them"
    flow_ip: str = "127.0.0.1"
    _ports: dict[str, int] = field(default_factory=dict)
    _proxies: dict[tuple[str, str], Proxy] = field(default_factory=dict)
    _cut: set[str] = field(default_factory=set)

    def open(self) -> None:
        for device in self.devices:
            for kind in ("http", "peer"):
                self._ports[f"{device} {kind}"] = free_port()

    def close(self) -> None:
        for proxy in self._proxies.values():
            proxy.close()

    def prefix(self, device: str) -> list[str]:  # noqa: ARG002
        return []

    def http(self, device: str) -> str:
        return f"127.0.0.1:{self._ports[f'{device} http']}"

    def listen(self, device: str) -> str:
        return f"tcp://127.0.0.1:{self._ports[f'{device} peer']}"

    def address(self, device: str, peer: str) -> str:
        return self._through(device, peer, self._ports[f"{peer} peer"])

    def flow(self, device: str, port: int) -> str:
        return self._through(device, "flow", port)

    def _through(self, device: str, other: str, port: int) -> str:
        proxy = self._proxies.get((device, other))
        if proxy is None:
            proxy = self._proxies[device, other] = Proxy(port)
        return f"tcp://127.0.0.1:{proxy.port}"

    def cut(self, device: str) -> None:
        self._cut.add(device)
        self._set()

    def join(self, device: str) -> None:
        self._cut.discard(device)
        self._set()

    def _set(self) -> None:
        for ends, proxy in self._proxies.items():
            proxy.set(whole=not self._cut & set(ends))


class Proxy:
    """Passes bytes on to a port of this host, while it is whole."""

    def __init__(self, port: int) -> None:
        self._target, self._whole = port, True
        self._open: set[socket.socket] = set()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                if not self._whole:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    near.close()
                    continue
                self._open |= {near, far}
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(data)
        self._drop(one, other)

    def _drop(self, *sockets: socket.socket) -> None:
        for one in sockets:
            self._open.discard(one)
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def set(self, *, whole: bool) -> None:
        self._whole = whole
        if not whole:
            self._drop(*list(self._open))

    def close(self) -> None:
        self.set(whole=False)
        self._server.close()


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


@contextmanager
def opened(devices: tuple[str, ...], *, processes: bool = False) -> Iterator[Hosts]:
    """Open the hosts of devices, in namespaces if that is permitted."""
    hosts: Namespaces | Proxies = Namespaces(devices)
    if processes or shutil.which("ip") is None or os.geteuid() != 0:
        hosts = Proxies(devices)
    try:
        hosts.open()
    except subprocess.CalledProcessError:  # not permitted here
        hosts.close()
        hosts = Proxies(devices)
        hosts.open()
    try:
        yield hosts
    finally:
        hosts.close()
