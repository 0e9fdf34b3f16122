"""The gate of the HTTP API: under which name, how often, and with which token one may ask.

Nothing is read of a body before this is decided. Who was refused for the token is in the audit log,
and in the engine's log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.engine.access.audit import NOBODY, AuditEntry, AuditLog
from millstream.engine.access.caller import Caller
from millstream.engine.access.permissions import Need, refusal
from millstream.engine.access.token_book import TokenBook
from millstream.engine.http.limits import Rate
from millstream.engine.http.openapi import Operation
from millstream.engine.http.page_files import shows
from millstream.engine.http.refusals import Refused, refused
from millstream.errors import MillstreamError, NotPermitted, RequestRefused, TokenRefused

_log = logging.getLogger(__name__)
#: How many addresses whose tokens are refused are logged by themselves; of more, all together.
_STRANGERS_PER_S: Final = 1.0
_STRANGERS: Final = 100
_LONGEST: Final = 300


class Gate:
    """Checks who may ask, and tells the application who it is: `request.scope["caller"]`."""

    def __init__(
        self,
        inner: ASGIApp,
        operations: Sequence[Operation],
        book: TokenBook,
        audit: AuditLog,
        rate: Rate,
        *,
        hosts: frozenset[str] | None,
        reads_open: bool,
    ) -> None:
        self._inner = inner
        self._routes = [(compile_path(one.path)[0], one) for one in operations]
        self._book = book
        self._audit = audit
        self._rate = rate
        self._strangers = Rate(_STRANGERS_PER_S, _STRANGERS)
        self._hosts = hosts
        self._reads_open = reads_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                scope["caller"] = self._checked(Request(scope))
            except (RequestRefused, TokenRefused, NotPermitted) as error:
                await refused(error)(scope, receive, send)
                return
        await self._inner(scope, receive, send)

    def _checked(self, request: Request) -> Caller:
        self._check_host(request.headers.get("host", ""))
        address = request.client.host if request.client else "unknown"
        pause = self._rate.pause(address, time.monotonic())
        if pause > 0:
            wait = {"Retry-After": str(max(1, round(pause)))}
            hint = "send more events in each request"
            raise Refused(429, "too many requests at once", hint=hint, headers=wait)
        return self._permitted(request, address)

    def _check_host(self, host: str) -> None:
        # A page in a browser of this host must not reach us under a name of its own that points
        # here.
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if self._hosts is not None and name.lower() not in self._hosts:
            hint = f"names: {', '.join(sorted(self._hosts))}"
            raise Refused(421, "this engine does not answer to that name", hint=hint)

    def _permitted(self, request: Request, address: str) -> Caller:
        operation, job = self._found(request)
        if shows(operation, request.method, request.headers.get("accept", "")):
            return Caller(address)  # the console shows nothing before it has asked for it
        now = time.time()
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        known = self._book.find(given.strip(), now) if scheme.lower() == "bearer" else None
        caller = Caller(address, known)
        about = caller.job if operation is not None and operation.per_job else job
        error = refusal(known, self._need(request.method, operation), about, now)
        if error is not None:
            self._note(request, operation, job, caller, error)
            raise error
        return caller

    def _found(self, request: Request) -> tuple[Operation | None, str | None]:
        """Return what is asked for, and the job that it is about."""
        method = "GET" if request.method == "HEAD" else request.method
        for path, operation in self._routes:
            if operation.method == method and (found := path.match(request.url.path)):
                return operation, found.groupdict().get("job")
        return None, None

    def _need(self, method: str, operation: Operation | None) -> Need:
        reads = method in ("GET", "HEAD", "OPTIONS")
        if operation is None:
            return Need.NOTHING if reads and self._reads_open else Need.TOKEN
        return Need.NOTHING if self._reads_open and not operation.needs_token else operation.needs

    def _note(
        self,
        request: Request,
        operation: Operation | None,
        job: str | None,
        caller: Caller,
        error: MillstreamError,
    ) -> None:
        address, asked = caller.address, f"{request.method} {request.url.path}"
        if caller.token is None:
            # What a stranger writes into a path is not written down, and many strangers are one.
            if self._strangers.pause("", time.monotonic()) > 0:
                address = "many"
            job, asked = None, "" if operation is None else f"{operation.method} {operation.path}"
        entry = AuditEntry(
            who=caller.name,
            address=address,
            what="request" if operation is None else operation.name,
            outcome="refused",
            request=asked[:_LONGEST],
            job=job,
            reason=error.message,
        )
        if self._audit.write(entry, time.time()):
            who = "somebody" if caller.name == NOBODY else f'token "{caller.name}"'
            _log.warning("refused %s from %s: %s: %s", who, address, asked, error.message)
