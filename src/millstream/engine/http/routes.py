"""The table of the HTTP API: every route, what it needs, takes and answers.

    GET     / /page/{file} /docs /health /ready /engine /metrics /openapi.json /audit /tasks /watchers /live /lines
    GET     /jobs    /jobs/{job}    /jobs/{job}/groups, journals, statistics, logs, history, graph, series
    GET     /jobs/{job}/journals/{journal}    /jobs/{job}/journals/{journal}/rows, file
    POST    /jobs/{job}/journals/{journal}/verify
    GET     /jobs/{job}/patterns    /jobs/{job}/checkpoints
    POST    /jobs/{job}/checkpoints/{group}/verify
    GET     /jobs/{job}/state    /jobs/{job}/state/{stage}/rows
    GET     /jobs/{job}/dead    /jobs/{job}/dead/{letter}
    POST    /jobs/{job}/replay, replay/edited, discard
    GET     /actions    /actions/{name}    /contents/{sha256}    /contents/{sha256}/bytes
    POST    /jobs    /prepare    /stop    /tasks/drain    /actions/{name}    /contents/{sha256}
    POST    /jobs/{job}/drain, resume, wait; between engines begin, settled, missed, runtimes/{node}
    POST    /jobs/{job}/switch    /jobs/{job}/switch/plan
    GET     /jobs/{job}/versions, switch    DELETE /jobs/{job}/switch
    POST    /jobs/{job}/sources/{source}/events
    DELETE  /jobs/{job}    /actions/{name}    /contents/{sha256}

`engine.access.permissions` decides which tokens may do what a route needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

from msgspec import Meta

from millstream import __version__
from millstream.engine.access.audit import AuditEntry
from millstream.engine.access.permissions import Need
from millstream.engine.http import dead_operations as dead
from millstream.engine.http import docs_page, operations
from millstream.engine.http import journal_operations as shown
from millstream.engine.http import live_operations as alive
from millstream.engine.http import state_operations as kept
from millstream.engine.http.api import HTML, Api, Asked, Text
from millstream.engine.http.dead_messages import (
    DiscardAnswer,
    DiscardOrder,
    EditedOrder,
    LetterId,
    LetterPage,
    LetterStatus,
    ReplayAnswer,
    ReplayOrder,
)
from millstream.engine.http.messages import (
    Beginning,
    Deployment,
    Dropped,
    Health,
    JournalDetail,
    JournalRows,
    JournalStatus,
    Log,
    Naming,
    Preparation,
    Ready,
    Sha256,
    Stopping,
    SwitchDetail,
    Switching,
    SwitchPlanned,
    VerifiedJournal,
)
from millstream.engine.http.openapi import EVENTS, OCTETS, Operation, Parameter, describe
from millstream.engine.http.row_files import FileFormat
from millstream.engine.http.watchers import WatcherSeen
from millstream.engine.inboxes import intake
from millstream.engine.inboxes.intake import Taken
from millstream.engine.jobs.checkpoint_status import CheckpointStatus, VerifiedCheckpoint
from millstream.engine.jobs.pattern_status import PatternRuns
from millstream.engine.jobs.pulse import POINTS, Lines, Series
from millstream.engine.jobs.state_status import StageStatus, StateRows
from millstream.engine.jobs.status import (
    BinaryStatus,
    EngineStatus,
    GroupStatus,
    Happening,
    JobStatus,
    Prepared,
    VersionStatus,
)
from millstream.engine.leases.tasks import Tasks
from millstream.engine.programs.contents import MOST_BYTES, Content
from millstream.engine.schemes.guests import GuestOrder, GuestStatus
from millstream.flow.binary import NAME
from millstream.journal.letters import State as LetterState
from millstream.plan.drawing import Drawing

#: The most bytes of a program in one answer.
PIECE_BYTES: Final = 8 << 20


def docs(api: Api, asked: Asked) -> Text:  # noqa: ARG001
    """Return this description as a page."""
    return Text(_DOCS, HTML)


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
_Key = Annotated[str, Meta(min_length=1, max_length=4096)]
_Partition = Annotated[int, Meta(ge=0, le=100_000)]
_Points = Annotated[int, Meta(ge=1, le=POINTS)]
_Rows = Annotated[int, Meta(ge=1, le=10_000)]
_Number = Annotated[int, Meta(ge=0, le=1 << 60)]

_Action = Annotated[str, Meta(pattern=f"^{NAME}$")]
_Version = Annotated[int, Meta(ge=1, le=999_999_999)]
_Offset = Annotated[int, Meta(ge=0, le=MOST_BYTES)]
_Size = Annotated[int, Meta(ge=1, le=MOST_BYTES)]
_Piece = Annotated[int, Meta(ge=1, le=PIECE_BYTES)]

#: What stands in paths.
_IN_PATH: Final = {
    "name": Parameter("name", _Action, "The program's name.", "path"),
    "sha256": Parameter("sha256", Sha256, "The SHA-256 of all its bytes.", "path"),
    "job": Parameter("job", _Name, "The job's name or id.", "path"),
    "journal": Parameter(
        "journal", _Name, "A journal of the job; with .dead, its dead letters.", "path"
    ),
    "file": Parameter("file", _Name, "A part of the console, by its name.", "path"),
    "letter": Parameter("letter", LetterId, "A dead letter's id, or how it begins.", "path"),
    "group": Parameter("group", _Name, "A group; GROUP@VERSION for another version's.", "path"),
    "node": Parameter("node", _Name, "A node of the job's scheme.", "path"),
    "stage": Parameter("stage", _Name, "A stage; GROUP.STAGE if several groups have it.", "path"),
    "source": Parameter(
        "source", _Name, "A source of the flow that takes events from programs.", "path"
    ),
}
#: Which rows of a journal.
_EXCERPT: Final = (
    Parameter("partition", _Partition, "One partition.", default=0),
    Parameter("from", _Number, "The first position; without it, the first that is there."),
    Parameter(
        *("since", _Moment),
        "The first row at or after this event time, such as 2026-03-08T12:00:00Z.",
    ),
    Parameter("limit", _Rows, "How many rows at most.", default=1_000),
    Parameter("columns", _Name, "Only these columns: a,b,c."),
    Parameter("contains", _Name, "Only rows that have this text as JSON, in capitals or not."),
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

_BYTES: Final = {
    "type": "string",
    "format": "binary",
    "description": "Bytes of the program, from the offset on.",
}


def _route(
    where: str, call: Callable[..., Any], needs: Need, answer: Any, *others: Parameter, **more: Any
) -> Operation:
    """Return an operation at a method and a path, whose parameters come before the others."""
    method, path = where.split()
    named = [_IN_PATH[name] for name in re.findall(r"{(\w+)}", path)]
    return Operation(method, path, call, needs, answer, (*named, *others), **more)


OPERATIONS: Final[Sequence[Operation]] = (
    _route("GET /", alive.home, Need.NOTHING, HTML),
    _route("GET /page/{file}", alive.page_file, Need.NOTHING, "*/*"),
    _route(
        *("GET /live", alive.live, Need.LOOK, EVENTS),
        Parameter("once", bool, "End after the first event.", default=False),
        per_job=True,
    ),
    _route(
        *("GET /lines", alive.lines, Need.LOOK, dict[str, Lines]),
        Parameter("points", _Points, "How many points at most.", default=60),
        per_job=True,
    ),
    _route("GET /docs", docs, Need.NOTHING, HTML),
    _route("GET /health", operations.health, Need.NOTHING, Health),
    _route("GET /ready", operations.ready, Need.NOTHING, Ready),
    _route("GET /engine", operations.engine, Need.TOKEN, EngineStatus),
    _route("GET /metrics", operations.metrics, Need.LOOK, "text/plain"),
    _route("GET /openapi.json", openapi, Need.TOKEN, dict[str, Any]),
    _route(
        *("GET /audit", operations.audit, Need.OWNER, list[AuditEntry]),
        Parameter("job", _Name, "Entries about this job."),
        Parameter("who", _Name, "Entries of this token or key."),
        Parameter("since", _Moment, "Entries from this moment on, such as 2026-03-08T12:00:00Z."),
        Parameter("limit", _Entries, "How many of the newest, at most.", default=1_000),
        page=True,
    ),
    _route("GET /tasks", operations.tasks, Need.LOOK, Tasks),
    _route("GET /watchers", operations.watchers, Need.LOOK, list[WatcherSeen], page=True),
    _route(
        *("POST /tasks/drain", operations.drain_tasks, Need.OPERATE, Tasks),
        status=202,
        refusals=(409,),
    ),
    _route("GET /jobs", operations.jobs, Need.LOOK, list[JobStatus], per_job=True, page=True),
    _route(
        *("POST /jobs", operations.deploy, Need.DEPLOY, JobStatus),
        body=Deployment,
        status=201,
        refusals=(409, 422),
        per_job=True,
    ),
    _route(
        *("POST /prepare", operations.prepare, Need.DEPLOY, Prepared),
        body=Preparation,
        status=201,
        refusals=(409, 422),
        per_job=True,
    ),
    _route("GET /jobs/{job}", operations.job, Need.LOOK, JobStatus, page=True),
    _route("GET /jobs/{job}/graph", alive.graph, Need.LOOK, Drawing),
    _route("GET /jobs/{job}/series", alive.series, Need.LOOK, Series),
    _route(
        *("DELETE /jobs/{job}", operations.undeploy, Need.OPERATE, JobStatus),
        _FORCE,
        Parameter("purge", bool, "Remove its journals and checkpoints too.", default=False),
        refusals=(409,),
    ),
    _route(
        *("POST /jobs/{job}/begin", operations.begin, Need.DEPLOY, JobStatus),
        body=Beginning,
        refusals=(409, 422),
    ),
    _route(
        *("POST /jobs/{job}/runtimes/{node}", operations.host, Need.DEPLOY, GuestStatus),
        body=GuestOrder,
        refusals=(409, 422),
    ),
    _route("GET /jobs/{job}/groups", operations.groups, Need.LOOK, list[GroupStatus]),
    _route("GET /jobs/{job}/journals", shown.journals, Need.LOOK, list[JournalStatus], page=True),
    _route(
        "GET /jobs/{job}/journals/{journal}", shown.journal, Need.LOOK, JournalDetail, page=True
    ),
    _route(
        *("GET /jobs/{job}/journals/{journal}/rows", shown.journal_rows, Need.LOOK, JournalRows),
        *_EXCERPT,
        rows=True,
    ),
    _route(
        *("GET /jobs/{job}/journals/{journal}/file", shown.journal_file, Need.LOOK, OCTETS),
        *_EXCERPT,
        Parameter("format", FileFormat, "jsonl, csv or parquet.", default=FileFormat.JSONL),
        rows=True,
    ),
    _route(
        "POST /jobs/{job}/journals/{journal}/verify",
        *(shown.verify_journal, Need.OPERATE, VerifiedJournal),
    ),
    _route(
        *("GET /jobs/{job}/state", kept.states, Need.LOOK, list[StageStatus]),
        refusals=(409,),
        page=True,
    ),
    _route(
        *("GET /jobs/{job}/state/{stage}/rows", kept.state_rows, Need.LOOK, StateRows),
        Parameter("key", _Key, "Only this key: its values with commas in between, or as JSON."),
        Parameter("at", _Number, "As of an earlier committed batch."),
        Parameter("limit", _Rows, "How many keys at most.", default=100),
        refusals=(409,),
        rows=True,
    ),
    _route(
        *("GET /jobs/{job}/patterns", kept.patterns, Need.LOOK, list[PatternRuns]),
        refusals=(409,),
        rows=True,
        page=True,
    ),
    _route(
        *("GET /jobs/{job}/checkpoints", kept.checkpoints, Need.LOOK, list[CheckpointStatus]),
        refusals=(409,),
        page=True,
    ),
    _route(
        "POST /jobs/{job}/checkpoints/{group}/verify",
        *(kept.verify_checkpoint, Need.OPERATE, VerifiedCheckpoint),
        refusals=(409,),
    ),
    _route(
        *("GET /jobs/{job}/dead", dead.letters, Need.LOOK, LetterPage),
        Parameter("journal", _Name, "Only those of this journal."),
        Parameter("state", LetterState, "Only those in this state."),
        Parameter("origin", _Name, "Only those of this sender, file or stage."),
        Parameter("from", _Number, "The number of the first of these.", default=0),
        Parameter("limit", _Rows, "How many letters at most.", default=1_000),
        rows=True,
        page=True,
    ),
    _route("GET /jobs/{job}/dead/{letter}", dead.letter, Need.LOOK, LetterStatus, rows=True),
    _route(
        *("POST /jobs/{job}/replay", dead.replay, Need.OPERATE, ReplayAnswer),
        body=ReplayOrder,
        refusals=(409,),
        sending=True,
    ),
    _route(
        *("POST /jobs/{job}/replay/edited", dead.replay_edited, Need.DEPLOY, ReplayAnswer),
        body=EditedOrder,
        refusals=(409,),
        sending=True,
    ),
    _route(
        *("POST /jobs/{job}/discard", dead.discard, Need.OPERATE, DiscardAnswer),
        body=DiscardOrder,
    ),
    _route("GET /jobs/{job}/statistics", operations.statistics, Need.LOOK, dict[str, Any]),
    _route("GET /jobs/{job}/history", operations.history, Need.LOOK, list[Happening]),
    _route(
        *("GET /jobs/{job}/logs", operations.logs, Need.LOOK, Log),
        Parameter("lines", _Lines, "How many of the last lines, at most.", default=100),
        Parameter("after", _After, 'A place in the log, a value of "next": all lines after it.'),
        Parameter("contains", _Name, "Only lines with this text, in capitals or not."),
        page=True,
    ),
    _route(
        *("POST /jobs/{job}/drain", operations.drain, Need.OPERATE, JobStatus),
        Parameter(
            "flush", bool, "End the job: its sources end and open windows close.", default=False
        ),
        refusals=(409,),
    ),
    _route("POST /jobs/{job}/resume", operations.resume, Need.OPERATE, JobStatus, refusals=(409,)),
    _route(
        *("GET /jobs/{job}/versions", operations.versions, Need.LOOK, list[VersionStatus]),
        page=True,
    ),
    _route("GET /jobs/{job}/switch", alive.switch_detail, Need.LOOK, SwitchDetail, page=True),
    _route(
        *("POST /jobs/{job}/switch", operations.switch, Need.DEPLOY, JobStatus),
        body=Switching,
        status=202,
        refusals=(409, 422),
    ),
    _route(
        *("DELETE /jobs/{job}/switch", operations.give_up, Need.OPERATE, JobStatus),
        status=202,
        refusals=(409,),
    ),
    _route(
        *("POST /jobs/{job}/switch/plan", operations.plan_switch, Need.DEPLOY, SwitchPlanned),
        body=Switching,
        refusals=(409, 422),
    ),
    _route(
        *("POST /jobs/{job}/settled", operations.settled, Need.OPERATE, JobStatus),
        Parameter("finished", bool, "Whether it has finished, or is drained.", default=False),
        refusals=(409,),
    ),
    _route(
        *("POST /jobs/{job}/missed", operations.missed, Need.OPERATE, JobStatus),
        Parameter("peer", _Name, "The engine that does not answer.", needed=True),
        refusals=(409,),
    ),
    _route(
        *("POST /jobs/{job}/wait", operations.wait, Need.LOOK, JobStatus),
        Parameter("limit", _Limit, "How many seconds to wait at most.", default=30.0),
    ),
    _route(
        *("POST /jobs/{job}/sources/{source}/events", operations.send, Need.SEND, Taken),
        Parameter(
            "Millstream-Sender", _Sender, "The name under which the rows are numbered.", "header"
        ),
        Parameter("Millstream-First-Number", _Number, "The number of the first row.", "header"),
        media=_MEDIA,
        refusals=(409, 422),
        sending=True,
    ),
    _route("GET /actions", operations.actions, Need.LOOK, list[BinaryStatus], page=True),
    _route("GET /actions/{name}", operations.action, Need.LOOK, list[BinaryStatus]),
    _route(
        *("POST /actions/{name}", operations.add_action, Need.DEPLOY, BinaryStatus),
        body=Naming,
        status=201,
    ),
    _route(
        *("DELETE /actions/{name}", operations.remove_action, Need.OPERATE, list[BinaryStatus]),
        Parameter("version", _Version, "One version; all of them if it is left out."),
        refusals=(409,),
    ),
    _route("GET /contents/{sha256}", operations.content, Need.LOOK, Content),
    _route(
        *("POST /contents/{sha256}", operations.send_content, Need.DEPLOY, Content),
        Parameter("offset", _Offset, "Where these bytes begin.", default=0),
        Parameter("bytes", _Size, "How many bytes the whole program has.", needed=True),
        media={OCTETS: _BYTES},
        refusals=(409,),
    ),
    _route(
        *("GET /contents/{sha256}/bytes", operations.read_content, Need.DEPLOY, OCTETS),
        Parameter("offset", _Offset, "Where to begin.", default=0),
        Parameter("limit", _Piece, "How many bytes at most.", default=PIECE_BYTES),
    ),
    _route(
        *("DELETE /contents/{sha256}", operations.drop_content, Need.DEPLOY, Dropped),
        refusals=(409,),
    ),
    _route(
        *("POST /stop", operations.stop, Need.OPERATE, Stopping),
        _FORCE,
        status=202,
        refusals=(409,),
    ),
)

DESCRIPTION: Final = describe(OPERATIONS, version=__version__)
_DOCS: Final = docs_page.page(DESCRIPTION)
