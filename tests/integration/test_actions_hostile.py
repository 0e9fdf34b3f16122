"""Somebody who can connect to a runtime or a landing, and means harm: the real upstream goes on."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from millstream.actions import hosted, wire
from millstream.actions.bounds import MOST_NODES, MOST_WAITING
from millstream.actions.handshake import Introduction, secret_file, secret_of
from millstream.actions.settings import RuntimeSettings
from millstream.actions.wire import Hello
from support.actions import sdk_program
from support.hostile_peers import HUGE, flood, greeted, stall
from support.runtimes import Raw, RawDownstream, free_port, wait_until


class Process:
    """A runtime in a process of its own, so that its memory can be measured."""

    def __init__(self, folder: Path, down: RawDownstream, **settings: object) -> None:
        self.at, self.folder = free_port(), folder / "s_e"
        given = RuntimeSettings(
            "s_e",
            sdk_program("echo"),
            self.folder,
            self.at,
            (down.address,),
            **settings,  # type: ignore[arg-type]
        )
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(hosted.command(given), stderr=log)
        wait_until(self._listening)

    def _listening(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        with suppress(OSError):
            Raw(self.at).close()
            return True
        return False

    @property
    def memory(self) -> int:
        return psutil.Process(self._process.pid).memory_info().rss

    @property
    def disk(self) -> int:
        files = [file for file in self.folder.rglob("*") if file.is_file()]
        return sum(file.stat().st_size for file in files) + self.log.stat().st_size

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def down() -> Iterator[RawDownstream]:
    one = RawDownstream()
    yield one
    one.close()


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path, down: RawDownstream) -> Iterator[Start]:
    started: list[Process] = []

    def one(**settings: object) -> Process:
        started.append(Process(tmp_path, down, **settings))
        return started[-1]

    yield one
    for process in started:
        process.close()


def test_a_forged_hello_fences_nobody(start: Start, down: RawDownstream, tmp_path: Path) -> None:
    secret = secret_of(tmp_path)
    runtime = start(secret=secret_file(tmp_path), nodes=("s_up",))
    up = greeted(runtime.at, "s_up#1", secret).send(wire.message(1, b"first"))
    link = down.accept(secret)
    assert link.message() == (1, b"first")
    forged = wire.hello(Hello("s_up", 2**60)) + wire.message(9, b"forged")
    assert Raw(runtime.at).send(forged).closed()
    guess = Introduction("s_up#99", b"a guess that is long enough")
    wrong = Raw(runtime.at).send(guess.hello)
    wrong.read(64)
    assert wrong.send(bytes(32) + wire.message(9, b"forged")).closed()
    up.send(wire.message(2, b"second"))
    assert link.message() == (2, b"second")
    up.close()
    again = greeted(runtime.at, "s_up#1", secret).send(wire.message(3, b"third"))
    assert link.message() == (3, b"third")
    assert greeted(runtime.at, "s_up#2", secret).send(wire.message(1, b"fourth"))
    assert link.message() == (4, b"fourth")
    assert again.closed()


def test_a_flood_of_hellos_costs_neither_disk_nor_the_real_upstream(
    start: Start, down: RawDownstream, tmp_path: Path
) -> None:
    secret = secret_of(tmp_path)
    runtime = start(secret=secret_file(tmp_path))
    before = runtime.memory
    attackers = [
        threading.Thread(target=flood, args=(runtime.at, 300), daemon=True) for _ in range(3)
    ]
    for one in attackers:
        one.start()
    up = greeted(runtime.at, "s_up#1", secret)
    link = down.accept(secret)
    for number in range(1, 51):
        up.send(wire.message(number, b"%d" % number))
        assert link.message() == (number, b"%d" % number)
    for one in attackers:
        one.join(300)
    assert runtime.disk < 1 << 20
    assert runtime.memory - before < 32 << 20


def test_without_a_secret_a_flood_of_hellos_is_bounded_too(
    start: Start, down: RawDownstream
) -> None:
    runtime = start()
    up = greeted(runtime.at, "s_up#1", None).send(wire.message(1, b"first"))
    link = down.accept()
    assert link.message() == (1, b"first")
    flood(runtime.at, MOST_NODES + 100)
    assert runtime.disk < 8 << 20
    up.send(wire.message(2, b"second"))
    while link.message()[1] != b"second":
        pass


def test_connections_that_say_nothing_keep_nobody_out(
    start: Start, down: RawDownstream, tmp_path: Path
) -> None:
    secret = secret_of(tmp_path)
    runtime = start(secret=secret_file(tmp_path))
    silent = [Raw(runtime.at) for _ in range(MOST_WAITING + 50)]
    up = greeted(runtime.at, "s_up#1", secret).send(wire.message(1, b"first"))
    link = down.accept(secret)
    assert link.message() == (1, b"first")
    assert all(one.closed() for one in silent)  # the others after a few seconds
    up.send(wire.message(2, b"second"))
    assert link.message() == (2, b"second")


def test_long_messages_that_never_end_take_bounded_memory(
    start: Start, down: RawDownstream
) -> None:
    runtime = start()
    up = greeted(runtime.at, "s_up#1", None).send(wire.message(1, b"first"))
    link = down.accept()
    assert link.message() == (1, b"first")
    before = runtime.memory
    held = stall(runtime.at, 8)
    assert runtime.memory - before < 300 << 20  # 480 MB and more if each kept what it sent
    up.send(wire.message(2, b"second") + wire.message(3, bytes(HUGE)))
    assert link.message() == (2, b"second")
    assert link.message() == (3, bytes(HUGE))
    for sock in held:
        sock.close()


def test_a_rogue_downstream_gets_nothing(start: Start, tmp_path: Path, down: RawDownstream) -> None:
    secret = secret_of(tmp_path)
    runtime = start(secret=secret_file(tmp_path))
    greeted(runtime.at, "s_up#1", secret).send(wire.message(1, b"precious"))
    for _ in range(2):
        rogue = down.accept()
        rogue.send(bytes(64))
        assert rogue.closed()
    assert down.accept(secret).message() == (1, b"precious")
