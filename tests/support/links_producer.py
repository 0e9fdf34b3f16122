"""Producers as programs of their own: they say what was acknowledged, and may be killed at any moment."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

TESTS = str(Path(__file__).parents[1])
SPAN = 1_000_000
"""The numbers of producer k begin at k * SPAN."""


class Producer:
    """A program that sends rows until it is told to stop, and goes on where it was if it was killed."""

    def __init__(self, where: str, number: int, *, overlap: int = 0) -> None:
        self.where, self.number = where, number
        self.acknowledged = 0
        self.start(overlap=overlap)

    def start(self, *, overlap: int = 0) -> None:
        begin = max(0, self.acknowledged - overlap)
        command = [
            sys.executable,
            "-m",
            "support.links_producer",
            "flow",
            self.where,
            str(self.number),
            str(begin),
        ]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": TESTS},
        )
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), daemon=True
        )
        self._reader.start()

    def _read(self, told: Any) -> None:
        for line in told:
            if line.endswith(b"\n"):  # one that was cut says less than it meant
                self.acknowledged = max(self.acknowledged, int(line))

    def kill(self) -> None:
        self._process.kill()
        if self._process.returncode is None:
            self._end()

    def stop(self) -> int:
        """Let it send what it has, and return how many rows are acknowledged in all."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._end()
        assert self._process.returncode == 0
        return self.acknowledged

    def _end(self) -> None:
        assert self._process.wait(240) is not None
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def flow(where: str, number: str, begin: str) -> None:
    """Send batches of ten rows, some of them in flight, until stdin is closed."""
    from millstream.links.client import connect
    from support.links import row

    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    first, base, waiting = int(begin), int(number) * SPAN, []
    with connect(where, sender=f"producer {number}", timeout=200) as client:
        while waiting or not stop.is_set():
            if not stop.is_set():
                given = [{**row(base + n), "origin": f"k{n % 7}"} for n in range(first, first + 10)]
                first += 10
                waiting.append(
                    (first, client.send_nowait("f.s", given, numbers=range(first - 10, first)))
                )
            if stop.is_set() or len(waiting) > 30:
                waiting[0][1].result(200)
            while waiting and waiting[0][1].done():
                told, future = waiting.pop(0)
                future.result()
                print(told, flush=True)
            stop.wait(0.003)


def crowd(where: str, number: str, clients: str) -> None:
    """Connect many clients, then send ten rows from each at once."""
    from millstream.links.client import connect
    from support.links import row

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 16384)), hard))
    base = int(number) * SPAN
    opened = [connect(where, timeout=200) for _ in range(int(clients))]
    print("ready", flush=True)
    sys.stdin.readline()
    futures = [
        client.send_nowait("f.s", [row(base + 10 * k + n) for n in range(10)])
        for k, client in enumerate(opened)
    ]
    for future in futures:
        future.result(200)
    for client in opened:
        client.close()
    print("done", flush=True)


def idle(where: str) -> None:
    """Connect, send a row, and do nothing; tell the CPU used when asked."""
    from millstream.links.client import connect
    from support.links import cpu, row

    with connect(where) as client:
        client.send("f.s", row(0))
        print("ready", flush=True)
        for _ in sys.stdin:
            print(*cpu(), flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
