"""Peers of runtimes and landings that mean harm, and one that has the secret."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from millstream.actions import wire
from millstream.actions.handshake import Introduction
from millstream.actions.wire import Hello
from support.runtimes import Raw

HUGE = 60 << 20


def greeted(address: str, name: str, secret: bytes | None) -> Raw:
    """Connect as an upstream that has a secret."""
    ours, one = Introduction(name, secret), Raw(address)
    one.send(ours.hello)
    while not ours.over:
        one.send(ours.feed(one.read(64))[0])
    return one


def flood(address: str, hellos: int) -> None:
    """Say hello in many names, as quickly as we are let."""
    for number in range(hellos):
        with suppress(OSError, AssertionError):
            one = Raw(address).send(wire.hello(Hello(f"s_{number}_{'x' * 900}", 2**60)))
            one.send(wire.message(1, b"forged"))
            one.close()


def stall(address: str, count: int) -> list[socket.socket]:
    """Connect so often, send nearly all of a long message each, and say nothing more."""
    almost = wire.message(1, bytes(HUGE))[:-1]
    opened = [Raw(address).sock for _ in range(count)]

    def send(number: int, sock: socket.socket) -> None:
        with suppress(OSError):
            sock.sendall(wire.hello(Hello(f"s_slow{number}", 1)) + almost)

    senders = [
        threading.Thread(target=send, args=(number, sock), daemon=True)
        for number, sock in enumerate(opened)
    ]
    for one in senders:
        one.start()
    for one in senders:
        one.join(120)
    return opened
