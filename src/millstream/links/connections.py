"""The TCP connections to a listener, which may be anybody's: counted, watched, and cut.

    too many           a new one is cut at once; UNIX sockets have files of their own in reserve
    too many of a producer    answered that it has to wait, then cut
    silent             clients send a heartbeat every few seconds
    more than a message    bytes that were received and are not a whole message yet

ZeroMQ reads for us and hides its connections. It reports their file descriptors, though, and the
kernel knows how much each has received, and when.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import socket
import struct
import threading
from dataclasses import dataclass
from typing import Final

_log = logging.getLogger(__name__)
_FILES: Final = 1 << 16
_RESERVE: Final = 256
#: Of Linux's tcp_info: milliseconds since data came, and how many bytes have come.
_IDLE_AT: Final = 52
_RECEIVED_AT: Final = 128
_SIZE: Final = 136


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What strangers may take up: connections, seconds of silence, bytes that are not read."""

    connections: int = 8192
    idle_s: float = 60.0
    unread: int = 96 << 20
    unread_in_all: int = 512 << 20


@dataclass(slots=True)
class _Connection:
    inode: int
    read: int = 0
    #: Whose it is, if its producer may have some only, and whether it is one too many.
    owner: str | None = None
    excess: bool = False


class InFlight:
    """The bytes of requests that wait for their answers, of each peer and in all; any thread."""

    def __init__(self, each: int = 64 << 20, in_all: int = 256 << 20) -> None:
        self._each, self._in_all = each, in_all
        self._guard = threading.Lock()
        self._held: dict[bytes, int] = {}
        self.bytes = 0

    def enter(self, peer: bytes, size: int) -> bool:
        """Count a request; False if too much waits already. One that is alone always passes."""
        with self._guard:
            held = self._held.get(peer, 0)
            if (held and held + size > self._each) or (
                self.bytes and self.bytes + size > self._in_all
            ):
                return False
            self._held[peer] = held + size
            self.bytes += size
            return True

    def leave(self, peer: bytes, size: int) -> None:
        """Forget a request that is answered, or dropped."""
        with self._guard:
            self.bytes -= size
            self._held[peer] -= size
            if not self._held[peer]:
                del self._held[peer]


class Connections:
    """The connections of one listener, by file descriptor; for the thread of its loop."""

    def __init__(self, port: int, limits: ConnectionLimits) -> None:
        self._port, self._limits = port, limits
        self._most = min(limits.connections, raised_file_limit() - _RESERVE)
        self._known: dict[int, _Connection] = {}
        self.cuts = 0

    def __len__(self) -> int:
        return len(self._known)

    def opened(self, fd: int) -> None:
        """Count a connection; cut it if there are too many."""
        with contextlib.suppress(OSError), _socket(fd) as sock:
            inode = os.fstat(fd).st_ino
            known = fd in self._known and self._known[fd].inode == inode
            if sock.getsockname()[1] == self._port and not known:
                self._known[fd] = _Connection(inode)
                if len(self._known) > self._most:
                    self._cut(fd, "there are too many connections")

    def closed(self, fd: int) -> None:
        self._known.pop(fd, None)

    def read(self, fd: int, size: int) -> None:
        """Note that a message of a connection was read."""
        if fd not in self._known:
            self.opened(fd)  # we hear of it later
        if fd in self._known:
            self._known[fd].read += size

    def owned(self, fd: int, owner: str, most: int) -> bool:
        """Tell whether a connection is one of the `most` that its owner may have."""
        one = self._known.get(fd)
        if one is not None and one.owner != owner:
            one.owner, one.excess = owner, self.of(owner) >= most
        return one is None or not one.excess

    def of(self, owner: str) -> int:
        """Return how many connections an owner has whose number is limited."""
        return sum(one.owner == owner and not one.excess for one in list(self._known.values()))

    def sweep(self) -> None:
        """Cut connections that are too many, are silent, or hold more than a message."""
        unread: dict[int, int] = {}
        for fd, one in list(self._known.items()):
            try:
                if os.fstat(fd).st_ino != one.inode:
                    raise OSError
                with _socket(fd) as sock:
                    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)
            except OSError:  # closed meanwhile
                self.closed(fd)
                continue
            if len(info) < _SIZE:
                continue  # another kernel
            idle_ms = struct.unpack_from("=I", info, _IDLE_AT)[0]
            unread[fd] = max(0, struct.unpack_from("=Q", info, _RECEIVED_AT)[0] - one.read)
            if one.excess:  # its client has the answer by now
                self._cut(fd, f'"{one.owner}" has too many')
            elif idle_ms > 1000 * self._limits.idle_s:
                self._cut(fd, "nothing has come for too long")
            elif unread[fd] > self._limits.unread:
                self._cut(fd, "a message is too large")
        if sum(unread.values()) > self._limits.unread_in_all:
            self._cut(max(unread, key=unread.__getitem__), "too much is on its way")

    def _cut(self, fd: int, why: str) -> None:
        with contextlib.suppress(OSError), _socket(fd) as sock:
            _log.info("cut the connection of %s: %s", sock.getpeername(), why)
            sock.shutdown(socket.SHUT_RDWR)
        self.cuts += 1
        self._known.pop(fd, None)


def _socket(fd: int) -> socket.socket:
    """Return a second handle of a connection; closing it leaves the connection open."""
    copy = os.dup(fd)
    try:
        return socket.socket(fileno=copy)
    except OSError:  # it was closed meanwhile, and its number is that of a file now
        os.close(copy)
        raise


def raised_file_limit() -> int:
    """Let this process have more files open, as many as it may; return how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(2 * _RESERVE, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
