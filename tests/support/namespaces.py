"""A second host on this machine: a network namespace, joined to the first by a cable."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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


def _ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], check=False, capture_output=True).returncode == 0
