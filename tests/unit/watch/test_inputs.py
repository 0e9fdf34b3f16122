"""Where events come from: real pipes and sockets."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from typing import Any

import pytest

from millstream.errors import InvalidOption, OpenNetwork, WatchError
from millstream.watch import kinds
from millstream.watch.inputs import Rejected
from millstream.watch.inputs.http import HttpInput, Patience
from millstream.watch.inputs.stdin import StdinInput
from millstream.watch.rows import events_of
from support.links import wait_for


class Feed:
    """Takes objects and rejects all else."""

    columns = None

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.failing = False

    def take(self, rows: Sequence[bytes], *, source: str, ids: Any = None) -> list[Rejected]:
        if self.failing:
            raise WatchError("the disk is full")
        bad = []
        for place, row in enumerate(rows):
            try:
                self.rows.append(json.loads(row))
            except ValueError:
                bad.append(Rejected(place, "not JSON"))
        return bad

    def status(self) -> dict[str, str]:
        return {"device": "A"}

    def metrics(self) -> str:
        return "millstream_watch_events_total 1\n"


# standard input


def test_each_line_of_standard_input_is_an_event(caplog: pytest.LogCaptureFixture) -> None:
    reading, writing = os.pipe()
    os.write(writing, b'{"a": 1}\n\nwrong\n{"a": 2}\n{"a": 3}')
    os.close(writing)
    feed = Feed()
    StdinInput(reading).run(feed)
    os.close(reading)
    assert [row["a"] for row in feed.rows] == [1, 2, 3]
    assert "line 3 is no event: not JSON" in caplog.text


def test_standard_input_can_be_stopped_while_nothing_comes() -> None:
    reading, writing = os.pipe()
    one = StdinInput(reading)
    thread = threading.Thread(target=one.run, args=(Feed(),))
    thread.start()
    one.stop()
    thread.join(30)
    assert not thread.is_alive()
    os.close(reading)
    os.close(writing)


# HTTP


@contextmanager
def served(feed: Feed, **options: Any) -> Iterator[HttpInput]:
    one = HttpInput("127.0.0.1", 0, **options)
    thread = threading.Thread(target=one.run, args=(feed,))
    thread.start()
    try:
        yield one
    finally:
        one.stop()
        thread.join(30)
        assert not thread.is_alive()


def asked(
    one: HttpInput, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, Any]:
    connection = HTTPConnection(one.host, one.port, timeout=30)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        content = answer.read()
        json_ = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(content) if json_ else content
    finally:
        connection.close()


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": 1}\n{"a": 2}\n',
        b'[{"a": 1}, {"a": 2}]',
        b'[{"a": 1},\n {"a": 2}]',
        b'[{"a": 1}]\n[{"a": 2}]',
    ],
)
def test_events_are_taken_as_an_object_a_list_or_lines(body: bytes) -> None:
    feed = Feed()
    with served(feed) as one:
        status, answer = asked(one, "POST", "/events", body)
    assert (status, answer) == (202, {"taken": 2, "rejected": []})
    assert feed.rows == [{"a": 1}, {"a": 2}]


def test_an_object_over_several_lines_is_one_event() -> None:
    assert events_of(b'{"a":\n 1}') == [b'{"a":\n 1}']


def test_rows_that_are_no_events_are_named_and_the_others_taken() -> None:
    feed = Feed()
    with served(feed) as one:
        some = asked(one, "POST", "/events", b'{"a": 1}\nwrong\n')
        none = asked(one, "POST", "/events", b"wrong")
    rejected = [{"row": 1, "reason": "not JSON"}]
    assert some == (202, {"taken": 1, "rejected": rejected})
    assert none[0] == 400


def test_what_could_not_be_synced_is_not_accepted() -> None:
    feed = Feed()
    feed.failing = True
    with served(feed) as one:
        status, answer = asked(one, "POST", "/events", b'{"a": 1}')
    assert (status, answer) == (503, {"error": "the disk is full"})


def test_status_metrics_and_health_are_served_and_nothing_else() -> None:
    with served(Feed(), events=False) as one:
        assert asked(one, "GET", "/status") == (200, {"device": "A"})
        assert asked(one, "GET", "/metrics") == (200, b"millstream_watch_events_total 1\n")
        assert asked(one, "GET", "/healthz") == (200, {"ok": True})
        assert asked(one, "GET", "/etc/passwd")[0] == 404
        assert asked(one, "POST", "/events", b"{}")[0] == 404


def test_a_page_in_a_browser_sends_no_events() -> None:
    feed = Feed()
    with served(feed) as one:
        assert asked(one, "POST", "/events", b"{}", Origin="https://evil.example")[0] == 403
        assert asked(one, "POST", "/events", b"{}", Host="evil.example")[0] == 421
    assert feed.rows == []


def test_other_hosts_need_a_token() -> None:
    with pytest.raises(OpenNetwork, match="there is no token") as caught:
        HttpInput("0.0.0.0", 0)
    assert "--token-file" in str(caught.value.hint)
    with served(Feed(), token="right") as one:
        assert asked(one, "GET", "/status")[0] == 401
        assert asked(one, "GET", "/status", Authorization="Bearer wrong")[0] == 401
        assert asked(one, "GET", "/status", Authorization="Bearer right")[0] == 200
        assert asked(one, "GET", "/healthz")[0] == 200


def test_a_body_that_is_too_long_is_not_read() -> None:
    with served(Feed()) as one:
        connection = HTTPConnection(one.host, one.port, timeout=30)
        connection.putrequest("POST", "/events")
        connection.putheader("Content-Length", str(1 << 40))
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()


@pytest.mark.parametrize("address", ["stdn", "http://127.0.0.1:1/path", "mqtt://broker/"])
def test_a_wrong_address_is_refused_with_a_hint(address: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        kinds.make("inputs", address, device="A")
    assert caught.value.hint


def opened(one: HttpInput) -> socket.socket:
    return socket.create_connection((one.host, one.port), timeout=30)


def test_only_so_many_clients_are_let_in_and_who_is_silent_is_hung_up_on() -> None:
    with served(Feed(), patience=Patience(most=2, silent_s=0.5, request_s=30)) as one:
        with opened(one) as first, opened(one) as second:
            second.sendall(b"GET /healthz")  # and no more
            with opened(one) as third:
                answer = b""
                while data := third.recv(1000):
                    answer += data
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503 ")
            assert f"Content-Length: {len(body)}".encode() in head
            assert json.loads(body) == {"error": "too many connections"}
            assert first.recv(1) == second.recv(1) == b""
        wait_for(lambda: asked(one, "GET", "/healthz")[0] == 200)


def test_a_request_that_drips_in_is_ended() -> None:
    with (
        served(Feed(), patience=Patience(silent_s=30, request_s=0.5)) as one,
        opened(one) as slow,
        suppress(OSError),
    ):
        slow.settimeout(0.02)
        for _ in range(1500):  # 30 s, far more than it may take
            slow.sendall(b"G")
            try:
                assert slow.recv(1) == b""
            except TimeoutError:
                continue
            break
        else:
            pytest.fail("nobody hung up")


def test_what_is_no_request_is_answered_in_json() -> None:
    with served(Feed()) as one:
        assert asked(one, "PUT", "/events", b"{}") == (501, {"error": "Unsupported method ('PUT')"})


# MQTT


def test_a_broker_that_cannot_be_reached_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]  # nobody listens there once it is closed
    one = kinds.make("inputs", f"mqtt://127.0.0.1:{port}/heat", device="A")
    thread = threading.Thread(target=one.run, args=(Feed(),))
    thread.start()
    try:
        wait_for(lambda: caplog.records)
    finally:
        one.stop()
        thread.join(30)
    assert not thread.is_alive()
    expected = f"mqtt://127.0.0.1:{port}/heat cannot be reached; it is tried again"
    assert [record.getMessage() for record in caplog.records] == [expected]
