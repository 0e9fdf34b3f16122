"""Asking a watcher for its status, over HTTP."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

import msgspec

from millstream.errors import EngineAway, InvalidOption, MillstreamError


def asked(address: str, token: str | None = None, *, timeout: float = 10.0) -> bytes:
    """Return the status of the watcher at an address, as JSON.

    Raises:
        InvalidOption: It is not the address of a watcher.
        EngineAway: It does not answer.
        MillstreamError: It refuses.
    """
    parts = urlsplit(address)
    if parts.scheme != "http" or not parts.hostname:
        raise InvalidOption(f'"{address}" is not an address', hint="expected http://host:port")
    connection = HTTPConnection(parts.hostname, parts.port, timeout=timeout)
    try:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        connection.request("GET", "/status", headers=headers)
        answer = connection.getresponse()
        content = answer.read()
    except (OSError, HTTPException) as error:
        raise EngineAway(f"the watcher at {address} does not answer: {error}") from error
    finally:
        connection.close()
    if answer.status != 200:
        reason = msgspec.json.decode(content).get("error", answer.reason)
        hint = "name the file with its token: --token-file" if answer.status == 401 else None
        raise MillstreamError(f"the watcher at {address} refuses: {reason}", hint=hint)
    return content
