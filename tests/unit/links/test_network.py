"""Addresses, the preferred network, the choice of a transport."""

from __future__ import annotations

import doctest
import os
import pickle
import socket
from pathlib import Path

import pytest

from millstream.errors import (
    InvalidAddress,
    LoopbackInCluster,
    NoSuchNetwork,
    OpenNetwork,
    WrongNodes,
)
from millstream.links import network
from millstream.links.network import (
    Address,
    Transport,
    choose,
    guard,
    interfaces,
    ipc_path,
    preferred,
    spanning,
)

FOUND = {
    "lo": ("127.0.0.1", "::1"),
    "eth0": ("10.10.0.4", "fd00:1::4"),
    "eth1": ("10.1.0.7", "192.168.10.7", "fe80::7%eth1"),
}


# addresses


@pytest.mark.parametrize(
    ("text", "ip", "port"),
    [
        ("tcp://127.0.0.1:7000", "127.0.0.1", 7000),
        ("tcp://10.0.0.5:1", "10.0.0.5", 1),
        ("tcp://[::1]:65535", "::1", 65535),
        ("tcp://[FD00:0:0::1]:80", "fd00::1", 80),
        ("tcp://[::ffff:10.0.0.5]:80", "10.0.0.5", 80),
    ],
)
def test_an_address_is_read(text: str, ip: str, port: int) -> None:
    assert Address.parse(text) == Address(ip, port)


def test_a_host_s_name_becomes_its_ipv4_address() -> None:
    assert Address.parse("tcp://localhost:7000") == Address("127.0.0.1", 7000)


@pytest.mark.parametrize("text", ["tcp://10.0.0.5:7000", "tcp://[fd00::1]:7000"])
def test_an_address_is_written_as_it_is_read(text: str) -> None:
    assert str(Address.parse(text)) == text
    assert str(Address(Address.parse(text).ip, 7000, node=3, folder="x")) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.5:7000",
        "ipc://inbox_7000",
        "tcp://10.0.0.5",
        "tcp://:7000",
        "tcp://*:7000",
        "tcp://10.0.0.5:",
        "tcp://10.0.0.5:0",
        "tcp://10.0.0.5:65536",
        "tcp://10.0.0.5:-1",
        "tcp://10.0.0.5:7000/",
        "tcp://10.0.0.5:7000 ",
        "tcp://::1:7000",
        "tcp://[::1:7000",
        "tcp://[localhost]:7000",
        "tcp://two words:7000",
        "tcp://no.such.host.invalid:7000",
        f"tcp://{'a' * 300}:7000",
    ],
)
def test_what_is_not_an_address_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidAddress) as caught:
        Address.parse(text)
    assert caught.value.hint


def test_an_address_travels() -> None:
    address = Address("10.0.0.5", 7000, node=2, folder="data")
    assert pickle.loads(pickle.dumps(address)) == address


def test_the_example_is_true() -> None:
    assert doctest.testmod(network) == (0, 1)


# the preferred network


def test_without_a_preferred_network_an_inbox_is_for_this_host_alone() -> None:
    assert preferred(None, FOUND) == "127.0.0.1"


@pytest.mark.parametrize(
    ("wanted", "ip"),
    [
        ("10.10.", "10.10.0.4"),
        ("10.10", "10.10.0.4"),
        ("10.1", "10.1.0.7"),
        ("10.", "10.10.0.4"),
        ("10.1.0.7", "10.1.0.7"),
        ("192.168.0.0/16", "192.168.10.7"),
        ("10.1.0.0/16", "10.1.0.7"),
        ("10.1.0.7/16", "10.1.0.7"),
        ("fd00:1:", "fd00:1::4"),
        ("FD00:1::/64", "fd00:1::4"),
        ("fe80::/10", "fe80::7%eth1"),
        ("127.", "127.0.0.1"),
        ("0.0.0.0/0", "127.0.0.1"),
    ],
)
def test_the_address_in_the_preferred_network_is_taken(wanted: str, ip: str) -> None:
    assert preferred(wanted, FOUND) == ip


@pytest.mark.parametrize(
    "wanted", ["10.2.", "192.168.1", "172.16.0.0/12", "10.1.0.70", "fd00:2::/64"]
)
def test_no_interface_in_the_network_is_an_error_that_lists_them_all(wanted: str) -> None:
    with pytest.raises(NoSuchNetwork, match=f'in the network "{wanted}"') as caught:
        preferred(wanted, FOUND)
    assert caught.value.hint == (
        "its interfaces are lo 127.0.0.1, ::1; eth0 10.10.0.4, fd00:1::4; eth1 10.1.0.7, 192.168.10.7, fe80::7%eth1"
    )


@pytest.mark.parametrize(
    "wanted", ["", ".", "eth0", "10.0.0.0/33", "10.0/16", "a/b", "*", "10.0.*"]
)
def test_what_is_not_a_network_is_refused_with_a_hint(wanted: str) -> None:
    with pytest.raises(InvalidAddress, match="is not a network") as caught:
        preferred(wanted, FOUND)
    assert caught.value.hint


def test_this_host_s_own_interfaces_are_found() -> None:
    found = interfaces()
    assert any("127.0.0.1" in ips for ips in found.values())
    assert preferred("127.0.0.0/8") == "127.0.0.1"


# keys


@pytest.mark.parametrize("ip", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_loopback_needs_no_keys(ip: str) -> None:
    guard(ip, keys=False, open_without_keys=False)


@pytest.mark.parametrize("ip", ["10.0.0.5", "0.0.0.0", "::", "8.8.8.8", "fe80::7%eth1"])
def test_an_address_that_others_reach_needs_keys_or_a_word_that_it_may_be_open(ip: str) -> None:
    with pytest.raises(OpenNetwork, match="and there are no keys") as caught:
        guard(ip, keys=False, open_without_keys=False)
    assert caught.value.hint is not None
    assert "millstream keys new" in caught.value.hint
    guard(ip, keys=True, open_without_keys=False)
    guard(ip, keys=False, open_without_keys=True)


# the cluster


def nodes(*numbers: int, ip: str = "10.0.0.5") -> list[Address]:
    return [Address(ip, 7000 + n, node=node) for n, node in enumerate(numbers)]


@pytest.mark.parametrize("numbers", [(0,), (1, 0), (2, 0, 1)])
def test_node_numbers_from_0_each_once_are_a_cluster(numbers: tuple[int, ...]) -> None:
    spanning(nodes(*numbers))


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((1,), "missing: 0; unknown: 1"),
        ((0, 0), "missing: 1; double: 0"),
        ((0, 2, 2, 5), "missing: 1, 3; double: 2; unknown: 5"),
        ((0, -1), "missing: 1; unknown: -1"),
    ],
)
def test_other_node_numbers_are_refused_with_what_is_wrong(
    numbers: tuple[int, ...], said: str
) -> None:
    with pytest.raises(WrongNodes) as caught:
        spanning(nodes(*numbers))
    assert f"({said})" in caught.value.message
    assert caught.value.hint == f"give each of 0 to {len(numbers) - 1} to exactly one engine"


def test_a_cluster_of_nobody_is_refused() -> None:
    with pytest.raises(WrongNodes):
        spanning([])


def test_a_loopback_address_among_several_hosts_is_refused() -> None:
    with pytest.raises(LoopbackInCluster, match=r"tcp://127\.0\.0\.1:7001 \(node 1\)"):
        spanning([Address("10.0.0.5", 7000, 0), Address("127.0.0.1", 7001, 1)])


def test_engines_on_one_host_may_all_have_loopback_addresses() -> None:
    spanning(
        [Address("127.0.0.1", 7000, 0), Address("127.0.0.2", 7000, 1), Address("::1", 7000, 2)]
    )


# the choice

OWN = {"127.0.0.1", "10.0.0.5"}


def always(_: Path) -> bool:
    return True


def never(_: Path) -> bool:
    return False


def test_an_inbox_on_another_host_is_reached_by_tcp_whatever_is_registered_here() -> None:
    far = Address("10.0.0.6", 7000, folder="data")
    assert choose(far, own_ips=OWN, registered={7000}, reachable=always) is Transport.TCP


@pytest.mark.parametrize("ip", ["10.0.0.5", "127.0.0.1", "127.1.2.3", "::1"])
def test_an_inbox_of_this_process_is_called(ip: str) -> None:
    assert (
        choose(Address(ip, 7000), own_ips=OWN, registered={7000}, reachable=always)
        is Transport.LOCAL
    )


@pytest.mark.parametrize("ip", ["10.0.0.5", "127.1.2.3", "::1"])
def test_an_inbox_of_another_process_of_this_host_is_reached_by_ipc(ip: str) -> None:
    near = Address(ip, 7000, folder="data")
    assert choose(near, own_ips=OWN, registered={7001}, reachable=always) is Transport.IPC


def test_without_a_socket_that_can_be_used_it_is_tcp() -> None:
    near = Address("10.0.0.5", 7000, folder="data")
    assert choose(near, own_ips=OWN, registered=(), reachable=never) is Transport.TCP
    assert (
        choose(Address("10.0.0.5", 7000), own_ips=OWN, registered=(), reachable=always)
        is Transport.TCP
    )


def test_the_socket_is_looked_for_in_the_address_s_folder(tmp_path: Path) -> None:
    near = Address("127.0.0.1", 7000, folder=str(tmp_path))
    assert ipc_path(tmp_path, 7000) == ipc_path(str(tmp_path), 7000) == tmp_path / "inbox_7000"
    assert choose(near, own_ips=(), registered=()) is Transport.TCP
    ipc_path(tmp_path, 7000).write_text("a file, not a socket")
    assert choose(near, own_ips=(), registered=()) is Transport.TCP
    ipc_path(tmp_path, 7000).unlink()
    before = Path.cwd()
    os.chdir(tmp_path)  # a socket's path has at most 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("inbox_7000")
            assert choose(near, own_ips=(), registered=()) is Transport.IPC
    finally:
        os.chdir(before)
