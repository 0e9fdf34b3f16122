"""What can be asked over HTTP, as data, and its description in OpenAPI 3.1.

An `Operation` is a method and a path with the types of all that goes in and out. The API
serves the table of operations, and the description is made from the same table: they cannot differ.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import msgspec

from millstream.engine.access.permissions import Need

JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"
EVENTS: Final = "text/event-stream"
#: One of the events of a stream.
_EVENT: Final = {
    "type": "object",
    "required": ["data"],
    "properties": {"data": {"type": "string", "contentMediaType": JSON}},
}
#: What every operation may answer, whatever it is for.
ALWAYS: Final = (400, 421, 429, 500, 503)
#: What one may do on the engine's own host without a token, if nothing is changed.
_OPEN_HERE: Final = frozenset({Need.NOTHING, Need.TOKEN, Need.LOOK})


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a request was refused: the name of the error, the fact, and what can be done about it."""

    error: str
    message: str
    hint: str | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value in the path, the query or a header; without a default it is needed."""

    name: str
    type: Any
    about: str
    where: str = "query"
    default: Any = None
    needed: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that can be asked of an engine.

    Args:
        method: GET, POST or DELETE.
        path: With parameters in braces.
        call: What answers it; its first line is the summary.
        needs: What the token of a request must permit.
        answer: The type of the answer, or the media type of one that is not JSON.
        parameters: Those of the path too.
        body: The type of the body; None: there is none.
        media: The media types of a body that is not JSON.
        status: Of an answer.
        refusals: What else may be answered.
        per_job: Whether it answers each token for what is its job, though no job is in the path.
        rows: Whether it shows rows of users, which needs a token from any host.
        page: Whether a browser that asks for HTML gets the console instead.
        sending: Whether it brings events, which have threads of their own.
    """

    method: str
    path: str
    call: Callable[..., Any]
    needs: Need
    answer: Any
    parameters: Sequence[Parameter] = ()
    body: Any = None
    media: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    refusals: Sequence[int] = ()
    per_job: bool = False
    sending: bool = False
    rows: bool = False
    page: bool = False

    @property
    def needs_token(self) -> bool:
        """Whether it needs a token even from the engine's own host."""
        return self.method != "GET" or self.rows or self.needs not in _OPEN_HERE

    @property
    def audited(self) -> bool:
        """Whether the audit log shows it: it changes something."""
        return self.method != "GET" and self.needs is not Need.LOOK

    @property
    def name(self) -> str:
        return self.call.__name__


def describe(operations: Sequence[Operation], *, version: str) -> dict[str, Any]:
    """Return the description of all operations."""
    types = list(_types(operations))
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    named = dict(zip(map(_key, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(
            operation, named
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Millstream engine",
            "version": version,
            "description": "Deploy flows, watch them, send them events, drain and undeploy them.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _key(kind: Any) -> str:
    return repr(kind)


def _types(operations: Sequence[Operation]) -> list[Any]:
    """Return every type that an operation names, once."""
    found: dict[str, Any] = {_key(Problem): Problem}
    for operation in operations:
        kinds = [parameter.type for parameter in operation.parameters]
        kinds += [kind for kind in (operation.body, operation.answer) if kind is not None]
        found |= {_key(kind): kind for kind in kinds if not isinstance(kind, str)}
    return list(found.values())


def _operation(operation: Operation, named: Mapping[str, Any]) -> dict[str, Any]:
    about = inspect.getdoc(operation.call) or operation.name
    summary, _, more = about.partition("\n")
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": summary.rstrip("."),
        "responses": _responses(operation, named),
    }
    described["description"] = "\n\n".join(filter(None, (more.strip(), _needs(operation))))
    if operation.parameters:
        described["parameters"] = [_parameter(one, named) for one in operation.parameters]
    if operation.body is not None:
        content = {JSON: {"schema": named[_key(operation.body)]}}
        described["requestBody"] = {"required": True, "content": content}
    if operation.media:
        content = {kind: {"schema": schema} for kind, schema in operation.media.items()}
        described["requestBody"] = {"required": True, "content": content}
    if operation.needs_token:
        described["security"] = [{"token": []}]
    return described


def _needs(operation: Operation) -> str:
    match operation.needs:
        case Need.NOTHING:
            return "Needs no token."
        case Need.TOKEN:
            needed = "any token"
        case Need.OWNER:
            needed = "the owner's token"
        case permission:
            needed = f"a token that may {permission}"
    return f"Needs {needed}{'' if operation.needs_token else ' if other hosts reach the engine'}."


def _parameter(parameter: Parameter, named: Mapping[str, Any]) -> dict[str, Any]:
    schema = dict(named[_key(parameter.type)])
    if parameter.default is not None:
        schema["default"] = parameter.default
    return {
        "name": parameter.name,
        "in": parameter.where,
        "required": parameter.where == "path" or parameter.needed,
        "description": parameter.about,
        "schema": schema,
    }


def _responses(operation: Operation, named: Mapping[str, Any]) -> dict[str, Any]:
    text = isinstance(operation.answer, str)
    if text:
        schema = _EVENT if operation.answer == EVENTS else {"type": "string"}
        content = {operation.answer: {"schema": schema}}
    else:
        content = {JSON: {"schema": _schema(operation, named)}}
    responses = {
        str(operation.status): {
            "description": HTTPStatus(operation.status).phrase,
            "content": content,
        }
    }
    # Reads need a token too where others can reach the engine.
    for status in sorted({401, 403, *ALWAYS, *operation.refusals, *_refusals(operation)}):
        problem = {JSON: {"schema": named[_key(Problem)]}}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": problem}
    return responses


def _refusals(operation: Operation) -> set[int]:
    """Return what is answered because of what goes in."""
    found = set()
    if any(one.where == "path" for one in operation.parameters):
        found.add(404)
    if operation.body is not None or operation.media:
        found |= {408, 413, 415}
    return found


def _schema(operation: Operation, named: Mapping[str, Any]) -> Any:
    return named[_key(operation.answer)]
