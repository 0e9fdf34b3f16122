"""The connections of a runtime: sockets that never block, with what is read and unsent."""

from __future__ import annotations

import errno
import os
import socket
import time
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from millstream.actions import wire
from millstream.actions.handshake import HELLO_S, Admission, Introduction
from millstream.actions.queue import Cursor
from millstream.actions.serials import id_of
from millstream.errors import InvalidAddress, OpenNetwork

_READ: Final = 1 << 18
_SEND: Final = 1 << 20
_SHORTEST_S: Final = 0.02
_LONGEST_S: Final = 1.0


class Closed(Exception):
    """The other side is gone."""


class Peer:
    """A connected socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A machine that is gone says nothing: found out in a quarter of a minute.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 2)):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 15_000)
        self._unsent = bytearray()

    @property
    def unsent(self) -> int:
        return len(self._unsent)

    def write(self, data: bytes) -> None:
        """Send what can be sent, and keep the rest."""
        self._unsent += data
        self.push()

    def push(self) -> None:
        """Send more of what is kept."""
        while self._unsent:
            try:
                sent = self.sock.send(memoryview(self._unsent)[:_SEND])
            except BlockingIOError:
                return
            except OSError as error:
                raise Closed(str(error)) from error
            del self._unsent[:sent]

    def read(self) -> bytes | None:
        """Return what is there, None if nothing is.

        Raises:
            Closed: The other side is gone.
        """
        try:
            data = self.sock.recv(_READ)
        except BlockingIOError:
            return None
        except OSError as error:
            raise Closed(str(error)) from error
        if not data:
            raise Closed("closed by the other side")
        return data

    def close(self) -> None:
        self.sock.close()


class Upstream(Peer):
    """Someone who sends us messages, and has to say who that is in time."""

    def __init__(
        self, sock: socket.socket, number: int, limit: int, admission: Admission, host: str = ""
    ) -> None:
        super().__init__(sock)
        self.number, self.host = number, host
        self.arrivals = wire.Arrivals(limit, admission)
        self.sender: str | None = None
        self.greet_by = time.monotonic() + HELLO_S
        #: Since when it has completed no message.
        self.since = 0.0

    def feed(self, data: bytes) -> list[wire.Message]:
        """Return the messages that are complete by `data`, and answer a hello that asks for it."""
        begins = not self.arrivals.unfinished
        found = self.arrivals.feed(data)
        if begins or found:
            self.since = time.monotonic()
        if question := self.arrivals.reply():
            self.write(question)
        return found


class Supervisor(Peer):
    """Someone who gives us commands."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.commands = wire.Commands()
        self.last = False


class Downstream:
    """Someone we send messages to; connected again whenever the connection breaks."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.peer: Peer | None = None
        self.connected = False
        self.introduction: Introduction | None = None
        self.greet_by = 0.0
        self.acks = wire.Acks()
        self.cursor: Cursor | None = None
        self.retry_at = 0.0
        self._pause_s = _SHORTEST_S

    @property
    def sent(self) -> int:
        return 0 if self.cursor is None else self.cursor.serial

    def connect(self) -> socket.socket | None:
        """Begin to connect; None if that failed at once."""
        try:
            family, _, _, _, target = socket.getaddrinfo(
                *split(self.address), type=socket.SOCK_STREAM
            )[0]
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            return None
        sock.setblocking(False)
        failed = sock.connect_ex(target)
        if failed not in (0, errno.EINPROGRESS):
            sock.close()
            return None
        self.peer, self.connected = Peer(sock), False
        return sock

    def greet(self, who: wire.Hello, secret: bytes | None, cursor: Cursor, now: float) -> None:
        """Say who we are, once the connection stands; messages follow when `introduced`.

        Raises:
            Closed: It does not.
        """
        assert self.peer is not None
        failed = self.peer.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failed:
            raise Closed(os.strerror(failed))
        self.connected, self.cursor, self.acks = True, cursor, wire.Acks()
        self.introduction, self.greet_by = Introduction(str(who), secret), now + HELLO_S
        self.peer.write(self.introduction.hello)

    @property
    def introduced(self) -> bool:
        """Whether the other side is known to be the right one."""
        return self.introduction is not None and self.introduction.over

    def read(self) -> list[int]:
        """Return the acknowledgements that came, and go on with the introduction.

        Raises:
            Closed: The other side is gone.
            PeerRefused: It does not have our secret.
        """
        assert self.peer is not None
        assert self.introduction is not None
        answer, rest = self.introduction.feed(self.peer.read() or b"")
        if answer:
            self.peer.write(answer)
        if self.introduced:
            self._pause_s = _SHORTEST_S
        return self.acks.feed(rest)

    def send_more(self) -> None:
        """Send what the queue has, as much as the connection takes."""
        assert self.peer is not None
        assert self.cursor is not None
        while self.peer.unsent < _SEND and (outputs := self.cursor.read()):
            self.peer.write(
                wire.messages((id_of(output.serial), output.payload) for output in outputs)
            )

    def lost(self, now: float) -> None:
        """Forget the connection; the next one comes after a pause that grows."""
        if self.peer is not None:
            self.peer.close()
        self.peer = self.cursor = self.introduction = None
        self.connected = False
        self.retry_at = now + self._pause_s
        self._pause_s = min(_LONGEST_S, self._pause_s * 2)


def split(address: str) -> tuple[str, int]:
    """Return host and port of an address.

    Raises:
        InvalidAddress: It is not one.

    Example:
        >>> split("10.0.0.1:5001"), split("[::1]:80"), split(":7")
        (('10.0.0.1', 5001), ('::1', 80), ('127.0.0.1', 7))
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise InvalidAddress(f'"{address}" is not an address', hint="expected host:port")
    return host.strip("[]") or "127.0.0.1", int(port)


def guard(address: str, *, secret: bool, open_without_secret: bool) -> None:
    """Refuse to listen where other hosts can reach us, unless there is a secret or you want that.

    Raises:
        OpenNetwork: Anybody in that network could send in any name.
    """
    if secret or open_without_secret or local(address):
        return
    raise OpenNetwork(
        f'other hosts can reach "{address}", and there is no secret',
        hint="give this runtime and its neighbours the same --secret FILE, "
        "or trust the network: --open-without-secret",
    )


def local(address: str) -> bool:
    """Tell whether only this host can reach a listener at an address.

    Example:
        >>> [local(at) for at in ("127.0.0.1:1", "[::1]:1", "localhost:1", "run/a.sock")]
        [True, True, True, True]
        >>> [local(at) for at in ("0.0.0.0:1", "10.0.0.5:1", "example.com:1")]
        [False, False, False]
    """
    if "/" in address:
        return True
    host, _ = split(address)
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(address: str) -> socket.socket:
    """Return a listening socket: host:port, or the path of a Unix socket (it has a slash)."""
    if "/" in address:
        return _listen_unix(Path(address))
    host, port = split(address)
    try:
        sock = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=128
        )
    except OSError as error:
        msg = f'cannot listen on "{address}": {error.strerror}'
        raise InvalidAddress(msg, hint="is another runtime there?") from error
    sock.setblocking(False)
    return sock


def _listen_unix(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with suppress(FileNotFoundError):
        path.unlink()  # of an earlier life: the queue's lock says that it is over
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sock.bind(str(path))
        path.chmod(0o600)
    except OSError as error:
        sock.close()
        raise InvalidAddress(f'cannot listen on "{path}": {error}') from error
    sock.listen(16)
    sock.setblocking(False)
    return sock
