"""The network of a program that may connect to a few addresses alone; a script, beside `launch`.

    program ──▶ 10.0.0.5:5432, in a network of its own   ┊   doors ──▶ 10.0.0.5:5432, out here
                a listener that doors was handed ────────┊───▶ accepts, connects, copies

The program's network has nothing in it but a loopback, which has the addresses that are let
through. So it needs no firewall, and what is not let through cannot be reached: other addresses and
ports, UDP, names. It imports nothing of ours.
"""

import array
import asyncio
import contextlib
import ipaddress
import json
import os
import runpy
import socket
import struct
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

_NEW_LINK, _NEW_ADDRESS = 16, 20
_REQUEST, _ACK, _CREATE = 0x1, 0x4, 0x400
_UP, _NO_DAD, _HOST = 0x1, 0x02, 254
_READ = 1 << 16


# in the program's network, before it starts


def listeners(addresses: list[str]) -> list[socket.socket]:
    """Bring up the loopback of this network, and listen there on 10.0.0.5:5432 and the like."""
    index = socket.if_nametoindex("lo")
    _ask(_NEW_LINK, struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, _UP, _UP))
    places = [split(address) for address in addresses]
    for ip in dict.fromkeys(ip for ip, _ in places if not ip.is_loopback):
        family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
        attribute = struct.pack("=HH", 4 + len(ip.packed), 2) + ip.packed  # IFA_LOCAL
        head = struct.pack(
            "=BBBBI", family, ip.max_prefixlen, _NO_DAD if ip.version == 6 else 0, _HOST, index
        )
        _ask(_NEW_ADDRESS, head + attribute)
    return [_listening(ip, port) for ip, port in places]


def split(address: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    """Return the two parts of an address."""
    host, _, port = address.rpartition(":")
    return ipaddress.ip_address(host.strip("[]")), int(port)


def _ask(kind: int, body: bytes) -> None:
    """Tell the kernel's network something, and wait until it has done so."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as asking:
        asking.bind((0, 0))
        asking.send(
            struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | _ACK | _CREATE, 1, 0) + body
        )
        (error,) = struct.unpack_from("=i", asking.recv(1 << 16), 16)
    if error:
        raise OSError(-error, f"the network cannot be made: {os.strerror(-error)}")


def _listening(ip: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> socket.socket:
    listener = socket.socket(
        socket.AF_INET if ip.version == 4 else socket.AF_INET6, socket.SOCK_STREAM
    )
    listener.bind((str(ip), port))
    listener.listen(128)
    return listener


def hand_over(way: socket.socket, opened: list[socket.socket], addresses: list[str]) -> None:
    """Give listeners to the doors, who know where each leads."""
    rights = array.array("i", [one.fileno() for one in opened])
    way.sendmsg([json.dumps(addresses).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


# out here, for as long as the program lives: a process of its group, which ends with it


def main() -> None:
    """Take over the listeners that come in, and let through whoever connects to them."""
    with socket.socket(fileno=int(sys.argv[1])) as way:
        received, fds, _, _ = socket.recv_fds(way, 1 << 16, 253)
    if sys.argv[2]:
        # Now that all is loaded: the user may not be able to read where Python is.
        runpy.run_path(str(Path(__file__).with_name("launch.py")))["become"](sys.argv[2])
    if fds:
        asyncio.run(_serve([socket.socket(fileno=fd) for fd in fds], json.loads(received)))


async def _serve(opened: list[socket.socket], addresses: list[str]) -> None:
    for listener, address in zip(opened, addresses, strict=True):
        await asyncio.start_server(_through(address), sock=listener)
    await asyncio.Event().wait()


def _through(
    address: str,
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[object, object, None]]:
    ip, port = split(address)

    async def let_through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(str(ip), port)
        except OSError:
            writer.transport.abort()  # the program sees a connection that broke
            return
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    return let_through


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_READ):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        return
    writer.transport.abort()


if __name__ == "__main__":
    main()
