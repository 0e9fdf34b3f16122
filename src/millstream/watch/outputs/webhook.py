"""Webhooks: each complex event as a POST of JSON.

The header Idempotency-Key has the run's id, which is the same at every try. 2xx means taken; 408,
425, 429, 5xx and no answer mean later; all else means never, and the event is put aside. Redirects
are not followed. Plain HTTP goes to this host and to private networks only.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, urlsplit

from millstream.errors import InvalidOption, OutputAway
from millstream.secrets import Secret, secret, value_of
from millstream.watch.aside import Aside
from millstream.watch.outbox import Entry

_LATER: Final = frozenset({408, 425, 429})
_TIMEOUT_S: Final = 10.0
_ANSWER: Final = 300


class WebhookOutput:
    """Posts complex events to one URL."""

    def __init__(self, url: str, aside: Aside, *, timeout: float = _TIMEOUT_S) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            msg = f'a webhook cannot be at "{url}"'
            raise InvalidOption(msg, hint="expected https://host/path")
        if parts.username or parts.password:
            hint = "keep the token as a secret, and name it: https://host/path#token=NAME"
            raise InvalidOption(
                f'the webhook at "{parts.hostname}" has a password in its URL', hint=hint
            )
        self.name = f"webhook {parts._replace(fragment='').geturl()}"
        self._parts, self._aside, self._timeout = parts, aside, timeout
        self._port = parts.port  # one that is none is known now
        self._token = _token(parts)
        self._open: HTTPConnection | None = None
        _check_plain(parts)

    def deliver(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._post(entry)

    def _post(self, entry: Entry) -> None:
        try:
            status, answer, pause = self._asked(entry)
        except (OSError, HTTPException) as error:
            self.close()
            raise OutputAway(f"{self._parts.netloc} cannot be reached: {error}") from error
        if 200 <= status < 300:
            return
        said = f"{self._parts.netloc} answered {status}" + (f": {answer}" if answer else "")
        if status in _LATER or status >= 500:
            raise OutputAway(said, retry_after=pause)
        self._aside.put(said, entry.json, run=entry.run, number=entry.number)

    def _asked(self, entry: Entry) -> tuple[int, str, float | None]:
        connection = self._open = self._open or self._connected()
        target = self._parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
        connection.request("POST", target, entry.json, self._headers(entry))
        answer = connection.getresponse()
        text = answer.read(_ANSWER).decode(errors="replace").strip()
        if answer.will_close or answer.read(1):
            self.close()
        after = answer.headers.get("Retry-After", "")
        return answer.status, text, float(after) if after.isdigit() else None

    def _headers(self, entry: Entry) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": entry.run,
            "User-Agent": "millstream",
        }
        if self._token is not None:
            headers["Authorization"] = f"Bearer {value_of(self._token)}"
        return headers

    def _connected(self) -> HTTPConnection:
        host, port = self._parts.hostname, self._port
        assert host is not None
        _check_plain(self._parts)
        if self._parts.scheme == "http":
            return HTTPConnection(host, port, timeout=self._timeout)
        # The authority of MILLSTREAM_CA alone, if it is set, as for engines.
        context = ssl.create_default_context(cafile=os.environ.get("MILLSTREAM_CA") or None)
        return HTTPSConnection(host, port, timeout=self._timeout, context=context)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def _token(parts: SplitResult) -> Secret | None:
    given = parse_qs(parts.fragment)
    if parts.fragment and set(given) != {"token"}:
        msg = f'the webhook at "{parts.hostname}" has "#{parts.fragment}", which means nothing here'
        raise InvalidOption(msg, hint="expected #token=NAME, with the name of a secret")
    return secret(given["token"][0]) if given else None


def _check_plain(parts: SplitResult) -> None:
    """Refuse plain HTTP to a public address: everybody on the way could read and change it."""
    if parts.scheme == "https":
        return
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)
    except OSError:
        return  # it is looked up again before each connection
    public = [one[4][0] for one in found if ip_address(str(one[4][0]).partition("%")[0]).is_global]
    if public:
        msg = f'the webhook at "{parts.hostname}" ({public[0]}) is public, and plain HTTP is not'
        raise InvalidOption(f"{msg} encrypted", hint=f"use https://{parts.netloc}{parts.path}")


def make(rest: str, *, aside: Any, **_context: object) -> WebhookOutput:
    """Return the output for a URL."""
    return WebhookOutput(rest, aside(f"webhook_{urlsplit(rest).hostname}"))
