"""Whatever comes to an inbox's port, it goes on serving; who may not send is told so in time."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from millstream.errors import NotAllowed
from millstream.links import envelope
from millstream.links.client import connect
from millstream.links.frame import MOST_BYTES
from millstream.links.keys import KeyFiles, new_keys
from millstream.links.network import Address
from support.links import TARGET, batch, declare, row, rows, stored, wait_for
from support.links_service import Other
from unit.links.test_envelope import mutated


@pytest.fixture(scope="module")
def child() -> Iterator[Other]:
    child = Other()
    yield child
    child.end()


@pytest.fixture
def other(child: Other, tmp_path: Path) -> Iterator[Other]:
    declare(tmp_path)
    yield child
    child.close()


@pytest.fixture
def address(other: Other, tmp_path: Path) -> Address:
    return Address.parse(other.open(str(tmp_path), without_ipc=True))


def serves(address: Address, tmp_path: Path) -> None:
    with connect(str(address), timeout=90.0) as client:
        before = sum(len(part) for part in stored(tmp_path))
        assert client.send(TARGET, row(before)) == 1
    assert stored(tmp_path) == [list(range(before + 1))]


def dealer(context: zmq.Context[Any], address: Address) -> Any:
    sock = context.socket(zmq.DEALER)
    sock.linger = 2000
    sock.connect(str(address))
    return sock


def test_damaged_frames_are_refused_counted_and_survived(
    address: Address, other: Other, tmp_path: Path
) -> None:
    chance = random.Random(5)
    header = envelope.encode(envelope.Rows(1, TARGET, 0, "hostile", -1, 0, 40, 0))
    body = batch(0, 40).serialize().to_pybytes()
    real = [header, body]
    with zmq.Context() as context, dealer(context, address) as sock:
        for _ in range(400):
            frames = [mutated(one, chance) if chance.random() < 0.7 else one for one in real]
            sock.send_multipart(frames + [chance.randbytes(8)] * chance.randrange(3))
        sock.send_multipart([b"", b""])
        sock.send_multipart([b"MS\x02", b""])
        sock.send_multipart([header] * 100)
        wait_for(lambda: other.refused_frames() > 300)
    serves_after_hostile(address, tmp_path)


def serves_after_hostile(address: Address, tmp_path: Path) -> None:
    with connect(str(address)) as client:
        assert client.send(TARGET, rows(1000, 1010)) == 10
    assert stored(tmp_path)[0][-10:] == list(range(1000, 1010))


def test_programs_that_speak_something_else(address: Address, tmp_path: Path) -> None:
    chance = random.Random(7)
    greetings = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(500),
        b"\xff" + b"\x00" * 8 + b"\x7f\x03" + chance.randbytes(100),
        b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + b"\x00" * 48 + b"\x06\xff" * 50,
        b"\x00",
        b"",
        chance.randbytes(100_000),
    ]
    opened = []
    for greeting in greetings * 3:
        raw = socket.create_connection((address.ip, address.port))
        raw.settimeout(1)
        opened.append(raw)
        try:
            raw.sendall(greeting)
        except OSError:
            continue
    serves(address, tmp_path)
    for raw in opened:
        raw.close()
    serves(address, tmp_path)


def test_a_giant_frame_is_dropped_with_its_connection(
    address: Address, other: Other, tmp_path: Path
) -> None:
    with zmq.Context() as context, dealer(context, address) as sock:
        sock.send_multipart([envelope.encode(envelope.Ask(1, TARGET)), bytes(MOST_BYTES + 1)])
        assert not sock.poll(500)
    assert other.refused_frames() == 0
    serves(address, tmp_path)


def test_ten_thousand_connections_leave_nothing_behind(
    address: Address, other: Other, tmp_path: Path
) -> None:
    serves(address, tmp_path)
    before = other.cpu()[3]
    for _ in range(100):
        opened = [socket.create_connection((address.ip, address.port)) for _ in range(100)]
        for raw in opened:
            raw.close()
    serves(address, tmp_path)
    wait_for(lambda: other.cpu()[3] <= before + 5)


# keys


@pytest.fixture
def engine(tmp_path: Path) -> KeyFiles:
    return new_keys(tmp_path / "keys", "engine")


@pytest.fixture
def till(tmp_path: Path) -> KeyFiles:
    return new_keys(tmp_path / "producers", "till")


@pytest.fixture
def curve(other: Other, tmp_path: Path, engine: KeyFiles, till: KeyFiles) -> str:
    return other.open(
        str(tmp_path), without_ipc=True, keys=str(engine.secret), producers=str(till.public.parent)
    )


def test_the_right_key_opens(curve: str, tmp_path: Path, engine: KeyFiles, till: KeyFiles) -> None:
    with connect(curve, key=till.secret, server=engine.public) as client:
        assert client.send(TARGET, row(0)) == 1
        assert client.statistics()[0].transport == "tcp"
    assert stored(tmp_path) == [[0]]


@pytest.mark.parametrize("case", ["no key", "an unknown key", "another server's key"])
def test_any_other_key_is_told(
    curve: str, tmp_path: Path, engine: KeyFiles, till: KeyFiles, case: str
) -> None:
    stranger = new_keys(tmp_path / "strangers", "stranger")
    keys: dict[str, Any] = {
        "no key": {},
        "an unknown key": {"key": stranger.secret, "server": engine.public},
        "another server's key": {"key": till.secret, "server": stranger.public},
    }[case]
    with connect(curve, **keys) as client:
        for _ in range(2):  # also the second time
            with pytest.raises(NotAllowed, match="does not let us in") as found:
                client.send(TARGET, row(0))
            assert "key" in str(found.value.hint)
    assert stored(tmp_path) == [[]]


def test_a_key_where_none_is_wanted_is_told_in_time(
    address: Address, tmp_path: Path, engine: KeyFiles, till: KeyFiles
) -> None:
    with (
        connect(str(address), key=till.secret, server=engine.public) as client,
        pytest.raises(NotAllowed) as found,
    ):
        client.send(TARGET, row(0))
    assert "key" in str(found.value.hint)


def test_a_stranger_hurts_nobody(
    curve: str, tmp_path: Path, engine: KeyFiles, till: KeyFiles
) -> None:
    stranger = new_keys(tmp_path / "strangers", "stranger")
    with connect(curve, key=till.secret, server=engine.public) as client:
        for n in range(5):
            with (
                connect(curve, key=stranger.secret, server=engine.public) as other,
                pytest.raises(NotAllowed),
            ):
                other.send(TARGET, row(0))
            assert client.send(TARGET, row(n)) == 1
    assert stored(tmp_path) == [list(range(5))]
