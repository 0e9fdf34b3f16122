"""A Mosquitto of our own, on a free port of this host."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass
class Mosquitto:
    """A broker that can be killed and started again; its sessions and messages stay on disk."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [program(), "-c", str(self.folder / "mosquitto.conf")],
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        until = time.monotonic() + 30
        while not answers(self.port):
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < until, "Mosquitto does not answer"
            time.sleep(0.02)

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()  # it writes its sessions
        self.process.wait(30)


def program() -> str:
    found = shutil.which("mosquitto", path="/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin:/bin")
    if found is None:
        pytest.skip("cannot here: no Mosquitto (apt-get install mosquitto)")
    return found


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def mosquitto(folder: Path) -> Iterator[Mosquitto]:
    """Run a broker for as long as it is needed; skips the test where there is none."""
    program()
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder.chmod(0o777)  # as root, Mosquitto becomes a user of its own
    (folder / "mosquitto.conf").write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\n"
        "log_type subscribe\nlog_type error\nlog_dest stderr\n"
        f"persistence true\npersistence_location {folder}/\nautosave_interval 1\n"
    )
    broker = Mosquitto(folder, port)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
