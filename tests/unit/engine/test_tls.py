"""What leaves the host is encrypted, and who answers is verified."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from typer.testing import CliRunner

import millstream as ms
from millstream.cli.app import app
from millstream.cluster import Cluster, EngineClient
from millstream.engine.access import audit
from millstream.engine.access.audit import AuditQuery
from millstream.engine.access.trust import trust
from millstream.engine.http.server import Server, Serving
from millstream.engine.jobs.folders import Folders
from millstream.engine.schemes.elsewhere import Elsewhere
from millstream.engine.schemes.guests import GuestOrder
from millstream.errors import EngineAway, EngineError, NoAnswer, OpenNetwork
from millstream.links.follower import Follower
from millstream.links.host import Listening
from millstream.links.keys import new_keys, read_key
from millstream.links.listener import Security
from millstream.links.network import Address, check_encrypted
from support.engine import PeerEngine
from support.links import TARGET, declare, hosted, journal, row, wait_for

SEEN = b"attention-everybody"


@contextlib.contextmanager
def overheard(port: int) -> Iterator[tuple[int, list[bytes]]]:
    """A port that leads to another, and everything that passes through it."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def pump(source: socket.socket, target: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    heard.append(data)
                    target.sendall(data)
            for one in (source, target):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

        opened: list[socket.socket] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    near = server.accept()[0]
                    far = socket.create_connection(("127.0.0.1", port))
                    opened.extend((near, far))
                    for ends in ((near, far), (far, near)):
                        threading.Thread(target=pump, args=ends, daemon=True).start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield server.getsockname()[1], heard
        finally:
            server.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for one in opened:
                one.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for this host, and its private key."""
    folder = tmp_path_factory.mktemp("certificate")
    found = folder / "cert.pem", folder / "key.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    name = ["-subj", "/CN=engine", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-out", str(found[0]), "-keyout", str(found[1])]
    command = ["openssl", "req", "-x509", *curve, *name, *files]
    subprocess.run(command, check=True, capture_output=True)
    return found


@contextlib.contextmanager
def serving(data: Path, certificate: tuple[Path, Path] | None) -> Iterator[Server]:
    engine = PeerEngine(data)
    cert, key = certificate or (None, None)
    server = Server(engine, data, Serving(port=0, certificate=cert, private_key=key))
    server.start()
    try:
        yield server
    finally:
        server.close()
        engine.close()


def port_of(server: Server) -> int:
    return int(server.url.rpartition(":")[2])


# HTTP


def test_commands_verify_the_engine_with_the_authority_that_is_named(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MILLSTREAM_CA", raising=False)
    other = tmp_path / "other.pem"
    other.write_text("nothing of the kind")
    with serving(tmp_path, certificate) as server:
        at = ("--engine", server.url)

        def called(*words: object) -> object:
            return CliRunner().invoke(app, ["jobs", *at, *map(str, words)])

        refused = called()
        assert isinstance(refused.exception, EngineAway)  # type: ignore[attr-defined]
        assert "certificate verify failed" in str(refused.exception)  # type: ignore[attr-defined]
        assert called("--ca", certificate[0]).stdout == "there are no jobs\n"  # type: ignore[attr-defined]
        wrong = called("--ca", other)
        assert isinstance(wrong.exception, EngineError)  # type: ignore[attr-defined]
        assert "cannot be read" in str(wrong.exception)  # type: ignore[attr-defined]
        monkeypatch.setenv("MILLSTREAM_CA", str(certificate[0]))
        assert called().stdout == "there are no jobs\n"  # type: ignore[attr-defined]
        with Cluster([server.url]) as cluster:
            assert cluster.jobs() == []


@pytest.mark.parametrize("encrypted", [True, False])
def test_tokens_are_not_seen_on_their_way(
    tmp_path: Path, certificate: tuple[Path, Path], *, encrypted: bool
) -> None:
    with (
        serving(tmp_path, certificate if encrypted else None) as server,
        overheard(port_of(server)) as (port, heard),
    ):
        url = server.url.replace(str(port_of(server)), str(port))
        client = EngineClient(url, server.token, ca=certificate[0])
        assert client.get("/jobs", list) == []
        client.close()
    assert (server.token.encode() in b"".join(heard)) is not encrypted


@pytest.mark.parametrize("encrypted", [True, False])
def test_orders_between_engines_are_not_seen_on_their_way(
    tmp_path: Path,
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    *,
    encrypted: bool,
) -> None:
    monkeypatch.setenv("MILLSTREAM_CA", str(certificate[0]))
    with (
        serving(tmp_path, certificate if encrypted else None) as server,
        overheard(port_of(server)) as (port, heard),
    ):
        url = server.url.replace(str(port_of(server)), str(port))
        orders = Elsewhere(url, lambda: server.token, "f", b"secret", lambda *_: None)
        # Refused by the engine, which has no such job: it has arrived.
        assert orders._post("filter", GuestOrder("drain"), 20.0) is None
        orders.close()
    sent = b"".join(heard)
    assert sent
    assert (server.token.encode() in sent) is not encrypted
    assert arrived(tmp_path) == ["host"]


def arrived(data: Path) -> list[str]:
    return [entry.what for entry in audit.read(Folders(data).audit, AuditQuery())]


def test_an_engine_that_cannot_be_verified_gets_no_orders(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MILLSTREAM_CA", raising=False)
    with serving(tmp_path, certificate) as server, overheard(port_of(server)) as (port, heard):
        url = server.url.replace(str(port_of(server)), str(port))
        orders = Elsewhere(url, lambda: server.token, "f", b"secret", lambda *_: None)
        assert orders._post("filter", GuestOrder("drain"), 20.0) is None
        orders.close()
    assert heard
    assert arrived(tmp_path) == []


# links


@pytest.mark.parametrize("encrypted", [True, False])
def test_what_producers_and_inboxes_exchange_is_not_seen_on_its_way(
    tmp_path: Path, *, encrypted: bool
) -> None:
    till = new_keys(tmp_path / "keys", "till")
    own = read_key(new_keys(tmp_path / "own", "engine").secret)
    declare(tmp_path)
    security = Security.read(own, tmp_path / "keys") if encrypted else None
    host = hosted(tmp_path, Listening(security=security))
    try:
        with overheard(host.address.port) as (port, heard):
            to = f"tcp://127.0.0.1:{port}"
            keys = {"key": till.secret, "server": tmp_path / "own/engine.pub"} if encrypted else {}
            with ms.connect(to, **keys) as client:  # type: ignore[arg-type]
                assert client.send(TARGET, [row(1)]) == 1
    finally:
        host.close()
    # It asks for the source by its name first, and gets its columns.
    assert (b"origin" in b"".join(heard)) is not encrypted
    assert (b"CURVE" in b"".join(heard)) is encrypted


def test_what_engines_copy_from_each_other_is_not_seen_on_its_way(tmp_path: Path) -> None:
    own = read_key(new_keys(tmp_path / "own", "engine").secret)
    (tmp_path / "known").mkdir()
    declare(tmp_path)
    host = hosted(tmp_path, Listening(security=Security.read(own, tmp_path / "known")))
    try:
        with ms.connect(tmp_path) as client:
            assert client.send(TARGET, [row(1, SEEN.decode())]) == 1
        with overheard(host.address.port) as (port, heard):
            at = Address("127.0.0.1", port, 7, None)
            copy = journal(tmp_path / "copy")
            follower = Follower(copy, TARGET, 0, at, keys=own, server=own.public)
            follower.start()
            wait_for(lambda: follower.statistics().end == 1)
            follower.stop()
    finally:
        host.close()
    copied = b"".join(file.read_bytes() for file in copy.rglob("*") if file.is_file())
    assert SEEN in copied
    assert SEEN not in b"".join(heard)


# tokens on their way


@pytest.mark.parametrize(
    ("url", "refused"),
    [
        ("http://10.0.0.5:8340", True),
        ("http://engine.example:8340", True),
        ("http://[fd00::1]:8340", True),
        ("http://127.0.0.1:8340", False),
        ("http://127.9.9.9:8340", False),
        ("http://[::1]:8340", False),
        ("http://localhost:8340", False),
        ("https://10.0.0.5:8340", False),
    ],
)
def test_a_token_travels_encrypted_or_stays_on_its_host(url: str, refused: bool) -> None:
    check_encrypted(url, trusted=True)
    if not refused:
        check_encrypted(url, trusted=False)
        return
    with pytest.raises(OpenNetwork, match="read the token on its way to http") as found:
        check_encrypted(url, trusted=False)
    assert "--open-without-tls" in str(found.value.hint)


class Eavesdropper(BaseHTTPRequestHandler):
    """An engine, as far as it is asked for its inboxes, that keeps the heads of requests."""

    heads: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.heads.append(str(self.headers))
        self.send_response(401)
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Be silent."""


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a host that is not this one, as far as names go."""
    looked_up = socket.getaddrinfo

    def lookup(host: str, *rest: object, **named: object) -> object:
        return looked_up("127.0.0.1" if host == "engine.example" else host, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    Eavesdropper.heads.clear()
    with HTTPServer(("127.0.0.1", 0), Eavesdropper) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://engine.example:{server.server_port}"
        server.shutdown()


def test_commands_and_clients_refuse_to_send_a_token_in_the_clear(
    elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_TOKEN", "a-secret-of-ours")
    for words in (["jobs"], ["status", "f"], ["journal", "ls"], ["send", "f.s"]):
        found = CliRunner().invoke(app, [*words, "--engine", elsewhere])
        assert isinstance(found.exception, OpenNetwork), words
    with pytest.raises(OpenNetwork), ms.connect(elsewhere, timeout=1) as client:
        client.send(TARGET, row(0))
    assert not any("a-secret-of-ours" in head for head in Eavesdropper.heads)


def test_who_trusts_the_network_may_send_it(
    elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_TOKEN", "a-secret-of-ours")
    CliRunner().invoke(app, ["jobs", "--engine", elsewhere, "--open-without-tls"])
    assert any("a-secret-of-ours" in head for head in Eavesdropper.heads)
    assert "MILLSTREAM_OPEN_WITHOUT_TLS" not in os.environ


def test_an_engine_takes_the_certificates_that_verify_others(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_CA", "")
    found = CliRunner().invoke(app, ["engine", "--ca", str(tmp_path / "none.pem")])
    assert isinstance(found.exception, EngineError)
    assert "none.pem" in str(found.exception)
    trust(certificate[0])
    assert os.environ["MILLSTREAM_CA"] == str(certificate[0].resolve())


def test_a_client_verifies_an_engine_that_it_asks_where_its_inboxes_are(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = PeerEngine(tmp_path)
    server = Server(engine, tmp_path, Serving("127.0.0.1", 0, *certificate))
    server.start()
    try:
        with pytest.raises(NoAnswer), ms.connect(server.url, timeout=1) as client:
            client.send(TARGET, row(0))
        monkeypatch.setenv("MILLSTREAM_CA", str(certificate[0]))
        with ms.connect(server.url) as client:
            assert client.send(TARGET, row(0)) == 1
    finally:
        server.close()
        engine.close()
