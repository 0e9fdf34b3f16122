"""Who is let in, without a socket."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.actions import wire
from millstream.actions.handshake import (
    Admission,
    Introduction,
    keep_secret,
    read_secret,
    secret_file,
    secret_of,
)
from millstream.actions.peers import guard
from millstream.actions.wire import Arrivals, Hello
from millstream.errors import BadBytes, InvalidKey, OpenNetwork, PeerRefused

SECRET = b"a secret of 24 character"
OURS = Admission.of(SECRET)


def talk(
    up: Introduction, down: Arrivals, sizes: list[int], messages: bytes = b""
) -> list[wire.Message]:
    """Carry bytes both ways in pieces of these sizes, until both are silent."""
    there, back, found, told = up.hello, b"", [], False
    turn = 0
    while there or back:
        size = sizes[turn % len(sizes)]
        turn += 1
        piece, there = there[:size], there[size:]
        found += down.feed(piece)
        back += down.reply()
        piece, back = back[:size], back[size:]
        there += up.feed(piece)[0]
        if up.over and not told:
            there, told = there + messages, True
    return found


@given(st.lists(st.integers(1, 100), min_size=1, max_size=5), st.booleans())
def test_two_who_have_the_secret_come_together_in_whatever_pieces(sizes, plain):
    up = Introduction("s_n#3", None if plain else SECRET)
    down = Arrivals(admission=Admission() if plain else OURS)
    found = talk(up, down, sizes, wire.message(1, b"x"))
    assert (down.sender, found) == (Hello("s_n", 3), [wire.Message(1, b"x")])


def test_an_upstream_without_the_secret_is_refused():
    with pytest.raises(PeerRefused, match="has no secret"):
        Arrivals(admission=OURS).feed(wire.hello(Hello("s_n", 9)))
    stranger, down = Introduction("s_n#9", b"another secret, long enough"), Arrivals(admission=OURS)
    down.feed(stranger.hello)
    with pytest.raises(PeerRefused, match="another secret"):
        stranger.feed(down.reply())  # and the downstream is no better in its eyes
    with pytest.raises(PeerRefused, match="another secret"):
        down.feed(bytes(32))
    assert down.sender is None


def test_what_was_overheard_lets_nobody_in_again():
    up, down = Introduction("s_n#3", SECRET), Arrivals(admission=OURS)
    down.feed(up.hello)
    answer, _ = up.feed(down.reply())
    down.feed(answer)
    assert down.sender is not None
    again = Arrivals(admission=OURS)
    again.feed(up.hello)
    with pytest.raises(PeerRefused):
        again.feed(answer)


def test_a_proof_of_one_role_is_none_of_the_other_and_none_for_another_name():
    up, down = Introduction("s_n#3", SECRET), Arrivals(admission=OURS)
    down.feed(up.hello)
    question = down.reply()
    with pytest.raises(PeerRefused):
        down.feed(question[32:])  # its own proof, sent back
    renamed = Arrivals(admission=OURS)
    renamed.feed(up.hello.replace(b"s_n#3", b"s_n#9"))
    answer, _ = up.feed(question)
    with pytest.raises(PeerRefused):
        renamed.feed(answer)


def test_only_expected_nodes_are_let_in_and_before_they_cost_anything():
    for secret in (None, SECRET):
        down = Arrivals(admission=Admission.of(secret, ["s_n"]))
        with pytest.raises(PeerRefused, match='"s_other" is not expected'):
            down.feed(Introduction("s_other#1", secret).hello)
    talk(
        Introduction("s_n#1", SECRET),
        down := Arrivals(admission=Admission.of(SECRET, ["s_n"])),
        [9],
    )
    assert down.sender == Hello("s_n", 1)


def test_an_upstream_with_a_secret_is_not_content_with_a_downstream_that_has_none():
    with pytest.raises(PeerRefused, match="this end has none"):
        Arrivals().feed(Introduction("s_n#1", SECRET).hello)
    with pytest.raises(PeerRefused, match="another secret"):
        Introduction("s_n#1", SECRET).feed(wire.ack(7) * 16)


@pytest.mark.parametrize("nonce", ["", "00", "zz" * 32, "00" * 33])
def test_a_nonce_that_is_none_is_refused(nonce):
    name = f"s_n#1 {nonce}".encode()
    with pytest.raises(BadBytes):
        Arrivals(admission=OURS).feed(len(name).to_bytes(4, "big") + name)


def test_a_secret_is_made_once_for_its_owner_alone(tmp_path: Path):
    found: list[bytes] = []
    makers = [
        threading.Thread(target=lambda: found.append(secret_of(tmp_path / "job"))) for _ in range(8)
    ]
    for one in makers:
        one.start()
    for one in makers:
        one.join()
    assert len(set(found)) == 1
    assert len(found[0]) == 64
    file = secret_file(tmp_path / "job")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in file.parent.iterdir()] == [file.name]
    keep_secret(tmp_path / "job", b"one that came from elsewhere")
    assert secret_of(tmp_path / "job") == b"one that came from elsewhere"


def test_a_secret_that_is_none_is_refused(tmp_path: Path):
    file = tmp_path / "secret"
    with pytest.raises(InvalidKey, match="cannot be read"):
        read_secret(file)
    file.write_text("short\n")
    file.chmod(0o600)
    with pytest.raises(InvalidKey, match="holds no secret"):
        read_secret(file)
    file.write_text("long enough to be one\n")
    assert read_secret(file) == b"long enough to be one"
    file.chmod(0o640)
    with pytest.raises(InvalidKey, match="others can read"):
        read_secret(file)


def test_without_a_secret_nobody_listens_where_others_can_reach_it():
    for address in ("10.0.0.5:1", "0.0.0.0:1", "[::]:1", "example.com:1"):
        with pytest.raises(OpenNetwork, match="there is no secret"):
            guard(address, secret=False, open_without_secret=False)
        guard(address, secret=True, open_without_secret=False)
        guard(address, secret=False, open_without_secret=True)
    for address in ("127.0.0.1:1", ":1", "[::1]:1", "localhost:1", "run/service.sock"):
        guard(address, secret=False, open_without_secret=False)
