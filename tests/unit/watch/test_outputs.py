"""Where complex events go: real programs, real HTTP servers, real pipes."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import ActionMissing, InvalidOption, OutputAway
from millstream.watch import kinds
from millstream.watch.aside import Aside
from millstream.watch.complex_event import ComplexEvent, encoded, run_text
from millstream.watch.delivery import Delivery
from millstream.watch.outbox import Entry, Outbox
from millstream.watch.outputs.stdout import StdoutOutput
from millstream.watch.outputs.webhook import WebhookOutput


def entry(number: int) -> Entry:
    row = {"run": f"run{number}", "pattern": "hot", "device": "A", "n": number}
    return Entry(number, "A@1", f"run{number}", "hot", number, encoded(row))


def made(address: str, tmp_path: Path) -> Any:
    return kinds.make(
        "outputs",
        address,
        device="A",
        data=tmp_path,
        aside=lambda name: Aside(tmp_path / "aside", name),
    )


def aside(tmp_path: Path) -> list[dict[str, Any]]:
    files = sorted((tmp_path / "aside").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_stdout_gets_a_line_of_json_for_each() -> None:
    written = io.StringIO()
    StdoutOutput(written).deliver([entry(1), entry(2)])
    lines = written.getvalue().splitlines()
    assert [json.loads(line)["run"] for line in lines] == ["run1", "run2"]


def test_a_run_has_the_same_text_everywhere_and_another_run_has_another() -> None:
    first = ("hot", ("s1",), ("A", 1), ())
    assert run_text(first) == run_text(("hot", ("s1",), ("A", 1), ()))
    others = [("hot", ("s1",), ("A", 2), ()), ("hot", ("s1", "A"), ("1", 1), ())]
    assert len({run_text(one) for one in (first, *others)}) == 3


def test_times_and_numbers_that_json_lacks_are_texts() -> None:
    from datetime import UTC, datetime

    row = {"at": datetime(2026, 1, 1, tzinfo=UTC), "x": float("nan"), "list": [float("inf")]}
    assert json.loads(encoded(row)) == {
        "at": "2026-01-01T00:00:00+00:00",
        "x": "NaN",
        "list": ["Infinity"],
    }


@pytest.mark.parametrize(
    ("address", "part"),
    [
        ("fax", 'no output "fax"'),
        ("stdot", 'no output "stdot"'),
        ("program:", "no program"),
        ("inbox:nothing", "cannot send"),
        ("mqtt://broker", "names no topic"),
        ("webhook:ftp://x", "cannot be at"),
        ("https://user:word@host/x", "password in its URL"),
        ("http://8.8.8.8/x", "not encrypted"),
    ],
)
def test_a_wrong_address_is_refused_with_a_hint(address: str, part: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=part) as caught:
        made(address, tmp_path)
    assert caught.value.hint


def test_what_is_put_aside_does_not_fill_the_disk(tmp_path: Path) -> None:
    one = Aside(tmp_path / "aside", "rejected", most_bytes=1000)
    for _ in range(100):
        one.put("wrong", b"x" * 100)
    assert one.count == 100
    assert one.path is not None
    assert 1000 <= one.path.stat().st_size < 1500


# webhooks


class Hook(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server: Any = self.server
        server.seen.append((self.headers["Idempotency-Key"], json.loads(body)))
        status = server.answers.pop(0) if server.answers else 204
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "7")
        if status == 302:
            self.send_header("Location", "http://169.254.169.254/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def hook(*answers: int) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    server.seen, server.answers = [], list(answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def url(server: Any) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}/found?to=us"


def test_a_webhook_gets_each_event_with_its_run_as_the_idempotency_key(tmp_path: Path) -> None:
    with hook() as server:
        output = made(url(server), tmp_path)
        output.deliver([entry(1), entry(2)])
        output.close()
    assert [key for key, _ in server.seen] == ["run1", "run2"]
    assert server.seen[0][1]["n"] == 1


@pytest.mark.parametrize("status", [500, 503, 408, 429])
def test_a_webhook_that_is_busy_is_asked_again_with_the_same_key(
    status: int, tmp_path: Path
) -> None:
    with hook(status) as server:
        output = made(url(server), tmp_path)
        with pytest.raises(OutputAway, match=str(status)) as caught:
            output.deliver([entry(1)])
        output.deliver([entry(1)])
        output.close()
    assert [key for key, _ in server.seen] == ["run1", "run1"]
    assert caught.value.retry_after == (7.0 if status == 429 else None)


@pytest.mark.parametrize("status", [400, 404, 302])
def test_what_a_webhook_refuses_is_put_aside_and_redirects_are_not_followed(
    status: int, tmp_path: Path
) -> None:
    with hook(status) as server:
        output = made(url(server), tmp_path)
        output.deliver([entry(1), entry(2)])
        output.close()
    assert [key for key, _ in server.seen] == ["run1", "run2"]
    (refused,) = aside(tmp_path)
    assert (refused["run"], json.loads(refused["record"])["n"]) == ("run1", 1)
    assert str(status) in refused["reason"]


def test_a_webhook_that_is_not_there_is_away(tmp_path: Path) -> None:
    with hook() as server:
        gone = url(server)
    output = WebhookOutput(gone, Aside(None, "x"), timeout=1)
    with pytest.raises(OutputAway, match="cannot be reached"):
        output.deliver([entry(1)])


def test_a_webhook_shows_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_SECRET_HOOK", "s3cret")
    seen: list[str] = []

    class Asked(Hook):
        def do_POST(self) -> None:
            seen.append(self.headers["Authorization"])
            super().do_POST()

    with hook() as server:
        server.RequestHandlerClass = Asked
        output = made(url(server) + "#token=hook", tmp_path)
        output.deliver([entry(1)])
        output.close()
    assert seen == ["Bearer s3cret"]
    assert "s3cret" not in output.name


# programs

ECHO = """\
#!{python} -S
import sys
def read(n):
    data = sys.stdin.buffer.read(n)
    if len(data) < n: sys.exit()
    return data
while True:
    payload = read(int.from_bytes(read(4), "big"))
    {action}
    sys.stdout.buffer.write((0).to_bytes(4, "big"))
    sys.stdout.buffer.flush()
"""


def program(tmp_path: Path, action: str) -> str:
    file = tmp_path / "alarm"
    file.write_text(ECHO.format(python=sys.executable, action=action))
    file.chmod(0o755)
    return f"program:{file}"


@pytest.mark.process
def test_a_program_gets_each_event_as_a_frame(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    output = made(program(tmp_path, f'open("{seen}", "ab").write(payload + b"\\n")'), tmp_path)
    output.deliver([entry(1), entry(2)])
    output.close()
    assert [json.loads(line)["run"] for line in seen.read_text().splitlines()] == ["run1", "run2"]


@pytest.mark.process
def test_an_event_that_a_program_dies_of_is_put_aside_and_the_next_is_delivered(
    tmp_path: Path,
) -> None:
    seen = tmp_path / "seen"
    action = f"""open("{seen}", "ab").write(payload + b"\\n")
    if b"run1" in payload: sys.exit(3)"""
    output = made(program(tmp_path, action), tmp_path)
    output.deliver([entry(1), entry(2)])
    output.close()
    runs = [json.loads(line)["run"] for line in seen.read_text().splitlines()]
    assert runs == ["run1", "run1", "run1", "run2"]
    (refused,) = aside(tmp_path)
    assert refused["run"] == "run1"
    assert "code 3" in refused["reason"]


def test_a_program_that_is_not_there_is_named_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ActionMissing, match="nowhere"):
        made(f"program:{tmp_path}/nowhere", tmp_path)


# deliveries


class Flaky:
    """Fails some times, then takes what it is given."""

    name = "flaky"

    def __init__(self, failures: int) -> None:
        self.failures, self.taken, self.done = failures, [], threading.Event()

    def deliver(self, entries: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise OutputAway("not now", retry_after=0.0)
        self.taken += [one.run for one in entries]
        if len(self.taken) >= 2:
            self.done.set()

    def close(self) -> None:
        pass


def test_a_delivery_tries_until_it_works_and_then_moves_its_cursor(tmp_path: Path) -> None:
    output, outbox = Flaky(3), Outbox(tmp_path, "A@1", ["flaky"])
    delivery = Delivery(output, outbox)
    outbox.append([ComplexEvent(f"run{n}", "hot", "A", n, {}) for n in (1, 2)])
    outbox.release()
    assert output.done.wait(30)
    assert outbox.drained(30)
    assert (output.taken, delivery.trouble, delivery.delivered) == (["run1", "run2"], None, 2)
    delivery.stop(0.0)
    outbox.close()
