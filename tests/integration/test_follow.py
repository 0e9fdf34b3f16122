"""Two hosts, one of which follows the other's partition: real processes, a real network, kills on both sides."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from millstream.journal.kinds.files.reader import Reader
from millstream.links.client import connect
from millstream.links.keys import new_keys
from property.test_mirror import compare
from support.links import TARGET, declare, journal, rows, stored, wait_for
from support.namespaces import SecondHost, second_host

TESTS = Path(__file__).parents[1]


class Program:
    """A side of the link that is killed and started again."""

    def __init__(self, *words: str, prefix: tuple[str, ...] = ()) -> None:
        self._command = [*prefix, sys.executable, "-m", "support.follow_peer", *words]
        self.process: subprocess.Popen[str] | None = None
        self.said = ""

    def start(self) -> str:
        """Start it, and return the first that it says."""
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline().strip()
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()
        return first

    def _read(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                self.said = line.strip()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._reader.join()


@pytest.fixture
def far() -> Iterator[SecondHost]:
    with second_host() as host:
        yield host


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    folder = tmp_path / "keys"
    new_keys(folder, "engine")
    new_keys(folder, "producer")
    (folder / "known").mkdir()
    shutil.copy(folder / "producer.pub", folder / "known")
    return folder


def test_kills_on_both_sides_leave_a_copy_that_is_its_original(
    tmp_path: Path, far: SecondHost, keys: Path
) -> None:
    there, here, chance = tmp_path / "there", tmp_path / "here", random.Random(11)
    declare(there)
    owner = Program("host", str(there), far.network, str(keys), prefix=far.prefix)
    address = owner.start()
    assert far.far_ip in address
    follower = Program("follow", str(here), address, str(keys))
    sent = Sending(address, keys)
    sent.start()
    try:
        for side in ("owner", "follower", "both", "owner"):
            follower.kill()
            follower.start()
            time.sleep(chance.random() * 0.6)
            if side != "follower":
                owner.kill()
            if side != "owner":
                follower.kill()
            if side != "follower":
                assert owner.start() == address
        sent.finish()
        follower.kill()
        follower.start()
        wait_for(lambda: json.loads(follower.said or "{}").get("end") == sent.rows, limit_s=240)
    finally:
        follower.kill()
        owner.kill()
    assert sent.error is None
    assert stored(here) == [list(range(sent.rows))]
    compare(journal(there), journal(here))
    assert Reader(journal(here)).partition(0).end == sent.rows


class Sending(threading.Thread):
    """A producer that sends until it is told to stop, whoever is killed meanwhile."""

    def __init__(self, address: str, keys: Path) -> None:
        super().__init__()
        self._address, self._keys = address, keys
        self._enough = threading.Event()
        self.rows = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with connect(
                self._address, key=self._keys / "producer.key", server=self._keys / "engine.pub"
            ) as client:
                while not self._enough.is_set():
                    client.send(TARGET, rows(self.rows, self.rows + 50))
                    self.rows += 50
                    time.sleep(0.002)
        except BaseException as error:
            self.error = error

    def finish(self) -> None:
        self._enough.set()
        self.join(240)
        assert not self.is_alive()
