"""HTTP: events by POST /events, and what a watcher knows about itself.

    POST /events     a JSON object, a list of objects, or a line for each; 202 once they are synced
    GET  /status     peers, runs, inputs and outputs, as JSON
    GET  /metrics    the same numbers for Prometheus
    GET  /healthz    200

It listens on this host alone, unless there is a token, which then every request but /healthz needs.
Requests of browsers, which have an origin, and requests under other names than ours are refused: a
page that somebody visits must not send events. Who is silent or slow for too long is hung up on, and
so is who comes when too many are there.
"""

from __future__ import annotations

import hmac
import io
import logging
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from millstream.errors import InvalidOption, LinkBroken, MillstreamError, OpenNetwork
from millstream.watch.inputs import Feed
from millstream.watch.rows import events_of

_LONGEST: Final = 16 << 20
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Retry-After: 1\r\nContent-Length: 33\r\nConnection: close\r\n\r\n"
    b'{"error":"too many connections"}\n'
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How many clients are let in at once, and how long one may be silent, or take for a request."""

    most: int = 64
    silent_s: float = 30.0
    request_s: float = 60.0


_PATIENCE: Final = Patience()


class HttpInput:
    """A small HTTP server; it takes events if `events`, and answers about the watcher."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        token: str | None = None,
        events: bool = True,
        patience: Patience = _PATIENCE,
    ) -> None:
        """Listen at once, so that an address that is taken is known before anything starts.

        Raises:
            OpenNetwork: Others can reach that address, and there is no token.
            LinkBroken: The address is taken, or not one of this host.
        """
        loopback = _loopback(host)
        if not loopback and token is None:
            msg = f"{host} can be reached from other hosts, and there is no token"
            raise OpenNetwork(msg, hint="name a file that holds one with --token-file")
        self.token, self.events = token, events
        self.names = {host.lower(), "localhost", "127.0.0.1", "[::1]"} if loopback else None
        self.feed: Any = None  # a Feed that can also answer about itself
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        kind = type("Server", (_Server,), {"address_family": family})
        try:
            self._server = kind((host, port), _Handler)
        except (OSError, OverflowError) as error:
            msg = f"cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}"
            raise LinkBroken(msg, hint="name a port that is free, or 0 for any") from error
        self._server.owner, self._server.room = self, threading.BoundedSemaphore(patience.most)
        self.patience = patience
        self.host, self.port = host, int(self._server.server_address[1])
        self.name = f"http {self.url}"

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def run(self, feed: Feed) -> None:
        self.feed = feed
        self._server.serve_forever(poll_interval=0.2)

    def stop(self) -> None:
        self._server.shutdown()
        self.close()

    def close(self) -> None:
        """Listen no more; it need not have run."""
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    owner: HttpInput
    room: threading.BoundedSemaphore

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.room.acquire(blocking=False):
            with suppress(OSError):
                request.setblocking(False)
                request.send(_FULL)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # there was no thread for it
            self.room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        _log.debug("a connection of %s broke", client_address, exc_info=True)


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class _Bytes(io.RawIOBase):
    """What a client sends, as long as that is neither silent nor slow."""

    def __init__(self, connection: socket.socket, patience: Patience) -> None:
        self._connection, self._patience = connection, patience
        self._until = 0.0

    def begin(self) -> None:
        """A request begins."""
        self._until = time.monotonic() + self._patience.request_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(min(left, self._patience.silent_s))
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "millstream", ""
    server: _Server

    def setup(self) -> None:
        super().setup()
        self._bytes = _Bytes(self.connection, self.server.owner.patience)
        self.rfile = io.BufferedReader(self._bytes)

    def handle_one_request(self) -> None:
        self._bytes.begin()
        super().handle_one_request()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        del explain
        self.close_connection = True
        status = HTTPStatus(code)
        self._send(status, "application/json", _error(message or status.phrase))

    def do_GET(self) -> None:
        self._answered(self._get)

    def do_POST(self) -> None:
        self._answered(self._post)

    def _answered(self, what: Any) -> None:
        try:
            self._check()
            status, kind, body = what()
        except _Refused as error:
            status, kind, body = error.status, "application/json", _error(error.reason)
            self.close_connection = True  # its body was not read
        except MillstreamError as error:
            status, kind = HTTPStatus.SERVICE_UNAVAILABLE, "application/json"
            body = _error(error.message)
        self._send(status, kind, body)

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _check(self) -> None:
        owner = self.server.owner
        name = self.headers.get("Host", "").rpartition(":")
        host = name[0] if name[2].isdigit() else self.headers.get("Host", "")
        if owner.names is not None and host.lower() not in owner.names:
            raise _Refused(HTTPStatus.MISDIRECTED_REQUEST, "this watcher has another name")
        if "Origin" in self.headers:
            raise _Refused(HTTPStatus.FORBIDDEN, "requests of pages in browsers are refused")
        if owner.token is not None and self.path != "/healthz":
            scheme, _, given = self.headers.get("Authorization", "").partition(" ")
            right = hmac.compare_digest(given.strip().encode(), owner.token.encode())
            if scheme.lower() != "bearer" or not right:
                raise _Refused(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")

    def _get(self) -> tuple[HTTPStatus, str, bytes]:
        feed = self.server.owner.feed
        if self.path == "/status":
            return HTTPStatus.OK, "application/json", msgspec.json.encode(feed.status())
        if self.path == "/metrics":
            text = "text/plain; version=0.0.4; charset=utf-8"
            return HTTPStatus.OK, text, feed.metrics().encode()
        if self.path == "/healthz":
            return HTTPStatus.OK, "application/json", b'{"ok":true}'
        raise _Refused(HTTPStatus.NOT_FOUND, "there are /events, /status, /metrics and /healthz")

    def _post(self) -> tuple[HTTPStatus, str, bytes]:
        owner = self.server.owner
        if self.path != "/events" or not owner.events:
            raise _Refused(HTTPStatus.NOT_FOUND, "events are not taken here")
        if not self.headers.get("Content-Length", "").isdigit():
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "say how long the body is")
        size = int(self.headers["Content-Length"])
        if size > _LONGEST:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {_LONGEST:,} bytes")
        body = self.rfile.read(size)
        if len(body) < size:
            raise _Refused(HTTPStatus.BAD_REQUEST, "the body is shorter than it says")
        rows = events_of(body)
        bad = owner.feed.take(rows, source="http")
        answer = {
            "taken": len(rows) - len(bad),
            "rejected": [{"row": one.place, "reason": one.reason} for one in bad],
        }
        status = HTTPStatus.BAD_REQUEST if rows and len(bad) == len(rows) else HTTPStatus.ACCEPTED
        return status, "application/json", msgspec.json.encode(answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing for each request."""


def _error(reason: str) -> bytes:
    return msgspec.json.encode({"error": reason})


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def make(rest: str, *, token: str | None = None, **_context: object) -> HttpInput:
    """Return the input for http://HOST:PORT."""
    parts = urlsplit(rest)
    if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/"):
        hint = "expected http://127.0.0.1:8710"
        raise InvalidOption(f'the input "http" cannot listen at "{rest}"', hint=hint)
    return HttpInput(parts.hostname, parts.port or 0, token=token)
