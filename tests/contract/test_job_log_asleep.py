"""A driver that sleeps longer than any lease, while another takes over, publishes nothing after."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.s3 import Server

pytestmark = pytest.mark.process

_DRIVER = """
import sys
from pathlib import Path
from millstream.errors import TakenOver
from millstream.joblog import Decided, JobLog
from millstream.storage import storage_at

address, folder, me = sys.argv[1:]
log = JobLog(storage_at(address), renew_every=0.1)
log.claim()
while True:
    known = log.decided("key")
    epoch = known.epoch + 1 if known else 0
    try:
        log.decide("key", Decided(epoch, me))
    except TakenOver:
        sys.exit(3)
    with (Path(folder) / str(epoch)).open("x") as file:
        file.write(me)
"""


def driver(address: str, folder: Path, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", _DRIVER, address, str(folder), name])


def by(folder: Path, name: str) -> int:
    return sum(path.read_text() == name for path in folder.iterdir())


def until(folder: Path, name: str, count: int) -> None:
    deadline = time.monotonic() + 60
    while by(folder, name) < count:
        assert time.monotonic() < deadline, f"{name} does not publish"
        time.sleep(0.02)


def test_a_driver_that_slept_publishes_nothing_when_it_wakes(tmp_path: Path, s3: Server) -> None:
    address = s3.new_address()
    first = driver(address, tmp_path, "first")
    second: subprocess.Popen[bytes] | None = None
    try:
        until(tmp_path, "first", 5)
        os.kill(first.pid, signal.SIGSTOP)
        second = driver(address, tmp_path, "second")
        until(tmp_path, "second", 5)
        before = by(tmp_path, "first")
        os.kill(first.pid, signal.SIGCONT)
        assert first.wait(60) == 3, "it finds the claim of the other, and stops"
        # What it had decided before it fell asleep, it may finish.
        assert by(tmp_path, "first") <= before + 1
        until(tmp_path, "second", by(tmp_path, "second") + 5)
    finally:
        for process in (first, second):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
