"""Requests: checked, read and answered; an error becomes JSON with the right status.

head -> gate: host, rate, token -> path, method -> parameters -> body -> operation -> answer
408           421   429   401 403  404   405       400           408 413 415  4xx 503
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from millstream.engine.access.audit import AuditEntry
from millstream.engine.access.caller import Caller
from millstream.engine.access.token_book import TokenBook
from millstream.engine.http.api import HTML, Api, Asked, Stream, Text
from millstream.engine.http.gate import Gate
from millstream.engine.http.limits import Held, Rate, RequestLimits
from millstream.engine.http.messages import Ready
from millstream.engine.http.openapi import JSON, Operation, Parameter, Problem
from millstream.engine.http.page_files import page_files, shows
from millstream.engine.http.refusals import RETRY, Refused, not_found, refused
from millstream.engine.http.routes import OPERATIONS
from millstream.errors import InternalError, MillstreamError, RequestRefused

_log = logging.getLogger(__name__)
_DISCARD_S: Final = 2.0
_LONGEST: Final = 300
#: A page of ours has no script and loads nothing; nobody may show it in a frame.
_PAGE: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
}
#: No proxy keeps what comes, or waits until it is whole.
_LIVE: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def application(
    api: Api, book: TokenBook, *, hosts: frozenset[str] | None, reads_open: bool
) -> ASGIApp:
    """Return the API as an ASGI application.

    Args:
        api: What answers.
        book: The tokens that the engine knows.
        hosts: The names under which the engine may be asked; None: any.
        reads_open: Whether reading needs no token.
    """
    at: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        at.setdefault(operation.path, {})[operation.method] = operation
    held = Held(api.limits.held_bytes)
    routes = [
        Route(path, _endpoint(api, held, known), methods=list(known)) for path, known in at.items()
    ]
    inner = Starlette(routes=routes, exception_handlers={HTTPException: not_found})
    # A path that is nearly right is refused, not redirected.
    inner.router.redirect_slashes = False
    return Gate(
        inner,
        OPERATIONS,
        book,
        api.audit,
        Rate(api.limits.per_second, api.limits.burst),
        hosts=hosts,
        reads_open=reads_open,
    )


# one request

Endpoint = Callable[[Request], Awaitable[Response]]


def _endpoint(api: Api, held: Held, known: Mapping[str, Operation]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        operation = known["GET" if request.method == "HEAD" else request.method]
        if shows(operation, request.method, request.headers.get("accept", "")):
            return _text(page_files().index(), request)
        began = time.monotonic()
        response = await _answered(api, held, operation, request)
        if operation.audited:
            api.audit.write(_audited(operation, request, response), time.time())
        api.metrics.answered(
            operation.method, operation.path, response.status_code, time.monotonic() - began
        )
        return response

    return endpoint


def _audited(operation: Operation, request: Request, response: Response) -> AuditEntry:
    """Return what the audit log shows of a request that was carried out, or not."""
    caller: Caller = request.scope["caller"]
    status = response.status_code
    query = f"?{request.url.query}" if request.url.query else ""
    return AuditEntry(
        who=caller.name,
        address=caller.address,
        what=operation.name,
        outcome="done" if status < 400 else "refused" if status < 500 else "failed",
        request=f"{operation.method} {request.url.path}{query}"[:_LONGEST],
        job=request.path_params.get("job") or _deployed(operation, response),
        reason=None
        if status < 400 or not response.body
        else _decoded(response.body, Problem).message,
    )


def _deployed(operation: Operation, response: Response) -> str | None:
    """Return the name of a job that was deployed, which is not in the path of the request."""
    done = operation.per_job and response.status_code < 400
    return str(_decoded(response.body, dict[str, Any])["name"]) if done else None


async def _answered(api: Api, held: Held, operation: Operation, request: Request) -> Response:
    size = 0
    caller: Caller = request.scope["caller"]
    try:
        values = _values(operation.parameters, request)
        if operation.body is None and not operation.media:
            answer = await api.answer(operation, Asked(values, caller))
            return _response(operation, answer, request)
        media = _media(operation, request)
        body = await _Body(request, api.limits, held).read()
        size = len(body)
        api.metrics.received(operation.path, size)
        given = _decoded(body, operation.body) if operation.body is not None else body
        del body
        answer = await api.answer(operation, Asked(values, caller, given, media))
        return _response(operation, answer, request)
    except MillstreamError as error:
        return refused(error)
    except ClientDisconnect:
        return Response(status_code=400)  # nobody reads it
    except Exception as error:  # noqa: BLE001 (it is logged in full, and answered without details)
        _log.exception("a request failed unexpectedly: %s %s", operation.method, operation.path)
        return refused(
            InternalError(
                f"the engine failed: {type(error).__name__}", hint="details are in the engine's log"
            )
        )
    finally:
        held.release(size)


def _values(parameters: Sequence[Parameter], request: Request) -> dict[str, Any]:
    known = {one.name for one in parameters if one.where == "query"}
    given = request.query_params.multi_items()
    unknown = [name for name, _ in given if name not in known]
    if unknown:
        hint = f"its parameters are {', '.join(sorted(known))}" if known else "it has none"
        raise RequestRefused(f'there is no parameter "{unknown[0]}" here', hint=hint)
    return {one.name: _value(one, request) for one in parameters}


def _value(parameter: Parameter, request: Request) -> Any:
    match parameter.where:
        case "path":
            found = [request.path_params[parameter.name]]
        case "header":
            found = request.headers.getlist(parameter.name)
        case _:
            found = request.query_params.getlist(parameter.name)
    if not found:
        if parameter.needed:
            raise RequestRefused(f'"{parameter.name}" is needed', hint=parameter.about)
        return parameter.default
    if len(found) > 1:
        raise RequestRefused(f'"{parameter.name}" is given {len(found)} times', hint="give it once")
    try:
        return _converted(found[0], parameter.type)
    except msgspec.ValidationError as exc:
        hint = parameter.about
        raise RequestRefused(f'"{parameter.name}" makes no sense: {exc}', hint=hint) from exc


def _converted(text: str, kind: Any) -> Any:
    if kind is bool:
        if text not in ("true", "false"):
            raise msgspec.ValidationError("it is true or false")
        return text == "true"
    return msgspec.convert(text, kind, strict=False)


def _media(operation: Operation, request: Request) -> str:
    allowed = [JSON] if operation.body is not None else list(operation.media)
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in allowed:
        found = f'"{given}"' if given else "no Content-Type"
        hint = f"send {' or '.join(allowed)}"
        raise Refused(415, f"the body has {found}, which is not accepted here", hint=hint)
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise Refused(
            415,
            f'the body is encoded as "{encoding}", which is not accepted here',
            hint="send it as it is",
        )
    return given


def _decoded(body: bytes | memoryview, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
        raise RequestRefused(f"the body cannot be read: {exc}", hint="see /openapi.json") from exc


class _Body:
    """Reads a body within its limits."""

    def __init__(self, request: Request, limits: RequestLimits, held: Held) -> None:
        self._request = request
        self._limits = limits
        self._held = held
        self._parts: list[bytes] = []
        self._size = 0

    async def read(self) -> bytes:
        """Return the body, whose bytes count as held."""
        whole = False
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                await self._all()
            whole = True
        except TimeoutError:
            raise Refused(
                408, "the body came too slowly", headers={"Connection": "close"}
            ) from None
        finally:
            if not whole:
                self._held.release(self._size)
        return b"".join(self._parts)

    async def _all(self) -> None:
        announced = self._request.headers.get("content-length", "0")
        if announced.isdigit() and int(announced) > self._limits.body_bytes:
            await self._too_large()
        async for part in self._request.stream():
            if self._size + len(part) > self._limits.body_bytes:
                await self._too_large()
            if not self._held.add(len(part)):
                raise Refused(503, "the engine reads too many bodies at once", headers=RETRY)
            self._size += len(part)
            self._parts.append(part)

    async def _too_large(self) -> None:
        # A client that still sends when we close does not see our answer: listen a little longer.
        left = self._limits.body_bytes
        with anyio.move_on_after(_DISCARD_S):
            async for part in self._request.stream():
                left -= len(part)
                if left < 0:
                    break
        raise Refused(
            413,
            f"the body has more than {self._limits.body_bytes:,} bytes",
            hint="send it in parts, numbered by Millstream-First-Number",
            headers={"Connection": "close"},
        )


# answers


def _text(answer: Text, request: Request) -> Response:
    headers = {**(_PAGE if answer.media == HTML else {}), **answer.headers}
    packed = answer.packed is not None and "gzip" in request.headers.get("accept-encoding", "")
    if packed:
        headers["Content-Encoding"] = "gzip"
    body = answer.packed if packed else answer.body
    return Response(body, media_type=answer.media, headers=headers)


def _response(operation: Operation, answer: Any, request: Request) -> Response:
    if isinstance(answer, Text):
        return _text(answer, request)
    if isinstance(answer, Stream):
        return StreamingResponse(answer.parts, media_type=answer.media, headers=_LIVE)
    status = 503 if isinstance(answer, Ready) and not answer.ready else operation.status
    body = msgspec.json.encode(answer, enc_hook=_encoded)
    # At the same address a browser has a page: neither is kept as the other.
    headers = {"Vary": "Accept", "Cache-Control": "no-store"} if operation.page else None
    return Response(body, status_code=status, media_type=JSON, headers=headers)


def _encoded(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    raise NotImplementedError(f"{type(value).__name__} in an answer")
