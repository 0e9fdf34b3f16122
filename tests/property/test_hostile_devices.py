"""Whatever bytes a device with a valid key sends, they are merged or refused, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import BadFrame, DeviceRefused, WatchError
from millstream.patterns.edge import EdgePattern
from millstream.patterns.pattern import Pattern
from millstream.watch import session
from millstream.watch.choice import Kind
from millstream.watch.device import Device, Sharing
from millstream.watch.messages import Ack, Hello, Refused, RunId, Say, Welcome
from millstream.watch.replicator import Replicator, Stored
from millstream.watch.session import MAGIC, Answer, Letter
from millstream.watch.settings import Peer, Settings
from support.hostile import mutated

SOUND = (
    Pattern("sound")
    .begin("a", "t > 0")
    .followed_by("b", "t > a.t")
    .one_or_more()
    .followed_by("c", "t > 90")
    .within("1 hour")
)
UNSOUND = Pattern("unsound").begin("a", "t > 0").not_followed_by("n", "t < 0").within("1 hour")
SETTINGS = Settings("B", "tcp://127.0.0.1:1", ("A", "B"), (Peer("A", "tcp://127.0.0.1:2"),))
FLIPS = st.lists(st.tuples(st.integers(0, 600), st.integers(1, 255)), max_size=4)
CUT = st.integers(0, 600) | st.just(1 << 20)


def device(name: str) -> Device:
    patterns = [EdgePattern.of(one, schema=None, time="at", key=["s"]) for one in (SOUND, UNSOUND)]
    peers = ["B" if name == "A" else "A"]
    return Device(patterns, name, f"{name}1", peers, Sharing(across="seed"))


def said() -> session.Letter:
    """A letter with runs that are live, halted and complete."""
    one = device("A")
    for number, t in enumerate((1, 5, -1, 7, 95)):
        one.event(("s", number), number * 1_000_000, {"s": "x", "t": t})
    one.delivered(next(run.id for run in one.matchers["sound"] if run.completed))
    ((_, say),) = one.due(0)
    return Letter("A1", "B1", 1, True, say)


LETTER = said()
REQUESTS = [session.encode(LETTER), session.encode(Hello("A", "A1", "0f", 5))]
REPLIES = [
    session.encode(one)
    for one in (Welcome("B", "B1", 6), Answer(4, Ack(9, False, 7)), Refused("no"))
]
garbage = st.binary(max_size=80) | st.binary(max_size=80).map(lambda some: MAGIC + some)
frames = st.builds(mutated, st.sampled_from([*REQUESTS, *REPLIES]), FLIPS, CUT) | garbage


@given(frames)
def test_messages_between_devices(frame: bytes) -> None:
    for decode in (session.request, session.reply):
        with suppress(BadFrame):
            decode(frame)


ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(None, True, -1, 0, 1, 2, 7, 1 << 61, 1 << 62, (1 << 63) - 1, -(1 << 62), 0.5),
        *(float("nan"), "", "x", "s", "sound", "unsound", b"x", [], {}, ["x"], {"a": []}),
        *([[]] * 3, {"t": 1, "s": "y"}, ["s", 1], "9" * 300),
    ]
)


def replaced(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    """Return a message in which what is at a path is something else."""
    if not path:
        return odd
    found = dict(value) if isinstance(value, dict) else list(value)
    with suppress(LookupError, TypeError):  # another change was there before
        found[path[0]] = replaced(found[path[0]], path[1:], odd)
    return found


def paths(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths to all that is in a message."""
    yield here
    if isinstance(value, list | dict):
        for name in value if isinstance(value, dict) else range(len(value)):
            yield from paths(value[name], (*here, name))


PLAIN = msgspec.msgpack.decode(session.encode(LETTER)[len(MAGIC) :])
PATHS = list(paths(PLAIN[5]))[1:]
changes = st.lists(st.tuples(st.sampled_from(PATHS), ODD), min_size=1, max_size=3)


def letters(changes: list[tuple[tuple[Any, ...], Any]]) -> bytes:
    found = PLAIN
    for path, odd in changes:
        found = [*found[:5], replaced(found[5], path, odd)]
    return MAGIC + msgspec.msgpack.encode(found)


@given(st.lists(st.builds(letters, changes) | frames, min_size=1, max_size=3))
def test_what_a_device_merges_leaves_it_sound(frames: list[bytes]) -> None:
    one = device("B")
    replicator = Replicator(one, SETTINGS)
    for frame in frames:
        with suppress(BadFrame, WatchError):
            request = session.request(frame)
            if isinstance(request, Letter):
                replicator._merge("A", request.say)
    # It still matches, speaks to its peers, and knows the same after a restart.
    for number, t in enumerate((1, 5, 95)):
        one.event(("own", number), number * 1_000_000, {"s": "own", "t": t})
    assert one.matchers["sound"].live
    assert [peer for peer, _ in one.due(0)] == ["A"]
    stored = msgspec.msgpack.encode(Stored("", one.snapshot()))
    again = device("B")
    again.restore(msgspec.msgpack.decode(stored, type=Stored).state)
    assert {run.id for run in again.matchers["sound"]} == {run.id for run in one.matchers["sound"]}
    one.advance(1 << 60)


def test_the_letter_itself_is_merged() -> None:
    _, found = device("B").receive("A", LETTER.say, 0)
    assert [complete.id.pattern for complete in found] == ["sound"] * 3


@pytest.mark.parametrize("key", [([],), ({"a": 1},), (float("nan"),), (), ("x", "y")])
def test_a_run_whose_key_cannot_be_one_is_refused(key: Any) -> None:
    run = LETTER.say.runs[0]
    odd = msgspec.structs.replace(run, id=run.id._replace(key=key))
    for say in (Say(Kind.SYNC, 1, False, 1, LETTER.say.events, [odd]), mark(odd.id)):
        one = device("B")
        with pytest.raises(DeviceRefused, match="has the key"):
            one.receive("A", say, 0)
        assert not list(one.matchers["sound"])


def mark(run_id: RunId) -> Say:
    return Say(Kind.SYNC, 1, False, 1, delivered=[run_id])


@pytest.mark.parametrize("at", [1 << 61, -(1 << 61)])
def test_a_time_that_no_datetime_has_is_refused(at: int) -> None:
    runs = [msgspec.structs.replace(run, at=at) for run in LETTER.say.runs]
    say = msgspec.structs.replace(LETTER.say, runs=runs)
    with pytest.raises(BadFrame, match="cannot be read"):
        session.request(session.encode(msgspec.structs.replace(LETTER, say=say)))
