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

_BY_STATUS: Final[Mapping[int, tuple[type[MillstreamError], ...]]] = {
    400: (errors.RequestRefused,),
    401: (errors.TokenRefused,),
    403: (errors.NotPermitted,),
    404: (
        *(errors.NoSuchJob, errors.NotThere, errors.JournalMissing, errors.NoSuchAction),
        *(errors.LetterMissing,),
    ),
    409: (
        *(errors.JobExists, errors.JobBusy, errors.InvalidTransition, errors.JobsRunning),
        *(errors.AlreadyRunning, errors.AlreadyWriting, errors.GroupChanged, errors.Ended),
        *(errors.SwitchRefused, errors.SwitchImpossible, errors.SchemaConflict, errors.ActionInUse),
        *(errors.BadBinary, errors.LetterRefused),
    ),
    422: (
        *(errors.SwitchError, errors.RowsRefused, errors.FlowError, errors.WrongNodes),
        *(errors.LoopbackInCluster, errors.InvalidAddress, errors.EngineError),
    ),
    500: (errors.DriverFailed,),
    503: (
        *(errors.EngineClosed, errors.StoreBroken, errors.NoRoom, errors.NoAnswer),
        *(errors.LinkBroken, errors.LinkClosed),
    ),
}
STATUS: Final = {kind: status for status, kinds in _BY_STATUS.items() for kind in kinds}


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
