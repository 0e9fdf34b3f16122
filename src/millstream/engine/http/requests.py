"""Requests: checked, read and answered; an error becomes JSON with the right status.

    head -> host, rate, token -> path and method -> parameters -> body -> operation -> answer
    408     421   429   401      404      405       400           408 413 415   4xx 503

Nothing is read of a body before its sender has shown the token.
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
from starlette.responses import Response
from starlette.routing import Route, compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from millstream import errors
from millstream.engine.http.api import Api, Asked, Text
from millstream.engine.http.limits import Held, Rate, RequestLimits
from millstream.engine.http.messages import Ready
from millstream.engine.http.openapi import JSON, Operation, Parameter, Problem
from millstream.engine.http.operations import OPERATIONS
from millstream.engine.tokens import same
from millstream.errors import (
    FlowError,
    InternalError,
    MillstreamError,
    RequestRefused,
    TokenRefused,
)

_log = logging.getLogger(__name__)
_DISCARD_S: Final = 2.0
_OPEN: Final = frozenset({"/health", "/ready"})
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_PRIVATE: Final = tuple(
    compile_path(operation.path)[0] for operation in OPERATIONS if operation.private
)
_RETRY: Final = {"Retry-After": "1"}

STATUS: Final[Mapping[type[MillstreamError], int]] = {
    errors.NoSuchJob: 404,
    errors.NotThere: 404,
    errors.JournalMissing: 404,
    errors.JobExists: 409,
    errors.JobBusy: 409,
    errors.InvalidTransition: 409,
    errors.JobsRunning: 409,
    errors.AlreadyRunning: 409,
    errors.AlreadyWriting: 409,
    errors.GroupChanged: 409,
    errors.Ended: 409,
    errors.SwitchRefused: 409,
    errors.SwitchImpossible: 409,
    errors.SwitchError: 422,
    errors.SchemaConflict: 409,
    errors.TokenRefused: 401,
    errors.RequestRefused: 400,
    errors.NoSuchAction: 404,
    errors.ActionInUse: 409,
    errors.BadBinary: 409,
    errors.RowsRefused: 422,
    errors.FlowError: 422,
    errors.WrongNodes: 422,
    errors.LoopbackInCluster: 422,
    errors.InvalidAddress: 422,
    errors.EngineClosed: 503,
    errors.StoreBroken: 503,
    errors.NoRoom: 503,
    errors.DriverFailed: 500,
    errors.EngineError: 422,
    errors.NoAnswer: 503,
    errors.LinkBroken: 503,
    errors.LinkClosed: 503,
}


class Refused(RequestRefused):
    """A request that is refused with a status of its own."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.headers = dict(headers or {})


def application(api: Api, token: str, *, hosts: frozenset[str] | None, reads_open: bool) -> ASGIApp:
    """Return the API as an ASGI application.

    Args:
        api: What answers.
        token: What a request needs that changes something.
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
    inner = Starlette(routes=routes, exception_handlers={HTTPException: _not_found})
    # A path that is nearly right is refused, not redirected.
    inner.router.redirect_slashes = False
    return _Gate(
        inner,
        token,
        Rate(api.limits.per_second, api.limits.burst),
        hosts=hosts,
        reads_open=reads_open,
    )


# the gate


class _Gate:
    """Checks who may ask."""

    def __init__(
        self,
        inner: ASGIApp,
        token: str,
        rate: Rate,
        *,
        hosts: frozenset[str] | None,
        reads_open: bool,
    ) -> None:
        self._inner = inner
        self._token = token
        self._rate = rate
        self._hosts = hosts
        self._reads_open = reads_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self._check(Request(scope))
            except (RequestRefused, TokenRefused) as error:
                await _refusal(error)(scope, receive, send)
                return
        await self._inner(scope, receive, send)

    def _check(self, request: Request) -> None:
        self._check_host(request.headers.get("host", ""))
        client = request.client.host if request.client else "unknown"
        pause = self._rate.pause(client, time.monotonic())
        if pause > 0:
            wait = {"Retry-After": str(max(1, round(pause)))}
            raise Refused(
                429,
                "too many requests at once",
                hint="send more events in each request",
                headers=wait,
            )
        if self._needs_token(request):
            self._check_token(request.headers.get("authorization", ""))

    def _check_host(self, host: str) -> None:
        # A page in a browser of this host must not reach us under a name of its own that points
        # here.
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if self._hosts is not None and name.lower() not in self._hosts:
            raise Refused(
                421,
                "this engine does not answer to that name",
                hint=f"names: {', '.join(sorted(self._hosts))}",
            )

    def _needs_token(self, request: Request) -> bool:
        if request.method not in _READS or any(path.match(request.url.path) for path in _PRIVATE):
            return True
        return not self._reads_open and request.url.path not in _OPEN

    def _check_token(self, given: str) -> None:
        scheme, _, token = given.partition(" ")
        if scheme.lower() != "bearer" or not same(token.strip(), self._token):
            found = "another token than the engine's" if given else "no token"
            hint = (
                'it is in the file "token" in the engine\'s data folder: '
                "Authorization: Bearer TOKEN over HTTP, "
                "--token-file or MILLSTREAM_TOKEN for commands"
            )
            raise TokenRefused(f"this needs the engine's token, and there was {found}", hint=hint)


# one request

Endpoint = Callable[[Request], Awaitable[Response]]


def _endpoint(api: Api, held: Held, known: Mapping[str, Operation]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        operation = known["GET" if request.method == "HEAD" else request.method]
        began = time.monotonic()
        response = await _answered(api, held, operation, request)
        api.metrics.answered(
            operation.method, operation.path, response.status_code, time.monotonic() - began
        )
        return response

    return endpoint


async def _answered(api: Api, held: Held, operation: Operation, request: Request) -> Response:
    size = 0
    try:
        values = _values(operation.parameters, request)
        if operation.body is None and not operation.media:
            return _response(operation, await api.answer(operation, Asked(values)))
        media = _media(operation, request)
        body = await _Body(request, api.limits, held).read()
        size = len(body)
        api.metrics.received(operation.path, size)
        given = _decoded(body, operation.body) if operation.body is not None else body
        del body
        return _response(operation, await api.answer(operation, Asked(values, given, media)))
    except MillstreamError as error:
        return _refusal(error)
    except ClientDisconnect:
        return Response(status_code=400)  # nobody reads it
    except Exception as error:  # noqa: BLE001 (it is logged in full, and answered without details)
        _log.exception("a request failed unexpectedly: %s %s", operation.method, operation.path)
        return _refusal(
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
        raise RequestRefused(
            f'"{parameter.name}" makes no sense: {exc}', hint=parameter.about
        ) from exc


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
        raise Refused(
            415,
            f"the body has {found}, which is not accepted here",
            hint=f"send {' or '.join(allowed)}",
        )
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise Refused(
            415,
            f'the body is encoded as "{encoding}", which is not accepted here',
            hint="send it as it is",
        )
    return given


def _decoded(body: bytes, kind: Any) -> Any:
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
                raise Refused(503, "the engine reads too many bodies at once", headers=_RETRY)
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


def _response(operation: Operation, answer: Any) -> Response:
    if isinstance(answer, Text):
        return Response(answer.body, media_type=answer.media)
    status = 503 if isinstance(answer, Ready) and not answer.ready else operation.status
    return Response(
        msgspec.json.encode(answer, enc_hook=_encoded), status_code=status, media_type=JSON
    )


def _encoded(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    raise NotImplementedError(f"{type(value).__name__} in an answer")


def status_of(error: MillstreamError) -> int:
    """Return the status of an error: that of the nearest class which has one."""
    if isinstance(error, Refused):
        return error.status
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


def _refusal(error: MillstreamError) -> Response:
    status = status_of(error)
    headers = dict(getattr(error, "headers", {}))
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="millstream"'
    if status == 503:
        headers = {**_RETRY, **headers}
    if status >= 500:
        _log.warning("refused with %d: %s", status, error)
    name = "RequestRefused" if isinstance(error, Refused) else type(error).__name__
    where = (
        str(error.where).strip()
        if isinstance(error, FlowError) and error.where is not None
        else None
    )
    problem = Problem(name, error.message, error.hint, where)
    return Response(
        msgspec.json.encode(problem), status_code=status, headers=headers, media_type=JSON
    )


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        refused = Refused(
            405,
            f"{request.method} is not for this path",
            hint=f"it is for {headers.get('Allow', '')}",
            headers=headers,
        )
    else:
        refused = Refused(
            error.status_code,
            "there is nothing at this path",
            hint="/openapi.json has what there is",
        )
    return _refusal(refused)


__all__ = ["STATUS", "Refused", "application", "status_of"]
