from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from millstream.cluster import Cluster
from millstream.engine import tokens
from millstream.engine.http.limits import Held, Rate, RequestLimits
from millstream.engine.http.routes import OPERATIONS
from millstream.engine.http.server import Server, Serving, guard
from millstream.errors import EngineAway, EngineError, InvalidAddress, OpenNetwork, TokenRefused
from support.engine import PeerEngine
from support.links import stored
from support.served import EVENTS, Served, serving

PRIVATE = (
    "/contents/{sha256}/bytes",
    "/audit",
    "/jobs/{job}/journals/{journal}/rows",
    "/jobs/{job}/journals/{journal}/file",
    "/jobs/{job}/patterns",
    "/jobs/{job}/state/{stage}/rows",
    "/jobs/{job}/dead",
    "/jobs/{job}/dead/{letter}",
)
GUARDED = [one for one in OPERATIONS if one.method != "GET" or one.path in PRIVATE]
READS = [operation for operation in OPERATIONS if operation not in GUARDED]


def path_of(path: str) -> str:
    return path.replace("/live", "/live?once=true").format(
        file="nothing.js",
        job="f",
        source="s",
        journal="s",
        stage="counted",
        group="g",
        letter="0" * 8,
        name="echo",
        sha256="0" * 64,
        node="filter",
    )


# tokens


@pytest.mark.parametrize(
    "given", [None, "Bearer", "Bearer wrong", "Basic {}", "{}", "Bearer {}x", "Bearer é"]
)
def test_nothing_changes_without_the_token(served: Served, given: str | None) -> None:
    headers = (
        {}
        if given is None
        else {"Authorization": given.format(served.server.token).encode("latin-1")}
    )
    with httpx.Client(base_url=served.server.url) as stranger:
        for operation in GUARDED:
            answer = stranger.request(operation.method, path_of(operation.path), headers=headers)
            assert (answer.status_code, answer.json()["error"]) == (401, "TokenRefused"), (
                operation.path
            )
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert served.engine.jobs() == []
    assert not served.server.stopped.is_set()


def test_one_may_look_without_the_token_on_the_same_host(served: Served) -> None:
    served.deploy()
    for operation in READS:
        # Of programs there are none, and that may be said.
        unknown = {"{name}", "{sha256}", "{file}"} & set(operation.path.split("/"))
        expected = 404 if unknown else 200
        assert httpx.get(f"{served.server.url}{path_of(operation.path)}").status_code == expected, (
            operation.path
        )


def test_one_may_not_look_without_the_token_from_elsewhere(tmp_path: Path) -> None:
    engine = PeerEngine(tmp_path)
    server = Server(engine, tmp_path, Serving(host="0.0.0.0", port=0, open_without_tls=True))
    server.start()
    try:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        engine.deploy(b"good")
        for operation in READS:
            answer = httpx.get(f"{url}{path_of(operation.path)}")
            expected = 200 if operation.path in ("/", "/docs", "/health", "/ready") else 401
            expected = 404 if operation.path == "/page/{file}" else expected
            assert answer.status_code == expected, operation.path
        assert (
            httpx.get(
                f"{url}/jobs", headers={"Authorization": f"Bearer {server.token}"}
            ).status_code
            == 200
        )
    finally:
        server.close()
        engine.close()


def test_a_page_under_another_name_is_turned_away(served: Served) -> None:
    answer = served.http.get("/jobs", headers={"Host": "evil.example:8340"})
    assert answer.status_code == 421
    assert served.http.get("/jobs", headers={"Host": "localhost:1"}).status_code == 200


def test_a_token_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    made = tokens.token_of(tmp_path / "data")
    assert len(made) >= 40
    assert stat.S_IMODE((tmp_path / "data" / "token").stat().st_mode) == 0o600
    assert tokens.token_of(tmp_path / "data") == made


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    tokens.token_of(tmp_path)
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(TokenRefused, match="others can read"):
        tokens.token_of(tmp_path)


@pytest.mark.parametrize("text", ["", "short", "é" * 40, "with spaces in the middle of it"])
def test_a_file_without_a_token_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    (tmp_path / "token").chmod(0o600)
    with pytest.raises(TokenRefused, match="holds no token"):
        tokens.token_of(tmp_path)


def test_a_token_is_found_only_where_that_very_engine_runs(served: Served) -> None:
    data, url = served.data, served.server.url
    assert tokens.local_token(data, url) == served.server.token
    assert tokens.local_token(data, "http://127.0.0.1:1") is None
    assert tokens.local_token(data / "nowhere", url) is None
    tokens.forget(data)
    assert tokens.local_token(data, url) is None


def test_the_word_of_an_engine_that_is_gone_is_not_taken(tmp_path: Path) -> None:
    tokens.token_of(tmp_path)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    (tmp_path / "engine.json").write_text(f'{{"url": "http://127.0.0.1:1", "pid": {child}}}')
    assert tokens.local_token(tmp_path, "http://127.0.0.1:1") is None


# where it listens


def test_an_address_that_others_reach_is_refused_without_saying_so(tmp_path: Path) -> None:
    with pytest.raises(OpenNetwork, match=r"can reach 0\.0\.0\.0") as caught:
        guard(Serving(host="0.0.0.0"))
    assert "--open-without-tls" in str(caught.value.hint)
    guard(Serving(host="0.0.0.0", open_without_tls=True))
    (tmp_path / "cert").touch()
    guard(Serving(host="10.0.0.1", certificate=tmp_path / "cert"))
    guard(Serving(host="::1"))
    with pytest.raises(InvalidAddress):
        guard(Serving(host="example.org"))


def test_another_address_of_this_host_is_as_good(tmp_path: Path) -> None:
    engine = PeerEngine(tmp_path)
    server = Server(engine, tmp_path, Serving(host="127.0.0.2", port=0))
    server.start()
    try:
        with Cluster([server.url]) as cluster:
            assert cluster.jobs() == []
            cluster.stop()
        assert server.stopped.is_set()
    finally:
        server.close()
        engine.close()


def test_small_answers_are_sent_at_once(served: Served) -> None:
    took = []
    for _ in range(30):
        began = time.monotonic()
        served.http.get("/health")
        took.append(time.monotonic() - began)
    # 40 ms each, if the kernel waited for an acknowledgement that the other side holds back.
    assert sorted(took)[5] < 0.03


def test_a_port_that_is_taken_is_told(served: Served, tmp_path: Path) -> None:
    port = int(served.server.url.rpartition(":")[2])
    with pytest.raises(EngineError, match=f"cannot listen on 127.0.0.1:{port}"):
        Server(served.engine, tmp_path, Serving(port=port))


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for this host, and its private key."""
    if shutil.which("openssl") is None:
        pytest.skip("cannot here: there is no openssl")
    found = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-days", "2", "-subj", "/CN=engine", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [*command, "-out", str(found[0]), "-keyout", str(found[1])], check=True, capture_output=True
    )
    return found


def test_an_engine_is_asked_over_tls(
    certificate: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = PeerEngine(tmp_path)
    server = Server(
        engine, tmp_path, Serving(port=0, certificate=certificate[0], private_key=certificate[1])
    )
    server.start()
    try:
        assert server.url.startswith("https://")
        with (
            Cluster([server.url]) as strangers,
            pytest.raises(EngineAway, match="certificate verify failed"),
        ):
            strangers.jobs()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
        with Cluster([server.url]) as cluster:
            assert cluster.jobs() == []
    finally:
        server.close()
        engine.close()


# sizes, rates, times


def test_a_body_beyond_the_limit_is_refused_however_it_comes(tmp_path: Path) -> None:
    with serving(tmp_path, limits=RequestLimits(body_bytes=1 << 16)) as served:
        kind = {"Content-Type": "application/x-ndjson"}
        line = b'{"origin": "a", "n": 1, "at": "2026-01-01"}\n'
        body = line * 4000
        announced = served.http.post(EVENTS, content=body, headers=kind)
        assert (announced.status_code, announced.json()["error"]) == (413, "RequestRefused")
        assert "65,536 bytes" in announced.json()["message"]
        chunked = served.http.post(EVENTS, content=iter([line] * 4000), headers=kind)
        assert chunked.status_code == 413
        assert stored(served.data) == [[], []]
        assert served.http.post(EVENTS, content=line, headers=kind).json()["taken"] == 1


def test_bodies_that_are_too_much_together_are_put_off(tmp_path: Path) -> None:
    with serving(tmp_path, limits=RequestLimits(held_bytes=100)) as served:
        kind = {"Content-Type": "application/x-ndjson"}
        answer = served.http.post(EVENTS, content=b" " * 101, headers=kind)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        for _ in range(3):
            assert served.http.post(EVENTS, content=b" " * 90, headers=kind).status_code == 200


def test_too_many_requests_of_one_client_are_put_off(tmp_path: Path) -> None:
    with serving(tmp_path, limits=RequestLimits(per_second=0.01, burst=5)) as served:
        found = [served.http.get("/health").status_code for _ in range(7)]
        assert found == [200] * 5 + [429] * 2
        assert int(served.http.get("/health").headers["Retry-After"]) >= 1


def opened(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=120)


def received(connection: socket.socket) -> bytes:
    found = b""
    try:
        while part := connection.recv(4096):
            found += part
    except ConnectionResetError:
        pass
    return found


def sent(connection: socket.socket, some: bytes) -> bool:
    try:
        connection.sendall(some)
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    "said", [b"", b"GET /health HTT", b"GET /health HTTP/1.1\r\nHost: localhost\r\n"]
)
def test_a_connection_that_does_not_say_what_it_wants_is_closed(
    tmp_path: Path, said: bytes
) -> None:
    with (
        serving(tmp_path, limits=RequestLimits(header_seconds=0.3)) as served,
        opened(served.server.url) as slow,
    ):
        began = time.monotonic()
        slow.sendall(said)
        assert received(slow) == b""
        assert 0.2 < time.monotonic() - began < 60


def test_one_that_sends_a_byte_now_and_then_is_closed_too(tmp_path: Path) -> None:
    with (
        serving(tmp_path, limits=RequestLimits(header_seconds=0.5)) as served,
        opened(served.server.url) as slow,
    ):
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert slow.recv(4096).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        while sent(slow, b"G") and time.monotonic() - began < 100:
            time.sleep(0.05)
        assert time.monotonic() - began < 60


def test_a_body_that_comes_too_slowly_is_refused(tmp_path: Path) -> None:
    with (
        serving(tmp_path, limits=RequestLimits(body_seconds=0.3)) as served,
        opened(served.server.url) as slow,
    ):
        head = f"POST {EVENTS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nContent-Type: application/x-ndjson"
        slow.sendall(f"{head}\r\nAuthorization: Bearer {served.server.token}\r\n\r\n{{".encode())
        assert received(slow).startswith(b"HTTP/1.1 408")


def test_a_head_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with (
        serving(tmp_path, limits=RequestLimits(header_bytes=4096)) as served,
        opened(served.server.url) as large,
    ):
        large.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 10_000)
        assert received(large).startswith(b"HTTP/1.1 400")


def test_no_body_is_read_of_one_without_the_token(served: Served) -> None:
    with opened(served.server.url) as stranger:
        stranger.sendall(
            f"POST {EVENTS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n".encode()
        )
        assert stranger.recv(4096).startswith(b"HTTP/1.1 401")


def test_a_rate_is_refilled_with_time_and_never_beyond_its_burst() -> None:
    rate = Rate(2.0, 3)
    assert [rate.pause("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert rate.pause("b", 0.0) == 0.0
    assert rate.pause("a", 0.5) == 0.0
    assert [rate.pause("a", 100.0) > 0 for _ in range(4)] == [False, False, False, True]


def test_held_bytes_are_counted_up_and_down() -> None:
    held = Held(10)
    assert held.add(6)
    assert not held.add(5)
    held.release(6)
    assert held.add(10)
