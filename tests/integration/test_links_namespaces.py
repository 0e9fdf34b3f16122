"""Two network namespaces, joined by a cable: what two hosts are to each other, on one machine."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from millstream.links.keys import KeyFiles, new_keys
from support.links import declare, stored
from support.links_service import Other

NETWORK = "10.213.97.0/24"
ENGINE, TILL = "10.213.97.1", "10.213.97.2"


@dataclass(frozen=True)
class Hosts:
    """The names of the two namespaces and of the cable's ends in them."""

    engine: str
    till: str

    def other(self, name: str) -> Other:
        return Other(("ip", "netns", "exec", name))

    def cable(self, state: str) -> None:
        run("ip", "-n", self.engine, "link", "set", self.engine, state)


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    hosts = Hosts(f"mse{os.getpid()}", f"mst{os.getpid()}")
    with ExitStack() as stack:
        try:
            for name in (hosts.engine, hosts.till):
                run("ip", "netns", "add", name)
                stack.callback(run, "ip", "netns", "del", name)
            run(
                "ip",
                "-n",
                hosts.engine,
                "link",
                "add",
                hosts.engine,
                "type",
                "veth",
                "peer",
                "name",
                hosts.till,
            )
            run("ip", "-n", hosts.engine, "link", "set", hosts.till, "netns", hosts.till)
            for name, ip in ((hosts.engine, ENGINE), (hosts.till, TILL)):
                run("ip", "-n", name, "addr", "add", f"{ip}/24", "dev", name)
                run("ip", "-n", name, "link", "set", name, "up")
                run("ip", "-n", name, "link", "set", "lo", "up")
        except FileNotFoundError:
            pytest.skip("cannot here: there is no ip command (iproute2)")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"cannot here: network namespaces: {error.stderr.decode().strip()}")
        yield hosts


@pytest.fixture
def engine(hosts: Hosts) -> Iterator[Other]:
    engine = hosts.other(hosts.engine)
    yield engine
    engine.kill()


@pytest.fixture
def till(hosts: Hosts) -> Iterator[Other]:
    till = hosts.other(hosts.till)
    yield till
    till.kill()


@pytest.fixture
def keys(tmp_path: Path) -> tuple[KeyFiles, KeyFiles]:
    return new_keys(tmp_path / "keys", "engine"), new_keys(tmp_path / "producers", "till")


@pytest.fixture
def address(tmp_path: Path, engine: Other, keys: tuple[KeyFiles, KeyFiles]) -> str:
    declare(tmp_path, partitions=2)
    return engine.open(
        str(tmp_path),
        network=NETWORK,
        keys=str(keys[0].secret),
        producers=str(keys[1].public.parent),
    )


@pytest.fixture
def connected(till: Other, address: str, keys: tuple[KeyFiles, KeyFiles]) -> Other:
    till.ask("connect", address, key=str(keys[1].secret), server=str(keys[0].public))
    return till


def all_of(data: Path) -> list[int]:
    return sorted(n for part in stored(data) for n in part)


def test_rows_go_over_tcp_with_keys(tmp_path: Path, address: str, connected: Other) -> None:
    assert address.startswith(f"tcp://{ENGINE}:")
    assert connected.ask("send", 0, 1000) == 1000
    # The folder of the IPC socket is the same here, and it is another host all the same.
    assert [one["transport"] for one in connected.ask("outboxes")] == ["tcp", "tcp"]
    assert all_of(tmp_path) == list(range(1000))


def test_without_keys_such_a_network_is_refused(tmp_path: Path, engine: Other) -> None:
    declare(tmp_path)
    with pytest.raises(
        AssertionError, match=r"OpenNetwork.*there are no keys.*millstream keys new"
    ):
        engine.open(str(tmp_path), network=NETWORK)


def test_a_network_that_is_not_here_names_those_that_are(tmp_path: Path, engine: Other) -> None:
    declare(tmp_path)
    with pytest.raises(AssertionError, match=f"NoSuchNetwork.*{ENGINE}"):
        engine.open(str(tmp_path), network="10.99.0.0/16")


def test_a_cut_cable_loses_nothing(tmp_path: Path, hosts: Hosts, connected: Other) -> None:
    connected.ask("send", 0, 100)
    hosts.cable("down")
    connected.ask("send_nowait", 100, 400, 20)
    time.sleep(1.0)
    assert all_of(tmp_path) == list(range(100))
    hosts.cable("up")
    connected.ask("flush")
    connected.ask("send", 400, 500)
    assert all_of(tmp_path) == list(range(500))
    for keys, numbers in zip(stored(tmp_path, column="origin"), stored(tmp_path), strict=True):
        for key in set(keys):
            found = [n for of, n in zip(keys, numbers, strict=True) if of == key]
            assert found == sorted(found)


@pytest.mark.soak
def test_a_cable_that_stays_cut_for_long_loses_nothing(
    tmp_path: Path, hosts: Hosts, connected: Other
) -> None:
    """Longer than a request may take, and longer than a link lives without a sign."""
    for n in range(0, 1000, 200):
        connected.ask("send_nowait", n, n + 200, 20)
        hosts.cable("down")
        time.sleep(25.0)
        hosts.cable("up")
        connected.ask("flush")
    assert all_of(tmp_path) == list(range(1000))
