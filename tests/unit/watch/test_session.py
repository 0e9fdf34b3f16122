"""Sessions between devices: who is refused and why, and that hostile bytes change nothing."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import BadFrame
from millstream.watch import session
from millstream.watch.choice import Kind
from millstream.watch.messages import (
    Ack,
    Happened,
    Hello,
    Refused,
    RunId,
    RunRecord,
    Say,
    Welcome,
)
from millstream.watch.pieces import pieces
from millstream.watch.session import (
    Acknowledged,
    Answer,
    Failed,
    Greeted,
    Letter,
    Send,
    Sender,
    Sessions,
)

S = 1_000_000
HELLO = Hello("A", "a1", "digest", 0)
NONE = Refused("")


def say(number: int = 1, *, runs: int = 1, kind: Kind = Kind.SYNC) -> Say:
    events = [Happened("sensor", n, n * 10, {"x": n, "text": "x" * n}) for n in range(runs + 1)]
    records = [
        RunRecord(RunId("p", ("k",), ("sensor", n)), 0, [(0, n), (1, n + 1)], [2])
        for n in range(runs)
    ]
    delivered = [RunId("p", ("k",), ("sensor", n + 1000)) for n in range(runs)]
    return Say(kind, number, True, 77, events, records, delivered)


def sessions() -> Sessions:
    return Sessions("B", "b1", "digest", ["A", "C"])


def sender(*, skew: int | None = None) -> Sender:
    return Sender("B", HELLO, limit=3 * S, skew=skew)


def frame(outcome: object) -> Any:
    assert isinstance(outcome, Send)
    return session.request(outcome.frame)


# receiving


def test_a_known_device_is_welcome_and_its_letters_count_once() -> None:
    b = sessions()
    assert b.hello("A", HELLO, 5) == Welcome("B", "b1", 5)
    assert b.letter("A", Letter("a1", "b1", 1, True, say())) is None
    again = b.letter("A", Letter("a1", "b1", 1, True, say()))
    assert again == Refused("letter 1 came again or late, after 1")
    assert b.letter("A", Letter("a1", "b1", 5, True, say())) is None
    assert b.letter("A", Letter("a1", "b1", 4, True, say())) is not None


@pytest.mark.parametrize(
    ("key", "hello", "reason"),
    [
        (None, HELLO, 'not that of a peer of device "B"'),
        ("D", HELLO, 'not that of a peer of device "B"'),
        ("C", HELLO, 'the key of device "C" is used under the name "A"'),
        ("A", Hello("A", "a1", "other", 0), "watches other patterns: digest there, other here"),
    ],
)
def test_whoever_is_not_known_or_is_another_is_refused(
    key: str | None, hello: Hello, reason: str
) -> None:
    b = sessions()
    found = b.hello(key, hello, 0)
    assert isinstance(found, Refused)
    assert reason in found.reason
    assert b.letter(key, Letter("a1", "b1", 1, True, say())) is not None


def test_a_letter_to_an_earlier_start_is_refused() -> None:
    b = sessions()
    assert "expects a hello" in (b.letter("A", Letter("a1", "b1", 1, True, say())) or NONE).reason
    b.hello("A", HELLO, 0)
    assert "expects a hello" in (b.letter("A", Letter("a1", "b0", 1, True, say())) or NONE).reason


def test_a_start_that_another_one_followed_does_not_come_back() -> None:
    b = sessions()
    b.hello("A", HELLO, 0)
    b.letter("A", Letter("a1", "b1", 9, True, say()))
    b.hello("A", Hello("A", "a2", "digest", 0), 0)
    assert b.letter("A", Letter("a2", "b1", 1, True, say())) is None  # numbers begin again
    assert "has ended" in (b.letter("A", Letter("a1", "b1", 10, True, say())) or NONE).reason
    assert isinstance(b.hello("A", HELLO, 0), Refused)
    assert b.incarnation("A") == "a2"


def test_the_same_hello_again_does_not_let_letters_in_again() -> None:
    b = sessions()
    b.hello("A", HELLO, 0)
    b.letter("A", Letter("a1", "b1", 1, True, say()))
    b.hello("A", HELLO, 0)
    assert b.letter("A", Letter("a1", "b1", 1, True, say())) is not None


# sending


def welcomed(one: Sender, *parts: Say, clock: int = 100) -> Letter:
    """Return the first letter of a message, after hello and welcome."""
    assert frame(one.greet(0, 100)) == Hello("A", "a1", "digest", 100)
    assert not one.greeted
    assert one.answered(session.encode(Welcome("B", "b1", clock)), 0, 100) == Greeted()
    assert one.greeted
    assert one.deadline is None
    letter = frame(one.begin(parts, 0, 100))
    assert isinstance(letter, Letter)
    return letter


def test_a_message_counts_when_it_is_acknowledged() -> None:
    one = sender()
    letter = welcomed(one, say(7))
    assert (letter.sender, letter.receiver, letter.number, letter.last) == ("a1", "b1", 1, True)
    assert letter.say == msgspec.structs.replace(say(7), clock=100)
    ack = Ack(7, False, 100)
    assert one.answered(session.encode(Answer(1, ack)), 5, 105) == Acknowledged(ack)
    assert one.deadline is None
    again = frame(one.begin([say(8)], 10, 110))
    assert again.number == 2  # no second hello


def test_every_piece_waits_for_the_one_before_and_the_last_one_counts() -> None:
    one = sender()
    parts = pieces(say(7, runs=40, kind=Kind.RESYNC), 500)
    assert len(parts) > 3
    letter = welcomed(one, *parts)
    for number in range(1, len(parts)):
        assert (letter.number, letter.last) == (number, False)
        letter = frame(one.answered(session.encode(Answer(number, Ack(7, True, 100))), 0, 100))
    assert letter.last
    ack = Ack(7, False, 100)
    assert one.answered(session.encode(Answer(len(parts), ack)), 0, 100) == Acknowledged(ack)


def test_without_an_answer_in_time_a_message_has_failed_and_a_late_one_is_ignored() -> None:
    one = sender()
    welcomed(one, say(7))
    assert one.overdue(3 * S - 1) is None
    assert one.overdue(3 * S) == Failed(7, "no response within 3 s")
    assert one.answered(session.encode(Answer(1, Ack(7, False))), 4 * S, 0) is None
    assert not one.greeted
    one.greet(5 * S, 0)
    assert one.answered(session.encode(Answer(1, Ack(7, False))), 5 * S, 0) is None
    assert one.overdue(8 * S) == Failed(None, "no response within 3 s")


def test_the_answer_to_another_letter_acknowledges_nothing() -> None:
    one = sender()
    welcomed(one, say(7))
    assert one.answered(session.encode(Answer(2, Ack(7, False))), 0, 0) is None
    found = one.answered(session.encode(Answer(1, Ack(6, False))), 0, 0)
    assert found == Failed(7, "message 7 got the answer to 6")


@pytest.mark.parametrize(
    ("answer", "reason", "refused"),
    [
        (session.encode(Refused("no")), "no", True),
        (session.encode(Welcome("C", "c1", 0)), 'this is device "C", not "B"', True),
        (b"rubbish", "this is not a message of a watcher", False),
        (session.encode(Refused("x" * 5000)), "x" * 300, True),
    ],
)
def test_a_refusal_fails_the_message_with_its_reason(
    answer: bytes, reason: str, refused: bool
) -> None:
    one = sender()
    one.greet(0, 0)
    assert one.answered(answer, 0, 0) == Failed(None, reason, refused)
    if not answer.startswith(session.encode(Welcome("C", "c1", 0))[:12]):
        welcomed(one, say(7))
        assert one.answered(answer, 0, 0) == Failed(7, reason, refused)


def test_a_lost_connection_needs_a_new_hello() -> None:
    one = sender()
    welcomed(one, say(7))
    assert one.lost("gone") == Failed(7, "gone")
    assert one.lost("gone") is None
    assert not one.greeted


# clocks


@pytest.mark.parametrize(
    ("clock", "reason"),
    [
        (100 + 3 * S, "its clock is 3 s ahead of ours, more than 2 s"),
        (100 - 4 * S, "its clock is 4 s behind ours, more than 2 s"),
    ],
)
def test_a_clock_that_is_off_stops_replication(clock: int, reason: str) -> None:
    one = sender(skew=2 * S)
    one.greet(0, 100)
    found = one.answered(session.encode(Welcome("B", "b1", clock)), 0, 100)
    assert found == Failed(None, reason, refused=True)
    # It is asked again, and goes on once it is right.
    assert welcomed(one, say(8), clock=100 + S).say.number == 8


def test_a_clock_that_is_set_meanwhile_stops_replication_too() -> None:
    one = sender(skew=2 * S)
    welcomed(one, say(7))
    found = one.answered(session.encode(Answer(1, Ack(7, False, 100 + 9 * S))), 0, 100)
    assert found == Failed(7, "its clock is 9 s ahead of ours, more than 2 s", refused=True)
    assert not one.greeted


def test_where_nobody_stamps_events_clocks_may_differ() -> None:
    one = sender()
    welcomed(one, say(7), clock=100 + 3600 * S)
    assert one.offset == 3600 * S


def test_a_difference_that_the_way_explains_is_none() -> None:
    one = sender(skew=S)
    one.greet(0, 100)
    found = one.answered(session.encode(Welcome("B", "b1", 100)), 2 * S, 100 + 2 * S)
    assert found == Greeted()
    assert one.offset == 0


# hostile bytes


def test_mutated_messages_are_refused_or_are_messages_and_change_no_session_by_themselves() -> None:
    chance = random.Random(3)
    real = [
        session.encode(one)
        for one in (
            HELLO,
            Letter("a1", "b1", 3, True, say(runs=4)),
            Letter("a1", "b1", 4, False, say()),
        )
    ]
    b, refused = sessions(), 0
    for _ in range(20_000):
        bytes_ = mutated(chance.choice(real), chance)
        try:
            found = session.request(bytes_)
        except BadFrame:
            refused += 1
            continue
        if isinstance(found, Letter):
            assert b.letter("A", found) is not None  # nobody has said hello
    assert refused > 5_000


def mutated(real: bytes, chance: random.Random) -> bytes:
    found = bytearray(real)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(found))
        what = chance.random()
        if what < 0.6:
            found[at] ^= 1 << chance.randrange(8)
        elif what < 0.8:
            del found[at : at + chance.randint(1, 8)]
        else:
            found[at:at] = chance.randbytes(chance.randint(1, 8))
        if not found:
            return b""
    return bytes(found)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(rubbish: bytes) -> None:
    for bytes_ in (rubbish, session.MAGIC + rubbish):
        for read in (session.request, session.reply):
            try:
                read(bytes_)
            except BadFrame:
                continue


@pytest.mark.parametrize("depth", [20, 600, 100_000])
def test_deep_nesting_and_extensions_are_refused(depth: int) -> None:
    deep: bytes = b"\x91" * depth + b"\xc0"
    letter = session.encode(Letter("a1", "b1", 1, True, say()))
    text = msgspec.msgpack.encode("x")
    at = letter.index(text)  # the name of the first column, whose value is one byte
    assert session.request(letter[:at] + text + b"\x91\xc0" + letter[at + 3 :])
    for value in (deep, b"\xc7\x03\x05abc"):
        hostile = letter[:at] + text + value + letter[at + 3 :]
        with pytest.raises(BadFrame):
            session.request(hostile)


# pieces


@given(runs=st.integers(0, 60), limit=st.integers(1, 3000))
def test_pieces_together_say_what_the_message_says(runs: int, limit: int) -> None:
    whole = say(3, runs=runs, kind=Kind.RESYNC)
    parts = pieces(whole, limit)
    resolved = [
        (run.id, [(block, part.events[place]) for block, place in run.history])
        for part in parts
        for run in part.runs
    ]
    assert resolved == [
        (run.id, [(block, whole.events[place]) for block, place in run.history])
        for run in whole.runs
    ]
    assert [one for part in parts for one in part.delivered] == whole.delivered
    assert {part.kind for part in parts[:-1]} <= {Kind.SYNC}
    assert not any(part.reset or part.position for part in parts[:-1])
    assert (parts[-1].kind, parts[-1].reset, parts[-1].position) == (Kind.RESYNC, True, 77)
    assert {part.number for part in parts} == {3}


def test_pieces_are_below_their_limit() -> None:
    parts = pieces(say(runs=200), 10_000)
    sizes = [len(msgspec.msgpack.encode(part)) for part in parts]
    assert max(sizes) < 10_300
    assert len(parts) < 2 * sum(sizes) / 10_000
