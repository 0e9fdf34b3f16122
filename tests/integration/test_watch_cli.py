"""`millstream watch` as a process of its own: started, asked, stopped and killed."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

PATTERNS = """
import millstream as ms
key = "sensor"
hot = (
    ms.Pattern().begin("a", "t > 90").followed_by("b", "t > a.t").within("1 hour")
    .emit("sensor, a.t as first, b.t as last")
)
"""


class Process:
    """A watcher's process."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        (folder / "patterns.py").write_text(PATTERNS)
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "millstream",
                "watch",
                "patterns.py",
                "--device",
                "A",
                *arguments,
            ],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        self.said = self.process.stderr.readline()

    @property
    def url(self) -> str:
        assert "status at " in self.said, self.said + self.process.communicate()[1]
        return self.said.rpartition("status at ")[2].strip().removesuffix("/status")

    def send(self, *ts: float) -> None:
        assert self.process.stdin is not None
        for t in ts:
            self.process.stdin.write(json.dumps({"sensor": "s1", "t": t}) + "\n")
        self.process.stdin.flush()

    def found(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def post(self, *ts: float) -> int:
        body = json.dumps([{"sensor": "s1", "t": t} for t in ts])
        return self.asked("POST", "/events", body)[0]

    def asked(self, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def ended(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)


@contextmanager
def watching(folder: Path, *arguments: str) -> Iterator[Process]:
    one = Process(folder, *arguments)
    try:
        yield one
    finally:
        one.kill()


def status(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "millstream", "watch", "status", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_it_ends_with_its_input_and_says_what_it_did(tmp_path: Path) -> None:
    with watching(tmp_path) as one:
        one.send(95, 96)
        assert one.process.stdin is not None
        code, out, err = one.ended()
    assert (code, json.loads(out)["last"]) == (0, 96)
    assert "2 events, 1 complex events, 0 rows put aside" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_after_what_was_found_is_delivered(
    tmp_path: Path, number: signal.Signals
) -> None:
    with watching(tmp_path) as one:
        one.send(95, 96)
        assert one.found()["last"] == 96
        one.process.send_signal(number)
        code, _, err = one.ended()
    assert code == 0
    assert "2 events" in err
    assert not (tmp_path / ".millstream/watch/A/watcher.json").exists()


def test_what_was_acknowledged_is_not_lost_by_kill_9(tmp_path: Path) -> None:
    with watching(tmp_path, "--in", "http://127.0.0.1:0") as one:
        assert one.post(95) == 202
        one.kill()
    with watching(tmp_path, "--in", "http://127.0.0.1:0") as again:
        assert again.post(96) == 202
        assert (found := again.found())["first"] == 95
        assert found["last"] == 96


def test_what_was_found_is_delivered_after_kill_9_with_the_run_as_its_key(tmp_path: Path) -> None:
    seen: queue.Queue[tuple[str, Any]] = queue.Queue()

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.put((self.headers["Idempotency-Key"], body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    hook = f"http://127.0.0.1:{server.server_address[1]}/"
    ways = ("--in", "http://127.0.0.1:0", "--out", hook)
    with watching(tmp_path, *ways) as one:  # the hook does not answer yet
        assert one.post(95, 96) == 202
        one.kill()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with watching(tmp_path, *ways):
            key, body = seen.get(timeout=60)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert (key, body["last"]) == (body["run"], 96)


def test_the_status_of_a_watcher_on_this_host(tmp_path: Path) -> None:
    with watching(tmp_path) as one:
        one.send(95, 96)
        one.found()
        shown, data = status(tmp_path), status(tmp_path, "--device", "A", "--json")
        _, metrics = one.asked("GET", "/metrics")
    assert "hot" in shown.stdout
    assert "stdin" in shown.stdout
    found = json.loads(data.stdout)
    assert (found["device"], found["patterns"][0]["found"]) == ("A", 1)
    assert found["memory_bytes"] < 60_000_000
    assert b'millstream_watch_found_total{pattern="hot"} 1' in metrics
    gone = status(tmp_path)
    assert gone.returncode == 1
    assert "no watcher runs here" in gone.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--in", "fax"), 'no input "fax"'),
        (("--out", "ftp://x"), 'no output "ftp"'),
        (("--schema", "sensor string"), '"t"'),
        (("--http", "0.0.0.0:0"), "there is no token"),
        (("--peers", "nothing.yaml"), "nothing.yaml"),
    ],
)
def test_mistakes_are_reported_in_a_few_words(
    tmp_path: Path, arguments: tuple[str, ...], part: str
) -> None:
    (tmp_path / "patterns.py").write_text(textwrap.dedent(PATTERNS))
    done = subprocess.run(
        [sys.executable, "-m", "millstream", "watch", "patterns.py", *arguments],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ},
    )
    assert done.returncode == 1
    assert part in done.stderr
    assert "Traceback" not in done.stderr
