"""What strangers may take up of a listener: memory, connections and time are bounded."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import zmq

from millstream.links import envelope
from millstream.links.client import connect
from millstream.links.connections import ConnectionLimits, Connections, raised_file_limit
from millstream.links.host import Host
from millstream.links.inbox import Inbox
from millstream.links.standing import OWN
from millstream.links.transport import ServerSocket
from support.links import TARGET, declare, hosted, row, stored, wait_for

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY\x0bSocket-Type" + (6).to_bytes(4, "big") + b"DEALER"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    declare(tmp_path)
    host = hosted(tmp_path)
    yield host
    host.close()


def limit(host: Host, **limits: float) -> None:
    assert host._listener is not None
    connections = host._listener._socket._connections
    connections._limits = ConnectionLimits(**limits)  # type: ignore[arg-type]
    connections._most = connections._limits.connections


def cuts(host: Host) -> int:
    assert host._listener is not None
    return host._listener._socket._connections.cuts


def greeted(host: Host) -> socket.socket:
    """Return a connection that has shaken hands as ZeroMQ does."""
    raw = socket.create_connection((host.address.ip, host.address.port))
    raw.settimeout(60)
    raw.sendall(GREETING)
    raw.sendall(b"\x04" + bytes([len(READY)]) + READY)
    assert raw.recv(1000)
    return raw


def test_an_unfinished_message_is_cut_before_it_fills_the_memory(
    host: Host, tmp_path: Path
) -> None:
    before = psutil.Process().memory_info().rss
    part = b"\x03" + (16 << 20).to_bytes(8, "big") + bytes(16 << 20)  # more follows
    with greeted(host) as raw, contextlib.suppress(OSError):
        for _ in range(200):
            raw.sendall(part)
    wait_for(lambda: cuts(host) == 1)
    assert psutil.Process().memory_info().rss - before < 1 << 30
    with connect(tmp_path) as client:
        assert client.send(TARGET, row(0)) == 1


def test_a_connection_that_is_silent_is_cut_and_a_client_is_not(host: Host, tmp_path: Path) -> None:
    limit(host, idle_s=8.0)  # clients send a heartbeat every five seconds
    (tmp_path / "f" / f"inbox_{host.address.port}").unlink()
    with greeted(host) as raw:
        wait_for(lambda: cuts(host) == 1)
        while raw.recv(1000):
            pass
    assert cuts(host) == 1
    with connect(str(host.address)) as client:
        assert client.send(TARGET, row(0)) == 1


def test_there_are_not_too_many_connections_and_the_owner_has_his_own(
    host: Host, tmp_path: Path
) -> None:
    limit(host, connections=20)
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(socket.create_connection((host.address.ip, host.address.port)))
        wait_for(lambda: cuts(host) == 30)
        with connect(tmp_path) as client:
            assert client.send(TARGET, row(0)) == 1
    assert stored(tmp_path) == [[0]]


def test_a_number_that_is_a_file_by_now_leaves_nothing_open(tmp_path: Path) -> None:
    connections = Connections(1, ConnectionLimits())
    with (tmp_path / "file").open("wb") as file:
        connections.opened(file.fileno())
        # Only this file's: other threads of the process open and close theirs meanwhile.
        links = [one for one in Path("/proc/self/fd").iterdir() if one.exists()]
        assert [one.resolve() for one in links].count(tmp_path / "file") == 1
        assert len(connections) == 0


def test_a_host_may_be_closed_twice(tmp_path: Path) -> None:
    declare(tmp_path)
    host = hosted(tmp_path)
    host.close()
    host.close()


def test_the_limit_of_files_is_raised() -> None:
    assert raised_file_limit() >= 512


def test_requests_that_wait_are_bounded_whatever_they_ask(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a key that may add dead letters, to a disk that takes none of them for a while."""
    monkeypatch.setattr(ServerSocket, "_peer", lambda *_: OWN)
    may_go_on = threading.Event()
    monkeypatch.setattr(Inbox, "put_dead_letters", lambda *_, **__: may_go_on.wait(120) and 1)
    assert host._listener is not None
    flight = host._listener._socket.in_flight
    before = psutil.Process().memory_info().rss
    answers = []
    with zmq.Context() as context, context.socket(zmq.DEALER) as sock:
        sock.linger = 0
        sock.connect(str(host.address))
        for number in range(100):
            letters = [(number, "no", "x" * (8 << 20))]
            request = envelope.PutDeadLetter(number, TARGET, 0, "evil", letters)
            sock.send_multipart(envelope.frames_of(request))
            while sock.poll(0 if number < 20 else 60_000):
                answers.append(envelope.decode_answer(sock.recv_multipart()[0]))
                break
        assert flight.bytes <= 64 << 20
        assert psutil.Process().memory_info().rss - before < 1 << 30
        refused = [one for one in answers if isinstance(one, envelope.Refusal)]
        assert {one.error for one in refused} == {"LinkBroken"}
        assert len(refused) >= 80
        may_go_on.set()
        wait_for(lambda: flight.bytes == 0)
    with connect(tmp_path) as client:
        assert client.send(TARGET, row(0)) == 1
