"""Refusals: errors as answers, with the right status."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from millstream import errors
from millstream.engine.http.openapi import JSON, Problem
from millstream.errors import FlowError, MillstreamError, RequestRefused

_log = logging.getLogger(__name__)
RETRY: Final = {"Retry-After": "1"}

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
    errors.NotPermitted: 403,
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


def status_of(error: MillstreamError) -> int:
    """Return the status of an error: that of the nearest class which has one."""
    if isinstance(error, Refused):
        return error.status
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


def refused(error: MillstreamError) -> Response:
    """Return the answer to a request that is refused: an error as JSON, with its status."""
    status = status_of(error)
    headers = dict(getattr(error, "headers", {}))
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="millstream"'
    if status == 503:
        headers = {**RETRY, **headers}
    if status >= 500:
        _log.warning("refused with %d: %s", status, error)
    name = "RequestRefused" if isinstance(error, Refused) else type(error).__name__
    if isinstance(error, FlowError) and error.where is not None:
        where = str(error.where).strip()
    else:
        where = None
    problem = Problem(name, error.message, error.hint, where)
    return Response(
        msgspec.json.encode(problem), status_code=status, headers=headers, media_type=JSON
    )


async def not_found(request: Request, error: Exception) -> Response:
    """Return the answer to a request for no path, or none of this method."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        refusal = Refused(
            405,
            f"{request.method} is not for this path",
            hint=f"it is for {headers.get('Allow', '')}",
            headers=headers,
        )
    else:
        refusal = Refused(
            error.status_code, "there is nothing at this path", hint="/docs lists what there is"
        )
    return refused(refusal)
