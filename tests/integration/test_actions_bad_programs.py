"""Runtimes whose program, or whose network, does what it should not; what is good comes through all the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from millstream.actions import wire
from millstream.actions.program import Limits
from millstream.actions.wire import Hello
from millstream.journal.kinds.files.dead import dead_counts
from support.actions import python, running, sdk_program
from support.runtimes import Hosted, Raw, RawDownstream, free_port, wait_until

Host = Callable[..., Hosted]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    hosted: list[Hosted] = []

    def start(name: str, program: object, **settings: object) -> Hosted:
        hosted.append(Hosted(name, program, tmp_path / name, **settings))  # type: ignore[arg-type]
        return hosted[-1]

    yield start
    for one in hosted:
        one.stop()


@pytest.fixture
def down() -> Iterator[RawDownstream]:
    one = RawDownstream()
    yield one
    one.close()


# What a program does when it is given "bad", and whether that fails the message.
BAD = {
    "floods its output without reading": (
        "while True: os.write(1, b'\\0\\0\\0\\1x' * 10_000)",
        True,
    ),
    "writes half a frame, and ends": ("os.write(1, b'\\0\\0\\0\\4ab'); os._exit(0)", True),
    "writes half a frame, and waits": ("os.write(1, b'\\0\\0\\0\\4ab'); time.sleep(600)", True),
    "writes text": ("os.write(1, b'hello, world'); time.sleep(600)", True),
    "answers too often": (
        "action.write_message(m); action.write_message(m); action.flush(); time.sleep(600)",
        True,
    ),
    "hangs, and ignores SIGTERM": (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
        True,
    ),
    "closes its output": ("os.close(1); time.sleep(600)", True),
    "writes 100 MB to its log": (
        "[os.write(2, b'y' * 99_999 + b'\\n') for _ in range(1_000)]; action.write_message(m)",
        False,
    ),
}


#: Those of which only the clock tells that they are bad.
SLOW = {"writes half a frame, and waits", "hangs, and ignores SIGTERM"}


@pytest.mark.parametrize(
    "what", [pytest.param(one, marks=pytest.mark.soak if one in SLOW else ()) for one in BAD]
)
def test_a_bad_program_harms_one_message(
    host: Host, down: RawDownstream, tmp_path: Path, what: str
) -> None:
    does, fails = BAD[what]
    program = python(
        tmp_path,
        f"""
        import signal
        open("started", "w").close()
        while (m := action.read_message()) is not None:
            if m == b"bad":
                {does}
            else:
                action.write_message(m)
        """,
    )
    port = free_port()
    # Time for a program to start where much else goes on.
    limit_s = 8.0 if what in SLOW else 100.0
    one = host("s_b", program, listens=port, outs=(down.address,), attempts=2, time_limit_s=limit_s)
    memory = psutil.Process().memory_info().rss
    up = Raw(port).send(wire.hello(Hello("s_up", 1)))
    # Answers are told apart by their order alone: one too much can be noticed when no other is
    # missing.
    given = (
        [b"1", b"2", b"3", b"4", b"bad"] if "often" in what else [b"1", b"2", b"bad", b"3", b"4"]
    )
    up.send(b"".join(wire.message(number, m) for number, m in enumerate(given, 1)))
    link = down.accept()
    link.sock.settimeout(120)
    good = [m for m in given if not fails or m != b"bad"]
    assert link.messages(len(good)) == list(enumerate(good, 1))
    link.ack(len(good))
    up.sock.settimeout(120)
    while up.read(4) != wire.ack(5):
        pass
    assert sum(dead_counts(tmp_path / "s_b").values()) == int(fails)
    assert psutil.Process().memory_info().rss - memory < 128 << 20
    one.stop()
    assert list((tmp_path / "s_b").rglob("started"))
    assert not running(program.argv[2])


@pytest.mark.parametrize("seed", range(3))
def test_rubbish_at_all_its_doors_does_no_harm(
    host: Host, down: RawDownstream, tmp_path: Path, seed: int
) -> None:
    chance, port, service = random.Random(seed), free_port(), tmp_path / "service.sock"
    program = sdk_program("echo")
    host("s_e", program, listens=port, outs=(down.address,), service=str(service))
    up = Raw(port).send(wire.hello(Hello("s_up", 1)) + wire.message(1, b"x"))
    link = down.accept()
    assert link.message() == (1, b"x")
    known = [
        wire.hello(Hello("s_up", 1)),
        wire.hello(Hello("s_other", 2)),
        wire.message(2, b"y"),
        wire.ack(7),
        b"\1",
        b"\2" + (3).to_bytes(8, "big") + b"a:1" + (1 << 40).to_bytes(8, "big"),
    ]
    for _ in range(60):
        data = bytearray(
            b"".join(chance.choices(known, k=chance.randint(1, 3)))[: chance.randint(1, 40)]
        )
        for _ in range(chance.randint(0, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        # What it says by itself may be a sender's hello: never in the name of the one that we count
        # on.
        if b"s_up" not in data:
            with suppress(OSError):
                Raw(chance.choice([port, service])).send(bytes(data)).close()
    up.send(wire.message(2, b"last"))
    while link.message()[1] != b"last":
        pass
    ping = Raw(service).send(b"\1")
    ping.sock.settimeout(60)
    assert ping.read(1) == b"\0"


def test_the_disk_is_free_again_when_all_is_taken(
    host: Host, down: RawDownstream, tmp_path: Path
) -> None:
    port, size = free_port(), 100_000
    host("s_e", sdk_program("echo"), listens=port, outs=(down.address,))
    up = Raw(port).send(wire.hello(Hello("s_up", 1)))
    link = down.accept()
    for begin in range(1, 301, 50):
        up.send(b"".join(wire.message(number, bytes(size)) for number in range(begin, begin + 50)))
        assert [number for number, _ in link.messages(50)] == list(range(begin, begin + 50))
    assert used(tmp_path / "s_e") > 300 * size
    link.ack(300)
    wait_until(lambda: used(tmp_path / "s_e") < 2 << 20, 120.0)


def used(folder: Path) -> int:
    found = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):
            found += file.stat().st_blocks * 512 if file.is_file() else 0
    return found


def test_a_program_that_wants_too_much_is_ended_and_the_rest_goes_on(
    host: Host, down: RawDownstream, tmp_path: Path
) -> None:
    program = python(
        tmp_path,
        """
        while (m := action.read_message()) is not None:
            action.write_message(bytes(1 << 40) if m == b"bad" else m)
        """,
    )
    port = free_port()
    limited = type(program)(program.argv, limits=Limits(memory_bytes=1 << 30))
    host("s_m", limited, listens=port, outs=(down.address,), attempts=2)
    up = Raw(port).send(wire.hello(Hello("s_up", 1)))
    up.send(b"".join(wire.message(number, m) for number, m in enumerate([b"1", b"bad", b"2"], 1)))
    link = down.accept()
    link.sock.settimeout(120)
    assert link.messages(2) == [(1, b"1"), (2, b"2")]
    wait_until(lambda: sum(dead_counts(tmp_path / "s_m").values()) == 1, 120.0)
