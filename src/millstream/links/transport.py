"""Sockets: the only file that knows ZeroMQ.

    Loop    one thread that waits for sockets, timers and tasks of other threads
    ServerSocket    a listener's ROUTERs on IPC and TCP, the latter with CURVE if it has keys
    Wire    the DEALER of an outbox, made again when it is lost

Whatever a peer does, a loop goes on: what a callback raises is logged.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import socket
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final

import zmq

from millstream.errors import LinkBroken
from millstream.links.connections import ConnectionLimits, Connections, InFlight
from millstream.links.frame import MOST_BYTES
from millstream.links.keys import KeyPair
from millstream.links.network import ipc_path
from millstream.links.standing import OPEN, OWN, UNKNOWN, Peer

_log = logging.getLogger(__name__)
_AT_ONCE: Final = 128
_PATH_BYTES: Final = 100  # a UNIX socket's path has room for 107
_PORTS: Final = 100
_PORT_S: Final = 0.3
_BACKLOG: Final = 1000
_LAST_WORDS_MS: Final = 500
_AFTER_ERROR_S: Final = 1.0
_LOOK_S: Final = 0.25
"""How often the folder of keys and the connections are looked at."""
_COUNTED: Final = zmq.EVENT_ACCEPTED | zmq.EVENT_CLOSED | zmq.EVENT_DISCONNECTED
_SEALED: Final = 33
"""How many bytes keys add to a frame."""

Frames = Sequence[Any]
"""Bytes, or anything with a buffer."""


class Loop:
    """A thread that owns sockets."""

    def __init__(self, name: str) -> None:
        self._poller = zmq.Poller()
        self._callbacks: dict[Any, Callable[[], None]] = {}
        self._tasks: deque[Callable[[], None]] = deque()
        self._bell, self._ear = socket.socketpair()
        self._ear.setblocking(False)
        self._rung = False
        self._stopping = False
        self._poller.register(self._ear, zmq.POLLIN)
        #: Called after every event; returns when (time.monotonic) it wants to be called next.
        self.turn: Callable[[float], float | None] = lambda _now: None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def inside(self) -> bool:
        """Whether the caller is on the loop's own thread."""
        return threading.current_thread() is self._thread

    def soon(self, task: Callable[[], None]) -> None:
        """Let the loop's thread call `task`; any thread may ask."""
        self._tasks.append(task)
        if not self._rung:
            self._rung = True
            with contextlib.suppress(OSError):  # closed meanwhile
                self._bell.send(b"!")

    def watch(self, sock: Any, callback: Callable[[], None]) -> None:
        """Call `callback` when there is something to read."""
        self._callbacks[sock] = callback
        self._poller.register(sock, zmq.POLLIN)

    def forget(self, sock: Any) -> None:
        if self._callbacks.pop(sock, None) is not None:
            self._poller.unregister(sock)

    def stop(self) -> None:
        """Do what was asked for so far, then end."""
        self.soon(self._stop)
        if not self.inside and self._thread.is_alive():
            self._thread.join()
        self._bell.close()
        self._ear.close()

    def _stop(self) -> None:
        self._stopping = True

    def _run(self) -> None:
        while not self._stopping:
            self._do_tasks()
            wake_at = self._take_turn()
            if self._tasks or self._stopping:
                continue
            pause = (
                None if wake_at is None else max(0, math.ceil((wake_at - time.monotonic()) * 1000))
            )
            for sock, _ in self._poller.poll(pause):
                if sock == self._ear.fileno():
                    self._hear()
                elif (callback := self._callbacks.get(sock)) is not None:
                    self._guarded(callback)

    def _take_turn(self) -> float | None:
        try:
            return self.turn(time.monotonic())
        except Exception:  # noqa: BLE001 (as below)
            _log.exception("a link continues after an unexpected error")
            # Nobody knows when it wanted to be called: not to be called again would be for ever.
            return time.monotonic() + _AFTER_ERROR_S

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._ear.recv(4096)
        self._rung = False

    def _do_tasks(self) -> None:
        for _ in range(len(self._tasks)):
            self._guarded(self._tasks.popleft())

    def _guarded(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception:  # noqa: BLE001 (no peer may end the thread that serves the others)
            _log.exception("a link continues after an unexpected error")
            return None


# listening

Reply = Callable[[Frames], None]
"""Sends an answer; any thread may call it, also after the peer has gone."""

Handler = Callable[[list[Any], Peer, Reply], None]
"""Takes a request: frames, who has sent it, and how to answer."""


class _Counted:
    """Answers a request, which is counted until it is answered or nobody can answer it."""

    def __init__(self, reply: Reply, leave: Callable[[], None]) -> None:
        self._reply = reply
        self._gone = weakref.finalize(self, leave)

    def __call__(self, answer: Frames) -> None:
        self._gone()
        self._reply(answer)


class ServerSocket:
    """Where requests come in."""

    def __init__(
        self,
        folder: Path | None,
        ip: str,
        handler: Handler,
        on_full: Callable[[list[Any], str, Reply], None],
        *,
        port: int = 0,
        keys: KeyPair | None = None,
        known: Mapping[bytes, Peer] | None = None,
        limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 (it is a value)
        watched: Path | None = None,
        on_change: Callable[[], Mapping[bytes, Peer]] | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """Listen; when the files in `watched` change, `on_change` returns who is known now.

        Without a folder there is no UNIX socket.
        """
        self._handler, self._on_full = handler, on_full
        self.in_flight = InFlight()
        self._watched, self._on_change = watched, on_change
        self._files = _files(watched)
        self._look_at = 0.0
        self._context = zmq.Context()
        self._context.max_sockets = 65536
        self._known = dict(known or {})
        self._keys = keys
        self._loop = Loop("inbox door")
        self._answers: deque[tuple[Any, list[Any]]] = deque()
        self._guard: Any = None  # pyzmq's authenticator has no types
        self._sockets: list[Any] = []
        self._own: Any = None  # the UNIX socket
        self._monitor: Any = None
        self._folder = None if folder is None else _Folder(folder)
        self._most_bytes = most_bytes
        try:
            self.port = self._bind(ip, port)
        except BaseException:
            self._close_all()
            raise
        self._connections = Connections(self.port, limits)
        for sock in self._sockets:
            self._loop.watch(sock, self._reader(sock))
        self._loop.watch(self._monitor, self._notice)
        self._loop.turn = self._look

    def _look(self, now: float) -> float | None:
        """Look now and then whether keys have come or gone, and at strangers' connections."""
        if now >= self._look_at:
            self._look_at = now + _LOOK_S
            self._connections.sweep()
            if self._on_change is not None:
                files = _files(self._watched)
                if files != self._files:
                    self._known, self._files = dict(self._on_change()), files
        watching = self._watched is not None or len(self._connections)
        return self._look_at if watching else None

    def _notice(self) -> None:
        """Count the connections that come and go."""
        event, fd = _monitored(self._monitor)
        counted = event == zmq.EVENT_ACCEPTED
        (self._connections.opened if counted else self._connections.closed)(fd)

    def start(self) -> None:
        """Begin to take requests; until then they wait."""
        self._loop.start()

    def _bind(self, ip: str, port: int) -> int:
        if self._keys is not None:
            from zmq.auth.thread import ThreadAuthenticator  # slow to load, and few need it

            self._guard = ThreadAuthenticator(self._context, log=_log)
            self._guard.start()
            self._guard.configure_curve_callback(domain="*", credentials_provider=self)
        host = f"[{ip}]" if ":" in ip else ip
        for _ in range(_PORTS):
            tcp = self._router(curve=True)
            tcp.ipv6 = ":" in ip
            found = _bound(tcp, host, port)
            if self._folder is None or not listening(ipc_path(self._folder.path, found)):
                self._monitor = tcp.get_monitor_socket(_COUNTED)
                if self._folder is not None:
                    self._bind_own(self._folder, found)
                return found
            # Another namespace of this host listens under that number.
            tcp.close(linger=0)
            self._sockets.remove(tcp)
            port = 0
        raise LinkBroken("no port is free")

    def _bind_own(self, folder: _Folder, port: int) -> None:
        self._own = self._router(curve=False)
        for user in (os.getuid(), 0):  # the file's mode says it, too
            self._own.setsockopt(zmq.IPC_FILTER_UID, user)
        folder.bind(self._own, port)

    def _router(self, *, curve: bool) -> Any:
        sock = self._context.socket(zmq.ROUTER)
        sock.linger = _LAST_WORDS_MS
        sock.maxmsgsize = self._most_bytes
        sock.backlog = _BACKLOG
        sock.rcvhwm = 64
        sock.sndhwm = 10_000
        if curve and self._keys is not None:
            sock.curve_secretkey = self._keys.secret
            sock.curve_publickey = self._keys.public
            sock.curve_server = True
        self._sockets.append(sock)
        return sock

    def callback(self, _domain: str, key: bytes) -> bool:
        """Tell pyzmq's authenticator whether a producer's key is known."""
        return key in self._known

    def _reader(self, sock: Any) -> Callable[[], None]:
        def read() -> None:
            for _ in range(_AT_ONCE):
                try:
                    identity, *frames = sock.recv_multipart(zmq.NOBLOCK, copy=False)
                except zmq.Again:
                    return
                if frames:
                    if sock is not self._own:
                        sizes = [_on_wire(len(frame), self._keys is not None) for frame in frames]
                        self._connections.read(frames[0].get(zmq.SRCFD), sum(sizes))
                    self._take(sock, identity.bytes, frames)

        return read

    def _take(self, sock: Any, identity: bytes, frames: list[Any]) -> None:
        def reply(answer: Frames) -> None:
            self._answers.append((sock, [identity, *answer]))
            if len(self._answers) == 1 or not self._loop.inside:
                self._loop.soon(self._send_answers)

        size = sum(len(frame) for frame in frames)
        buffers = [frame.buffer for frame in frames]
        try:
            if sock is self._own:
                self._handler(buffers, OWN, reply)
                return
            peer = self._peer(frames[0])
            if not self._connected(peer, frames[0]):
                most = f"{peer.grant.quota.connections} connections"
                self._on_full(buffers, f'producer "{peer.name}" has its {most} already', reply)
            elif self.in_flight.enter(identity, size):
                counted = _Counted(reply, partial(self.in_flight.leave, identity, size))
                self._handler(buffers, peer, counted)
            else:
                self._on_full(buffers, "too many of its requests wait for an answer", reply)
        except Exception:  # noqa: BLE001 (as above)
            _log.exception("a request is left unanswered after an unexpected error")

    def _peer(self, frame: Any) -> Peer:
        if self._keys is None:
            return OPEN
        return self._known.get(frame.get("User-Id").encode(), UNKNOWN)

    def _connected(self, peer: Peer, frame: Any) -> bool:
        """Tell whether a connection is one of those that its producer may have."""
        most = peer.grant.quota.connections
        if most is None or peer.name is None:
            return True
        return self._connections.owned(frame.get(zmq.SRCFD), peer.name, most)

    def open_connections(self, producer: str) -> int:
        """Return how many connections a producer has whose number is limited."""
        return self._connections.of(producer)

    def _send_answers(self) -> None:
        while self._answers:
            sock, frames = self._answers.popleft()
            with contextlib.suppress(zmq.ZMQError):  # gone, or not reading: it asks again
                sock.send_multipart(frames, zmq.NOBLOCK)

    def close(self) -> None:
        """Send the answers that are ready, and close."""
        self._loop.soon(self._send_answers)
        self._loop.stop()
        self._close_all()

    def _close_all(self) -> None:
        if self._guard is not None:
            self._guard.stop()
        if self._monitor is not None:
            self._sockets[0].disable_monitor()
            self._monitor.close(linger=0)
            self._monitor = None  # a listener may be closed twice
        for sock in self._sockets:
            sock.close()
        self._context.term()
        if self._folder is not None:
            with contextlib.suppress(OSError):
                if hasattr(self, "port"):
                    ipc_path(self._folder.path, self.port).unlink()
            self._folder.close()


def _monitored(monitor: Any) -> tuple[int, int]:
    """Return what has happened to a socket, and the value that belongs to it."""
    # As pyzmq's own function does, which would load asyncio into every client.
    event, value = struct.unpack("=Hi", monitor.recv_multipart(zmq.NOBLOCK)[0])
    return event, value


def _on_wire(size: int, sealed: bool) -> int:
    """Return how many bytes a frame had on its way."""
    size += _SEALED if sealed else 0
    return size + (2 if size < 256 else 9)


def _files(folder: Path | None) -> dict[str, tuple[int, int, int]]:
    """Return what tells whether files in a folder have changed."""
    found = {}
    with contextlib.suppress(OSError):
        for file in () if folder is None else os.scandir(folder):
            stat = file.stat()
            found[file.name] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
    return found


def _bound(sock: Any, host: str, port: int) -> int:
    """Bind to a port, another one if it is taken; return which."""
    until = time.monotonic() + _PORT_S
    while port:
        try:
            sock.bind(f"tcp://{host}:{port}")
        except zmq.ZMQError:
            # Who had it may be dying just now, and producers know of no other.
            if time.monotonic() >= until:
                _log.info("port %d is taken", port)
                break
            time.sleep(_PORT_S / 20)
        else:
            return port
    try:
        sock.bind(f"tcp://{host}:*")
    except zmq.ZMQError as error:
        msg = f"cannot listen on tcp://{host}: {error.strerror}"
        raise LinkBroken(msg, hint="name an address of this host") from error
    return int(sock.last_endpoint.decode().rpartition(":")[2])


def listening(path: Path) -> bool:
    """Tell whether somebody listens at a UNIX socket; what a dead process left is no reason."""
    if not path.exists():
        return False
    folder = _Folder(path.parent)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
            trial.connect(folder.path_of(path.name))
    except OSError:
        return False
    else:
        return True
    finally:
        folder.close()


class _Folder:
    """A folder of UNIX sockets, whose paths may be longer than the system allows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def path_of(self, name: str) -> str:
        plain = str(self.path / name)
        if len(os.fsencode(plain)) <= _PATH_BYTES:
            return plain
        if self._fd is None:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        short = f"/proc/self/fd/{self._fd}/{name}"
        if not Path(f"/proc/self/fd/{self._fd}").exists():
            hint = "use a data folder with a shorter path on this system"
            raise LinkBroken(f'"{plain}" is too long for a socket', hint=hint)
        return short

    def endpoint(self, port: int) -> str:
        return f"ipc://{self.path_of(ipc_path(self.path, port).name)}"

    def bind(self, sock: Any, port: int) -> None:
        """Bind to a UNIX socket that no other user may connect to, at no moment."""
        ipc_path(self.path, port).unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as raw:
            os.fchmod(raw.fileno(), 0o600)
            raw.bind(self.path_of(ipc_path(self.path, port).name))
            ipc_path(self.path, port).chmod(
                0o600
            )  # where a socket has no mode before it has a name
            raw.listen(_BACKLOG)
            sock.use_fd = raw.detach()
        sock.bind(self.endpoint(port))

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


# sending

_LOST: Final = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_REFUSED: Final = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL


class Loss(Enum):
    """How a connection was lost."""

    GONE = "gone"
    AWAY = "away"
    """Nobody is there to connect to, and it is tried again."""
    REFUSED = "refused"
    UNGREETED = "ungreeted"
    """The peer hung up on our greeting: it died just then, or has another key."""


@functools.cache
def _context(_process: int) -> Any:
    """Return the context of all wires of this process; a forked one gets its own."""
    context: Any = zmq.Context()
    context.max_sockets = 65536
    return context


class Wire:
    """A connection to a door. Used on its loop's thread alone."""

    def __init__(
        self,
        loop: Loop,
        *,
        ip: str,
        port: int,
        folder: str | None,
        on_answer: Callable[[bytes], None],
        on_lost: Callable[[Loss], None],
        keys: KeyPair | None = None,
        server: bytes | None = None,
    ) -> None:
        """Connect, over IPC if a folder is given; `on_lost` is called when the peer is gone."""
        self._loop = loop
        self._ip, self._port = ip, port
        self._folder = None if folder is None else _Folder(Path(folder))
        self._keys, self._server = keys, server
        self._on_answer, self._on_lost = on_answer, on_lost
        self._connect()

    def _connect(self) -> None:
        sock: Any = _context(os.getpid()).socket(zmq.DEALER)
        self._socket: Any = sock
        sock.linger = 0
        sock.maxmsgsize = MOST_BYTES
        sock.sndhwm = 1000
        sock.reconnect_ivl, sock.reconnect_ivl_max = 20, 1000
        self._monitor = sock.get_monitor_socket(_LOST)
        if self._folder is not None:
            sock.connect(self._folder.endpoint(self._port))
        else:
            if self._keys is not None and self._server is not None:
                sock.curve_secretkey, sock.curve_publickey = self._keys.secret, self._keys.public
                sock.curve_serverkey = self._server
            # A host that vanishes says nothing: ask it now and then whether it is there.
            sock.heartbeat_ivl, sock.heartbeat_timeout = 5_000, 15_000
            sock.ipv6 = ":" in self._ip
            sock.connect(
                f"tcp://[{self._ip}]:{self._port}"
                if ":" in self._ip
                else f"tcp://{self._ip}:{self._port}"
            )
        self._loop.watch(sock, self._read)
        self._loop.watch(self._monitor, self._notice)

    def send(self, frames: Frames) -> None:
        """Send, or drop it if nothing more can wait: who gets no answer sends again."""
        with contextlib.suppress(zmq.Again):
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=False)

    def _read(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.ZMQError:  # nothing more, or renewed meanwhile
                return
            self._on_answer(frames[0])

    def _notice(self) -> None:
        event, _ = _monitored(self._monitor)
        if event & zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            self._on_lost(Loss.UNGREETED)
        elif event & zmq.EVENT_CONNECT_RETRIED:
            self._on_lost(Loss.AWAY)
        else:
            self._on_lost(Loss.REFUSED if event & _REFUSED else Loss.GONE)

    def renew(self) -> None:
        """Begin with a new socket: what waits in the old one is dropped."""
        self._disconnect()
        self._connect()

    def _disconnect(self) -> None:
        for sock in (self._socket, self._monitor):
            self._loop.forget(sock)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)

    def close(self) -> None:
        self._disconnect()
        if self._folder is not None:
            self._folder.close()
