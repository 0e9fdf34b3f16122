"""Further hosts on this machine: network namespaces, joined to the first by cables."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class SecondHost:
    """How to reach the other, how it reaches us, and what a command begins with to run there."""

    network: str
    near_ip: str
    far_ip: str
    prefix: tuple[str, ...]


@contextmanager
def second_host() -> Iterator[SecondHost]:
    """Make a namespace for as long as it is needed; skips the test where that is not permitted."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("cannot here: network namespaces need ip and root")
    number = os.getpid() % 250
    name, near, far = f"ms{os.getpid()}", f"msn{os.getpid()}", f"msf{os.getpid()}"
    network = f"10.231.{number}."
    host = SecondHost(network, f"{network}1", f"{network}2", ("ip", "netns", "exec", name))
    try:
        if not _ip("netns", "add", name):
            pytest.skip("cannot here: no network namespace can be made")
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
        _ip("addr", "add", f"{host.near_ip}/24", "dev", near)
        _ip("link", "set", near, "up")
        _ip("-n", name, "addr", "add", f"{host.far_ip}/24", "dev", far)
        _ip("-n", name, "link", "set", far, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        yield host
    finally:
        _ip("link", "del", near)
        _ip("netns", "del", name)


@dataclass(frozen=True)
class Host:
    """A host of its own: its address, and what a command begins with to run there."""

    ip: str
    prefix: tuple[str, ...]


@dataclass(frozen=True)
class Network:
    """Hosts that reach each other, and our own address among them."""

    near_ip: str
    hosts: tuple[Host, ...]


@contextmanager
def hosts(count: int) -> Iterator[Network]:
    """Make hosts on one network; skips the test where that is not permitted."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("cannot here: network namespaces need ip and root")
    pid = os.getpid()
    bridge, network = f"msb{pid}", f"10.232.{pid % 250}."
    names = [f"ms{pid}h{number}" for number in range(count)]
    made = [
        Host(f"{network}{number + 2}", ("ip", "netns", "exec", name))
        for number, name in enumerate(names)
    ]
    try:
        if not _ip("link", "add", bridge, "type", "bridge"):
            pytest.skip("cannot here: no bridge can be made")
        _ip("addr", "add", f"{network}1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for number, (name, host) in enumerate(zip(names, made, strict=True)):
            if not _ip("netns", "add", name):
                pytest.skip("cannot here: no network namespace can be made")
            near = f"ms{pid}v{number}"
            _ip("link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", near, "master", bridge, "up")
            _ip("-n", name, "addr", "add", f"{host.ip}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield Network(f"{network}1", tuple(made))
    finally:
        for name in names:
            _ip("netns", "del", name)
        _ip("link", "del", bridge)


def without(
    folders: Mapping[Path, Sequence[Path]], command: Sequence[str], spare: Path
) -> list[str]:
    """Return a command that runs where folders are empty, but for some folders inside them.

    Those inside stay the same folders as everywhere; meanwhile they are kept in `spare`.
    """
    steps = []
    for number, (folder, kept) in enumerate(folders.items()):
        aside = [f"{spare}-{number}-{inner}" for inner in range(len(kept))]
        for path, place in zip(kept, aside, strict=True):
            steps += [f"mkdir -p '{place}'", f"mount --bind '{path}' '{place}'"]
        steps.append(f"mount -t tmpfs none '{folder}'")
        for path, place in zip(kept, aside, strict=True):
            steps += [f"mkdir -p '{path}'", f"mount --bind '{place}' '{path}'"]
    script = " && ".join([*steps, 'exec "$@"'])
    return ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", *command]


def _ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], check=False, capture_output=True).returncode == 0
