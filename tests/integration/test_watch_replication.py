"""Devices that speak over real sockets: cut off and healed, refused, killed, with hostile peers."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from millstream.clock import SystemClock
from millstream.errors import InvalidSettings, LinkBroken, StateNotWritten
from millstream.links.keys import new_keys, read_key, read_public
from millstream.patterns.pattern import Pattern
from millstream.watch import session
from millstream.watch.choice import Kind
from millstream.watch.disk import Store
from millstream.watch.messages import Happened, Hello, Refused, RunId, RunRecord, Say, Welcome
from millstream.watch.settings import Limits
from property.test_watch_disk import FullDisk
from support.links import wait_for
from support.watchers import QUICK, Member, Network, S, member, network
from unit.watch.test_session import mutated


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Network]:
    with network(tmp_path) as found:
        yield found


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Network]:
    with network(tmp_path, "ABC") as found:
        yield found


def test_a_run_goes_from_device_to_device_and_each_match_is_published_once(two: Network) -> None:
    a, b = two.start("A"), two.start("B")
    wait_for(two.agree)
    a.event("a", 1)
    wait_for(two.agree)
    b.event("b", 2)
    wait_for(two.agree)
    a.event("c", 3)
    wait_for(lambda: two.agree() and b.known)
    assert [len(a.published), len(b.published), len(b.known)] == [1, 0, 1]
    assert a.published[0].id == b.known[0].id
    assert a.published[0].event == b.known[0].event


def test_devices_that_are_cut_off_catch_up_from_their_stash(tmp_path: Path) -> None:
    with network(tmp_path, periods=replace(QUICK, resync=600 * S)) as two:
        a, b = two.start("A"), two.start("B")
        wait_for(two.agree)
        two.cut("A", "B")
        for number in range(1, 30):
            a.event("a", number)
            b.event("a", 100 + number)
        wait_for(lambda: a.peer("B").reason is not None)
        assert a.peer("B").stash == 29
        assert not a.peer("B").resync
        two.heal("A", "B")
        wait_for(two.agree)
        assert len(a.runs()) == 58
        assert a.peer("B").reason is None


def test_devices_that_are_cut_off_for_long_catch_up_by_resync(two: Network) -> None:
    a, b = two.start("A"), two.start("B")
    wait_for(two.agree)
    two.cut("A", "B")
    a.event("a", 1)
    wait_for(lambda: a.peer("B").away and a.peer("B").resync and b.peer("A").away)
    assert a.peer("B").stash == 0
    b.event("b", 2)
    two.heal("A", "B")
    wait_for(two.agree)
    assert list(b.runs().values()) == [(0, [("sensor-a", 1), ("sensor-b", 2)])]


def test_two_devices_that_are_cut_off_from_each_other_agree_over_the_third(three: Network) -> None:
    members = {name: three.start(name) for name in "ABC"}
    wait_for(three.agree)
    three.cut("A", "C")
    members["A"].event("a", 1)
    members["C"].event("a", 2)
    wait_for(
        lambda: (
            len({str(sorted(member.runs())) for member in members.values()}) == 1
            and len(members["A"].runs()) == 2
        )
    )
    members["C"].event("b", 3)
    members["A"].event("c", 4)
    wait_for(lambda: len(members["C"].known) == 2)
    three.heal("A", "C")
    wait_for(three.agree)
    assert [len(member.published) for member in members.values()] == [2, 0, 0]


def test_a_resync_is_put_together_for_a_peer_that_is_there(two: Network) -> None:
    a = two.start("A")
    a.event("a", 1)
    attempts = set()
    wait_for(lambda: attempts.add(a.device.contacts["B"].attempted_at) or len(attempts) > 4)
    assert a.device._number == 0  # messages so far
    b = two.start("B")
    wait_for(lambda: two.agree() and len(b.runs()) == 1)


def test_a_peer_that_takes_bytes_and_answers_nothing_counts_as_away(two: Network) -> None:
    a = two.start("A")
    b = two.start("B")
    wait_for(two.agree)
    two.proxies["A", "B"].silent = True
    a.event("a", 1)
    wait_for(lambda: a.peer("B").reason == "no response within 1 s")
    assert not b.runs()
    two.proxies["A", "B"].silent = False
    wait_for(two.agree)
    assert len(b.runs()) == 1


def test_a_slow_network_is_no_reason_to_give_up(two: Network) -> None:
    for proxy in two.proxies.values():
        proxy.delay_s = 0.05
    a, b = two.start("A"), two.start("B")
    for number in range(20):
        a.event("a", number)
    wait_for(lambda: two.agree() and len(b.runs()) == 20)


def test_a_large_resync_comes_in_pieces(two: Network) -> None:
    small = Limits(piece=5_000, message=12_000)
    a = two.start("A", limits=small)
    for number in range(500):
        a.event("a", number)
    b = two.start("B", limits=small)
    wait_for(lambda: two.agree() and len(b.runs()) == 500)


def test_a_device_that_crashed_knows_again_what_it_had_acknowledged(two: Network) -> None:
    a, b = two.start("A", stored=True), two.start("B", stored=True)
    wait_for(two.agree)
    a.event("a", 1)
    wait_for(two.agree)
    a.stop()
    b.event("b", 2)
    before = b.device.incarnation
    b.stop()  # both are down: only the disks know
    b = two.start("B", stored=True)
    assert b.device.incarnation != before
    assert list(b.runs().values()) == [(0, [("sensor-a", 1), ("sensor-b", 2)])]
    a = two.start("A", stored=True)
    wait_for(lambda: two.agree() and a.peer("B").heard_s is not None)
    a.event("c", 3)
    assert [one.id.first for one in a.published] == [("sensor-a", 1)]


def test_a_device_without_its_disk_gets_everything_by_reset(two: Network) -> None:
    a, b = two.start("A"), two.start("B")
    a.event("a", 1)
    wait_for(lambda: two.agree() and len(b.runs()) == 1)
    b.stop()
    b = two.start("B")
    wait_for(lambda: two.agree() and len(b.runs()) == 1)


def test_the_match_of_a_device_that_died_before_it_could_publish_is_published(
    two: Network,
) -> None:
    a, b = two.start("A"), two.start("B")
    wait_for(two.agree)
    for number, kind in enumerate("abc"):
        b.event(kind, number)
    b.published.clear()  # it dies before its output has it
    wait_for(lambda: len(a.known) == 1)
    b.stop()
    wait_for(lambda: len(a.published) == 1)
    assert a.published[0].by == "B"


def test_a_match_that_was_delivered_is_not_published_again(two: Network) -> None:
    a, b = two.start("A"), two.start("B")
    wait_for(two.agree)
    for number, kind in enumerate("abc"):
        b.event(kind, number)
    b.delivered()
    wait_for(lambda: two.agree() and len(a.known) == 1)
    b.stop()
    wait_for(lambda: a.peer("B").away)
    a.event("a", 9)  # a turn of its loop
    wait_for(lambda: a.peer("B").reason is not None)
    assert a.published == []


def test_while_the_disk_takes_nothing_nothing_leaves_and_then_all_of_it(
    two: Network, tmp_path: Path
) -> None:
    disk = FullDisk()
    store = Store(tmp_path / "A", limit=100_000, disk=disk)  # type: ignore[arg-type]
    a, b = two.join(member(two.settings("A"), store)), two.start("B")
    wait_for(two.agree)
    disk.full = True
    with pytest.raises(StateNotWritten, match="No space left"):
        a.event("a", 1)
    b.event("a", 2)
    wait_for(lambda: "could not be written" in (b.peer("A").reason or ""))
    assert "No space left" in (a.replicator.status().unwritten or "")
    assert ("sensor-a", 1) not in {run.first for run in b.runs()}
    disk.full = False
    wait_for(lambda: two.agree() and len(b.runs()) == 2)
    assert a.replicator.status().unwritten is None
    a.stop()
    again = two.join(member(two.settings("A"), Store(tmp_path / "A", limit=100_000)))
    assert len(again.runs()) == 2


def test_the_stored_runs_of_other_patterns_are_left_out(
    two: Network, caplog: pytest.LogCaptureFixture
) -> None:
    a = two.start("A", stored=True)
    a.event("a", 1)
    a.stop()
    other = Pattern("abc").begin("a", "kind = 'x'").followed_by("b").within("1 hour")
    a = two.start("A", stored=True, patterns=[other])
    assert not a.runs()
    assert "the patterns have changed" in caplog.text
    a.stop()
    assert not two.start("A", stored=True).runs()


# who is refused


def test_other_patterns_do_not_replicate_and_the_status_says_so(
    two: Network, caplog: pytest.LogCaptureFixture
) -> None:
    other = Pattern("abc").begin("a", "kind = 'x'").followed_by("b").within("1 hour")
    a, b = two.start("A"), two.start("B", patterns=[other])
    a.event("a", 1)
    wait_for(lambda: 'device "B" watches other patterns' in (a.peer("B").reason or ""))
    wait_for(lambda: 'device "A" watches other patterns' in (a.peer("B").refused or (0, ""))[1])
    assert not b.runs()
    (warned,) = [one for one in caplog.records if one.getMessage().startswith("peer B")]
    assert warned.levelname == "WARNING"


def test_a_peer_cannot_fill_a_device_with_runs(
    two: Network, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = two.start("A"), two.start("B", limits=Limits(runs=3))
    for number in range(10):
        a.event("a", number)
    wait_for(lambda: "room for 3" in (a.peer("B").reason or ""))
    wait_for(lambda: "room for 3" in (b.peer("A").refused or (0, ""))[1])
    assert len(b.runs()) <= 3
    b.event("a", 99)
    assert len(b.runs()) <= 4
    wait_for(lambda: "a message of peer A is refused" in caplog.text)


def test_a_device_with_another_key_is_not_let_in(two: Network, tmp_path: Path) -> None:
    b = two.start("B")
    new_keys(tmp_path / "forged", "A")
    settings = two.settings("A")
    (tmp_path / "forged" / "B.pub").write_bytes((tmp_path / "keys" / "B.pub").read_bytes())
    a = two.start("A", keys=tmp_path / "forged", peers=settings.peers)
    wait_for(lambda: a.peer("B").reason is not None)
    a.event("a", 1)
    wait_for(lambda: a.peer("B").away)
    assert not b.runs()
    assert b.peer("A").heard_s is None


def test_a_key_that_is_removed_is_cut_off_and_let_in_when_it_is_back(
    two: Network, tmp_path: Path
) -> None:
    a, b = two.start("A"), two.start("B")
    wait_for(two.agree)
    file = tmp_path / "keys" / "A.pub"
    text = file.read_text()
    file.unlink()
    number = iter(range(1, 1000))

    def refused() -> bool:
        a.event("a", next(number))
        return "not that of a peer" in (a.peer("B").reason or "")

    wait_for(refused)
    assert "not that of a peer" in (b.replicator.status().strangers or (0, ""))[1]
    known = len(b.runs())
    a.event("a", next(number))
    file.write_text(text)
    wait_for(lambda: two.agree() and len(b.runs()) > known)


class Later(SystemClock):
    """A clock that is an hour ahead, until it is set."""

    ahead = 3600 * S

    def now_us(self) -> int:
        return super().now_us() + self.ahead


def test_clocks_that_differ_stop_replication_where_devices_stamp_events(two: Network) -> None:
    clock = Later()
    a = two.start("A", stamps=True)
    b = two.start("B", stamps=True, clock=clock)
    wait_for(lambda: "ahead of ours, more than 1 s" in (a.peer("B").reason or ""))
    wait_for(lambda: "behind ours, more than 1 s" in (b.peer("A").reason or ""))
    assert abs((a.peer("B").offset_s or 0) - 3600) < 1
    a.event("a", 1)
    assert not b.runs()
    clock.ahead = 0
    wait_for(lambda: two.agree() and len(b.runs()) == 1)


def test_clocks_that_differ_are_of_no_importance_where_sensors_stamp_events(two: Network) -> None:
    a, b = two.start("A"), two.start("B", clock=Later())
    a.event("a", 1)
    wait_for(lambda: two.agree() and len(b.runs()) == 1)
    b.event("b", 2)
    a_runs = [[("sensor-a", 1), ("sensor-b", 2)]]
    wait_for(lambda: [history for _, history in a.runs().values()] == a_runs)


def test_a_device_without_a_key_does_not_start(two: Network) -> None:
    with pytest.raises(InvalidSettings, match='device "A" has no key'):
        two.start("A", keys=None)


def test_a_port_that_is_taken_is_an_error(two: Network) -> None:
    two.start("B")
    with pytest.raises(LinkBroken, match="the port is taken"):
        two.start("A", listen=f"tcp://127.0.0.1:{two.ports['B']}")


# hostile peers that have a key


class Speaker:
    """Device A, by hand: it has the key, and sends what it likes."""

    def __init__(self, two: Network) -> None:
        keys = read_key(two.folder / "keys" / "A.key")
        self.context: Any = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.curve_secretkey, self.socket.curve_publickey = keys.secret, keys.public
        self.socket.curve_serverkey = read_public(two.folder / "keys" / "B.pub").public
        self.socket.connect(f"tcp://127.0.0.1:{two.ports['B']}")

    def ask(self, *frames: bytes) -> Any:
        self.socket.send_multipart(frames)
        assert self.socket.poll(10_000), "no answer"
        return session.reply(self.socket.recv())

    def __enter__(self) -> Speaker:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        self.context.term()


def letter(number: int, b: Member, *, kind: str = "a", incarnation: str = "evil") -> session.Letter:
    """Return what device A could send: a run that has begun with one event."""
    event = Happened("sensor-x", number, number * S, {"kind": kind})
    run = RunRecord(RunId("abc", (), ("sensor-x", number)), 0, [(0, 0)], [1])
    say = Say(Kind.SYNC, number, False, number, [event], [run])
    return session.Letter(incarnation, b.device.incarnation, number, True, say)


def test_a_letter_counts_once_and_only_after_a_hello(two: Network) -> None:
    b = two.start("B")
    hello = Hello("A", "evil", b.replicator.digest, 0)
    with Speaker(two) as evil:
        early = evil.ask(session.encode(letter(1, b)))
        assert early == Refused('device "B" has started again: it expects a hello')
        other = evil.ask(session.encode(msgspec.structs.replace(hello, device="C")))
        assert other == Refused('the key of device "A" is used under the name "C"')
        assert isinstance(evil.ask(session.encode(hello)), Welcome)
        assert isinstance(evil.ask(session.encode(letter(5, b))), session.Answer)
        again = evil.ask(session.encode(letter(5, b)))
        assert again == Refused("letter 5 came again or late, after 5")
        assert isinstance(evil.ask(session.encode(letter(4, b))), Refused)
    assert [run.first for run in b.runs()] == [("sensor-x", 5)]
    assert b.peer("A").refused == (4, "letter 4 came again or late, after 5")


def test_whatever_a_hostile_peer_sends_what_is_refused_changes_nothing(three: Network) -> None:
    b, c = three.start("B"), three.start("C")
    c.event("a", 1)
    wait_for(lambda: len(b.runs()) == 1)
    chance, refused = random.Random(11), 0
    with Speaker(three) as evil:
        for frames in ([b""], [b"", b""], [chance.randbytes(1000)], [session.MAGIC] * 3):
            assert isinstance(evil.ask(*frames), Refused)
        for number in range(1, 1500):
            name = f"start {number // 20}"  # a number that was mutated ends a session
            evil.ask(session.encode(Hello("A", name, b.replicator.digest, 0)))
            before = b.runs()
            real = session.encode(letter(number, b, incarnation=name))
            answer = evil.ask(mutated(real, chance))
            if isinstance(answer, Refused):
                refused += 1
                assert b.runs() == before
        assert 500 < refused < 1499
        evil.ask(session.encode(Hello("A", "last", b.replicator.digest, 0)))
        wrong = letter(1, b, kind="z", incarnation="last")  # meets no condition
        assert "meets no condition" in evil.ask(session.encode(wrong)).reason
        evil.socket.send(bytes(Limits().message + 1))  # its connection is cut
    c.event("b", 2)
    known = RunId("abc", (), ("sensor-a", 1))
    wait_for(lambda: b.runs()[known][1] == [("sensor-a", 1), ("sensor-b", 2)])


# start, size, standing still

STARTED = """
import sys, time
from pathlib import Path
from support.watchers import Network
began = time.perf_counter()
two = Network(Path(sys.argv[1]))
a = two.start("A", stored=True)
a.event("a", 1)
heavy = {"pyarrow", "numpy", "pandas", "numba", "pyspark"} & set(sys.modules)
assert not heavy, heavy
"""


def test_a_device_with_peers_loads_neither_arrow_nor_numpy(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    subprocess.run([sys.executable, "-c", STARTED, str(tmp_path)], check=True, env=env, timeout=120)


def test_devices_with_nothing_to_say_stand_still(tmp_path: Path) -> None:
    calm = replace(QUICK, ping=60 * S, resync=120 * S)
    with network(tmp_path, periods=calm) as two:
        turns = {name: turns_of(two.start(name)) for name in "AB"}
        wait_for(two.agree)
        counts = [len(found) for found in turns.values()]
        two.members["A"].event("a", 1)
        wait_for(two.agree)
        wait_for(lambda: two.members["B"].runs())
        # One event costs a handful of turns on each side; a loop that polls has thousands.
        assert all(len(turns[name]) - count < 20 for name, count in zip("AB", counts, strict=True))


def turns_of(member: Member) -> list[float | None]:
    loop = member.replicator._loop
    assert loop is not None
    turn, found = loop.turn, []

    def counted(now: float) -> float | None:
        found.append(turn(now))
        return found[-1]

    loop.turn = counted
    return found
