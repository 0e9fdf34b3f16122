"""A device in a process of its own that is killed again and again: nothing that it acknowledged is lost."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.links.keys import new_keys
from millstream.watch.disk import Store
from millstream.watch.messages import RunId
from millstream.watch.settings import read
from support.links import wait_for
from support.watchers import Member, free_port, member

CHILD = """
import sys
from pathlib import Path
from millstream.watch.disk import Store
from millstream.watch.settings import read
from support.watchers import member
folder = Path(sys.argv[1])
b = member(read(folder / "peers.yaml", "B"), Store(folder / "B", limit=20_000))
print("ready", flush=True)
for line in sys.stdin:
    b.event("a", int(line))
    print(line.strip(), flush=True)
"""
PERIODS = "{ping: 500 ms, resync: 3 s, stash_again: 100 ms, ping_again: 100 ms, resync_again: 100 ms, limit: 1 s}"


class Killed:
    """Device B."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.acknowledged: list[int] = []
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def events(self, first: int, last: int, *, read: int) -> None:
        """Send events, and wait for some acknowledgements only."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        text = "".join(f"{number}\n" for number in range(first, last))
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()
        for _ in range(read):
            self.acknowledged.append(int(self._process.stdout.readline()))

    def kill(self) -> None:
        self._process.kill()
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        rest, _ = self._process.communicate()
        self.acknowledged += [int(line) for line in rest.split(b"\n")[:-1] if line]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in "AB":
        new_keys(tmp_path / "keys", name)
    devices = "\n".join(f'  {name}: {{address: "tcp://127.0.0.1:{free_port()}"}}' for name in "AB")
    (tmp_path / "peers.yaml").write_text(f"devices:\n{devices}\nkeys: keys\nperiods: {PERIODS}\n")
    return tmp_path


@pytest.fixture
def a(folder: Path) -> Iterator[Member]:
    found = member(read(folder / "peers.yaml", "A"), Store(folder / "A", limit=20_000))
    yield found
    found.stop()


def test_nothing_that_a_killed_device_acknowledged_is_lost(folder: Path, a: Member) -> None:
    chance, b = random.Random(4), Killed(folder)
    for round_ in range(5):
        first = round_ * 100
        b.events(first, first + 100, read=chance.randint(1, 60))
        a.event("a", 600 + round_)
        b.kill()
        b.start()
    wanted = {run(number) for number in b.acknowledged} | {run(600 + n) for n in range(5)}
    assert len(wanted) > 30
    wait_for(lambda: wanted <= a.runs().keys())
    a.stop()
    b.kill()  # what B has, it has on its disk, or got from A
    alone = member(read(folder / "peers.yaml", "B"), Store(folder / "B", limit=20_000))
    try:
        assert {run(number) for number in b.acknowledged} <= alone.runs().keys()
    finally:
        alone.stop()


def run(number: int) -> RunId:
    return RunId("abc", (), ("sensor-a", number))
