"""Where inboxes listen, and how an outbox reaches them.

An inbox has one address, (ip, port, node), and up to three ways in:

    ip not on this host               TCP     tcp://ip:port
    port registered in this process   LOCAL   a plain call, no socket
    otherwise                         IPC     <folder>/inbox_<port>, if we may write to it; else TCP

A port tells workers of one host apart, never those of two: a loopback address has no place among
several hosts.
"""

from __future__ import annotations

import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from millstream.errors import (
    InvalidAddress,
    LoopbackInCluster,
    NoSuchNetwork,
    OpenNetwork,
    WrongNodes,
)

LOOPBACK: Final = "127.0.0.1"
OPEN_WITHOUT_TLS: Final = "MILLSTREAM_OPEN_WITHOUT_TLS"
"""Set to 1, tokens may travel to other hosts unencrypted."""
_TCP: Final = re.compile(
    r"tcp://(?:\[(?P<six>[^\[\]]+)\]|(?P<host>[^:\[\]/\s]+)):(?P<port>\d{1,5})"
)
_SHAPE: Final = (
    "an address is written tcp://host:port, with an IPv6 address in brackets: tcp://[fd00::1]:7000"
)


class Transport(StrEnum):
    """How a batch gets to an inbox."""

    LOCAL = "local"
    IPC = "ipc"
    TCP = "tcp"


@dataclass(frozen=True, slots=True)
class Address:
    """Where an inbox is: host and port, its engine's node, and the folder of its IPC socket.

    >>> Address.parse("tcp://127.0.0.1:7000")
    Address(ip='127.0.0.1', port=7000, node=0, folder=None)
    """

    ip: str
    port: int
    node: int = 0
    folder: str | None = None

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the address in a text; a host name becomes its first address, IPv4 if it has one.

        Raises:
            InvalidAddress: The text is not an address, or no such host is known.
        """
        host, port = split(text)
        return cls(host if ":" in host else _resolved(host), port)

    def __str__(self) -> str:
        host = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"tcp://{host}:{self.port}"


def split(text: str) -> tuple[str, int]:
    """Return host and port of an address; the host may be a name, which is not looked up.

    Raises:
        InvalidAddress: The text is not an address.
    """
    found = _TCP.fullmatch(text)
    if found is None or not 0 < int(found["port"]) < 65536:
        raise InvalidAddress(f'"{text}" is not an address', hint=_SHAPE)
    return str(_ip(found["six"])) if found["six"] else found["host"], int(found["port"])


def _ip(text: str) -> IPv4Address | IPv6Address:
    try:
        found = ip_address(text)
    except ValueError as exc:
        raise InvalidAddress(f'"{text}" is not an IP address', hint=_SHAPE) from exc
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def _resolved(host: str) -> str:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        msg = f'host "{host}" is not known here'
        hint = "give its IP address, or a name that this host can look up"
        raise InvalidAddress(msg, hint=hint) from exc
    found.sort(key=lambda one: one[0] != socket.AF_INET)
    return str(_ip(str(found[0][4][0])))


def check_encrypted(url: str, *, trusted: bool) -> None:
    """Refuse to send a token where others could read it on its way.

    Args:
        url: That of an engine.
        trusted: Whether the user trusts the network.

    Raises:
        OpenNetwork: It is http://, and not on this host.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        here = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        here = False
    if parts.scheme == "http" and not here and not trusted:
        msg = f"others could read the token on its way to {url}"
        hint = "use https://, with --ca if need be, or trust the network: --open-without-tls"
        raise OpenNetwork(msg, hint=hint)


def network_is_trusted() -> bool:
    """Tell whether the user lets tokens travel unencrypted."""
    return os.environ.get(OPEN_WITHOUT_TLS, "") not in ("", "0")


def _loopback(ip: str) -> bool:
    return _ip(ip).is_loopback


# the preferred network


def interfaces() -> dict[str, tuple[str, ...]]:
    """Return the IP addresses of this host's interfaces, IPv4 first."""
    import psutil  # slow to load, and a client with one address may never need it

    found = {}
    for name, given in psutil.net_if_addrs().items():
        ips = [
            one.address
            for kind in (socket.AF_INET, socket.AF_INET6)
            for one in given
            if one.family == kind
        ]
        if ips:
            found[name] = tuple(ips)
    return found


def own_ips() -> frozenset[str]:
    """Return all addresses of this host."""
    return frozenset(ip for ips in interfaces().values() for ip in ips)


def preferred(network: str | None, found: Mapping[str, tuple[str, ...]] | None = None) -> str:
    """Return this host's address in a network, "10.0." or "10.0.0.0/16"; None: this host alone.

    A prefix counts in whole numbers: "10.1" is not the beginning of 10.10.0.1. Of several addresses
    in the network the first is taken, IPv4 before IPv6.

    Raises:
        NoSuchNetwork: No interface has an address there.
        InvalidAddress: This is not a network.
    """
    if network is None:
        return LOOPBACK
    matches = _matcher(network)
    given = interfaces() if found is None else found
    inside = [ip for ips in given.values() for ip in ips if matches(ip)]
    if not inside:
        known = "; ".join(f"{name} {', '.join(ips)}" for name, ips in given.items())
        msg = f'no interface of this host is in the network "{network}"'
        hint = f"its interfaces are {known}" if known else "it has no interfaces"
        raise NoSuchNetwork(msg, hint=hint)
    return min(inside, key=lambda ip: _ip(ip).version)


def _matcher(network: str) -> Callable[[str], bool]:
    if "/" in network:
        wanted = _network(network)
        return lambda ip: _ip(ip) in wanted
    prefix = network.rstrip(".:")
    if not re.fullmatch(r"[0-9A-Fa-f.:]+", prefix):
        msg = f'"{network}" is not a network'
        hint = 'give the beginning of an address, "10.0.", or a range, "10.0.0.0/16"'
        raise InvalidAddress(msg, hint=hint)
    return lambda ip: (
        ip == network or ip.lower().startswith((f"{prefix}.".lower(), f"{prefix}:".lower()))
    )


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text, strict=False)
    except ValueError as exc:
        msg = f'"{text}" is not a network'
        raise InvalidAddress(msg, hint='a range is written "10.0.0.0/16"') from exc


def guard(ip: str, *, keys: bool, open_without_keys: bool) -> None:
    """Refuse to listen without keys where others can reach us, unless the user wants that.

    Raises:
        OpenNetwork: Anybody in that network could write to the inbox.
    """
    if keys or open_without_keys or _loopback(ip):
        return
    msg = f"{ip} can be reached from other hosts, and there are no keys"
    hint = (
        'make keys with "millstream keys new NAME", '
        "or say that the network is trusted: open_without_keys"
    )
    raise OpenNetwork(msg, hint=hint)


# the engines of a cluster


def spanning(addresses: Sequence[Address]) -> None:
    """Check that addresses are those of a whole cluster, told apart from everywhere.

    Raises:
        WrongNodes: Node numbers are not 0 to N-1, each once.
        LoopbackInCluster: There are several hosts, and a loopback address, which would look local
            on each of them.
    """
    _check_nodes([address.node for address in addresses])
    inner = [address for address in addresses if _loopback(address.ip)]
    if inner and len(inner) < len(addresses):
        msg = (
            f"{inner[0]} (node {inner[0].node}) is a loopback address in a cluster of several hosts"
        )
        hint = "start that engine with a preferred network, such as 10.0.0.0/16"
        raise LoopbackInCluster(msg, hint=hint)


def _check_nodes(nodes: Sequence[int]) -> None:
    if not nodes:
        raise WrongNodes("a cluster has at least one engine")
    count, wanted = Counter(nodes), range(len(nodes))
    wrong = {
        "missing": [node for node in wanted if node not in count],
        "double": sorted(node for node in count if count[node] > 1),
        "unknown": sorted(node for node in count if node not in wanted),
    }
    if wrong["missing"]:  # as many as there are double or unknown
        listed = "; ".join(
            f"{fact}: {', '.join(map(str, found))}" for fact, found in wrong.items() if found
        )
        msg = f"{len(nodes)} engines have the wrong node numbers ({listed})"
        raise WrongNodes(msg, hint=f"give each of 0 to {len(nodes) - 1} to exactly one engine")


# the choice


def ipc_path(folder: Path | str, port: int) -> Path:
    """Return where the IPC socket of the inbox with that port lies."""
    return Path(folder) / f"inbox_{port}"


def writable(socket_file: Path) -> bool:
    """Whether a socket is there that this process may write to."""
    return socket_file.is_socket() and os.access(socket_file, os.W_OK)


def choose(
    address: Address,
    *,
    own_ips: Collection[str],
    registered: Collection[int],
    reachable: Callable[[Path], bool] = writable,
) -> Transport:
    """Return how to reach an inbox from here.

    Args:
        address: The inbox's.
        own_ips: This host's addresses; loopback ones need not be among them.
        registered: The ports of the inboxes in this process.
        reachable: Whether an IPC socket can be used.
    """
    if address.ip not in own_ips and not _loopback(address.ip):
        return Transport.TCP
    if address.port in registered:
        return Transport.LOCAL
    if address.folder is not None and reachable(ipc_path(address.folder, address.port)):
        return Transport.IPC
    return Transport.TCP
