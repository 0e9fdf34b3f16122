"""What an engine answers over HTTP.

    GET     /health /ready /engine /metrics /openapi.json
    GET     /jobs    /jobs/{job}    /jobs/{job}/groups, journals, statistics, logs, history
    GET     /actions    /actions/{name}    /contents/{sha256}    /contents/{sha256}/bytes
    POST    /jobs    /prepare    /stop    /actions/{name}    /contents/{sha256}
    POST    /jobs/{job}/drain, resume, wait    and, between engines, begin, settled, missed, runtimes/{node}
    POST    /jobs/{job}/switch    /jobs/{job}/switch/plan    GET /jobs/{job}/versions    DELETE /jobs/{job}/switch
    POST    /jobs/{job}/sources/{source}/events
    DELETE  /jobs/{job}    /actions/{name}    /contents/{sha256}

Whatever changes something needs the engine's token. The engine is called in threads, so that one
slow call holds up no other; calls that wait for a job or for room in an inbox have threads of their
own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Protocol

import anyio
import anyio.to_thread
import msgspec
from msgspec import Meta

from millstream import __version__
from millstream.clock import iso
from millstream.engine.http import tail
from millstream.engine.http.limits import RequestLimits
from millstream.engine.http.metrics import CONTENT_TYPE, Metrics
from millstream.engine.http.openapi import OCTETS, Operation, Parameter, describe
from millstream.engine.inboxes import intake
from millstream.engine.inboxes.intake import Intake, Numbering, Taken
from millstream.engine.jobs.folders import Folders
from millstream.engine.jobs.lifecycle import SETTLED, JobState
from millstream.engine.jobs.status import (
    BinaryStatus,
    EngineStatus,
    GroupStatus,
    Happening,
    JobStatus,
    Peer,
    Place,
    Prepared,
    VersionStatus,
)
from millstream.engine.jobs.store import Binary
from millstream.engine.jobs.switch_record import Planned
from millstream.engine.programs.binaries import Binaries
from millstream.engine.programs.contents import MOST_BYTES, SHA256, Content
from millstream.engine.schemes.guests import GuestOrder, GuestStatus
from millstream.errors import NotThere, RequestRefused, SwitchRefused
from millstream.flow.binary import NAME
from millstream.journal.health import Summary
from millstream.links.keys import KeyPair
from millstream.links.network import Address
from millstream.switch.cut import WHOLE, parts
from millstream.switch.probation import Limits as ProbationLimits
from millstream.switch.probation import Trial
from millstream.switch.request import TIMEOUT, SwitchRequest

_SLICE_S: Final = 1.0
_THREADS: Final = 32
_SENDING: Final = 16
#: The most bytes of a program in one answer.
PIECE_BYTES: Final = 8 << 20


class Served(Protocol):
    """What the API asks of an engine; see `engine.Engine`."""

    node: int
    of: int
    data: Path

    @property
    def address(self) -> Address: ...
    def deploy(
        self, package: bytes, *, name: str | None, root: str | None, options: dict[str, Any]
    ) -> JobStatus: ...
    def prepare(
        self,
        package: bytes,
        *,
        name: str | None,
        root: str | None,
        options: dict[str, Any],
        binaries: dict[str, str] | None,
    ) -> Prepared: ...
    def begin(
        self, job: str, places: dict[str, list[Place]], *, driver: bool, engines: list[Peer]
    ) -> JobStatus: ...
    def host(self, job: str, node: str, order: GuestOrder) -> GuestStatus: ...
    def jobs(self) -> list[JobStatus]: ...
    def status(self, job: str) -> JobStatus: ...
    def wait(self, job: str, timeout: float | None) -> JobStatus: ...
    def history(self, job: str) -> list[Happening]: ...
    def statistics(self, job: str) -> dict[str, Any]: ...
    def journals(self, job: str) -> list[Summary]: ...
    def drain(self, job: str, *, flush: bool) -> JobStatus: ...
    def resume(self, job: str) -> JobStatus: ...
    def settled(self, job: str, state: JobState) -> JobStatus: ...
    def missed(self, job: str, peer: str) -> JobStatus: ...
    def undeploy(self, job: str, *, force: bool, purge: bool) -> JobStatus: ...
    def stop(self, *, force: bool) -> None: ...
    def plan_switch(self, job: str, request: SwitchRequest) -> Planned: ...
    def switch(self, job: str, request: SwitchRequest) -> JobStatus: ...
    def abort_switch(self, job: str) -> JobStatus: ...
    def versions(self, job: str) -> list[VersionStatus]: ...
    @property
    def binaries(self) -> Binaries: ...
    def users(self) -> dict[str, list[str]]: ...
    def remove_binary(self, name: str, version: int | None) -> list[Binary]: ...
    def drop_content(self, sha256: str) -> None: ...


# what goes in and out


Sha256 = Annotated[str, Meta(pattern=SHA256)]
_BASE64: Final = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


class Deployment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A flow to deploy: what `millstream.engine.jobs.package` has packed, in base64.

    `root` is the folder that the flow's paths count from, if it is there on the engine's host.
    """

    package: Annotated[bytes, Meta(extra_json_schema={"pattern": _BASE64})]
    name: (
        Annotated[str, Meta(min_length=1, max_length=128, pattern="^[A-Za-z][A-Za-z0-9_-]*$")]
        | None
    ) = None
    root: str | None = None
    options: dict[str, Any] = {}


class Preparation(Deployment, frozen=True, forbid_unknown_fields=True):
    """A flow to make ready; `binaries` is the content (SHA-256) of the programs that it names, as node 0 has told."""

    binaries: dict[str, Sha256] | None = None


class Beginning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the inboxes of a prepared job are, one for each partition of each source; whether its driver runs here.

    `engines` are all engines of the cluster, by their nodes.
    """

    places: dict[str, list[Place]]
    driver: bool = True
    engines: list[Peer] = []


class Naming(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bytes that get a name."""

    sha256: Sha256


class Probation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a new version is watched, what it may do meanwhile, and whether the old one comes back if it does more."""

    seconds: Annotated[float, Meta(gt=0, le=7 * 86_400)]
    back: bool = False
    errors: Annotated[float, Meta(ge=0, le=1_000)] = 0
    dead_letters: Annotated[float, Meta(ge=0, le=1e15)] = 100
    lag_seconds: Annotated[float, Meta(ge=0, le=7 * 86_400)] = 60.0


class Switching(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The version that is to take the place of the one that runs: a package, as for a deployment, or the version before it.

    With a `share` the package gets the results of that part of the keys; without a package the new
    version gets another share. `consent` names stages whose state may be lost, and outputs whose
    results may be repeated. With `since` what starts there or later is processed again. After
    `limit` seconds without a cut the switch is aborted. With `shadow` it only runs for so many
    seconds in the shadow of the one that runs, and is compared with it.
    """

    package: Annotated[bytes, Meta(extra_json_schema={"pattern": _BASE64})] | None = None
    back: bool = False
    root: str | None = None
    consent: list[str] = []
    limit: Annotated[float, Meta(gt=0, le=86_400)] = TIMEOUT.total_seconds()
    since: Annotated[datetime, Meta(tz=True)] | None = None
    probation: Probation | None = None
    shadow: Annotated[float, Meta(gt=0, le=7 * 86_400)] | None = None
    share: Annotated[float, Meta(ge=1 / WHOLE, le=1)] | None = None

    def request(self) -> SwitchRequest:
        """Return what an engine is asked for.

        Raises:
            SwitchRefused: It is neither a package, nor another share, nor the way back, or more
                than one of them.
        """
        if self.back == (self.package is not None or self.share is not None):
            hint = 'give "package", or "share", or both; or "back": true'
            raise SwitchRefused("a switch is to a package, to another share, or back", hint=hint)
        if self.shadow is not None and self.back:
            raise SwitchRefused("a version in the shadow is a package", hint='give "package"')
        trial = None
        if (given := self.probation) is not None:
            limits = ProbationLimits(int(given.errors), int(given.dead_letters), given.lag_seconds)
            trial = Trial(given.seconds, limits, given.back)
        return SwitchRequest(
            package=self.package,
            root=self.root,
            share=None if self.share is None else parts(self.share),
            consent=tuple(self.consent),
            since=self.since,
            shadow=self.shadow is not None,
            duration=None if self.shadow is None else timedelta(seconds=self.shadow),
            timeout=timedelta(seconds=self.limit),
            trial=trial,
        )


class SwitchPlanned(msgspec.Struct, frozen=True):
    """What a switch would do: as data, and as people read it."""

    plan: dict[str, Any]
    text: str


class Health(msgspec.Struct, frozen=True):
    """An engine that answers."""

    status: str = "up"


class Ready(msgspec.Struct, frozen=True):
    """An engine that can take jobs and events."""

    ready: bool
    jobs: int


class Log(msgspec.Struct, frozen=True):
    """Lines of a job's log; `next` is the place after them."""

    lines: list[str]
    next: str


class Stopping(msgspec.Struct, frozen=True):
    """An engine that ends once this is answered."""

    stopping: bool = True


class Dropped(msgspec.Struct, frozen=True):
    """Bytes that are not here any more."""

    sha256: str


class PartitionStatus(msgspec.Struct, frozen=True):
    """A partition of a journal on this engine."""

    partition: int
    begin: int
    end: int
    rows: int
    bytes: int
    segments: int
    ended: bool
    lost: int


class ReaderStatus(msgspec.Struct, frozen=True):
    """A reader of a journal and how far behind it is."""

    reader: str
    positions: dict[str, int]
    lag: int


class JournalStatus(msgspec.Struct, frozen=True):
    """A journal in numbers."""

    name: str
    written_by: str
    time: str | None
    columns: dict[str, str]
    rows: int
    bytes: int
    partitions: list[PartitionStatus]
    readers: list[ReaderStatus]
    dead: dict[str, int]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, read and checked: all parameters by name, and the body."""

    values: dict[str, Any]
    body: Any = None
    media: str = ""

    @property
    def job(self) -> str:
        return str(self.values["job"])


@dataclass(frozen=True, slots=True)
class Text:
    """An answer that is not JSON."""

    body: bytes
    media: str


class Api:
    """An engine, as it is asked over HTTP. The event loop's thread calls `answer`, nothing else."""

    def __init__(
        self,
        engine: Served,
        about: Callable[[int], EngineStatus],
        *,
        limits: RequestLimits,
        stop: Callable[[], None],
        keys: KeyPair | None = None,
    ) -> None:
        self.engine = engine
        self.limits = limits
        self.stop = stop
        self.stopping = False
        self._about = about
        self.intake = Intake(lambda: engine.address, keys=keys, at_once=_SENDING)
        self.metrics = Metrics(self.about, engine.jobs, engine.journals)
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._sending = anyio.CapacityLimiter(_SENDING)
        self._waiting = anyio.CapacityLimiter(limits.waiting)

    def about(self) -> EngineStatus:
        return self._about(len(self.engine.jobs()))

    async def answer(self, operation: Operation, asked: Asked) -> Any:
        """Do what was asked and return the answer.

        Raises:
            MillstreamError: It cannot be done.
        """
        if inspect.iscoroutinefunction(operation.call):
            return await operation.call(self, asked)  # it waits without a thread of its own
        limiter = self._sending if operation.call is send else self._threads
        return await anyio.to_thread.run_sync(operation.call, self, asked, limiter=limiter)

    async def wait(self, asked: Asked) -> JobStatus:
        """Wait until a job has settled, the limit is over or the engine stops."""
        until = anyio.current_time() + asked.values["limit"]
        while True:
            # In slices: an engine that stops need not wait for those who wait.
            slice_s = max(0.0, min(_SLICE_S, until - anyio.current_time()))
            status = await anyio.to_thread.run_sync(
                self.engine.wait, asked.job, slice_s, limiter=self._waiting
            )
            settled = status.state in SETTLED or status.state is JobState.UNDEPLOYED
            if settled or self.stopping or anyio.current_time() >= until:
                return status


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
    """Make a job ready on one engine of several; it runs once all of them are told to begin."""
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
    """Have a job take nothing more and process what it has; with `flush` it ends, for good."""
    return api.engine.drain(asked.job, flush=asked.values["flush"])


def resume(api: Api, asked: Asked) -> JobStatus:
    """Have a drained or failed job go on."""
    return api.engine.resume(asked.job)


def plan_switch(api: Api, asked: Asked) -> SwitchPlanned:
    """Say what a switch of a job to another version would do, and what makes it impossible; nothing is touched."""
    given: Switching = asked.body
    found = api.engine.plan_switch(asked.job, given.request())
    return SwitchPlanned(found.plan, found.text)


def switch(api: Api, asked: Asked) -> JobStatus:
    """Begin to put another version of a job in the place of the one that runs; the job's status tells how that goes."""
    given: Switching = asked.body
    return api.engine.switch(asked.job, given.request())


def give_up(api: Api, asked: Asked) -> JobStatus:
    """Abort a switch before its cut: the old version runs on."""
    return api.engine.abort_switch(asked.job)


def versions(api: Api, asked: Asked) -> list[VersionStatus]:
    """Return the versions of a job, oldest first, each with the switch that led to it."""
    return api.engine.versions(asked.job)


def settled(api: Api, asked: Asked) -> JobStatus:
    """Hear, on an engine without the job's driver, that the driver is done."""
    state = JobState.FINISHED if asked.values["finished"] else JobState.DRAINED
    return api.engine.settled(asked.job, state)


def missed(api: Api, asked: Asked) -> JobStatus:
    """Hear that another engine of a job that drains does not answer: it is not waited for."""
    return api.engine.missed(asked.job, asked.values["peer"])


async def wait(api: Api, asked: Asked) -> JobStatus:
    """Wait until a job has finished, is drained or has failed, or the limit is over; return it as it is then."""
    return await api.wait(asked)


def undeploy(api: Api, asked: Asked) -> JobStatus:
    """Remove a job that is finished, drained or failed; by force any, which loses what it has not processed.

    Its journals stay for a later deployment under the same name, unless they are purged.
    """
    return api.engine.undeploy(asked.job, force=asked.values["force"], purge=asked.values["purge"])


def stop(api: Api, asked: Asked) -> Stopping:
    """Stop the engine; refused while jobs run, unless by force. They go on when it is started again."""
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
        name = api.engine.status(
            asked.job
        ).name  # it may be the job's id; or there is no such job, which is told
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
                "after", _After, 'A place in the log, as "next" told it: all lines after it.'
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
