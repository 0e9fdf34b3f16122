from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.actions import wire
from millstream.actions.serials import after, before, id_of, nearest
from millstream.actions.wire import ChangeOut, Hello, Message, Ping, UnknownCommand
from millstream.errors import BadBytes, FrameTooLarge
from support.vectors import VECTORS

WRAP = 2**32


def cut(data: bytes, chance: random.Random) -> list[bytes]:
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(8)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@pytest.mark.parametrize("vector", VECTORS["hello"], ids=lambda v: str(v["generation"]))
def test_a_hello(vector):
    who = Hello(vector["node"], vector["generation"])
    assert wire.hello(who).hex() == vector["bytes"]
    arrivals = wire.Arrivals()
    assert arrivals.feed(bytes.fromhex(vector["bytes"])) == []
    assert arrivals.sender == who


@pytest.mark.parametrize("vector", VECTORS["message"], ids=lambda v: str(v["id"]))
def test_a_message(vector):
    payload = bytes.fromhex(vector["payload"])
    assert wire.message(vector["id"], payload).hex() == vector["bytes"]
    assert wire.messages([(vector["id"], payload)]).hex() == vector["bytes"]
    arrivals = wire.Arrivals()
    data = wire.hello(Hello("a_b")) + bytes.fromhex(vector["bytes"])
    assert [m for i in range(len(data)) for m in arrivals.feed(data[i : i + 1])] == [
        Message(vector["id"], payload)
    ]


@pytest.mark.parametrize("vector", VECTORS["ack"], ids=lambda v: str(v["id"]))
def test_an_acknowledgement(vector):
    assert wire.ack(vector["id"]).hex() == vector["bytes"]
    acks = wire.Acks()
    data = bytes.fromhex(vector["bytes"])
    assert [acks.feed(data[i : i + 1]) for i in range(4)] == [[], [], [], [vector["id"]]]


def test_commands_and_their_answers():
    by_name = {v["name"]: v for v in VECTORS["command"]}
    assert wire.ping().hex() == by_name["ping"]["bytes"]
    change = by_name["change_out"]
    assert wire.change_out(change["old"], change["new"]).hex() == change["bytes"]
    answers = [wire.pong(7).hex(), wire.pong(0).hex(), wire.REFUSED.hex()]
    assert answers == by_name["ping"]["answers"]
    assert [wire.DONE.hex(), wire.REFUSED.hex()] == change["answers"]
    assert [wire.UNKNOWN.hex()] == by_name["unknown"]["answers"]


def test_commands_are_read_in_any_pieces():
    change = next(v for v in VECTORS["command"] if v["name"] == "change_out")
    data = wire.ping() + bytes.fromhex(change["bytes"]) + wire.ping()
    for seed in range(20):
        commands = wire.Commands()
        got = [c for piece in cut(data, random.Random(seed)) for c in commands.feed(piece)]
        assert got == [Ping(), ChangeOut(change["old"], change["new"]), Ping()]


def test_nothing_is_read_after_an_unknown_command():
    assert wire.Commands().feed(b"\x01\x07\x01\x01") == [Ping(), UnknownCommand(7)]


def test_an_address_that_is_too_long_is_refused_before_it_is_read():
    with pytest.raises(BadBytes, match="an address of"):
        wire.Commands().feed(b"\x02" + b"\xff" * 8)
    with pytest.raises(BadBytes, match="not text"):
        wire.Commands().feed(b"\x02" + (1).to_bytes(8, "big") + b"\xff")


@pytest.mark.parametrize(
    "name", [b"", b"a b", b"a#", b"a#-1", b"a#01", b"#1", b"a#1#2", b"\xff", b"a" * 1025]
)
def test_a_hello_that_is_none_is_refused(name):
    with pytest.raises(BadBytes):
        wire.Arrivals().feed(len(name).to_bytes(4, "big") + name)


def test_a_message_beyond_the_limit_is_refused_before_it_is_read():
    arrivals = wire.Arrivals(limit=10)
    with pytest.raises(FrameTooLarge):
        arrivals.feed(wire.hello(Hello("a")) + wire.message(1, bytes(11))[:12])


@given(st.lists(st.binary(max_size=30), max_size=20), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_messages_arrive_whole_and_in_order(payloads, chance):
    sent = [Message(i + 1, payload) for i, payload in enumerate(payloads)]
    data = wire.hello(Hello("s_n", 3)) + b"".join(wire.message(m.id, m.payload) for m in sent)
    arrivals = wire.Arrivals()
    assert [m for piece in cut(data, chance) for m in arrivals.feed(piece)] == sent
    assert arrivals.sender == Hello("s_n", 3)


@given(st.binary(max_size=100), st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_rubbish_is_read_as_something_or_refused(data, chance):
    for decoder in (wire.Arrivals(limit=50), wire.Commands(), wire.Acks()):
        try:
            for piece in cut(data, chance):
                decoder.feed(piece)
        except BadBytes:
            pass


@pytest.mark.parametrize("vector", VECTORS["ids"], ids=lambda v: str(v["before"]))
def test_ids_skip_zero(vector):
    assert id_of(after(vector["before"])) == vector["after"]
    assert id_of(after(vector["before"] + 5 * WRAP)) == vector["after"]


@given(st.integers(0, 3 * WRAP), st.integers(-(2**31) + 1, 2**31 - 1))
@settings(max_examples=300, deadline=None)
def test_the_nearest_serial_is_the_one_that_was_meant(known, distance):
    serial = known + distance
    if serial >= 0:
        assert nearest(id_of(serial), known) == serial


def test_order_holds_around_the_wrap():
    serial = WRAP - 3
    seen = []
    for _ in range(6):
        serial = after(serial)
        seen.append(serial)
    assert [before(after(s)) for s in (0, *seen)] == [0, *seen]
    assert [id_of(s) for s in seen] == [WRAP - 2, WRAP - 1, 1, 2, 3, 4]
    for one in seen:
        assert [nearest(id_of(other), one) for other in seen] == seen
