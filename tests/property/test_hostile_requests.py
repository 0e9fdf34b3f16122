"""Whatever bytes a peer sends, to inboxes, over HTTP or as a runtime, it is refused or answered, and nothing else happens."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.actions import handshake, wire
from millstream.errors import BadBytes, BadFrame, FrameTooLarge, PeerRefused
from millstream.journal.base import Staged
from millstream.links import envelope, follow
from millstream.links.host import Host
from millstream.links.standing import OPEN, OWN, Peer, Standing
from support.hostile import mutated
from support.links import TARGET, batch, declare, hosted, row
from support.served import EVENTS, Served, serving

#: A fixture that lives as long as the module is meant: what one example does, the next ones see.
SHARED = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], deadline=None
)
FLIPS = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255)), max_size=4)
CUT = st.integers(0, 400) | st.just(1 << 20)


# inboxes

STAGED = envelope.staged_rows([Staged("x", 0, 1, 1, 1, None, None, 1, 0)])
REACHED = follow.CopyReached(0, 0, 0, 0, 0, 0, 0, 0)
REQUESTS: list[envelope.Request] = [
    envelope.Ask(1, TARGET),
    envelope.Ask(1, TARGET, "till", 0, 1 << 24),
    envelope.Rows(1, TARGET, 0, "till", -1, 0, 5, 0),
    envelope.Instruct(1, TARGET, 0, "till", -1, 0, "WATERMARK", 1),
    envelope.PutDeadLetter(1, TARGET, 0, "till", [(1, "no", "{}")]),
    envelope.Stage(1, TARGET, 0, "till", 1, 5, 0),
    envelope.Publish(1, TARGET, 0, "till", 1, STAGED),
    follow.Follow(1, TARGET, 0, REACHED, 0.0),
    follow.Level(1, TARGET, 0, 1, 0),
    follow.Passed(1, TARGET, 0, {}, 0),
]
BODY = batch(0, 5).serialize().to_pybytes()
header = st.builds(mutated, st.sampled_from([*map(envelope.encode, REQUESTS)]), FLIPS, CUT)
bodies = st.lists(
    st.builds(mutated, st.just(BODY), FLIPS, CUT) | st.binary(max_size=60), max_size=3
)


@given(header | st.binary(max_size=80) | st.binary(max_size=80).map(lambda b: envelope.MAGIC + b))
def test_headers_of_links(frame: bytes) -> None:
    for decode in (envelope.decode_request, envelope.decode_answer):
        with suppress(BadFrame):
            decode(frame)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    data = tmp_path_factory.mktemp("hostile")
    declare(data)
    host = hosted(data)
    yield host
    host.close()


@SHARED
@given(header, bodies, st.sampled_from([OPEN, OWN, Peer(Standing.PRODUCER, "till")]))
def test_messages_to_inboxes(host: Host, head: bytes, rest: list[bytes], peer: Peer) -> None:
    answers: list[Any] = []
    assert host._listener is not None
    # Nothing is raised: a message that is none has no answer, and each other one has one.
    host._listener._handle([head, *rest], peer, answers.append)
    assert len(answers) <= 1
    for answer in answers:
        envelope.decode_answer(bytes(answer[0]))


def test_inboxes_still_take_rows(host: Host, tmp_path: Path) -> None:
    del tmp_path
    from millstream.links.client import connect

    with connect(str(host.address)) as client:
        assert client.send(TARGET, row(0)) == 1


# HTTP

BODY_OF_ROWS = b'{"origin": "a", "n": 1, "at": "2026-01-01T12:00:00Z"}\n'
HEAD = (
    b"%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer TOKEN\r\nConnection: close\r\n"
    b"Content-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n%s"
)
PATHS = [
    *(
        b"/",
        b"/jobs",
        b"/jobs/f",
        b"/jobs/f/logs?lines=3",
        b"/jobs/f/journals/s/rows?from=1&limit=2",
    ),
    *(
        b"/audit?limit=1",
        b"/jobs/f/wait?limit=0",
        EVENTS.encode(),
        b"/contents/00",
        b"/openapi.json",
    ),
]
requests = st.builds(
    lambda method, path, body: HEAD % (method, path, len(body), body),
    st.sampled_from([b"GET", b"POST", b"DELETE", b"HEAD"]),
    st.sampled_from(PATHS) | st.binary(max_size=30).map(lambda b: b"/" + b),
    st.just(BODY_OF_ROWS) | st.binary(max_size=60),
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served")) as served:
        served.deploy()
        yield served


def answered(served: Served, request: bytes) -> bytes:
    """Return what a request is answered with; one that is not complete is left."""
    where = served.http.base_url
    with socket.create_connection((where.host, where.port or 0), timeout=10) as sock:
        sock.sendall(request.replace(b"TOKEN", served.server.token.encode()))
        with suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        found = b""
        with suppress(OSError):
            while data := sock.recv(65536):
                found += data
        return found


@SHARED
@given(st.builds(mutated, requests, FLIPS, CUT))
def test_requests_over_http(served: Served, request: bytes) -> None:
    answer = answered(served, request)
    assert answer[:9] in (b"", b"HTTP/1.1 ")
    assert answer[9:12] != b"500", answer


def test_the_engine_still_answers(served: Served) -> None:
    assert served.http.get("/health").json() == {"status": "up"}
    assert served.http.get("/jobs/f").json()["name"] == "f"


# runtimes

SECRET = b"s" * 32
hellos = [
    wire.hello(wire.Hello("scheme_node")),
    wire.hello(wire.Hello("scheme_node", 7)),
    handshake.Introduction("scheme_node#7", SECRET).hello,
]
streams = st.builds(
    lambda first, flips, cut, rest: mutated(first, flips, cut) + rest,
    st.sampled_from(hellos),
    FLIPS,
    CUT,
    st.binary(max_size=80) | st.just(wire.message(1, b"x") * 3),
)


@given(streams | st.binary(max_size=80), st.integers(1, 50), st.booleans())
def test_hellos_of_runtimes(stream: bytes, piece: int, secret: bool) -> None:
    admission = handshake.Admission.of(SECRET if secret else None)
    arrivals, found = wire.Arrivals(1 << 16, admission), list[wire.Message]()
    with suppress(BadBytes, FrameTooLarge, PeerRefused):
        for at in range(0, len(stream), piece):
            found += arrivals.feed(stream[at : at + piece])
    assert arrivals.unfinished <= len(stream)
    assert not found or arrivals.sender is not None
    assert not (secret and found), "nobody has proved anything"


@given(st.binary(max_size=60), st.integers(1, 9))
def test_commands_of_supervisors_and_acknowledgements(stream: bytes, piece: int) -> None:
    commands, acks = wire.Commands(), wire.Acks()
    with suppress(BadBytes):
        for at in range(0, len(stream), piece):
            acks.feed(stream[at : at + piece])
            commands.feed(stream[at : at + piece])
