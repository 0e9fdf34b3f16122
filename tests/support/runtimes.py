"""Runtimes in threads of a test, and peers that speak their bytes by hand."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from millstream.actions import wire
from millstream.actions.handshake import Admission
from millstream.actions.program import Program
from millstream.actions.runtime import Runtime
from millstream.actions.settings import RuntimeSettings


def free_port() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{sock.getsockname()[1]}"


def wait_until(true: Callable[[], object], seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)


class Hosted:
    """A runtime in a thread."""

    def __init__(self, name: str, program: Program, folder: Path, **settings: object) -> None:
        self.log: list[str] = []
        self.runtime = Runtime(RuntimeSettings(name, program, folder, **settings), self.log.append)  # type: ignore[arg-type]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.error: BaseException | None = None
        self._thread.start()

    def _run(self) -> None:
        try:
            self.runtime.run()
        except BaseException as error:
            self.error = error

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def stop(self) -> None:
        if self._thread.is_alive():
            self.runtime.stop()
        self.join()

    def join(self, seconds: float = 120.0) -> None:
        self._thread.join(seconds)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error


class Raw:
    """A connection, byte by byte."""

    def __init__(self, address: str | Path) -> None:
        if isinstance(address, Path):
            self.sock = socket.socket(socket.AF_UNIX)
            wait_until(address.exists)
            self.sock.connect(str(address))
        else:
            host, port = address.rsplit(":", 1)
            self.sock = socket.create_connection((host, int(port)))
        self.sock.settimeout(120)

    def send(self, data: bytes) -> Raw:
        self.sock.sendall(data)
        return self

    def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.sock.recv(count - len(data))
            assert more, f"closed after {data!r}"
            data += more
        return data

    def closed(self) -> bool:
        """Tell if the other side closes the connection, whatever it says before."""
        try:
            while self.sock.recv(4096):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            return False
        return True

    def silent(self, seconds: float = 0.2) -> bool:
        self.sock.settimeout(seconds)
        try:
            return self.sock.recv(1, socket.MSG_PEEK) == b"never"
        except TimeoutError:
            return True
        finally:
            self.sock.settimeout(120)

    def close(self) -> None:
        self.sock.close()


class RawDownstream:
    """Listens where a runtime sends, and reads what it says."""

    def __init__(self, address: str | None = None) -> None:
        host, port = (address or "127.0.0.1:0").rsplit(":", 1)
        self._server = socket.create_server((host, int(port)))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._server.settimeout(120)

    def accept(self, secret: bytes | None = None) -> Downlink:
        """Return the next connection, after its hello; with a secret, both have proved it."""
        sock, _ = self._server.accept()
        return Downlink(sock, secret)

    def close(self) -> None:
        self._server.close()


class Downlink(Raw):
    """A connection from a runtime, after its hello."""

    def __init__(self, sock: socket.socket, secret: bytes | None = None) -> None:
        self.sock = sock
        sock.settimeout(120)
        name = self.read(int.from_bytes(self.read(4), "big"))
        self.hello = wire.parsed_hello(name.partition(b" ")[0])
        if secret is not None:
            challenge = Admission.of(secret).challenge(self.hello.node, name)
            assert challenge is not None
            self.send(challenge.question)
            challenge.check(self.read(32))

    def message(self) -> tuple[int, bytes]:
        head = self.read(12)
        return int.from_bytes(head[:4], "big"), self.read(int.from_bytes(head[8:], "big"))

    def messages(self, count: int) -> list[tuple[int, bytes]]:
        return [self.message() for _ in range(count)]

    def ack(self, id_: int) -> None:
        self.send(wire.ack(id_))
