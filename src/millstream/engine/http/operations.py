"""What an engine answers over HTTP.

    GET     /health /ready /engine /metrics /openapi.json
    GET     /jobs    /jobs/{job}    /jobs/{job}/groups, journals, statistics, logs, history
    GET     /actions    /actions/{name}    /contents/{sha256}    /contents/{sha256}/bytes
    POST    /jobs    /prepare    /stop    /actions/{name}    /contents/{sha256}
    POST    /jobs/{job}/drain, resume, wait; between engines begin, settled, missed, runtimes/{node}
    POST    /jobs/{job}/switch    /jobs/{job}/switch/plan
    GET     /jobs/{job}/versions    DELETE /jobs/{job}/switch
    POST    /jobs/{job}/sources/{source}/events
    DELETE  /jobs/{job}    /actions/{name}    /contents/{sha256}

Whatever changes something needs the engine's token. The engine is called in threads, so that one
slow call holds up no other; calls that wait for a job or for room in an inbox have threads of their
own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from millstream import __version__
from millstream.clock import iso
from millstream.engine.http import tail
from millstream.engine.http.api import Api, Asked, Text
from millstream.engine.http.messages import (
    Beginning,
    Deployment,
    Dropped,
    Health,
    JournalStatus,
    Log,
    Naming,
    PartitionStatus,
    Preparation,
    ReaderStatus,
    Ready,
    Sha256,
    Stopping,
    Switching,
    SwitchPlanned,
)
from millstream.engine.http.metrics import CONTENT_TYPE
from millstream.engine.http.openapi import OCTETS, Operation, Parameter, describe
from millstream.engine.inboxes import intake
from millstream.engine.inboxes.intake import Numbering, Taken
from millstream.engine.jobs.folders import Folders
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.status import (
    BinaryStatus,
    EngineStatus,
    GroupStatus,
    Happening,
    JobStatus,
    Prepared,
    VersionStatus,
)
from millstream.engine.jobs.store import Binary
from millstream.engine.programs.contents import MOST_BYTES, Content
from millstream.engine.schemes.guests import GuestOrder, GuestStatus
from millstream.errors import NotThere, RequestRefused
from millstream.flow.binary import NAME
from millstream.journal.health import Summary

#: The most bytes of a program in one answer.
PIECE_BYTES: Final = 8 << 20


# operations


def health(api: Api, asked: Asked) -> Health:  # noqa: ARG001 (all operations are called alike)
    """Tell whether the engine answers at all."""
    return Health()


def ready(api: Api, asked: Asked) -> Ready:  # noqa: ARG001
    """Tell whether the engine can take jobs and events; 503 if not."""
    return Ready(ready=not api.stopping, jobs=len(api.engine.jobs()))


def engine(api: Api, asked: Asked) -> EngineStatus:  # noqa: ARG001
    """Return which node this engine is, and where its inboxes are."""
    return api.about()


def metrics(api: Api, asked: Asked) -> Text:  # noqa: ARG001
    """Return the engine's numbers for Prometheus."""
    return Text(api.metrics.text(), CONTENT_TYPE)


def openapi(api: Api, asked: Asked) -> dict[str, Any]:  # noqa: ARG001
    """Return this description."""
    return DESCRIPTION


def jobs(api: Api, asked: Asked) -> list[JobStatus]:  # noqa: ARG001
    """List the jobs that are deployed."""
    return api.engine.jobs()


def deploy(api: Api, asked: Asked) -> JobStatus:
    """Deploy a flow on this engine alone."""
    given: Deployment = asked.body
    return api.engine.deploy(given.package, name=given.name, root=given.root, options=given.options)


def prepare(api: Api, asked: Asked) -> Prepared:
    """Make a job ready on one engine of several; it runs when all of them `begin`."""
    given: Preparation = asked.body
    return api.engine.prepare(
        given.package,
        name=given.name,
        root=given.root,
        options=given.options,
        binaries=given.binaries,
    )


def begin(api: Api, asked: Asked) -> JobStatus:
    """Begin a job that was prepared."""
    given: Beginning = asked.body
    return api.engine.begin(asked.job, given.places, driver=given.driver, engines=given.engines)


def host(api: Api, asked: Asked) -> GuestStatus:
    """Start, end, drain or ask the runtime of a node, for the engine that has the job's driver."""
    return api.engine.host(asked.job, asked.values["node"], asked.body)


def job(api: Api, asked: Asked) -> JobStatus:
    """Return a job as it is now."""
    return api.engine.status(asked.job)


def groups(api: Api, asked: Asked) -> Sequence[GroupStatus]:
    """Return the numbers of a job's groups."""
    return api.engine.status(asked.job).groups


def journals(api: Api, asked: Asked) -> list[JournalStatus]:
    """Return a job's journals on this engine, in numbers."""
    return [_journal(one) for one in api.engine.journals(asked.job)]


def statistics(api: Api, asked: Asked) -> dict[str, Any]:
    """Return the numbers that the job's driver reported last."""
    return api.engine.statistics(asked.job)


def logs(api: Api, asked: Asked) -> Log:
    """Return the last lines of a job's log, or those after a place in it."""
    log = Folders(api.engine.data).log(api.engine.status(asked.job).name)
    after = asked.values["after"]
    lines, place = (
        tail.last(log, asked.values["lines"]) if after is None else tail.since(log, after)
    )
    return Log(lines, place)


def history(api: Api, asked: Asked) -> list[Happening]:
    """Return what has happened to a job, oldest first."""
    return api.engine.history(asked.job)


def drain(api: Api, asked: Asked) -> JobStatus:
    """Have a job take nothing more and process what it has; with `flush` it ends permanently."""
    return api.engine.drain(asked.job, flush=asked.values["flush"])


def resume(api: Api, asked: Asked) -> JobStatus:
    """Have a drained or failed job go on."""
    return api.engine.resume(asked.job)


def plan_switch(api: Api, asked: Asked) -> SwitchPlanned:
    """Return what a switch to another version would do, or what prevents it; nothing changes."""
    given: Switching = asked.body
    found = api.engine.plan_switch(asked.job, given.request())
    return SwitchPlanned(found.plan, found.text)


def switch(api: Api, asked: Asked) -> JobStatus:
    """Begin to replace the running version of a job; its status shows the progress."""
    given: Switching = asked.body
    return api.engine.switch(asked.job, given.request())


def give_up(api: Api, asked: Asked) -> JobStatus:
    """Abort a switch before its cut: the old version runs on."""
    return api.engine.abort_switch(asked.job)


def versions(api: Api, asked: Asked) -> list[VersionStatus]:
    """Return the versions of a job, oldest first, each with the switch that led to it."""
    return api.engine.versions(asked.job)


def settled(api: Api, asked: Asked) -> JobStatus:
    """Settle a job whose driver, on another engine, is done."""
    state = JobState.FINISHED if asked.values["finished"] else JobState.DRAINED
    return api.engine.settled(asked.job, state)


def missed(api: Api, asked: Asked) -> JobStatus:
    """Drain a job without another of its engines, which does not answer."""
    return api.engine.missed(asked.job, asked.values["peer"])


async def wait(api: Api, asked: Asked) -> JobStatus:
    """Wait until a job has finished, drained or failed, or the limit is over; return it."""
    return await api.wait(asked)


def undeploy(api: Api, asked: Asked) -> JobStatus:
    """Remove a job that is finished, drained or failed; by force any job.

    Force loses what is not processed. Its journals stay for a later deployment under the same
    name, unless they are purged.
    """
    return api.engine.undeploy(asked.job, force=asked.values["force"], purge=asked.values["purge"])


def stop(api: Api, asked: Asked) -> Stopping:
    """Stop the engine; refused while jobs run, unless by force: they go on at the next start."""
    api.engine.stop(force=asked.values["force"])
    api.stopping = True
    api.stop()
    return Stopping()


def send(api: Api, asked: Asked) -> Taken:
    """Put events into a source's journal; they are durable when this is answered.

    A line that is no row becomes a dead letter and stops no other. With a sender and the number of
    its first row, a request whose answer was lost can be repeated: what is there already is counted
    and not stored again. The requests of one sender come one after the other, with rising numbers.
    """
    source = asked.values["source"]
    numbering = _numbering(
        asked.values["Millstream-Sender"], asked.values["Millstream-First-Number"]
    )

    def take(name: str) -> Taken:
        return api.intake.take(
            f"{name}.{source}", asked.media, asked.body, numbering, timeout=api.limits.room_seconds
        )

    try:
        return take(asked.job)
    except NotThere:
        # It may be the job's id; if there is no such job, that is the answer.
        name = api.engine.status(asked.job).name
        if name == asked.job:
            raise
        return take(name)


def actions(api: Api, asked: Asked) -> list[BinaryStatus]:  # noqa: ARG001
    """List the programs that the engine keeps: all versions, by name, oldest first."""
    return _listed(api, api.engine.binaries.all())


def action(api: Api, asked: Asked) -> list[BinaryStatus]:
    """Return all versions of a program, oldest first."""
    return _listed(api, api.engine.binaries.versions(asked.values["name"]))


def add_action(api: Api, asked: Asked) -> BinaryStatus:
    """Give a name to bytes that were sent: a new version, unless the newest is the same."""
    (added,) = _listed(api, [api.engine.binaries.add(asked.values["name"], asked.body.sha256)])
    return added


def remove_action(api: Api, asked: Asked) -> list[BinaryStatus]:
    """Forget a version of a program, or all of them; refused while a job runs one."""
    return _listed(api, api.engine.remove_binary(asked.values["name"], asked.values["version"]))


def content(api: Api, asked: Asked) -> Content:
    """Tell how many bytes of a program are here."""
    return api.engine.binaries.contents.status(asked.values["sha256"])


def send_content(api: Api, asked: Asked) -> Content:
    """Take bytes of a program, from an offset on; with the last of them the whole is checked.

    Bytes that come again change nothing: a request whose answer was lost can be repeated.
    """
    given, contents = asked.values, api.engine.binaries.contents
    return contents.receive(
        given["sha256"], asked.body, offset=given["offset"], total=given["bytes"]
    )


def read_content(api: Api, asked: Asked) -> Text:
    """Return bytes of a program, from an offset on; none at its end."""
    given = asked.values
    data = api.engine.binaries.contents.read(given["sha256"], given["offset"], given["limit"])
    return Text(data, OCTETS)


def drop_content(api: Api, asked: Asked) -> Dropped:
    """Forget bytes that have no name here; refused while a job runs them."""
    api.engine.drop_content(asked.values["sha256"])
    return Dropped(asked.values["sha256"])


def _listed(api: Api, found: Sequence[Binary]) -> list[BinaryStatus]:
    users = api.engine.users()
    return [
        BinaryStatus(
            one.name,
            one.version,
            one.sha256,
            one.bytes,
            iso(one.added_at),
            users.get(one.sha256, []),
        )
        for one in found
    ]


def _numbering(sender: str | None, first: int | None) -> Numbering | None:
    if sender is None and first is None:
        return None
    if sender is None or first is None:
        raise RequestRefused(
            "a sender has a name and numbers its rows",
            hint="give both Millstream-Sender and Millstream-First-Number, or neither",
        )
    return Numbering(sender, first)


def _journal(found: Summary) -> JournalStatus:
    partitions = [
        msgspec.convert(one, PartitionStatus, from_attributes=True) for one in found.partitions
    ]
    readers = [
        ReaderStatus(one.reader, {str(number): at for number, at in one.positions.items()}, one.lag)
        for one in found.readers
    ]
    return JournalStatus(
        found.path.name,
        found.written_by,
        found.time,
        found.columns,
        found.rows,
        found.bytes,
        partitions,
        readers,
        found.dead,
    )


# the table

_Name = Annotated[str, Meta(min_length=1, max_length=256)]
_Lines = Annotated[int, Meta(ge=1, le=10_000)]
_After = Annotated[str, Meta(pattern="^([0-9]{1,20}:[0-9]{1,20})?$")]
_Limit = Annotated[float, Meta(ge=0, le=60)]
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
    Operation("GET", "/health", health, Health),
    Operation("GET", "/ready", ready, Ready),
    Operation("GET", "/engine", engine, EngineStatus),
    Operation("GET", "/metrics", metrics, "text/plain"),
    Operation("GET", "/openapi.json", openapi, dict[str, Any]),
    Operation("GET", "/jobs", jobs, list[JobStatus]),
    Operation("POST", "/jobs", deploy, JobStatus, body=Deployment, status=201, refusals=(409, 422)),
    Operation(
        "POST", "/prepare", prepare, Prepared, body=Preparation, status=201, refusals=(409, 422)
    ),
    Operation("GET", "/jobs/{job}", job, JobStatus, (_JOB,)),
    Operation(
        "DELETE",
        "/jobs/{job}",
        undeploy,
        JobStatus,
        (
            _JOB,
            _FORCE,
            Parameter("purge", bool, "Remove its journals and checkpoints too.", default=False),
        ),
        refusals=(409,),
    ),
    Operation(
        "POST", "/jobs/{job}/begin", begin, JobStatus, (_JOB,), body=Beginning, refusals=(409, 422)
    ),
    Operation(
        "POST",
        "/jobs/{job}/runtimes/{node}",
        host,
        GuestStatus,
        (_JOB, Parameter("node", _Name, "A node of the job's scheme.", "path")),
        body=GuestOrder,
        refusals=(409, 422),
    ),
    Operation("GET", "/jobs/{job}/groups", groups, list[GroupStatus], (_JOB,)),
    Operation("GET", "/jobs/{job}/journals", journals, list[JournalStatus], (_JOB,)),
    Operation("GET", "/jobs/{job}/statistics", statistics, dict[str, Any], (_JOB,)),
    Operation("GET", "/jobs/{job}/history", history, list[Happening], (_JOB,)),
    Operation(
        "GET",
        "/jobs/{job}/logs",
        logs,
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
        drain,
        JobStatus,
        (
            _JOB,
            Parameter(
                "flush", bool, "End the job: its sources end and open windows close.", default=False
            ),
        ),
        refusals=(409,),
    ),
    Operation("POST", "/jobs/{job}/resume", resume, JobStatus, (_JOB,), refusals=(409,)),
    Operation("GET", "/jobs/{job}/versions", versions, list[VersionStatus], (_JOB,)),
    Operation(
        "POST",
        "/jobs/{job}/switch",
        switch,
        JobStatus,
        (_JOB,),
        body=Switching,
        status=202,
        refusals=(409, 422),
    ),
    Operation(
        "DELETE", "/jobs/{job}/switch", give_up, JobStatus, (_JOB,), status=202, refusals=(409,)
    ),
    Operation(
        "POST",
        "/jobs/{job}/switch/plan",
        plan_switch,
        SwitchPlanned,
        (_JOB,),
        body=Switching,
        refusals=(409, 422),
    ),
    Operation(
        "POST",
        "/jobs/{job}/settled",
        settled,
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
        missed,
        JobStatus,
        (_JOB, Parameter("peer", _Name, "The engine that does not answer.", needed=True)),
        refusals=(409,),
    ),
    Operation(
        "POST",
        "/jobs/{job}/wait",
        wait,
        JobStatus,
        (_JOB, Parameter("limit", _Limit, "How many seconds to wait at most.", default=30.0)),
    ),
    Operation(
        "POST",
        "/jobs/{job}/sources/{source}/events",
        send,
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
    Operation("GET", "/actions", actions, list[BinaryStatus]),
    Operation("GET", "/actions/{name}", action, list[BinaryStatus], (_ACTION,)),
    Operation(
        "POST", "/actions/{name}", add_action, BinaryStatus, (_ACTION,), body=Naming, status=201
    ),
    Operation(
        "DELETE",
        "/actions/{name}",
        remove_action,
        list[BinaryStatus],
        (_ACTION, Parameter("version", _Version, "One version; all of them if it is left out.")),
        refusals=(409,),
    ),
    Operation("GET", "/contents/{sha256}", content, Content, (_CONTENT,)),
    Operation(
        "POST",
        "/contents/{sha256}",
        send_content,
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
        read_content,
        OCTETS,
        (
            _CONTENT,
            Parameter("offset", _Offset, "Where to begin.", default=0),
            Parameter("limit", _Piece, "How many bytes at most.", default=PIECE_BYTES),
        ),
        private=True,
    ),
    Operation("DELETE", "/contents/{sha256}", drop_content, Dropped, (_CONTENT,), refusals=(409,)),
    Operation("POST", "/stop", stop, Stopping, (_FORCE,), status=202, refusals=(409,)),
)

DESCRIPTION: Final = describe(OPERATIONS, version=__version__)
