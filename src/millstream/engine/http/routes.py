"""The table of the HTTP API: every route, what it needs, takes and answers.

    GET     /health /ready /engine /metrics /openapi.json /audit
    GET     /jobs    /jobs/{job}    /jobs/{job}/groups, journals, statistics, logs, history
    GET     /actions    /actions/{name}    /contents/{sha256}    /contents/{sha256}/bytes
    POST    /jobs    /prepare    /stop    /actions/{name}    /contents/{sha256}
    POST    /jobs/{job}/drain, resume, wait; between engines begin, settled, missed, runtimes/{node}
    POST    /jobs/{job}/switch    /jobs/{job}/switch/plan
    GET     /jobs/{job}/versions    DELETE /jobs/{job}/switch
    POST    /jobs/{job}/sources/{source}/events
    DELETE  /jobs/{job}    /actions/{name}    /contents/{sha256}

`engine.access.permissions` decides which tokens may do what a route needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from msgspec import Meta

from millstream import __version__
from millstream.engine.access.audit import AuditEntry
from millstream.engine.access.permissions import Need
from millstream.engine.http import operations
from millstream.engine.http.api import Api, Asked
from millstream.engine.http.messages import (
    Beginning,
    Deployment,
    Dropped,
    Health,
    JournalStatus,
    Log,
    Naming,
    Preparation,
    Ready,
    Sha256,
    Stopping,
    Switching,
    SwitchPlanned,
)
from millstream.engine.http.openapi import OCTETS, Operation, Parameter, describe
from millstream.engine.inboxes import intake
from millstream.engine.inboxes.intake import Taken
from millstream.engine.jobs.status import (
    BinaryStatus,
    EngineStatus,
    GroupStatus,
    Happening,
    JobStatus,
    Prepared,
    VersionStatus,
)
from millstream.engine.programs.contents import MOST_BYTES, Content
from millstream.engine.schemes.guests import GuestOrder, GuestStatus
from millstream.flow.binary import NAME

#: The most bytes of a program in one answer.
PIECE_BYTES: Final = 8 << 20


def openapi(api: Api, asked: Asked) -> dict[str, Any]:  # noqa: ARG001
    """Return this description."""
    return DESCRIPTION


_Name = Annotated[str, Meta(min_length=1, max_length=256)]
_Lines = Annotated[int, Meta(ge=1, le=10_000)]
_After = Annotated[str, Meta(pattern="^([0-9]{1,20}:[0-9]{1,20})?$")]
_Limit = Annotated[float, Meta(ge=0, le=60)]
_Moment = Annotated[
    str, Meta(pattern="^[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}([.][0-9]{1,6})?Z$")
]
_Entries = Annotated[int, Meta(ge=1, le=100_000)]
_Sender = Annotated[str, Meta(min_length=1, max_length=200, pattern="^[!-~]+$")]
_Number = Annotated[int, Meta(ge=0, le=1 << 60)]

_Action = Annotated[str, Meta(pattern=f"^{NAME}$")]
_Version = Annotated[int, Meta(ge=1, le=999_999_999)]
_Offset = Annotated[int, Meta(ge=0, le=MOST_BYTES)]
_Size = Annotated[int, Meta(ge=1, le=MOST_BYTES)]
_Piece = Annotated[int, Meta(ge=1, le=PIECE_BYTES)]

_ACTION: Final = Parameter("name", _Action, "The program's name.", "path")
_CONTENT: Final = Parameter("sha256", Sha256, "The SHA-256 of all its bytes.", "path")
_JOB: Final = Parameter("job", _Name, "The job's name or id.", "path")
_SOURCE: Final = Parameter(
    "source", _Name, "A source of the flow that takes events from programs.", "path"
)
_FORCE: Final = Parameter("force", bool, "Do it even if something is lost.", default=False)
_ROW: Final = {"type": "object"}
_MEDIA: Final = {
    intake.NDJSON: {
        "type": "string",
        "description": "A JSON object a line, with the source's columns.",
    },
    intake.JSON: {"type": "array", "items": _ROW},
    intake.ARROW: {"type": "string", "format": "binary", "description": "An Arrow IPC stream."},
}

OPERATIONS: Final[Sequence[Operation]] = (
    Operation("GET", "/health", operations.health, Need.NOTHING, Health),
    Operation("GET", "/ready", operations.ready, Need.NOTHING, Ready),
    Operation("GET", "/engine", operations.engine, Need.TOKEN, EngineStatus),
    Operation("GET", "/metrics", operations.metrics, Need.LOOK, "text/plain"),
    Operation("GET", "/openapi.json", openapi, Need.TOKEN, dict[str, Any]),
    Operation(
        "GET",
        "/audit",
        operations.audit,
        Need.OWNER,
        list[AuditEntry],
        (
            Parameter("job", _Name, "Entries about this job."),
            Parameter("who", _Name, "Entries of this token or key."),
            Parameter(
                "since", _Moment, "Entries from this moment on, such as 2026-03-08T12:00:00Z."
            ),
            Parameter("limit", _Entries, "How many of the newest, at most.", default=1_000),
        ),
    ),
    Operation("GET", "/jobs", operations.jobs, Need.LOOK, list[JobStatus], per_job=True),
    Operation(
        "POST",
        "/jobs",
        operations.deploy,
        Need.DEPLOY,
        JobStatus,
        body=Deployment,
        status=201,
        refusals=(409, 422),
        per_job=True,
    ),
    Operation(
        "POST",
        "/prepare",
        operations.prepare,
        Need.DEPLOY,
        Prepared,
        body=Preparation,
        status=201,
        refusals=(409, 422),
        per_job=True,
    ),
    Operation("GET", "/jobs/{job}", operations.job, Need.LOOK, JobStatus, (_JOB,)),
    Operation(
        "DELETE",
        "/jobs/{job}",
        operations.undeploy,
        Need.OPERATE,
        JobStatus,
        (
            _JOB,
            _FORCE,
            Parameter("purge", bool, "Remove its journals and checkpoints too.", default=False),
        ),
        refusals=(409,),
    ),
    Operation(
        "POST",
        "/jobs/{job}/begin",
        operations.begin,
        Need.DEPLOY,
        JobStatus,
        (_JOB,),
        body=Beginning,
        refusals=(409, 422),
    ),
    Operation(
        "POST",
        "/jobs/{job}/runtimes/{node}",
        operations.host,
        Need.DEPLOY,
        GuestStatus,
        (_JOB, Parameter("node", _Name, "A node of the job's scheme.", "path")),
        body=GuestOrder,
        refusals=(409, 422),
    ),
    Operation(
        "GET", "/jobs/{job}/groups", operations.groups, Need.LOOK, list[GroupStatus], (_JOB,)
    ),
    Operation(
        "GET", "/jobs/{job}/journals", operations.journals, Need.LOOK, list[JournalStatus], (_JOB,)
    ),
    Operation(
        "GET", "/jobs/{job}/statistics", operations.statistics, Need.LOOK, dict[str, Any], (_JOB,)
    ),
    Operation(
        "GET", "/jobs/{job}/history", operations.history, Need.LOOK, list[Happening], (_JOB,)
    ),
    Operation(
        "GET",
        "/jobs/{job}/logs",
        operations.logs,
        Need.LOOK,
        Log,
        (
            _JOB,
            Parameter("lines", _Lines, "How many of the last lines, at most.", default=100),
            Parameter(
                "after", _After, 'A place in the log, a value of "next": all lines after it.'
            ),
        ),
    ),
    Operation(
        "POST",
        "/jobs/{job}/drain",
        operations.drain,
        Need.OPERATE,
        JobStatus,
        (
            _JOB,
            Parameter(
                "flush", bool, "End the job: its sources end and open windows close.", default=False
            ),
        ),
        refusals=(409,),
    ),
    Operation(
        "POST",
        "/jobs/{job}/resume",
        operations.resume,
        Need.OPERATE,
        JobStatus,
        (_JOB,),
        refusals=(409,),
    ),
    Operation(
        "GET", "/jobs/{job}/versions", operations.versions, Need.LOOK, list[VersionStatus], (_JOB,)
    ),
    Operation(
        "POST",
        "/jobs/{job}/switch",
        operations.switch,
        Need.DEPLOY,
        JobStatus,
        (_JOB,),
        body=Switching,
        status=202,
        refusals=(409, 422),
    ),
    Operation(
        "DELETE",
        "/jobs/{job}/switch",
        operations.give_up,
        Need.OPERATE,
        JobStatus,
        (_JOB,),
        status=202,
        refusals=(409,),
    ),
    Operation(
        "POST",
        "/jobs/{job}/switch/plan",
        operations.plan_switch,
        Need.DEPLOY,
        SwitchPlanned,
        (_JOB,),
        body=Switching,
        refusals=(409, 422),
    ),
    Operation(
        "POST",
        "/jobs/{job}/settled",
        operations.settled,
        Need.OPERATE,
        JobStatus,
        (
            _JOB,
            Parameter("finished", bool, "Whether it has finished, or is drained.", default=False),
        ),
        refusals=(409,),
    ),
    Operation(
        "POST",
        "/jobs/{job}/missed",
        operations.missed,
        Need.OPERATE,
        JobStatus,
        (_JOB, Parameter("peer", _Name, "The engine that does not answer.", needed=True)),
        refusals=(409,),
    ),
    Operation(
        "POST",
        "/jobs/{job}/wait",
        operations.wait,
        Need.LOOK,
        JobStatus,
        (_JOB, Parameter("limit", _Limit, "How many seconds to wait at most.", default=30.0)),
    ),
    Operation(
        "POST",
        "/jobs/{job}/sources/{source}/events",
        operations.send,
        Need.SEND,
        Taken,
        (
            _JOB,
            _SOURCE,
            Parameter(
                "Millstream-Sender",
                _Sender,
                "The name under which the rows are numbered.",
                "header",
            ),
            Parameter("Millstream-First-Number", _Number, "The number of the first row.", "header"),
        ),
        media=_MEDIA,
        refusals=(409, 422),
        sending=True,
    ),
    Operation("GET", "/actions", operations.actions, Need.LOOK, list[BinaryStatus]),
    Operation(
        "GET", "/actions/{name}", operations.action, Need.LOOK, list[BinaryStatus], (_ACTION,)
    ),
    Operation(
        "POST",
        "/actions/{name}",
        operations.add_action,
        Need.DEPLOY,
        BinaryStatus,
        (_ACTION,),
        body=Naming,
        status=201,
    ),
    Operation(
        "DELETE",
        "/actions/{name}",
        operations.remove_action,
        Need.OPERATE,
        list[BinaryStatus],
        (_ACTION, Parameter("version", _Version, "One version; all of them if it is left out.")),
        refusals=(409,),
    ),
    Operation("GET", "/contents/{sha256}", operations.content, Need.LOOK, Content, (_CONTENT,)),
    Operation(
        "POST",
        "/contents/{sha256}",
        operations.send_content,
        Need.DEPLOY,
        Content,
        (
            _CONTENT,
            Parameter("offset", _Offset, "Where these bytes begin.", default=0),
            Parameter("bytes", _Size, "How many bytes the whole program has.", needed=True),
        ),
        media={
            OCTETS: {
                "type": "string",
                "format": "binary",
                "description": "Bytes of the program, from the offset on.",
            }
        },
        refusals=(409,),
    ),
    Operation(
        "GET",
        "/contents/{sha256}/bytes",
        operations.read_content,
        Need.DEPLOY,
        OCTETS,
        (
            _CONTENT,
            Parameter("offset", _Offset, "Where to begin.", default=0),
            Parameter("limit", _Piece, "How many bytes at most.", default=PIECE_BYTES),
        ),
    ),
    Operation(
        "DELETE",
        "/contents/{sha256}",
        operations.drop_content,
        Need.DEPLOY,
        Dropped,
        (_CONTENT,),
        refusals=(409,),
    ),
    Operation(
        "POST",
        "/stop",
        operations.stop,
        Need.OPERATE,
        Stopping,
        (_FORCE,),
        status=202,
        refusals=(409,),
    ),
)

DESCRIPTION: Final = describe(OPERATIONS, version=__version__)
